//! What must be true of the broker, kept as simply as possible: sets and maps by message number.

use super::CHANNELS;
use engine_core::TaskId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::id::MessageId;

/// A topic and one of its channels, by their places in the lists of names.
pub(crate) type Place = (usize, usize);

/// --msg-timeout and --max-msg-timeout: defaults of both programs.
const TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT_MAX: Duration = Duration::from_secs(15 * 60);

/// What the model knows of one message.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tracked {
    pub(crate) topic: usize,
    pub(crate) body: Vec<u8>,
    pub(crate) acknowledged: bool,
    /// Durable channels that must get it, once it is acknowledged.
    pub(crate) owed: BTreeSet<usize>,
    /// DPUB: on no channel before this.
    pub(crate) due: Duration,
    /// The task whose deletion of the topic includes this message.
    deleted_by: Option<TaskId>,
    /// That deletion was answered: the message does not come any more.
    is_gone: bool,
}

/// Who has a message in flight.
#[derive(Debug, Clone, Copy)]
struct Held {
    peer: usize,
    delivered: Duration,
    /// Until then it is nobody else's; afterwards it may be.
    until: Duration,
}

/// One delivery as a peer saw it.
pub(crate) struct Delivered<'a> {
    pub(crate) place: Place,
    pub(crate) peer: usize,
    pub(crate) number: u64,
    pub(crate) body: &'a [u8],
    pub(crate) attempts: u16,
    /// RDY in force.
    pub(crate) ready: u32,
    /// The peer reads late: what it reads may be old news.
    pub(crate) is_late: bool,
}

/// The model.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) messages: Vec<Tracked>,
    /// Durable channels that exist for certain: their SUB was answered.
    pub(crate) channels: BTreeSet<Place>,
    /// Channels on which sampling has thrown messages away.
    pub(crate) sampled: BTreeSet<Place>,
    /// Topics whose log takes no more messages since a sync failed, with a number for that failure.
    pub(crate) poisoned: BTreeMap<usize, u64>,
    held: BTreeMap<(Place, u64), Held>,
    /// Finished for certain, since the last kill.
    finished: BTreeSet<(Place, u64)>,
    /// Requeued with a deferral: not before this.
    due: BTreeMap<(Place, u64), Duration>,
    deliveries: BTreeMap<(Place, u64), u16>,
    /// Messages below this number were there before the last kill: attempts are not known.
    exact_from: u64,
    /// Where a peer may have been sent what it never read.
    late: BTreeSet<Place>,
    /// Per channel: finished messages, and what it owed before the count began.
    ledger: BTreeMap<Place, (u64, i64)>,
    /// Where the ledger does not hold: sampling, or answers whose fate is not known.
    unsure: BTreeSet<Place>,
}

impl Model {
    /// A publish is about to be sent.
    pub(crate) fn track(&mut self, topic: usize, body: Vec<u8>) {
        // Channels that come later may get it, too; these must.
        let owed = self
            .channels
            .iter()
            .filter(|(t, _)| *t == topic)
            .map(|(_, c)| *c)
            .collect();
        self.messages.push(Tracked {
            topic,
            body,
            owed,
            ..Tracked::default()
        });
    }

    /// A peer holds a message for certain.
    fn holds(&self, key: (Place, u64), peer: usize, now: Duration) -> bool {
        self.held
            .get(&key)
            .is_some_and(|held| held.peer == peer && held.until > now)
    }

    /// FIN was carried out. True when it must have succeeded.
    pub(crate) fn finish(&mut self, place: Place, number: u64, peer: usize, now: Duration) -> bool {
        let key = (place, number);
        let is_sure = self.holds(key, peer, now);
        self.messages[number as usize].owed.remove(&place.1);
        if is_sure {
            self.held.remove(&key);
            self.finished.insert(key);
            self.ledger.entry(place).or_default().0 += 1;
        } else {
            self.unsure.insert(place);
        }
        is_sure
    }

    /// REQ was carried out. True when it must have succeeded.
    pub(crate) fn requeue(
        &mut self,
        place: Place,
        number: u64,
        peer: usize,
        now: Duration,
        wait: Duration,
    ) -> bool {
        let key = (place, number);
        let is_sure = self.holds(key, peer, now);
        if is_sure {
            self.held.remove(&key);
            self.due.insert(key, now + wait);
        }
        is_sure
    }

    /// TOUCH was carried out. True when it must have succeeded.
    pub(crate) fn touch(&mut self, place: Place, number: u64, peer: usize, now: Duration) -> bool {
        let key = (place, number);
        let is_sure = self.holds(key, peer, now);
        if is_sure && let Some(held) = self.held.get_mut(&key) {
            held.until = (now + TIMEOUT).min(held.delivered + TIMEOUT_MAX);
        }
        is_sure
    }

    /// A peer got a message. Returns whether it had timed out before.
    pub(crate) fn deliver(&mut self, delivered: &Delivered<'_>, now: Duration) -> bool {
        let Delivered {
            place,
            peer,
            number,
            attempts,
            ..
        } = *delivered;
        let key = (place, number);
        let tracked = self
            .messages
            .get(number as usize)
            .expect("a message that somebody published");
        assert_eq!(tracked.topic, place.0, "a message stays in its topic");
        assert_eq!(tracked.body, delivered.body, "byte for byte");
        assert!(attempts >= 1);
        assert!(
            !tracked.is_gone || delivered.is_late,
            "{number} was deleted with its topic"
        );
        assert!(
            tracked.due <= now,
            "{number} is early by {:?}",
            tracked.due - now
        );
        let sent = self.deliveries.entry(key).or_default();
        *sent += 1;
        if delivered.is_late {
            self.late.insert(place);
            return false;
        }
        assert!(
            !self.finished.contains(&key),
            "finished messages stay away: {number}"
        );
        if let Some(due) = self.due.remove(&key) {
            assert!(
                due <= now,
                "{number} was deferred and is early by {:?}",
                due - now
            );
        }
        if number >= self.exact_from {
            if self.late.contains(&place) {
                assert!(attempts >= *sent, "{number}: {attempts} attempts");
            } else {
                assert_eq!(attempts, *sent, "attempts of {number}");
            }
        }
        let before = self.held.insert(
            key,
            Held {
                peer,
                delivered: now,
                until: now + TIMEOUT,
            },
        );
        assert!(
            before.is_none_or(|held| held.until <= now),
            "a message has one holder at a time: {number} was held until {before:?}, now {now:?}"
        );
        let range = (place, 0)..(place, u64::MAX);
        let open = self
            .held
            .range(range)
            .filter(|(_, h)| h.peer == peer && h.until > now)
            .count();
        assert!(
            open <= delivered.ready as usize,
            "{open} in flight, RDY {}",
            delivered.ready
        );
        before.is_some()
    }

    /// A peer that may not have read everything is gone.
    pub(crate) fn note_late(&mut self, place: Place) {
        self.late.insert(place);
    }

    /// Everything a channel had is dropped; what it owes from now on counts from `owes`.
    pub(crate) fn empty(&mut self, place: Place) {
        for message in self
            .messages
            .iter_mut()
            .filter(|message| message.topic == place.0)
        {
            message.owed.remove(&place.1);
        }
        self.held.retain(|(p, _), _| *p != place);
        self.due.retain(|(p, _), _| *p != place);
    }

    /// A channel is gone.
    pub(crate) fn delete(&mut self, place: Place) {
        self.empty(place);
        self.channels.remove(&place);
        self.ledger.remove(&place);
        self.unsure.remove(&place);
    }

    /// What waited in a topic is dropped.
    pub(crate) fn empty_topic(&mut self, topic: usize) {
        for message in self
            .messages
            .iter_mut()
            .filter(|message| message.topic == topic)
        {
            message.owed.clear();
        }
    }

    /// A topic is to be deleted with its messages. A message that is on its way may belong to the topic's
    /// successor.
    pub(crate) fn delete_topic(&mut self, topic: usize, task: TaskId) {
        self.empty_topic(topic);
        for message in &mut self.messages {
            if message.topic == topic && message.acknowledged && message.deleted_by.is_none() {
                message.deleted_by = Some(task);
            }
        }
    }

    /// The deletion of a topic is answered, if that is what the task waited for.
    pub(crate) fn note_deleted(&mut self, task: TaskId) {
        for message in &mut self.messages {
            message.is_gone |= message.deleted_by == Some(task);
        }
    }

    /// A deletion was not carried out.
    pub(crate) fn note_undeleted(&mut self) {
        for message in self.messages.iter_mut().filter(|message| !message.is_gone) {
            message.deleted_by = None;
        }
    }

    /// The process was killed: what it knew beyond its files is gone.
    pub(crate) fn kill(&mut self) {
        self.held.clear();
        self.finished.clear();
        self.due.clear();
        self.deliveries.clear();
        self.late.clear();
        self.ledger.clear();
        self.unsure.clear();
        self.poisoned.clear();
        self.exact_from = self.messages.len() as u64;
    }

    /// A channel may be there or not, and so may its messages.
    pub(crate) fn forget_channel(&mut self, place: Place) {
        self.channels.remove(&place);
        let of_topic = |message: &&mut Tracked| message.topic == place.0;
        for message in self.messages.iter_mut().filter(of_topic) {
            message.owed.remove(&place.1);
        }
    }

    /// Acknowledged messages that must reach somebody.
    pub(crate) fn promised_count(&self) -> usize {
        let is_promised = |message: &&Tracked| message.acknowledged && !message.owed.is_empty();
        self.messages.iter().filter(is_promised).count()
    }

    /// A disk has reported lost pages as synced: the only promise left is that delivered bytes are right.
    pub(crate) fn forget_promises(&mut self) {
        for message in &mut self.messages {
            message.owed.clear();
        }
    }

    /// Messages of a topic were reported as damaged.
    pub(crate) fn note_damage(&mut self, topic: usize) {
        self.empty_topic(topic);
        let channels = 0..CHANNELS.len();
        self.unsure.extend(channels.map(|channel| (topic, channel)));
    }

    /// Starts to count what a channel owes: `owes` messages, of `received` counted ones.
    pub(crate) fn open_ledger(&mut self, place: Place, owes: u64, received: u64) {
        self.ledger
            .insert(place, (0, owes as i64 - received as i64));
        self.unsure.remove(&place);
    }

    /// Nothing gets lost or doubled within a channel: what came in is finished or still there.
    pub(crate) fn check_ledger(&self, place: Place, owes: u64, received: u64) -> bool {
        if self.unsure.contains(&place) || self.sampled.contains(&place) {
            return false;
        }
        let (finished, before) = self.ledger.get(&place).copied().unwrap_or_default();
        let expected = before + received as i64 - finished as i64;
        assert_eq!(
            owes as i64, expected,
            "{place:?}: received {received}, finished {finished}"
        );
        true
    }

    /// Every acknowledged message must have reached every channel it is owed to.
    pub(crate) fn check_drained(&self) {
        for (number, message) in self.messages.iter().enumerate() {
            let missing: Vec<&usize> = message
                .owed
                .iter()
                .filter(|channel| !self.sampled.contains(&(message.topic, **channel)))
                .collect();
            assert!(
                !message.acknowledged || missing.is_empty(),
                "message {number} of topic {} was acknowledged and is missing on {missing:?}",
                message.topic
            );
        }
    }
}

/// A command on its way, and what the model does when it is carried out.
#[derive(Debug)]
pub(crate) enum Action {
    Publish(Vec<u64>, Duration),
    Ready(u32),
    Finish(MessageId, u64),
    Requeue(MessageId, u64, Duration),
    Touch(MessageId, u64),
    CloseWait,
    Other,
}
