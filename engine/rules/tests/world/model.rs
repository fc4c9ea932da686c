//! The model of the broker, as simple as possible: sets and maps by message number.

use super::CHANNELS;
use super::dead_letters::{DeadLetters, RULE};
use super::grace::Graces;
use super::numbers::Numbers;
use super::undo::Undos;
use engine_rules::TaskId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::id::MessageId;

/// A topic and one of its channels, by their indexes in the lists of names.
pub(crate) type Place = (usize, usize);

/// --msg-timeout and --max-msg-timeout: the defaults of both programs.
const TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT_MAX: Duration = Duration::from_secs(15 * 60);

/// The model's state of one message.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tracked {
    pub(crate) topic: usize,
    pub(crate) body: Vec<u8>,
    pub(crate) acknowledged: bool,
    /// The durable channels that must get the message once it is acknowledged.
    pub(crate) owed: BTreeSet<usize>,
    /// The channels that must get the message once a copy of it is acknowledged: those of the first
    /// attempt that have neither finished the message nor dropped it.
    pub(crate) eligible: BTreeSet<usize>,
    /// True if a power failure may have taken the message.
    pub(crate) is_lost: bool,
    /// The Unix time of the acknowledgement in nanoseconds. 0 before it.
    pub(crate) acknowledged_ns: u64,
    /// The time before which no channel gets the message, from DPUB.
    pub(crate) due: Duration,
    /// True if the message was sent again, so a copy of it may be on its way.
    was_sent_again: bool,
    /// True if the broker has carried out a publish of the message.
    is_published: bool,
    /// The task whose deletion of the topic includes this message.
    deleted_by: Option<TaskId>,
    /// True when that deletion was answered, after which the message must not arrive.
    is_gone: bool,
    /// True if the message is surely there for a channel that is made in the grace of the topic.
    pub(crate) is_kept: bool,
}

impl Tracked {
    /// Notes that a power failure may have taken the message. A copy that is acknowledged later brings it back.
    pub(crate) fn lose(&mut self) {
        self.owed.clear();
        self.is_kept = false;
        self.is_lost = true;
    }

    /// Notes that the message may be gone for good: a copy counts as a duplicate.
    pub(crate) fn drop_for_good(&mut self) {
        self.lose();
        self.eligible.clear();
    }

    /// Notes that a publish was carried out. Only the first copy that the broker stores counts, and the model does not
    /// know which one that is.
    pub(crate) fn defer_until(&mut self, due: Duration) {
        let is_first = !std::mem::replace(&mut self.is_published, true);
        self.due = if is_first { due } else { self.due.min(due) };
    }

    /// Notes that the message is sent again. If its topic was deleted, the new topic of that name gets the message.
    pub(crate) fn send_again(&mut self) {
        self.was_sent_again = true;
        self.deleted_by = None;
        self.is_gone = false;
    }

    /// Notes that a channel need not get the message any more.
    fn end_debt(&mut self, channel: usize) {
        self.owed.remove(&channel);
        self.eligible.remove(&channel);
    }
}

/// The peer that has a message in flight.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    peer: usize,
    delivered: Duration,
    /// The end of the time in which no other peer gets the message.
    until: Duration,
}

/// One delivery as a peer sees it.
pub(crate) struct Delivered<'a> {
    pub(crate) place: Place,
    pub(crate) peer: usize,
    pub(crate) number: u64,
    pub(crate) body: &'a [u8],
    pub(crate) attempts: u16,
    /// The ready count in force.
    pub(crate) ready: u32,
    /// True if the peer reads late, so that its input may be out of date.
    pub(crate) is_late: bool,
}

/// The expected state of the broker.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) messages: Vec<Tracked>,
    /// The durable channels that certainly exist, because their SUB was answered.
    pub(crate) channels: BTreeSet<Place>,
    /// The channels on which sampling has dropped messages.
    pub(crate) sampled: BTreeSet<Place>,
    /// The topics whose log takes no more messages after a failed sync, with the number of that
    /// failure.
    pub(crate) poisoned: BTreeMap<usize, u64>,
    pub(crate) graces: Graces,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) numbers: Numbers,
    pub(crate) undos: Undos,
    held: BTreeMap<(Place, u64), InFlight>,
    /// The messages that were certainly finished since the last kill.
    pub(super) finished: BTreeSet<(Place, u64)>,
    /// The times before which requeued messages must not arrive.
    due: BTreeMap<(Place, u64), Duration>,
    /// The deliveries since the last kill that count as attempts.
    pub(super) deliveries: BTreeMap<(Place, u64), u16>,
    /// The messages for which it is not known whether a delivery counts.
    pub(super) unsure_attempts: BTreeSet<(Place, u64)>,
    /// Messages below this number existed before the last kill, so their attempts are not known.
    pub(super) exact_from: u64,
    /// The channels on which a peer may not have read everything that it was sent.
    pub(super) late: BTreeSet<Place>,
    /// For each channel, the number of finished messages and the number that it owed before the
    /// count began.
    ledger: BTreeMap<Place, (u64, i64)>,
    /// The channels whose ledger is not exact, because of sampling or of answers whose effect is
    /// not known.
    pub(super) unsure: BTreeSet<Place>,
}

impl Model {
    /// Adds a message whose publish is about to be sent.
    pub(crate) fn track(&mut self, topic: usize, body: Vec<u8>) {
        // These channels must get the message. Later channels may get it too.
        let owed: BTreeSet<usize> = self
            .channels
            .iter()
            .filter(|(t, _)| *t == topic)
            .map(|(_, c)| *c)
            .collect();
        self.messages.push(Tracked {
            topic,
            body,
            eligible: owed.clone(),
            owed,
            is_kept: true,
            ..Tracked::default()
        });
    }

    /// Returns true if this process has stored a message, acknowledged or not.
    pub(crate) fn is_stored(&self, number: u64) -> bool {
        number >= self.exact_from && self.messages[number as usize].is_published
    }

    /// Returns true when a peer certainly has a message in flight.
    fn holds(&self, key: (Place, u64), peer: usize, now: Duration) -> bool {
        self.held
            .get(&key)
            .is_some_and(|held| held.peer == peer && held.until > now)
    }

    /// Notes that the broker carried out a FIN. Returns true when it must have succeeded.
    pub(crate) fn finish(&mut self, place: Place, number: u64, peer: usize, now: Duration) -> bool {
        let key = (place, number);
        let is_sure = self.holds(key, peer, now);
        self.messages[number as usize].end_debt(place.1);
        self.undos.finish(place, number);
        if is_sure {
            self.held.remove(&key);
            self.finished.insert(key);
            self.ledger.entry(place).or_default().0 += 1;
        } else {
            self.unsure.insert(place);
        }
        is_sure
    }

    /// Notes that the broker carried out a REQ. Returns true when it must have succeeded.
    pub(crate) fn requeue(
        &mut self,
        place: Place,
        number: u64,
        peer: usize,
        now: Duration,
        wait: Duration,
        is_counted: bool,
    ) -> bool {
        let key = (place, number);
        let is_sure = self.holds(key, peer, now);
        if is_sure {
            self.held.remove(&key);
            self.due.insert(key, now + wait);
        }
        if !is_counted && is_sure {
            *self.deliveries.entry(key).or_default() -= 1;
        } else if !is_counted {
            // The message may have timed out before, and then its attempt counts.
            self.unsure_attempts.insert(key);
        }
        is_sure
    }

    /// Notes that the broker carried out a TOUCH. Returns true when it must have succeeded.
    pub(crate) fn touch(&mut self, place: Place, number: u64, peer: usize, now: Duration) -> bool {
        let key = (place, number);
        let is_sure = self.holds(key, peer, now);
        if is_sure && let Some(held) = self.held.get_mut(&key) {
            held.until = (now + TIMEOUT).min(held.delivered + TIMEOUT_MAX);
        }
        is_sure
    }

    /// Notes that a peer got a message. Returns true if the message had timed out before.
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
            .expect("the message was published");
        assert_eq!(tracked.topic, place.0, "a message stays in its topic");
        assert_eq!(tracked.body, delivered.body, "byte for byte");
        assert!(attempts >= 1);
        self.dead_letters.check_attempts(place, attempts);
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
        if number >= self.exact_from && !self.unsure_attempts.contains(&key) {
            if self.late.contains(&place) {
                assert!(attempts >= *sent, "{number}: {attempts} attempts");
            } else {
                assert_eq!(attempts, *sent, "attempts of {number}");
            }
        }
        let before = self.held.insert(
            key,
            InFlight {
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

    /// Notes that a peer is gone which may not have read everything.
    pub(crate) fn allow_late(&mut self, place: Place) {
        self.late.insert(place);
    }

    /// Notes that a channel was emptied.
    pub(crate) fn empty(&mut self, place: Place) {
        self.undos.remove(place);
        self.graces.empty(place);
        for message in self
            .messages
            .iter_mut()
            .filter(|message| message.topic == place.0)
        {
            message.end_debt(place.1);
        }
        self.held.retain(|(p, _), _| *p != place);
        self.due.retain(|(p, _), _| *p != place);
    }

    /// Notes that a channel is gone.
    pub(crate) fn delete(&mut self, place: Place) {
        self.empty(place);
        self.channels.remove(&place);
        self.ledger.remove(&place);
        self.unsure.remove(&place);
    }

    /// Notes that the messages of a topic that no channel has yet were dropped.
    pub(crate) fn empty_topic(&mut self, topic: usize) {
        self.undos.drop_waiting(topic);
        for message in self
            .messages
            .iter_mut()
            .filter(|message| message.topic == topic)
        {
            message.drop_for_good();
        }
    }

    /// Notes that a topic with its messages will be deleted. A message on its way may belong to the
    /// topic's successor.
    pub(crate) fn delete_topic(&mut self, topic: usize, task: TaskId) {
        self.empty_topic(topic);
        self.undos.remove_topic(topic);
        self.graces.end(topic);
        // A copy that is sent again is a new message of the next topic of this name.
        self.finished.retain(|(place, _)| place.0 != topic);
        let delivered = self.deliveries.keys();
        let delivered = delivered.filter(|(place, _)| place.0 == topic);
        self.unsure_attempts.extend(delivered.copied());
        for message in &mut self.messages {
            let is_there = message.acknowledged && !message.was_sent_again;
            if message.topic == topic && is_there && message.deleted_by.is_none() {
                message.deleted_by = Some(task);
            }
        }
    }

    /// Notes that the deletion of a topic is answered, if the task waited for one.
    pub(crate) fn confirm_deletion(&mut self, task: TaskId) {
        for message in &mut self.messages {
            message.is_gone |= message.deleted_by == Some(task);
        }
    }

    /// Notes that a deletion was not carried out.
    pub(crate) fn revoke_deletion(&mut self) {
        for message in self.messages.iter_mut().filter(|message| !message.is_gone) {
            message.deleted_by = None;
        }
    }

    /// Notes that the process was killed: only the content of its files is left.
    pub(crate) fn kill(&mut self) {
        self.held.clear();
        self.finished.clear();
        self.due.clear();
        self.deliveries.clear();
        self.unsure_attempts.clear();
        self.late.clear();
        self.ledger.clear();
        self.unsure.clear();
        self.poisoned.clear();
        self.exact_from = self.messages.len() as u64;
    }

    /// Notes that a channel and its messages may or may not exist.
    pub(crate) fn forget_channel(&mut self, place: Place) {
        self.undos.remove(place);
        self.channels.remove(&place);
        let of_topic = |message: &&mut Tracked| message.topic == place.0;
        for message in self.messages.iter_mut().filter(of_topic) {
            message.end_debt(place.1);
        }
    }

    /// Returns the number of acknowledged messages that are owed to some channel.
    pub(crate) fn promised_count(&self) -> usize {
        let is_promised = |message: &&Tracked| message.acknowledged && !message.owed.is_empty();
        self.messages.iter().filter(is_promised).count()
    }

    /// Notes that a disk has reported lost pages as synced. After that, the only promise left is
    /// that delivered bytes are correct.
    pub(crate) fn forget_promises(&mut self) {
        for message in &mut self.messages {
            message.drop_for_good();
        }
    }

    /// Notes that messages of a topic were reported as damaged.
    pub(crate) fn allow_damage(&mut self, topic: usize) {
        self.empty_topic(topic);
        self.undos.allow_damage(topic);
        let channels = 0..CHANNELS.len();
        self.unsure.extend(channels.map(|channel| (topic, channel)));
    }

    /// Starts to count a channel's messages. The channel owes `owes` messages, and `received` were
    /// counted before.
    pub(crate) fn open_ledger(&mut self, place: Place, owes: u64, received: u64) {
        self.ledger
            .insert(place, (0, owes as i64 - received as i64));
        self.unsure.remove(&place);
    }

    /// Checks that a channel loses and doubles no message: each received one is finished or still
    /// owed.
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

    /// Checks that every acknowledged message has reached every channel that it is owed to, or the dead-letter topic.
    /// `left_count` messages wait for a dead-letter topic that refuses them.
    pub(crate) fn check_drained(&self, left_count: u64) {
        let mut left = Vec::new();
        for (number, message) in self.messages.iter().enumerate() {
            let mut missing: Vec<&usize> = message
                .owed
                .iter()
                .filter(|channel| !self.sampled.contains(&(message.topic, **channel)))
                .collect();
            if message.topic == RULE.0 && self.dead_letters.attempts_max.is_some() {
                let is_missing = missing.len();
                missing.retain(|channel| **channel != RULE.1);
                let is_dead = self.dead_letters.seen.contains(&(number as u64));
                if message.acknowledged && missing.len() < is_missing && !is_dead {
                    left.push(number);
                }
            }
            assert!(
                !message.acknowledged || missing.is_empty(),
                "message {number} of topic {} was acknowledged and is missing on {missing:?}",
                message.topic
            );
        }
        assert!(
            left.len() as u64 <= left_count,
            "{left:?} are neither finished nor dead letters, and {left_count} may wait"
        );
    }
}

/// A command on its way. The model applies its effect when the broker carries it out.
#[derive(Debug)]
pub(crate) enum Action {
    Publish(Vec<u64>, Duration),
    /// Messages that were sent before.
    PublishAgain(Vec<u64>),
    Ready(u32),
    Finish(MessageId, u64),
    /// A REQ with its delay, and true if it counts as an attempt.
    Requeue(MessageId, u64, Duration, bool),
    Touch(MessageId, u64),
    Sub,
    CloseWait,
    Other,
}
