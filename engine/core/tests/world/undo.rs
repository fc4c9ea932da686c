//! The undo of empty, as the model knows it: which messages a channel was emptied of, and whether they must come back.

use super::model::{Model, Place};
use super::{TOPICS, World, is_done, ledgers};
use engine_core::stats::StatsFilter;
use engine_core::{AdminError, Outcome, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The undo of a channel.
#[derive(Debug)]
struct Undo {
    /// The messages that were owed.
    messages: BTreeSet<u64>,
    until: Duration,
    task: TaskId,
    is_answered: bool,
    /// False if a crash or a full disk may have ended the undo.
    is_sure: bool,
    is_after_crash: bool,
    is_after_power_failure: bool,
    /// False if some of the messages may be damaged, so that the channel drops them at their delivery.
    is_exact: bool,
}

/// All undos.
#[derive(Debug, Default)]
pub(crate) struct Undos {
    open: BTreeMap<Place, Undo>,
    /// The undos that an operator has used and whose answers are on their way. A crash may bring these undos back.
    used: Vec<(TaskId, Place, Undo)>,
}

impl Undos {
    /// Notes that an operator got the answer.
    pub(crate) fn answer(&mut self, task: TaskId) {
        let answered = self.open.values_mut().filter(|undo| undo.task == task);
        answered.for_each(|undo| undo.is_answered = true);
        self.used.retain(|(used_by, ..)| *used_by != task);
    }

    /// Reads a line of the broker's log. A full disk ends undos, and the log says so.
    pub(crate) fn read_log(&mut self, line: &str) {
        if line.contains("was emptied of are dropped and cannot be restored") {
            self.open.values_mut().for_each(|undo| undo.is_sure = false);
        }
    }

    /// Notes that messages of a topic were damaged.
    pub(crate) fn allow_damage(&mut self, topic: usize) {
        let damaged = self.open.iter_mut().filter(|(place, _)| place.0 == topic);
        damaged.for_each(|(_, undo)| undo.is_exact = false);
    }

    /// Notes that a message was finished, which may have come after its channel was emptied.
    pub(crate) fn finish(&mut self, place: Place, number: u64) {
        if let Some(undo) = self.open.get_mut(&place) {
            undo.messages.remove(&number);
        }
    }

    /// Forgets the undo of a channel.
    pub(crate) fn remove(&mut self, place: Place) {
        self.open.remove(&place);
        self.used.retain(|(_, used, _)| *used != place);
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
        let messages = self.messages.iter().enumerate();
        let owed = messages.filter(|(_, it)| it.topic == place.0 && it.owed.contains(&place.1));
        let owed: BTreeSet<u64> = owed.map(|(number, _)| number as u64).collect();
        let mut undo = Undo {
            messages: owed,
            until: now + time,
            task,
            is_answered: false,
            is_sure: true,
            is_after_crash: false,
            is_after_power_failure: false,
            is_exact: !self.unsure.contains(&place),
        };
        // The messages of an earlier undo are added to this one, unless the time of the earlier one is over.
        let before = self.undos.open.remove(&place);
        if let Some(before) = before.filter(|before| before.is_sure && before.until > now) {
            undo.until = undo.until.max(before.until);
            undo.is_exact &= before.is_exact;
            undo.messages.extend(before.messages);
        }
        undo
    }

    /// Notes that the process was killed. An answered undo is kept, unless the disk may have lost the checkpoint. The
    /// messages of an undo that was used without an answer are in the channel or in the undo: nothing is owed.
    pub(crate) fn kill_undos(&mut self, is_kept: bool, is_power_lost: bool) {
        for undo in self.undos.open.values_mut() {
            undo.is_sure &= is_kept && undo.is_answered;
            undo.is_after_crash = true;
            undo.is_after_power_failure |= is_power_lost;
        }
        for (_, place, mut undo) in std::mem::take(&mut self.undos.used) {
            for number in &undo.messages {
                self.messages[*number as usize].owed.remove(&place.1);
            }
            undo.is_sure = false;
            undo.is_after_crash = true;
            self.undos.open.entry(place).or_insert(undo);
        }
    }

    /// Notes that the messages are owed again. Messages that may be lost are not.
    fn end_undo(&mut self, place: Place, undo: &Undo) {
        for number in &undo.messages {
            let message = &mut self.messages[*number as usize];
            if !message.is_lost {
                message.owed.insert(place.1);
                message.eligible.insert(place.1);
            }
        }
    }
}

impl World {
    /// Empties a channel with an undo.
    pub(super) fn empty_for(
        &mut self,
        shard: usize,
        place: Place,
        task: TaskId,
    ) -> Result<Outcome, AdminError> {
        let time = Duration::from_secs([2, 20, 3600][self.random.below(3) as usize]);
        let (now, (topic, channel)) = (self.now(), super::names(place));
        let broker = &mut self.shards[shard].broker;
        let outcome = broker.empty_channel_for(now, topic, channel, time, task);
        if is_done(&outcome) {
            self.reached.note("emptied with an undo");
            let undo = self.model.begin_undo(self.mono, place, time, task);
            self.model.empty(place);
            // The topic may still have all messages: then there is nothing to bring back.
            if self.open_ledger_of(shard, place) {
                self.model.undos.open.insert(place, undo);
            }
        }
        outcome
    }

    /// Brings the messages back that a channel was emptied of.
    pub(super) fn unempty(
        &mut self,
        shard: usize,
        place: Place,
        task: TaskId,
    ) -> Result<Outcome, AdminError> {
        let (now, (topic, channel)) = (self.now(), super::names(place));
        let broker = &mut self.shards[shard].broker;
        let outcome = broker.unempty_channel(now, topic, channel, task);
        if outcome == Err(AdminError::UndoNotFound) {
            if let Some(undo) = self.model.undos.open.remove(&place) {
                let is_there = |number: &u64| {
                    let message = &self.model.messages[*number as usize];
                    message.acknowledged && !message.is_lost
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
                self.reached.note(match undo.is_after_crash {
                    true => "unemptied after a crash",
                    false => "unemptied",
                });
                if undo.is_after_power_failure {
                    self.reached.note("unemptied after a power failure");
                }
                self.model.end_undo(place, &undo);
                if outcome == Ok(Outcome::Wait) {
                    self.model.undos.used.push((task, place, undo));
                }
            }
            self.open_ledger_of(shard, place);
            if !is_exact {
                self.model.unsure.insert(place);
            }
        }
        outcome
    }

    /// Brings back what all channels were emptied of.
    pub(super) fn unempty_all(&mut self) {
        for place in self.model.undos.open.keys().copied().collect::<Vec<_>>() {
            let shard = super::place(TOPICS[place.0], self.shards.len() as u32).0 as usize;
            while self.unempty(shard, place, TaskId(0)) == Ok(Outcome::Later) {
                self.run_until_idle();
            }
        }
    }

    /// Returns the channel of a random undo, if there is one.
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
        let (topic, channel) = super::names(wanted);
        let mut channels = stats.topics.iter().filter(|it| it.topic_name == topic);
        let channels = channels.next().map_or(&[][..], |topic| &topic.channels);
        let found = channels.iter().find(|it| it.channel_name == channel);
        found.is_some_and(|channel| channel.undo.is_some())
    }
}
