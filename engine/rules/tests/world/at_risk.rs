//! Knows which acknowledged messages and answered changes a power failure may destroy without
//! `--sync-every=1`. This is promise P3, seen from the outside.
//!
//! ```text
//!   OK --sync-timeout--> the broker is told the time --pass--> --pass--> --pass--> safe
//! ```
//!
//! A *pass* of a topic ends when every job that its log had given at the beginning of the pass is
//! done and answered, and the broker had a turn after that. The sync of a message that is old
//! enough may wait for another sync, and that sync may wait for earlier jobs. Three passes are
//! enough for all of these jobs.
//!
//! A change is safe when a durable checkpoint has recorded it. A *pass of checkpoints* ends with
//! the first pass of the topic after which the broker has no work left: then no checkpoint is
//! incomplete. When the durable checkpoint is due, another checkpoint may be under way. The durable
//! checkpoint then begins when the broker is told the time again. A change therefore goes through
//! the picture twice, in two *laps*, and a message once.
//!
//! The model never asks the broker what is synced.

use super::TOPICS;
use super::model::{Model, Place};
use super::promises::{Fact, Promises};
use engine_rules::TaskId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// --sync-timeout: the default of both programs.
const SYNC_TIMEOUT: Duration = Duration::from_secs(2);
/// Time until a sync is retried that could not open its files.
const SYNC_RETRY: Duration = Duration::from_millis(250);
/// The number of passes. The first may have begun before the sync was due. The second is for an
/// earlier sync that has not ended. The third is for the sync of the message.
const PASSES: u64 = 3;

/// The pass of a topic in which its log gave a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub(crate) topic: usize,
    number: u64,
    /// True if the topic has been deleted in the meantime, so that its answer is dropped.
    pub(crate) is_deleted: bool,
}

/// A message or change that a power failure may destroy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Risk {
    /// An acknowledged message, by its number.
    Message(u64),
    /// A channel whose SUB was answered.
    Channel(Place),
    /// A change that an operator got an answer for.
    Answer(Fact),
    /// The use of an undo that an operator got an answer for.
    Unempty(TaskId),
}

/// The losses of a power failure.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// The number of messages that may be gone.
    pub(crate) messages: usize,
    /// The channels that may be gone.
    pub(crate) channels: Vec<Place>,
    /// The uses of undos that may not have happened.
    pub(crate) unempties: BTreeSet<TaskId>,
}

impl Risk {
    fn laps(self) -> u32 {
        match self {
            Risk::Message(_) => 1,
            Risk::Channel(_) | Risk::Answer(_) | Risk::Unempty(_) => 2,
        }
    }

    /// Returns the time at which the next process must start the sync: at once for the messages
    /// that it finds, after --sync-timeout for the record of the changes.
    fn due_after_kill(self, now: Duration) -> Duration {
        match self {
            Risk::Message(_) => now,
            Risk::Channel(_) | Risk::Answer(_) | Risk::Unempty(_) => now + SYNC_TIMEOUT,
        }
    }
}

/// The progress of the sync of an acknowledged message or an answered change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    /// The sync must start when the broker is told this time. The number counts the laps that are
    /// left, including this one.
    Due(Duration, u32),
    /// The sync has started, or waits for jobs that were given up to this pass. The second number
    /// counts the laps that are left after this one.
    Started(u64, u32),
    /// A sync failed, so the message or change never becomes safe.
    Failed,
}

/// The passes of a topic.
#[derive(Clone, Copy, Debug, Default)]
struct Passes {
    /// The number of passes that have ended.
    ended: u64,
    /// The number of passes of checkpoints that have ended.
    ended_of_checkpoints: u64,
    /// The number of passes that had ended when the present pass of checkpoints began.
    began: u64,
}

impl Passes {
    fn of(&self, risk: Risk) -> u64 {
        match risk {
            Risk::Message(_) => self.ended,
            Risk::Channel(_) | Risk::Answer(_) | Risk::Unempty(_) => self.ended_of_checkpoints,
        }
    }
}

/// The messages and changes that a power failure may destroy.
#[derive(Debug, Default)]
pub(crate) struct AtRisk {
    risks: BTreeMap<Risk, (usize, Sync)>,
    /// The topics whose disk has failed since the graceful stop began.
    failed_in_stop: BTreeSet<usize>,
    passes: [Passes; TOPICS.len()],
    /// The risks that were there when the process started.
    found: BTreeSet<Risk>,
}

impl AtRisk {
    /// Notes that a message was acknowledged or a change was answered.
    pub(crate) fn add(&mut self, risk: Risk, topic: usize, now: Duration) {
        let sync = Sync::Due(now + SYNC_TIMEOUT, risk.laps());
        self.risks.insert(risk, (topic, sync));
    }

    /// Returns true if a power failure may take a message or change.
    pub(crate) fn has(&self, risk: Risk) -> bool {
        self.risks.contains_key(&risk)
    }

    /// Returns the pass of a job that is given now.
    pub(crate) fn pass(&self, topic: usize) -> Pass {
        Pass {
            topic,
            number: self.passes[topic].ended,
            is_deleted: false,
        }
    }

    /// Notes that the brokers were told the time and had a turn, if they are awake.
    pub(crate) fn told_time(&mut self, now: Duration, are_awake: [bool; TOPICS.len()]) {
        for (risk, (topic, sync)) in &mut self.risks {
            if let Sync::Due(at, laps) = *sync
                && at <= now
                && are_awake[*topic]
            {
                *sync = Sync::Started(self.passes[*topic].of(*risk), laps - 1);
            }
        }
    }

    /// Ends the passes that are over, after a turn of the brokers. `under_way` are the jobs that
    /// are not done or not answered. `is_busy` returns true if the broker of a topic has work left. No pass of a topic
    /// ends while its shard is not awake.
    pub(crate) fn end_passes(
        &mut self,
        under_way: impl Iterator<Item = Pass> + Clone,
        is_busy: impl Fn(usize) -> bool,
        are_awake: [bool; TOPICS.len()],
    ) {
        for (topic, passes) in self.passes.iter_mut().enumerate() {
            if !are_awake[topic] {
                continue;
            }
            let mut of_topic = under_way.clone().filter(|job| job.topic == topic);
            if of_topic.all(|job| job.number > passes.ended) {
                passes.ended += 1;
            }
            if passes.ended > passes.began && !is_busy(topic) {
                passes.ended_of_checkpoints += 1;
                passes.began = passes.ended;
            }
        }
        let passes = self.passes;
        self.risks.retain(|risk, (topic, sync)| match *sync {
            Sync::Started(pass, laps) if passes[*topic].of(*risk) >= pass + PASSES => {
                *sync = Sync::Due(Duration::ZERO, laps);
                laps > 0
            }
            Sync::Started(..) | Sync::Due(..) | Sync::Failed => true,
        });
    }

    /// Delays a topic's sync, which is retried because a file was missing or could not be opened.
    pub(crate) fn delay(&mut self, topic: usize, now: Duration) {
        self.set(topic, |risk, sync| {
            if let Risk::Message(_) = risk {
                *sync = Sync::Due(now + SYNC_RETRY, risk.laps());
            }
        });
    }

    /// Delays a topic's checkpoint, which could not be written and is retried after the usual time.
    pub(crate) fn delay_checkpoint(&mut self, topic: usize, now: Duration) {
        self.set(topic, |risk, sync| {
            if !matches!(risk, Risk::Message(_)) {
                *sync = Sync::Due(now + SYNC_TIMEOUT, risk.laps());
            }
        });
    }

    /// Notes that a sync of a topic failed.
    pub(crate) fn fail(&mut self, topic: usize) {
        self.set(topic, |_, sync| *sync = Sync::Failed);
    }

    /// Notes that a graceful stop begins.
    pub(crate) fn begin_stop(&mut self) {
        self.failed_in_stop.clear();
    }

    /// Notes that a graceful stop has ended. Everything is safe now, except in topics whose disk has failed. Returns
    /// these topics.
    pub(crate) fn end_stop(&mut self) -> BTreeSet<usize> {
        let failed = std::mem::take(&mut self.failed_in_stop);
        self.risks
            .retain(|_, (topic, sync)| failed.contains(topic) || *sync == Sync::Failed);
        failed
    }

    fn set(&mut self, topic: usize, set: impl Fn(Risk, &mut Sync)) {
        self.failed_in_stop.insert(topic);
        for (risk, (of, sync)) in &mut self.risks {
            if *of == topic && *sync != Sync::Failed {
                set(*risk, sync);
            }
        }
    }

    /// Notes that the kernel has lost what the process found at its start and has not synced, and reports nothing.
    pub(crate) fn fail_found(&mut self) {
        for (risk, (_, sync)) in &mut self.risks {
            if self.found.contains(risk) {
                *sync = Sync::Failed;
            }
        }
    }

    /// Notes that the process was killed. A disk that lost pages before the kill reports these
    /// pages as synced too.
    pub(crate) fn kill(&mut self, now: Duration, has_lost_pages: bool) {
        self.found = self.risks.keys().copied().collect();
        for (risk, (_, sync)) in &mut self.risks {
            *sync = if has_lost_pages {
                Sync::Failed
            } else {
                Sync::Due(risk.due_after_kill(now), risk.laps())
            };
        }
    }

    /// Notes a power failure: removes from the model all messages and promises that are still at
    /// risk, and returns what was taken.
    pub(crate) fn take(&mut self, model: &mut Model, promises: &mut Promises) -> Taken {
        let mut taken = Taken::default();
        for risk in std::mem::take(&mut self.risks).into_keys() {
            match risk {
                Risk::Message(number) => {
                    taken.messages += 1;
                    model.messages[number as usize].lose();
                }
                Risk::Channel(place) => taken.channels.push(place),
                Risk::Answer(fact) => promises.take_back(fact),
                Risk::Unempty(task) => {
                    taken.unempties.insert(task);
                }
            }
        }
        taken
    }
}
