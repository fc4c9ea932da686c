//! Writes a data directory of the original nsqd from our logs, so that going back is possible.
//!
//! The messages that a channel owes become the channel's queue. The undistributed messages become
//! the topic's queue. nsqd's files know no deferral, so a deferred message is due at once. Ids,
//! timestamps and attempts are kept.

use std::collections::BTreeSet;
use std::path::Path;

use diskq::{
    Attempt, ChannelFacts, CheckpointRun, DiskError, Entry, Files, LogReader, Logs, Recovered,
    TopicFacts, existing, read_log, undistributed,
};
use wire::id::Seq;
use wire::name::{ChannelName, TopicName};

use crate::metadata::{FILE_NAME, Metadata};
use crate::nsqd_files::{FileKind, QueueWriter, Record, parse_name, queue_name};

/// The takeover's directory. The logs are not complete as long as it exists.
const UNFINISHED: &str = crate::import::DONE;

/// The options of an export.
#[derive(Clone, Copy, Debug)]
pub struct ExportOptions {
    /// Largest file, as nsqd's `--max-bytes-per-file`.
    pub file_bytes_max: u64,
}

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The number of messages in each queue, by topic and channel. `None` is the topic's own queue.
    pub queues: Vec<(String, Option<String>, u64)>,
    /// The largest body, in bytes. nsqd needs a `--max-msg-size` of at least this number.
    pub body_bytes_max: u64,
    /// The number of deferred messages, which are due at once now.
    pub deferred_count: u64,
    /// One sentence for each fault that was found.
    pub notes: Vec<String>,
}

/// Writes the content of the logs below `data_path` and of `metadata`, its nsqd.dat, to the empty
/// or missing directory `output`. Blocks. The caller must hold the lock of the data path. Nothing
/// in the data path is changed.
///
/// # Errors
/// After an error, the written files are removed as far as possible. nsqd.dat is written last, and
/// nsqd ignores a directory without it.
pub fn export<F: Files + Clone>(
    files: &F,
    data_path: &Path,
    output: &Path,
    metadata: &Metadata,
    options: &ExportOptions,
) -> Result<Exported, DiskError> {
    let topics = topics(files, data_path, metadata)?;
    files.create_dir(output).in_attempt("make", output)?;
    if !files.list(output).in_attempt("list", output)?.is_empty() {
        let text = format!("{} is not empty: choose a new directory", output.display());
        return Err(DiskError::Failed(text));
    }
    let mut export = Export {
        files,
        data_path,
        output,
        options,
        exported: Exported::default(),
    };
    match export.write(topics) {
        Ok(()) => Ok(export.exported),
        Err(error) => {
            // The first error is reported. Later ones are ignored.
            for entry in files.list(output).unwrap_or_default() {
                let _ = files.remove(&output.join(entry.name));
            }
            Err(error)
        }
    }
}

/// Returns the durable topics in the order of nsqd.dat. Topics that only a log names come after
/// them.
fn topics(
    files: &impl Files,
    data_path: &Path,
    metadata: &Metadata,
) -> Result<Vec<TopicFacts>, DiskError> {
    let is_durable =
        |name: &str| TopicName::new(name.as_bytes()).is_some_and(|topic| !topic.is_ephemeral());
    let entries = files.list(data_path).in_attempt("list", data_path)?;
    let mut unlisted = Logs::among(&entries, data_path).topics(&metadata.topics);
    unlisted.retain(|name, _| is_durable(name));
    let listed = metadata.topics.iter();
    let listed = listed.filter_map(|topic| unlisted.remove(&topic.name).flatten());
    let mut topics: Vec<TopicFacts> = listed.collect();
    let queues = topics.iter().flat_map(|topic| {
        let channels = topic.channels.iter();
        let of_channels = channels.map(|channel| queue_name(&topic.name, Some(&channel.name)));
        of_channels.chain([queue_name(&topic.name, None)])
    });
    let queues: BTreeSet<String> = queues.collect();
    for Entry { name, .. } in entries {
        let is_original = matches!(
            parse_name(&name),
            Some((queue, FileKind::Data(_) | FileKind::Positions)) if queues.contains(queue)
        );
        if is_original || name == UNFINISHED {
            let text = format!(
                "{} of the original nsqd's is not taken over yet (or not to the end): start nsqd here \
                 once and stop it",
                data_path.join(name).display()
            );
            return Err(DiskError::Failed(text));
        }
    }
    topics.extend(unlisted.into_keys().map(|name| TopicFacts {
        name,
        ..TopicFacts::default()
    }));
    Ok(topics)
}

struct Export<'a, F> {
    files: &'a F,
    data_path: &'a Path,
    output: &'a Path,
    options: &'a ExportOptions,
    exported: Exported,
}

impl<F: Files + Clone> Export<'_, F> {
    fn write(&mut self, mut topics: Vec<TopicFacts>) -> Result<(), DiskError> {
        let file_system = self.files.open_file_system(self.output);
        let file_system = file_system.in_attempt("open", self.output)?;
        for topic in &mut topics {
            self.topic(topic)?;
        }
        let path = self.output.join(FILE_NAME);
        let metadata = Metadata { topics }.encode();
        let sync = || self.files.sync_file_system(&file_system);
        // The first sync makes all other files durable before nsqd.dat is written.
        sync()
            .and_then(|()| self.files.write_at(&path, 0, metadata.as_bytes()))
            .and_then(|()| sync())
            .in_attempt("write", &path)?;
        Ok(())
    }

    /// Writes the queues of a topic. If its log has a checkpoint, the checkpoint's content replaces
    /// `topic`, as at a start.
    fn topic(&mut self, topic: &mut TopicFacts) -> Result<(), DiskError> {
        let recovered = read_log(self.files, self.data_path, &topic.name)?;
        let damage = recovered.damage.iter();
        let note = |damage| format!("topic {}: damaged on disk - {damage}", topic.name);
        self.exported.notes.extend(damage.map(note));
        self.queue(&recovered, &topic.name, None, &undistributed(&recovered))?;
        let Some(checkpoint) = &recovered.checkpoint else {
            return Ok(());
        };
        topic.paused = checkpoint.paused;
        topic.channels.clear();
        for channel in &checkpoint.channels {
            if ChannelName::new(channel.name.as_bytes()).is_none() {
                continue;
            }
            let runs = existing(&recovered, &channel.runs);
            self.queue(&recovered, &topic.name, Some(&channel.name), &runs)?;
            topic.channels.push(ChannelFacts {
                name: channel.name.clone(),
                paused: channel.paused,
            });
        }
        Ok(())
    }

    fn queue(
        &mut self,
        recovered: &Recovered,
        topic: &str,
        channel: Option<&str>,
        runs: &[CheckpointRun],
    ) -> Result<(), DiskError> {
        let name = queue_name(topic, channel);
        let mut log = LogReader::new(self.files, self.data_path, topic, recovered);
        let file_bytes_max = self.options.file_bytes_max;
        let mut queue = QueueWriter::new(self.files, self.output, &name, file_bytes_max);
        let mut lost_count = 0;
        for run in runs {
            for seq in run.start.0..run.range().end.0 {
                let Some(message) = log.read(Seq(seq))? else {
                    lost_count += 1;
                    continue;
                };
                queue.append(&Record {
                    timestamp_ns: message.timestamp_ns,
                    attempts: run.attempts,
                    id: message.id.0,
                    body: message.body,
                })?;
                let body_bytes = message.body.len() as u64;
                self.exported.body_bytes_max = self.exported.body_bytes_max.max(body_bytes);
                self.exported.deferred_count += u64::from(run.due_ns != 0);
            }
        }
        let count = queue.finish()?;
        let damage = log.into_damage().into_iter();
        let notes = damage.map(|damage| format!("queue {name}: damaged on disk - {damage}"));
        self.exported.notes.extend(notes);
        if lost_count > 0 {
            let text = format!("queue {name}: {lost_count} damaged messages are left out");
            self.exported.notes.push(text);
        }
        let channel = channel.map(str::to_owned);
        self.exported
            .queues
            .push((topic.to_owned(), channel, count));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
