//! Restoring a topic at the start.

use super::kept::Kept;
use super::{Topic, TopicOptions};
use crate::channel::Channel;
use crate::channel::single_messages::DeferredEntry;
use crate::client::Clients;
use crate::pause::PauseUnderWay;
use crate::undo::{UNDO_TIME_MAX, Undo};
use crate::work::Work;
use diskq_log::range::within;
use diskq_log::{
    ChannelCheckpoint, CheckpointRun, FoundDeferral, GraceCheckpoint, Log, Now, PauseTerms,
    Recovered, SeqRange, TopicFacts, UndoCheckpoint, plant,
};
use std::time::Duration;
use wire::id::Seq;
use wire::name::{ChannelName, TopicName};

impl Topic {
    /// A topic as an earlier run left it. What the checkpoint does not know any more (it is older
    /// than the log's end) is owed to every channel.
    ///
    /// The checkpoint says which channels there are and what is paused: a change is answered when a checkpoint says so,
    /// and nsqd.dat follows. So `listed`, the entry of nsqd.dat, counts only where there is no checkpoint, or
    /// checkpoints may have been cut off. A channel that is newer than the checkpoint gets all messages that the
    /// checkpoint does not know, and those that were in no channel.
    pub(crate) fn restore(
        name: TopicName<'_>,
        options: TopicOptions,
        times: &mut DueTimes,
        recovered: Recovered,
        listed: Option<&TopicFacts>,
    ) -> Topic {
        let now = times.now;
        let group_commit = options.group_commit;
        let has_checkpoint = recovered.checkpoint.is_some();
        let listed = listed.filter(|_| !has_checkpoint || recovered.lacks_checkpoints());
        let mut topic = Topic::with_log(name, options, recovered.log);
        // With group commit the process may have ended before the sync of the checkpoint.
        topic.checkpoints.is_recorded = has_checkpoint && !group_commit;
        let checkpoint = recovered.checkpoint.unwrap_or_default();
        let is_paused = match listed {
            Some(facts) if !has_checkpoint => facts.paused,
            _ => checkpoint.paused,
        };
        topic.pause = is_paused.then(|| PauseUnderWay::restore(now, &checkpoint.terms));
        for saved in &checkpoint.channels {
            let is_durable = recovered.durable_channels.names(&saved.name);
            let is_unsure = !is_durable && group_commit;
            topic.restore_channel(times, saved, is_unsure, &recovered.found);
        }
        let (undo, log) = (checkpoint.undo.as_ref(), &mut topic.log);
        topic.undo = undo.and_then(|undo| restored_undo(times, undo, &recovered.found, log));
        for run in &checkpoint.undistributed {
            for range in within(run.range(), &recovered.found) {
                topic.undistributed.messages.push(range);
                topic.log.retain(range, 1);
                if let Some(due) = times.recorded(run.due_ns, range.len()) {
                    topic.defer_undistributed(range, due.saturating_sub(now.mono));
                }
            }
        }
        if let Some(gate) = &mut topic.gate {
            let saved = recovered
                .state
                .map(|state| (state, recovered.durable_boundary));
            gate.restore_numbers(&mut topic.log, saved, &recovered.origins, &recovered.found);
        }
        // Above the checkpoint: owed to all. The deferred among them keep their deadlines.
        let above = SeqRange::new(checkpoint.next, Seq(u64::MAX));
        for range in within(above, &recovered.found) {
            topic.undistributed.messages.push(range);
            topic.log.retain(range, 1);
        }
        for found in &recovered.deferred {
            let wait = times.found(found);
            if !wait.is_zero() {
                topic.defer_undistributed(SeqRange::one(found.seq), wait);
            }
        }
        if let Some(saved) = &checkpoint.grace {
            topic.restore_grace(times, saved, &recovered.found);
        }
        if let Some(facts) = listed {
            let grace = checkpoint.grace.as_ref();
            topic.restore_listed(times, facts, grace, &recovered.found);
        }
        topic.distribute(now, &Clients::default(), &mut Work::unbounded());
        topic.set_ends();
        if times.moved_count > 0 {
            topic.make_checkpoint_due();
        }
        topic.channels.deadline = topic.channels_deadline();
        // Dead letters need no consumer.
        topic.channels.pump_all_later();
        topic.log.release_unheld();
        topic
    }

    /// Restores a channel of the checkpoint.
    fn restore_channel(
        &mut self,
        times: &mut DueTimes,
        saved: &ChannelCheckpoint,
        is_unsure: bool,
        found: &[SeqRange],
    ) {
        let Some(name) = ChannelName::new(saved.name.as_bytes()) else {
            return;
        };
        let id = self.create_channel(name);
        let (channel, log) = self.channel_and_log(id);
        let pause = || PauseUnderWay::restore(times.now, &saved.terms);
        channel.pause = saved.paused.then(pause);
        channel.is_unsure = is_unsure;
        restore_runs(times, channel, &saved.runs, found, log);
        let undo = saved.undo.as_ref();
        channel.undo = undo.and_then(|undo| restored_undo(times, undo, found, log));
    }

    /// Makes the channels of nsqd.dat that the checkpoint does not know. Invalid channel names are left out. They get
    /// the messages of the grace that the checkpoint has, even if its time is over: they may have been made in it. Call
    /// this when the grace is restored, and before the messages in no channel are distributed.
    fn restore_listed(
        &mut self,
        times: &mut DueTimes,
        facts: &TopicFacts,
        grace: Option<&GraceCheckpoint>,
        found: &[SeqRange],
    ) {
        let ended = grace.filter(|_| self.grace.is_none());
        for facts in &facts.channels {
            if self.channels.find(&facts.name).is_none()
                && let Some(name) = ChannelName::new(facts.name.as_bytes())
            {
                let id = self.create_channel(name);
                let (channel, log) = self.channel_and_log(id);
                channel.pause = facts
                    .paused
                    .then(|| PauseUnderWay::restore(times.now, &PauseTerms::default()));
                channel.is_unsure = true;
                if let Some(ended) = ended {
                    restore_runs(times, channel, &ended.runs, found, log);
                }
            }
        }
    }

    /// Goes on with the grace that a checkpoint has, unless its time is over. `found` are the messages that exist. Call
    /// this when the undistributed messages are restored.
    fn restore_grace(&mut self, times: &mut DueTimes, saved: &GraceCheckpoint, found: &[SeqRange]) {
        let now = times.now;
        let until = now
            .due_time(saved.until_ns)
            .filter(|until| *until > now.mono);
        let Some(until) = until.filter(|_| !self.options.grace.period.is_zero()) else {
            return;
        };
        let mut kept = Kept::default();
        let mut runs = saved.runs.clone();
        runs.sort_unstable_by_key(|run| run.start);
        for run in &runs {
            for range in within(run.range(), found) {
                kept.messages.push(range);
                self.log.retain(range, 1);
                // 0: the channels' runs have counted these messages.
                if let Some(due) = times.recorded(run.due_ns, 0) {
                    let seqs = (range.start.0..range.end.0).map(Seq);
                    seqs.for_each(|seq| kept.deferred.push_back((seq, due)));
                }
            }
        }
        self.set_grace(now, until, kept);
    }

    fn defer_undistributed(&mut self, range: SeqRange, after: Duration) {
        let ms = deferral_ms(after);
        for seq in range.start.0..range.end.0 {
            self.undistributed.deferred.push_back((Seq(seq), ms));
        }
    }
}

/// Restores the messages of a channel. `found` are the messages that exist.
fn restore_runs(
    times: &mut DueTimes,
    channel: &mut Channel,
    runs: &[CheckpointRun],
    found: &[SeqRange],
    log: &mut Log,
) {
    let mut deferred = Vec::new();
    for run in runs {
        let attempts = run.attempts;
        for range in within(run.range(), found) {
            log.retain(range, 1);
            if let Some(due) = times.recorded(run.due_ns, range.len()) {
                let seqs = (range.start.0..range.end.0).map(Seq);
                deferred.extend(seqs.map(|seq| DeferredEntry { due, seq, attempts }));
            } else {
                channel.restore(range, attempts);
            }
        }
    }
    channel.restore_deferred(deferred);
}

/// Restores the undo of a topic or channel, unless its time is over. `found` are the messages that exist.
fn restored_undo(
    times: &mut DueTimes,
    saved: &UndoCheckpoint,
    found: &[SeqRange],
    log: &mut Log,
) -> Option<Box<Undo>> {
    let now = times.now;
    // A wall clock that was set back does not hold the segments for ever.
    let until = now.due_time(saved.until_ns)?.min(now.mono + UNDO_TIME_MAX);
    plant!(UndoNotRestored, return None);
    if until <= now.mono {
        return None;
    }
    let mut runs = Vec::new();
    for run in &saved.runs {
        for range in within(run.range(), found) {
            log.retain(range, 1);
            let due = times.recorded(run.due_ns, range.len());
            runs.push(CheckpointRun {
                due_ns: due.map_or(0, |due| now.unix_time_of(due)),
                ..run.with_range(range)
            });
        }
    }
    Undo::new(now, until, now.unix_time_of(until), runs)
}

/// Returns a deferral in milliseconds. It is late by less than a millisecond, and never early.
pub(crate) fn deferral_ms(after: Duration) -> u32 {
    let ms = after.as_nanos().div_ceil(1_000_000);
    u32::try_from(ms).unwrap_or(u32::MAX).max(1)
}

/// Turns recorded due times into times of the monotonic clock.
///
/// A record has the Unix time at which a message is due. If the wall clock was set back since, or was wrong at one of
/// the two times, the due time may lie years ahead. A message waits no longer than it had to wait when it was recorded,
/// which the time of the record tells, and never longer than the longest deferral.
#[derive(Debug)]
pub(crate) struct DueTimes {
    pub(crate) now: Now,
    /// The Unix time of the record in nanoseconds; 0: not known.
    recorded_ns: u64,
    /// The longest deferral of any message.
    deferral_max: Duration,
    /// The number of messages that wait less than the wall clock says.
    pub(crate) moved_count: u64,
}

impl DueTimes {
    pub(crate) fn new(now: Now, recorded_ns: u64, deferral_max: Duration) -> DueTimes {
        DueTimes {
            now,
            recorded_ns,
            deferral_max,
            moved_count: 0,
        }
    }

    /// Returns the due time of `count` recorded messages. A due time in the past becomes the current time. `None` if
    /// `due_ns` is 0: the messages are not deferred.
    pub(crate) fn recorded(&mut self, due_ns: u64, count: u64) -> Option<Duration> {
        let waited = Duration::from_nanos(due_ns.saturating_sub(self.recorded_ns));
        (due_ns > 0).then(|| self.now.mono + self.wait(due_ns, waited, count))
    }

    /// Returns how long a message waits that was published deferred and is in no record.
    pub(crate) fn found(&mut self, found: &FoundDeferral) -> Duration {
        let deferral = Duration::from_millis(found.defer_ms.into());
        self.wait(found.due_ns, deferral, 1)
    }

    fn wait(&mut self, due_ns: u64, longest: Duration, count: u64) -> Duration {
        let wait = Duration::from_nanos(due_ns.saturating_sub(self.now.wall_ns));
        let longest = longest.min(self.deferral_max);
        if wait > longest {
            self.moved_count += count;
        }
        wait.min(longest)
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_recorded_message_waits_no_longer_than_it_had_to_wait() {
        let hour = Duration::from_secs(3600);
        for (wall, recorded, due, wait) in [
            (1000, 990, 1010, 10),
            // The clock was set back by 300 s.
            (700, 998, 1010, 12),
            // The clock begins in 1970.
            (0, 1_800_000_000, 1_800_000_002, 2),
            // The time of the record is not known.
            (700, 0, 1010, 310),
            (0, 0, 1_800_000_000, 3600),
            // The time has passed.
            (1000, 990, 999, 0),
        ] {
            let now = Now {
                mono: Duration::from_secs(5),
                wall_ns: wall * SECOND,
            };
            let mut times = DueTimes::new(now, recorded * SECOND, hour);
            let expected = now.mono + Duration::from_secs(wait);
            assert_eq!(times.recorded(due * SECOND, 3), Some(expected), "{wall}");
            let is_moved = due.saturating_sub(wall) > wait;
            assert_eq!(times.moved_count, u64::from(is_moved) * 3);
            assert_eq!(times.recorded(0, 3), None);
        }
    }

    #[test]
    fn a_message_that_was_published_deferred_waits_no_longer_than_its_deferral() {
        let now = Now {
            mono: Duration::from_secs(5),
            wall_ns: 700 * SECOND,
        };
        let mut times = DueTimes::new(now, 0, Duration::from_secs(3600));
        let mut found = FoundDeferral {
            seq: wire::id::Seq(1),
            due_ns: 1000 * SECOND,
            defer_ms: 2000,
        };
        assert_eq!(times.found(&found), Duration::from_secs(2));
        found.due_ns = 701 * SECOND;
        assert_eq!(times.found(&found), Duration::from_secs(1));
        assert_eq!(times.moved_count, 1);
    }
}
