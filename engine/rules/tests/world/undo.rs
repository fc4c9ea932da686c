//! The undo of empty, as the model knows it: which messages a channel or topic was emptied of, and whether they must come
//! back.
//!
//! The model does not know which messages a topic keeps. While a topic has an undo, the model owes none of the topic's
//! messages from before the empty. It owes them again after the undo.

use super::at_risk::Risk;
use super::model::{Model, Place};
use super::{CHANNELS, TOPICS, World, is_done, ledgers};
use engine_rules::stats::{StatsFilter, TopicStats};
use engine_rules::{Act, AdminError, NoUndo, Outcome, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Stands for the topic itself in the [`Place`] of an undo.
const WHOLE: usize = CHANNELS.len();

/// The undo of a channel or topic.
#[derive(Debug)]
struct Undo {
    /// The messages that were owed, each with the channels that must get the message after the undo.
    messages: BTreeMap<u64, BTreeSet<usize>>,
    /// The number of messages in the undo of a topic, whoever needs them.
    count: u64,
    until: Duration,
    task: TaskId,
    is_answered: bool,
    /// False if a crash or a full disk may have ended the undo.
    is_sure: bool,
    is_after_crash: bool,
    is_after_power_failure: bool,
    /// True if messages waited in the topic when its channel was emptied. They are not in the channel's undo, and the
    /// model does not know which ones they are.
    has_waiting: bool,
    /// False if some of the messages may be damaged, so that the channel drops them at their delivery.
    is_exact: bool,
}

/// All undos.
#[derive(Debug, Default)]
pub(crate) struct Undos {
    open: BTreeMap<Place, Undo>,
    /// The undos that an operator has used. A crash may bring an undo back before the answer, and a power failure until the
    /// use is synced.
    used: Vec<(TaskId, Place, Undo)>,
}

impl Undos {
    /// Notes that an operator got the answer. Returns the topic of an undo that was used.
    pub(crate) fn answer(&mut self, task: TaskId) -> Option<usize> {
        let answered = self.open.values_mut().filter(|undo| undo.task == task);
        answered.for_each(|undo| undo.is_answered = true);
        let mut used = self.used.iter_mut();
        let (_, place, undo) = used.find(|(used_by, ..)| *used_by == task)?;
        undo.is_answered = true;
        Some(place.0)
    }

    /// Notes that an operator has used an undo, and waits for the answer.
    fn use_up(&mut self, task: TaskId, place: Place, mut undo: Undo) {
        undo.is_answered = false;
        self.used.push((task, place, undo));
    }

    /// Reads a line of the broker's log. A full disk ends undos, and the log says so.
    pub(crate) fn read_log(&mut self, line: &str) {
        if line.contains("was emptied of are dropped and cannot be brought back") {
            self.open.values_mut().for_each(|undo| undo.is_sure = false);
        }
    }

    /// Notes that the messages that waited in a topic are dropped.
    pub(crate) fn drop_waiting(&mut self, topic: usize) {
        let open = self.open.iter_mut().filter(|(place, _)| place.0 == topic);
        open.for_each(|(_, undo)| undo.is_sure &= !undo.has_waiting);
    }

    /// Notes that messages of a topic were damaged.
    pub(crate) fn allow_damage(&mut self, topic: usize) {
        let damaged = self.open.iter_mut().filter(|(place, _)| place.0 == topic);
        damaged.for_each(|(_, undo)| undo.is_exact = false);
    }

    /// Notes that a message was finished, which may have come after its channel was emptied.
    pub(crate) fn finish(&mut self, place: Place, number: u64) {
        for undo_place in [place, (place.0, WHOLE)] {
            if let Some(undo) = self.open.get_mut(&undo_place)
                && let Some(channels) = undo.messages.get_mut(&number)
            {
                channels.remove(&place.1);
            }
        }
    }

    /// Forgets the undo of a channel, and what the undo of its topic must bring back for the channel.
    pub(crate) fn remove(&mut self, place: Place) {
        self.open.remove(&place);
        self.used.retain(|(_, used, _)| *used != place);
        if let Some(undo) = self.open.get_mut(&(place.0, WHOLE)) {
            undo.messages.values_mut().for_each(|channels| {
                channels.remove(&place.1);
            });
        }
    }

    /// Forgets the undo of a topic. Its channels keep theirs.
    pub(crate) fn remove_whole(&mut self, topic: usize) {
        self.remove((topic, WHOLE));
    }

    /// Forgets the undos of a topic.
    pub(crate) fn remove_topic(&mut self, topic: usize) {
        self.open.retain(|place, _| place.0 != topic);
        self.used.retain(|(_, place, _)| place.0 != topic);
    }
}

impl Model {
    /// Notes that a channel was emptied with an undo. Call this before [`Model::empty`].
    fn begin_undo(&mut self, now: Duration, place: Place, time: Duration, task: TaskId) -> Undo {
        let mut messages = BTreeMap::new();
        for (number, message) in self.messages.iter().enumerate() {
            let is_there = message.acknowledged || self.is_stored(number as u64);
            let mut owed = message.owed.clone();
            owed.retain(|channel| place.1 == WHOLE || *channel == place.1);
            if message.topic == place.0 && is_there && !owed.is_empty() {
                messages.insert(number as u64, owed);
            }
        }
        let mut undo = Undo {
            messages,
            count: 0,
            until: now + time,
            task,
            is_answered: false,
            is_sure: true,
            is_after_crash: false,
            is_after_power_failure: false,
            has_waiting: false,
            is_exact: !self.unsure.contains(&place),
        };
        // The messages of an earlier undo are added to this one, unless the time of the earlier one is over.
        let before = self.undos.open.remove(&place);
        if let Some(before) = before.filter(|before| before.is_sure && before.until > now) {
            undo.until = undo.until.max(before.until);
            undo.is_exact &= before.is_exact;
            undo.has_waiting |= before.has_waiting;
            for (number, channels) in before.messages {
                undo.messages.entry(number).or_default().extend(channels);
            }
        }
        undo
    }

    /// Notes that a topic was emptied with an undo: no message is owed before the undo is used.
    fn suspend(&mut self, topic: usize) {
        self.undos.drop_waiting(topic);
        for message in self.messages.iter_mut().filter(|it| it.topic == topic) {
            message.owed.clear();
            message.eligible.clear();
            message.is_kept = false;
        }
    }

    /// Notes that the use of an undo may not have happened. The messages are in the channel or in the undo: nothing is
    /// owed, not even after an acknowledged copy of a message.
    fn take_back(&mut self, place: Place, mut undo: Undo) {
        for (number, channels) in &undo.messages {
            let message = &mut self.messages[*number as usize];
            message.owed.retain(|channel| !channels.contains(channel));
            let eligible = &mut message.eligible;
            eligible.retain(|channel| !channels.contains(channel));
        }
        undo.is_sure = false;
        undo.is_after_crash = true;
        self.undos.open.entry(place).or_insert(undo);
    }

    /// Notes that the messages are owed again. Messages that may be lost are not.
    fn end_undo(&mut self, undo: &Undo) {
        for (number, channels) in &undo.messages {
            let message = &mut self.messages[*number as usize];
            if !message.is_lost {
                message.owed.extend(channels);
                message.eligible.extend(channels);
            }
        }
    }
}

impl World {
    /// Notes that the process was killed. An answered undo is kept, unless the disk may have lost the checkpoint.
    /// `is_trusted` is false if the disk may have lost more than it told, and `taken` are the uses of undos that a power
    /// failure may have taken.
    pub(super) fn kill_undos(
        &mut self,
        is_trusted: bool,
        is_power_lost: bool,
        taken: &BTreeSet<TaskId>,
    ) {
        // Only with --sync-every=1 do answers wait for the disk.
        let is_kept = is_trusted && (!is_power_lost || self.group_commit);
        for undo in self.model.undos.open.values_mut() {
            // The broker may have dropped the messages, because the time was over. If the clock is set back, the rest of
            // the undo is there again.
            undo.is_sure &= is_kept && undo.is_answered && undo.until > self.mono;
            undo.is_after_crash = true;
            undo.is_after_power_failure |= is_power_lost;
        }
        for (task, place, undo) in std::mem::take(&mut self.model.undos.used) {
            if !is_trusted || !undo.is_answered || taken.contains(&task) {
                self.model.take_back(place, undo);
            } else if self.at_risk.has(Risk::Unempty(task)) {
                self.model.undos.used.push((task, place, undo));
            }
        }
    }

    /// Empties a channel with an undo.
    pub(super) fn empty_for(
        &mut self,
        shard: usize,
        place: Place,
        task: TaskId,
    ) -> Result<Outcome, AdminError> {
        let time = Duration::from_secs([2, 20, 3600][self.random.below(3) as usize]);
        let topic_stats = self.topic_stats(shard, place.0);
        let outcome = self.do_act(shard, super::names(place), &Act::Empty(Some(time)), task);
        if is_done(&outcome) {
            self.reached.note("emptied with an undo");
            let mut undo = self.model.begin_undo(self.mono, place, time, task);
            undo.has_waiting |= topic_stats.is_some_and(|topic| topic.depth > 0);
            self.model.empty(place);
            // The topic may still have all messages: then there is nothing to bring back.
            if self.open_ledger_of(shard, place) {
                self.model.undos.open.insert(place, undo);
            }
        }
        outcome
    }

    /// Brings the messages back that a channel or topic was emptied of.
    pub(super) fn unempty(
        &mut self,
        shard: usize,
        place: Place,
        task: TaskId,
    ) -> Result<Outcome, AdminError> {
        if place.1 == WHOLE {
            return self.unempty_topic(shard, place.0, task);
        }
        let outcome = self.do_act(shard, super::names(place), &Act::Unempty, task);
        if outcome == Err(AdminError::NoUndo(NoUndo::NotFound)) {
            if let Some(undo) = self.model.undos.open.remove(&place) {
                let is_there = |(number, channels): (&u64, &BTreeSet<usize>)| {
                    let message = &self.model.messages[*number as usize];
                    message.acknowledged && !message.is_lost && !channels.is_empty()
                };
                let is_promised = undo.is_sure && undo.messages.iter().any(is_there);
                assert!(
                    !is_promised || undo.until <= self.mono,
                    "the undo of {place:?} is gone too early: {undo:?}"
                );
            }
        } else if is_done(&outcome) {
            let undo = self.model.undos.open.remove(&place);
            let is_exact = undo.as_ref().is_some_and(|undo| undo.is_exact);
            if let Some(undo) = undo.filter(|undo| undo.is_sure) {
                self.count_unempty(&undo);
                self.model.end_undo(&undo);
                if outcome == Ok(Outcome::Wait) {
                    self.model.undos.use_up(task, place, undo);
                }
            }
            self.open_ledger_of(shard, place);
            if !is_exact {
                self.model.unsure.insert(place);
            }
        }
        outcome
    }

    /// Empties a topic with an undo.
    pub(super) fn empty_topic_for(
        &mut self,
        shard: usize,
        topic: usize,
        task: TaskId,
    ) -> Result<Outcome, AdminError> {
        let time = Duration::from_secs([2, 20, 3600][self.random.below(3) as usize]);
        let place = (topic, WHOLE);
        let before = self.topic_stats(shard, topic);
        let act = Act::Empty(Some(time));
        let outcome = self.do_act(shard, super::whole(topic), &act, task);
        if is_done(&outcome) {
            let before = before.expect("the topic was found");
            let after = self.topic_stats(shard, topic).expect("the topic stays");
            let is_open = !before.paused && !before.channels.is_empty();
            let (kept, undone) = (undone(&before), undone(&after));
            let emptied = if is_open { 0 } else { before.depth };
            assert_eq!(undone, kept + emptied, "the undo has what the topic had");
            if is_open {
                if undone == 0 {
                    self.model.undos.open.remove(&place);
                } else if let Some(undo) = self.model.undos.open.get_mut(&place) {
                    undo.until = undo.until.max(self.mono + time);
                    (undo.task, undo.is_answered) = (task, false);
                }
                return outcome;
            }
            assert_eq!(after.depth, 0, "an emptied topic is empty");
            self.reached.note("topic emptied with an undo");
            let mut undo = self.model.begin_undo(self.mono, place, time, task);
            self.model.suspend(topic);
            self.model.undos.remove_whole(topic);
            undo.count = undone;
            if undone > 0 {
                self.model.undos.open.insert(place, undo);
            }
        }
        outcome
    }

    /// Brings the messages back that a topic was emptied of.
    fn unempty_topic(
        &mut self,
        shard: usize,
        topic: usize,
        task: TaskId,
    ) -> Result<Outcome, AdminError> {
        let place = (topic, WHOLE);
        let before = self.topic_stats(shard, topic);
        let outcome = self.do_act(shard, super::whole(topic), &Act::Unempty, task);
        let is_open = |it: &TopicStats| !it.paused && !it.channels.is_empty();
        match &outcome {
            Err(AdminError::NoUndo(NoUndo::OfPaused)) => {
                let topic = before.expect("the topic was found");
                assert!(topic.paused && !topic.channels.is_empty());
            }
            Err(AdminError::NoUndo(NoUndo::OnlyEphemeral)) => {
                let topic = before.expect("the topic was found");
                let mut channels = topic.channels.iter();
                assert!(
                    is_open(&topic) && channels.all(|it| it.channel_name.ends_with("#ephemeral"))
                );
            }
            Err(AdminError::NoUndo(NoUndo::ChannelFirst)) => {
                let topic = before.expect("the topic was found");
                assert!(is_open(&topic) && topic.channels.iter().any(|it| it.undo.is_some()));
            }
            Err(AdminError::NoUndo(NoUndo::NotFound)) => {
                let undo = self.model.undos.open.remove(&place);
                assert!(
                    !undo
                        .as_ref()
                        .is_some_and(|it| it.is_sure && it.is_exact && it.until > self.mono),
                    "the undo of topic {topic} is gone too early: {undo:?}"
                );
            }
            Ok(Outcome::Done | Outcome::Wait) => {
                let before = before.expect("the topic was found");
                let after = self.topic_stats(shard, topic).expect("the topic stays");
                let count = undone(&before);
                assert!(count > 0 && undone(&after) == 0);
                if is_open(&before) {
                    self.reached.note("channels got messages of an undo");
                    // Messages that waited in the topic may be distributed first.
                    let distributed = before.depth - after.depth;
                    for (before, after) in before.channels.iter().zip(&after.channels) {
                        let received = after.counters.message_count - before.counters.message_count;
                        assert_eq!(received, count + distributed, "every channel gets them");
                    }
                } else {
                    let dropped = after.unclaimed_dropped_count - before.unclaimed_dropped_count;
                    assert_eq!(after.depth + dropped, before.depth + count);
                }
                if let Some(undo) = self.model.undos.open.remove(&place)
                    && undo.is_sure
                {
                    if undo.is_exact && !undo.is_after_power_failure {
                        assert_eq!(count, undo.count, "an undo has all its messages");
                    }
                    self.count_unempty(&undo);
                    self.model.end_undo(&undo);
                    if outcome == Ok(Outcome::Wait) {
                        self.model.undos.use_up(task, place, undo);
                    }
                }
            }
            _ => {}
        }
        outcome
    }

    fn count_unempty(&mut self, undo: &Undo) {
        self.reached.note(if undo.is_after_crash {
            "unemptied after a crash"
        } else {
            "unemptied"
        });
        if undo.is_after_power_failure {
            self.reached.note("unemptied after a power failure");
        }
    }

    fn topic_stats(&mut self, shard: usize, topic: usize) -> Option<TopicStats> {
        let now = self.now();
        let broker = &mut self.shards[shard].broker;
        let stats = broker.distribute_and_snapshot(now, &StatsFilter::default());
        let mut topics = stats.topics.into_iter();
        topics.find(|it| it.topic_name == TOPICS[topic])
    }

    /// Brings back what all channels were emptied of, and then what all topics were emptied of.
    pub(super) fn unempty_all(&mut self) {
        let mut places: Vec<Place> = self.model.undos.open.keys().copied().collect();
        places.sort_by_key(|place| place.1 == WHOLE);
        for place in places {
            let shard = super::shard_of(TOPICS[place.0], self.shards.len() as u32).0 as usize;
            loop {
                let outcome = self.unempty(shard, place, TaskId(0));
                if outcome != Ok(Outcome::Later) {
                    let why = match outcome {
                        Err(AdminError::NoUndo(why)) => Some(why),
                        _ => None,
                    };
                    // Nothing is owed to ephemeral channels for ever.
                    assert!(
                        why.is_none_or(|it| matches!(it, NoUndo::NotFound | NoUndo::OnlyEphemeral)),
                        "{place:?}: {why:?}"
                    );
                    break;
                }
                self.run_until_idle();
            }
        }
    }

    /// Returns the place of a random undo, if there is one.
    pub(super) fn some_undo(&mut self) -> Option<Place> {
        let places = self.model.undos.open.keys().copied();
        let places: Vec<Place> = places.collect();
        let index = self.random.below(places.len().max(1) as u64) as usize;
        places.get(index).copied()
    }

    /// Starts to count the messages of a channel. Returns whether the channel has an undo.
    fn open_ledger_of(&mut self, shard: usize, wanted: Place) -> bool {
        let now = self.now();
        let broker = &mut self.shards[shard].broker;
        let stats = broker.distribute_and_snapshot(now, &StatsFilter::default());
        for (place, owes, received) in ledgers(&stats) {
            if place == wanted {
                self.model.open_ledger(place, owes, received);
            }
        }
        let (topic, channel) = (TOPICS[wanted.0], CHANNELS[wanted.1]);
        let mut channels = stats.topics.iter().filter(|it| it.topic_name == topic);
        let channels = channels.next().map_or(&[][..], |topic| &topic.channels);
        let found = channels.iter().find(|it| it.channel_name == channel);
        found.is_some_and(|channel| channel.undo.is_some())
    }
}

/// The number of messages that the undo of a topic can bring back.
fn undone(topic: &TopicStats) -> u64 {
    topic.undo.as_ref().map_or(0, |undo| undo.message_count)
}
