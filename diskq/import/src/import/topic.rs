//! The takeover of one topic: the queues of its channels are merged, and the topic's own queue
//! follows.
//!
//! ```text
//!   topic:billing   1 2   4 5 ─┐
//!   topic:audit       2 3 4   ─┼─► by id ─► log: 1 2 3 4 5 │ 6 7      billing owes 1-2, 4-5
//!   topic               6 7   ─┘                            └──        audit owes 2-4
//!                                                       undistributed
//! ```
//!
//! Queues are mostly in the order of their ids, so a merge by id meets the copies of a message at
//! the same time. [`Seen`] finds most of the others. The undistributed messages must be the last in
//! the log, because the channels get them next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use diskq::{
    ChannelCheckpoint, ChannelFacts, Checkpoint, CheckpointRun, DiskError, Files, LogReader,
    LogWriter, PauseTerms, Recovered, SeqRange, TopicFacts, existing, open_log, undistributed,
};
use wire::id::Seq;
use wire::limits::ID_BYTES;

use crate::nsqd_files::{QueueReader, queue_name};

use super::directory::Directory;
use super::seen::{Seen, Stored};
use super::takeover::{TakeoverOptions, TopicTakeover};

/// The inputs that all topics of a takeover share.
pub(super) struct Import<'a, F> {
    pub(super) files: &'a F,
    pub(super) data_path: &'a Path,
    /// The directory in which the logs are built.
    pub(super) new: &'a Path,
    pub(super) directory: &'a Directory,
    pub(super) options: &'a TakeoverOptions,
}

/// One channel during the takeover.
struct Owing<'a, F> {
    facts: &'a ChannelFacts,
    /// The channel's queue, or `None` if it has none.
    queue: Option<QueueReader<'a, F>>,
    runs: Vec<CheckpointRun>,
    count: u64,
}

impl<'a, F: Files + Clone> Import<'a, F> {
    /// Builds the log of a topic. `None`: its queues hold no message.
    pub(super) fn topic(
        &self,
        facts: &'a TopicFacts,
        notes: &mut Vec<String>,
    ) -> Result<Option<TopicTakeover>, DiskError> {
        let mut own = self.open(queue_name(&facts.name, None))?;
        let mut channels = Vec::new();
        for channel in &facts.channels {
            channels.push(Owing {
                facts: channel,
                queue: self.open(queue_name(&facts.name, Some(&channel.name)))?,
                runs: Vec::new(),
                count: 0,
            });
        }
        let queues = channels.iter().filter_map(|channel| channel.queue.as_ref());
        if own.iter().chain(queues).all(|queue| queue.head().is_none()) {
            let queues = channels.into_iter().filter_map(|channel| channel.queue);
            let queues = own.into_iter().chain(queues);
            notes.extend(queues.flat_map(QueueReader::into_notes));
            return Ok(None);
        }
        // A topic without a log gets an empty one, whose seqs begin at the clock.
        let (name, TakeoverOptions { log, wall_ns, .. }) = (&facts.name, self.options);
        let recovered = open_log(self.files, self.data_path, name, log.clone(), *wall_ns)?;
        let mut log = LogWriter::behind(&recovered.log, self.files, self.new, name, log);
        let mut topic = TopicTakeover {
            name: facts.name.clone(),
            is_appended: self.directory.has_log(&facts.name),
            ..TopicTakeover::default()
        };
        let mut seen = Seen::default();
        topic.message_count = merge(&mut channels, &mut log, &mut seen)?;
        let mut waiting = self.append_undistributed(&recovered, &facts.name, &mut log, notes)?;
        if let Some(own) = &mut own {
            let count = append_own(own, &mut channels, &mut log, &mut seen, &mut waiting)?;
            topic.message_count += count;
            topic.undistributed_count = count;
        }
        let checkpoint = self.checkpoint(facts.paused, &recovered, &mut channels, waiting);
        log.finish(&checkpoint)?;
        notes.extend(own.map(QueueReader::into_notes).unwrap_or_default());
        for channel in channels {
            if let Some(queue) = channel.queue {
                notes.extend(queue.into_notes());
                topic
                    .channels
                    .push((channel.facts.name.clone(), channel.count));
            }
        }
        Ok(Some(topic))
    }

    fn open(&self, name: String) -> Result<Option<QueueReader<'a, F>>, DiskError> {
        let Some(queue) = self.directory.queues.get(&name) else {
            return Ok(None);
        };
        let bytes_max = self.options.message_bytes_max;
        let reader = QueueReader::open(self.files, self.data_path, name, queue, bytes_max)?;
        Ok(Some(reader))
    }

    /// Appends the undistributed messages of a log of ours once more, behind the channels'
    /// messages, because they must be the last in the log. Returns their new seqs.
    fn append_undistributed(
        &self,
        recovered: &Recovered,
        topic: &str,
        log: &mut LogWriter<'_, F>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<CheckpointRun>, DiskError> {
        let mut moved = Vec::new();
        let mut lost_count = 0;
        let mut reader = LogReader::new(self.files, self.data_path, topic, recovered);
        for run in undistributed(recovered) {
            for seq in run.start.0..run.range().end.0 {
                match reader.read(Seq(seq))? {
                    Some(message) => {
                        let seq = log.append(message.timestamp_ns, message.body)?;
                        push(&mut moved, seq, 0, run.due_ns);
                    }
                    None => lost_count += 1,
                }
            }
        }
        let damage = recovered.damage.iter().cloned().chain(reader.into_damage());
        notes.extend(damage.map(|damage| format!("topic {topic}: damaged on disk - {damage}")));
        if lost_count > 0 {
            notes.push(format!(
                "topic {topic}: {lost_count} damaged messages of its log are skipped"
            ));
        }
        Ok(moved)
    }

    /// Returns the checkpoint of the new log: the obligations of the old log and those of the takeover. If the topic is in
    /// grace, a channel that the old log does not know was made in the grace.
    fn checkpoint(
        &self,
        paused: bool,
        recovered: &Recovered,
        channels: &mut [Owing<'_, F>],
        undistributed: Vec<CheckpointRun>,
    ) -> Checkpoint {
        let old = recovered.checkpoint.as_ref();
        let mut kept: Vec<ChannelCheckpoint> = old.map_or(Vec::new(), |old| old.channels.clone());
        let mut undo = old.and_then(|old| old.undo.clone());
        let mut grace = old.and_then(|old| old.grace.clone());
        for channel in &mut kept {
            channel.runs = existing(recovered, &channel.runs);
        }
        let undos = kept.iter_mut().filter_map(|channel| channel.undo.as_mut());
        for undo in undos.chain(&mut undo) {
            undo.runs = existing(recovered, &undo.runs);
        }
        if let Some(grace) = &mut grace {
            grace.runs = existing(recovered, &grace.runs);
        }
        let lasting = grace
            .as_ref()
            .filter(|it| it.until_ns > self.options.wall_ns);
        let in_grace = lasting.map_or(&[][..], |grace| &grace.runs);
        for channel in channels {
            channel.runs.sort_by_key(|run| run.start);
            let ChannelFacts { name, paused } = channel.facts;
            let index = kept.iter().position(|kept| kept.name == *name);
            let index = index.unwrap_or_else(|| {
                kept.push(ChannelCheckpoint {
                    name: name.clone(),
                    runs: in_grace.to_vec(),
                    ..ChannelCheckpoint::default()
                });
                kept.len() - 1
            });
            if kept[index].paused != *paused {
                kept[index].paused = *paused;
                kept[index].terms = PauseTerms::default();
            }
            for run in channel.runs.drain(..) {
                push_run(&mut kept[index].runs, run);
            }
        }
        let old = old.filter(|old| old.paused == paused);
        Checkpoint {
            paused,
            terms: old.map_or_else(PauseTerms::default, |old| old.terms.clone()),
            undistributed,
            undo,
            grace,
            channels: kept,
            ..Checkpoint::default()
        }
    }
}

/// Appends the messages that the channels owe. Returns the number of appended messages.
fn merge<F: Files + Clone>(
    channels: &mut [Owing<'_, F>],
    log: &mut LogWriter<'_, F>,
    seen: &mut Seen,
) -> Result<u64, DiskError> {
    let mut heads: BinaryHeap<Reverse<([u8; ID_BYTES], usize)>> = BinaryHeap::new();
    heads.extend((0..channels.len()).filter_map(|index| head_id(&channels[index], index)));
    let mut count = 0;
    while let Some(Reverse((_, index))) = heads.pop() {
        let channel = &mut channels[index];
        let record = channel.queue.as_ref().and_then(QueueReader::head);
        let record = record.expect("only queues with a head are in the heap");
        let attempts = record.attempts;
        let known = seen
            .find(&record)
            .filter(|stored| stored.channels & bit(index) == 0);
        let seq = match known {
            Some(stored) => {
                stored.channels |= bit(index);
                stored.seq
            }
            None => {
                let seq = log.append(record.timestamp_ns, record.body)?;
                count += 1;
                let channels = bit(index);
                seen.insert(&record, Stored { seq, channels });
                seq
            }
        };
        channel.owe(seq, attempts);
        if let Some(queue) = &mut channel.queue {
            queue.advance()?;
        }
        heads.extend(head_id(&channels[index], index));
    }
    Ok(count)
}

/// Appends the topic's own queue. Returns the number of appended messages.
///
/// A crash of nsqd leaves messages in this queue that some channels' queues have already. Such a
/// message goes only to the channels that lack it.
fn append_own<F: Files + Clone>(
    own: &mut QueueReader<'_, F>,
    channels: &mut [Owing<'_, F>],
    log: &mut LogWriter<'_, F>,
    seen: &mut Seen,
    waiting: &mut Vec<CheckpointRun>,
) -> Result<u64, DiskError> {
    let mut count = 0;
    // With more than 64 channels, several channels share a bit.
    let is_exact = channels.len() <= u64::BITS as usize;
    while let Some(record) = own.head() {
        match seen.find(&record).filter(|_| is_exact) {
            Some(stored) => {
                for (index, channel) in channels.iter_mut().enumerate() {
                    if stored.channels & bit(index) == 0 {
                        channel.owe(stored.seq, 0);
                    }
                }
                stored.channels = u64::MAX;
            }
            None => {
                let seq = log.append(record.timestamp_ns, record.body)?;
                push(waiting, seq, 0, 0);
                count += 1;
            }
        }
        own.advance()?;
    }
    Ok(count)
}

impl<F> Owing<'_, F> {
    fn owe(&mut self, seq: Seq, attempts: u16) {
        push(&mut self.runs, seq, attempts, 0);
        self.count += 1;
    }
}

fn head_id<F: Files>(
    channel: &Owing<'_, F>,
    index: usize,
) -> Option<Reverse<([u8; ID_BYTES], usize)>> {
    let record = channel.queue.as_ref()?.head()?;
    Some(Reverse((record.id, index)))
}

fn bit(index: usize) -> u64 {
    1 << (index % u64::BITS as usize)
}

fn push(runs: &mut Vec<CheckpointRun>, start: Seq, attempts: u16, due_ns: u64) {
    let run = CheckpointRun::fresh(SeqRange::one(start), due_ns);
    push_run(runs, CheckpointRun { attempts, ..run });
}

/// Adds a run behind the last one. Joins both runs if they touch and have the same properties.
fn push_run(runs: &mut Vec<CheckpointRun>, run: CheckpointRun) {
    match runs.last_mut() {
        Some(last) if last.is_continued_by(&run) => last.count += run.count,
        _ => runs.push(run),
    }
}
