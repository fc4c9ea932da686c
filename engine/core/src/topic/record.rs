//! Restoring a topic at the start, the checkpoints that clients wait for, and the last checkpoint of a graceful stop.

use super::{Stopping, Topic, TopicOptions};
use crate::channel::Channel;
use crate::client::Clients;
use crate::deferred::DeferredEntry;
use crate::ids::ChannelId;
use crate::now::Now;
use crate::work::Work;
use diskq_log::{CheckpointNumber, CheckpointRun, Durable, Recovered, SeqRange, TopicFacts};
use std::time::Duration;
use wire::id::Seq;
use wire::name::{ChannelName, TopicName};

/// A stop waits for descriptors while this many syncs in a row could not open their files: 10 s.
const DELAYED_SYNCS_MAX: u32 = 40;

impl Topic {
    /// A topic as an earlier run left it. What the checkpoint does not know any more (it is older
    /// than the log's end) is owed to every channel.
    ///
    /// The checkpoint says which channels there are and what is paused, and `listed`, the entry of nsqd.dat, only
    /// where there is no checkpoint: a change is answered when a checkpoint says so, and nsqd.dat follows.
    pub(crate) fn restore(
        name: TopicName<'_>,
        options: TopicOptions,
        now: Now,
        recovered: Recovered,
        listed: Option<&TopicFacts>,
    ) -> Topic {
        let group_commit = options.group_commit;
        let mut topic = Topic::with_log(name, options, recovered.log);
        if let Some(facts) = listed.filter(|_| recovered.checkpoint.is_none()) {
            topic.restore_listed(facts);
        }
        // With group commit the process may have ended before the sync of the checkpoint.
        topic.is_recorded = recovered.checkpoint.is_some() && !group_commit;
        let checkpoint = recovered.checkpoint.unwrap_or_default();
        topic.paused |= checkpoint.paused;
        for saved in &checkpoint.channels {
            if let Some(name) = ChannelName::new(saved.name.as_bytes()) {
                let id = topic.create_channel(name);
                let (channel, log) = topic.channel_and_log(id).expect("just created");
                channel.paused = saved.paused;
                let is_durable = recovered.durable_channels.names(&saved.name);
                channel.is_unsure = !is_durable && group_commit;
                let mut deferred = Vec::new();
                for run in &saved.runs {
                    let due = due_time(now, run.due_ns);
                    let attempts = run.attempts;
                    for range in intersect(&recovered.found, run) {
                        log.retain(range, 1);
                        if let Some(due) = due {
                            let seqs = (range.start.0..range.end.0).map(Seq);
                            deferred.extend(seqs.map(|seq| DeferredEntry { due, seq, attempts }));
                        } else {
                            channel.restore(range, attempts);
                        }
                    }
                }
                channel.restore_deferred(deferred);
            }
        }
        for run in &checkpoint.undistributed {
            for range in intersect(&recovered.found, run) {
                topic.undistributed.push(range);
                topic.log.retain(range, 1);
                if let Some(due) = due_time(now, run.due_ns) {
                    topic.defer_undistributed(range, due.saturating_sub(now.mono));
                }
            }
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
        for (seq, due_ns) in recovered.deferred {
            if let Some(due) = due_time(now, due_ns)
                && due > now.mono
            {
                let range = SeqRange {
                    start: seq,
                    end: seq.offset(1),
                };
                topic.defer_undistributed(range, due - now.mono);
            }
        }
        topic.distribute(now, &Clients::default(), &mut Work::unbounded());
        topic.recompute_deadline();
        topic.log.release_unheld();
        topic
    }

    /// Takes over the entry of nsqd.dat. Invalid channel names are left out.
    fn restore_listed(&mut self, facts: &TopicFacts) {
        self.paused = facts.paused;
        for facts in &facts.channels {
            if let Some(name) = ChannelName::new(facts.name.as_bytes()) {
                let id = self.create_channel(name);
                let channel = self.channel_mut(id).expect("just created");
                channel.paused = facts.paused;
                channel.is_unsure = true;
            }
        }
    }

    fn defer_undistributed(&mut self, range: SeqRange, after: Duration) {
        // Rounded up: late by less than a millisecond, never early.
        let ms = u32::try_from(after.as_nanos().div_ceil(1_000_000))
            .unwrap_or(u32::MAX)
            .max(1);
        for seq in range.start.0..range.end.0 {
            self.undistributed_deferred.push_back((Seq(seq), ms));
        }
    }

    /// Requests a checkpoint for a change whose answer waits until the change is recorded. An answered change is as
    /// durable as an acknowledged message: with `--sync-every=1` it survives a power failure. The change must not
    /// depend on nsqd.dat, which is written later.
    pub(crate) fn write_promise(&mut self) -> CheckpointNumber {
        let durable = if self.options.group_commit {
            Durable::Yes
        } else {
            Durable::No
        };
        self.want_checkpoint(durable)
    }

    /// Requests a checkpoint that records the channel. A client that wants the channel waits for that
    /// checkpoint.
    pub(crate) fn record_channel(&mut self, id: ChannelId) -> CheckpointNumber {
        let number = self.write_promise();
        if let Some(channel) = self.channel_mut(id) {
            channel.unrecorded = Some(number);
        }
        number
    }

    /// The number of the checkpoint that will record a channel; `None` once the channel is recorded. If that
    /// checkpoint could not be written, a later one takes its place, and the clients that wait are answered.
    pub(crate) fn unrecorded(&mut self, id: ChannelId) -> Option<CheckpointNumber> {
        match self.channel(id)?.unrecorded {
            Some(number) if self.expects_checkpoint(number) => Some(number),
            Some(_) => Some(self.record_channel(id)),
            None => self.is_unsure(id).then(|| self.record_channel(id)),
        }
    }

    /// Returns whether the channel must be recorded before a SUB to it is answered, because an earlier run left it and
    /// no sufficiently durable checkpoint names it. False after a failed sync: then nothing can be recorded any more,
    /// but consumers still get the stored messages.
    fn is_unsure(&self, id: ChannelId) -> bool {
        let is_unsure = |channel: &Channel| channel.is_unsure;
        !self.sync_failed && self.channel(id).is_some_and(is_unsure)
    }

    /// Notes that nothing of this topic becomes durable any more. A SUB to a channel of an earlier run no longer waits
    /// for a checkpoint.
    pub(crate) fn mark_sync_failed(&mut self) {
        self.sync_failed = true;
        let channels = self.channels.iter_mut().flatten();
        for channel in channels.filter(|channel| channel.is_unsure) {
            channel.unrecorded = None;
        }
    }

    /// Does the next step of a graceful stop: syncs all messages, then writes one last checkpoint. Returns true while
    /// the last checkpoint has not ended. Call this again after the keeper's next answer.
    pub(crate) fn drive_stop(&mut self) -> bool {
        match self.stopping {
            _ if self.ephemeral => false,
            Stopping::Done => false,
            Stopping::Checkpoint(_) => true,
            Stopping::No
                if !self.log.is_synced()
                    && !self.sync_failed
                    && self.log.delayed_syncs() < DELAYED_SYNCS_MAX =>
            {
                self.log.sync_now();
                true
            }
            Stopping::No => {
                let durable = if self.sync_failed {
                    Durable::No
                } else {
                    Durable::Yes
                };
                self.log.seal();
                let number = self.want_checkpoint(durable);
                self.stopping = Stopping::Checkpoint(number);
                true
            }
        }
    }

    /// Ends a stop if checkpoint `number`, which was written or could not be, is its last one.
    pub(crate) fn advance_stop(&mut self, number: CheckpointNumber) {
        if let Stopping::Checkpoint(wanted) = self.stopping
            && number >= wanted
        {
            self.stopping = Stopping::Done;
        }
    }
}

/// Returns the monotonic time of a recorded due time. A due time in the past becomes `now`. `None` if `due_ns` is 0:
/// the message is not deferred.
fn due_time(now: Now, due_ns: u64) -> Option<Duration> {
    let wait = Duration::from_nanos(due_ns.saturating_sub(now.wall_ns));
    (due_ns > 0).then(|| now.mono + wait)
}

/// The parts of `run` that exist.
fn intersect(found: &[SeqRange], run: &CheckpointRun) -> impl Iterator<Item = SeqRange> {
    let SeqRange { start, end } = run.range();
    let first = found.partition_point(|range| range.end <= start);
    let parts = found[first..]
        .iter()
        .take_while(move |range| range.start < end);
    parts.map(move |range| SeqRange {
        start: range.start.max(start),
        end: range.end.min(end),
    })
}
