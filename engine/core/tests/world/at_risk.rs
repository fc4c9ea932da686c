//! The messages that a power failure may take without `--sync-every=1`: promise P3, seen from the outside.
//!
//! ```text
//!   OK --sync-timeout--> the broker is told the time --pass--> --pass--> --pass--> safe
//! ```
//!
//! A *pass* of a topic ends when every job that its log had given at the beginning of the pass is done and
//! answered, and the broker had a turn after that. The sync of a message that is old enough may wait for a sync
//! under way, and the sync under way may wait for earlier jobs. Three passes are enough for all of these jobs.
//! The model never asks the broker what is synced.

use super::TOPICS;
use super::model::Model;
use std::collections::BTreeMap;
use std::time::Duration;

/// --sync-timeout: the default of both programs.
const SYNC_TIMEOUT: Duration = Duration::from_secs(2);
/// A sync that could not open its files is tried again after this.
const SYNC_RETRY: Duration = Duration::from_millis(250);
/// Three passes: the first may have begun before the sync was due, the second is for a sync under way, the
/// third for the sync of the message.
const PASSES: u64 = 3;

/// The pass of a topic in which a job was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub(crate) topic: usize,
    number: u64,
    /// The topic was deleted meanwhile, so its answer is dropped.
    pub(crate) is_deleted: bool,
}

/// The progress of the sync of an acknowledged message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    /// The sync must start when the broker is told this time.
    Due(Duration),
    /// The sync has started, or waits for jobs that were given up to this pass.
    Started(u64),
    /// A sync failed: the message never becomes safe.
    Failed,
}

/// The messages that a power failure may take.
#[derive(Debug, Default)]
pub(crate) struct AtRisk {
    messages: BTreeMap<u64, (usize, Sync)>,
    /// The pass of each topic that is under way.
    passes: [u64; TOPICS.len()],
}

impl AtRisk {
    /// A message was acknowledged.
    pub(crate) fn add(&mut self, number: u64, topic: usize, now: Duration) {
        self.messages
            .insert(number, (topic, Sync::Due(now + SYNC_TIMEOUT)));
    }

    /// The pass of a job that is given now.
    pub(crate) fn pass(&self, topic: usize) -> Pass {
        Pass {
            topic,
            number: self.passes[topic],
            is_deleted: false,
        }
    }

    /// The brokers were told the time, and had a turn.
    pub(crate) fn told_time(&mut self, now: Duration) {
        for (topic, sync) in self.messages.values_mut() {
            if matches!(sync, Sync::Due(at) if *at <= now) {
                *sync = Sync::Started(self.passes[*topic]);
            }
        }
    }

    /// The brokers had a turn; `under_way` are the jobs that are not done or not answered.
    pub(crate) fn end_passes(&mut self, under_way: impl Iterator<Item = Pass> + Clone) {
        for (topic, pass) in self.passes.iter_mut().enumerate() {
            let mut of_topic = under_way.clone().filter(|job| job.topic == topic);
            if of_topic.all(|job| job.number > *pass) {
                *pass += 1;
            }
        }
        let passes = self.passes;
        self.messages.retain(|_, (topic, sync)| match sync {
            Sync::Started(pass) => passes[*topic] < *pass + PASSES,
            Sync::Due(_) | Sync::Failed => true,
        });
    }

    /// A file that a topic's sync needs was missing or could not be opened: the sync is tried again.
    pub(crate) fn delay(&mut self, topic: usize, now: Duration) {
        self.set(topic, Sync::Due(now + SYNC_RETRY));
    }

    /// A sync of a topic failed.
    pub(crate) fn fail(&mut self, topic: usize) {
        self.set(topic, Sync::Failed);
    }

    fn set(&mut self, topic: usize, to: Sync) {
        for (of, sync) in self.messages.values_mut() {
            if *of == topic && *sync != Sync::Failed {
                *sync = to;
            }
        }
    }

    /// The process was killed. The next process syncs at once what it finds. A disk that lost pages before the
    /// kill reports these pages as synced, too.
    pub(crate) fn kill(&mut self, now: Duration, has_lost_pages: bool) {
        for (_, sync) in self.messages.values_mut() {
            *sync = if has_lost_pages {
                Sync::Failed
            } else {
                Sync::Due(now)
            };
        }
    }

    /// Drops the messages that are not durable. Returns their number.
    pub(crate) fn take(&mut self, model: &mut Model) -> usize {
        let taken = std::mem::take(&mut self.messages);
        for number in taken.keys() {
            model.messages[*number as usize].owed.clear();
        }
        taken.len()
    }
}
