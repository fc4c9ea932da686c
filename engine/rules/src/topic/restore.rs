//! Restoring a topic at the start.

use super::{Topic, TopicOptions};
use crate::channel::Channel;
use crate::client::Clients;
use crate::deferred::DeferredEntry;
use crate::due_times::DueTimes;
use crate::long_queue::LongQueue;
use crate::pause::PauseUnderWay;
use crate::ranges::Ranges;
use crate::undo::{UNDO_TIME_MAX, Undo};
use crate::work::Work;
use diskq_log::{
    CheckpointRun, GraceCheckpoint, Log, PauseTerms, Recovered, SeqRange, TopicFacts,
    UndoCheckpoint, plant,
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
        topic.is_recorded = has_checkpoint && !group_commit;
        let checkpoint = recovered.checkpoint.unwrap_or_default();
        topic.paused = match listed {
            Some(facts) if !has_checkpoint => facts.paused,
            _ => checkpoint.paused,
        };
        topic.pause = PauseUnderWay::restore(now, &checkpoint.terms);
        let mut has_new_ends = ends_elsewhere(&topic.pause, &checkpoint.terms);
        for saved in &checkpoint.channels {
            if let Some(name) = ChannelName::new(saved.name.as_bytes()) {
                let id = topic.create_channel(name);
                let (channel, log) = topic.channel_and_log(id);
                channel.paused = saved.paused;
                channel.pause = PauseUnderWay::restore(now, &saved.terms);
                has_new_ends |= ends_elsewhere(&channel.pause, &saved.terms);
                let is_durable = recovered.durable_channels.names(&saved.name);
                channel.is_unsure = !is_durable && group_commit;
                restore_runs(times, channel, &saved.runs, &recovered.found, log);
                let undo = saved.undo.as_ref();
                channel.undo =
                    undo.and_then(|undo| restored_undo(times, undo, &recovered.found, log));
            }
        }
        let (undo, log) = (checkpoint.undo.as_ref(), &mut topic.log);
        topic.undo = undo.and_then(|undo| restored_undo(times, undo, &recovered.found, log));
        for run in &checkpoint.undistributed {
            for range in intersect(&recovered.found, run) {
                topic.undistributed.push(range);
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
        let above = CheckpointRun {
            start: checkpoint.next,
            count: u64::MAX - checkpoint.next.0,
            attempts: 0,
            due_ns: 0,
        };
        for range in intersect(&recovered.found, &above) {
            topic.undistributed.push(range);
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
        if has_new_ends || times.moved_count > 0 {
            topic.make_checkpoint_due();
        }
        topic.deadline = topic.channels_deadline();
        // Dead letters need no consumer.
        topic.pump_channels_later();
        topic.log.release_unheld();
        topic
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
            if self.find_channel(&facts.name).is_none()
                && let Some(name) = ChannelName::new(facts.name.as_bytes())
            {
                let id = self.create_channel(name);
                let (channel, log) = self.channel_and_log(id);
                channel.paused = facts.paused;
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
        let mut messages = Ranges::default();
        let mut deferred = LongQueue::default();
        let mut runs = saved.runs.clone();
        runs.sort_unstable_by_key(|run| run.start);
        for run in &runs {
            for range in intersect(found, run) {
                messages.push(range);
                self.log.retain(range, 1);
                // 0: the channels' runs have counted these messages.
                if let Some(due) = times.recorded(run.due_ns, 0) {
                    let seqs = (range.start.0..range.end.0).map(Seq);
                    seqs.for_each(|seq| deferred.push_back((seq, due)));
                }
            }
        }
        self.set_grace(now, until, messages);
        let grace = self.grace.as_mut().expect("just set");
        grace.deferred = deferred;
    }

    fn defer_undistributed(&mut self, range: SeqRange, after: Duration) {
        let ms = deferral_ms(after);
        for seq in range.start.0..range.end.0 {
            self.undistributed_deferred.push_back((Seq(seq), ms));
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
        for range in intersect(found, run) {
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

/// Returns whether a restored pause has another end than its checkpoint: the wall clock was set back.
fn ends_elsewhere(pause: &Option<Box<PauseUnderWay>>, saved: &PauseTerms) -> bool {
    pause.as_ref().is_some_and(|pause| pause.terms != *saved)
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
        for range in intersect(found, run) {
            log.retain(range, 1);
            let due = times.recorded(run.due_ns, range.len());
            runs.push(CheckpointRun {
                start: range.start,
                count: range.len(),
                due_ns: due.map_or(0, |due| now.unix_time_of(due)),
                ..*run
            });
        }
    }
    Undo::new(now, until, now.unix_time_of(until), runs)
}

/// Returns a deferral in milliseconds. It is late by less than a millisecond, and never early.
pub(super) fn deferral_ms(after: Duration) -> u32 {
    let ms = after.as_nanos().div_ceil(1_000_000);
    u32::try_from(ms).unwrap_or(u32::MAX).max(1)
}

/// The parts of `run` that exist.
fn intersect(found: &[SeqRange], run: &CheckpointRun) -> impl Iterator<Item = SeqRange> {
    let SeqRange { start, end } = run.range();
    let first = found.partition_point(|range| range.end <= start);
    let parts = found[first..]
        .iter()
        .take_while(move |range| range.start < end);
    parts.map(move |range| SeqRange::new(range.start.max(start), range.end.min(end)))
}
