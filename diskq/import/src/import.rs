//! Takes over a data directory of the original nsqd: the backlog of its topics and channels becomes
//! logs of ours. At every instant, the takeover either has not happened or is complete and durable.
//!
//! ```text
//!   import.new/<topic>.log/...    built beside everything else; thrown away if found at a start
//!              manifest           which files of nsqd's are in it
//!        │ everything synced, one rename: this is the moment
//!        ▼
//!   import.done/...               found at a start: what follows is done (again)
//!        │ logs to their places, nsqd's files to nsqd-original-<date>/
//!        ▼
//!   <topic>.log/                  nsqd-original-<date>/: a data directory of nsqd's, kept
//! ```
//!
//! Only the queues of topics and channels that nsqd.dat lists are taken over. Like nsqd, the
//! takeover leaves other files where they are. They are taken over at the first start at which
//! nsqd.dat lists their topic and channel.

mod commit;
mod directory;
mod seen;
mod takeover;
mod topic;

use std::collections::BTreeSet;
use std::path::Path;

use diskq::{Attempt, DiskError, Files, TopicFacts};
use wire::name::{ChannelName, TopicName};

use crate::nsqd_files::QueueReader;

pub use commit::DONE;
use commit::{Committed, Manifest};
pub(crate) use commit::{NEW, ORIGINAL_PREFIX};
use directory::Directory;
pub use takeover::{Takeover, TakeoverOptions, TopicTakeover};

/// Takes over nsqd's files, of which most starts find none. Blocks. `topics` is the content of
/// nsqd.dat. The caller must hold the lock of the data path.
///
/// # Errors
/// After an error nothing is changed. If the takeover is committed already, the next start
/// completes it.
pub fn take_over<F: Files + Clone>(
    files: &F,
    data_path: &Path,
    topics: &[TopicFacts],
    options: &TakeoverOptions,
) -> Result<Takeover, DiskError> {
    let mut takeover = Takeover {
        completed_earlier: commit::roll_forward(files, data_path)?,
        ..Takeover::default()
    };
    let Found {
        directory,
        topics,
        unlisted,
    } = Found::look(files, data_path, topics, &BTreeSet::new())?;
    takeover.unlisted = unlisted;
    if directory.has_new {
        commit::remove_tree(files, &data_path.join(commit::NEW))?;
    }
    if directory.queues.is_empty() {
        return Ok(takeover);
    }
    let file_system = files
        .open_file_system(data_path)
        .in_attempt("open", data_path)?;
    let original = commit::original_name(&options.label, |name| directory.names.contains(name));
    let attempt = build(
        files,
        data_path,
        &topics,
        &directory,
        options,
        &mut takeover,
    )
    .and_then(|()| {
        let manifest = Manifest {
            original: original.clone(),
            files: directory.old_files(),
        };
        manifest.commit(files, data_path, &file_system)
    });
    if let Err(error) = attempt {
        // The first error is reported. The next start removes leftovers.
        let _ = commit::remove_tree(files, &data_path.join(commit::NEW));
        return Err(error);
    }
    if let Some(ignored) = directory.ignored_note() {
        takeover.notes.push(ignored);
    }
    commit::roll_forward(files, data_path)?;
    takeover.original = Some(data_path.join(original));
    Ok(takeover)
}

/// The work of a takeover that the next start will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueTakeover {
    /// True if an earlier takeover counts and is not complete. The start completes it first. Its queues do not count
    /// below.
    pub completes_earlier: bool,
    /// True if an earlier takeover was cut off before it counted. The start removes its files and begins anew.
    pub begins_anew: bool,
    /// The number of the topics' and channels' queues.
    pub queue_count: usize,
    /// The bytes of the queues' files.
    pub bytes: u64,
    /// The queues of topics and channels that nsqd.dat does not list. Their files are left alone.
    pub unlisted: Vec<String>,
}

/// Looks what [`take_over`] would do, and changes nothing. Blocks.
///
/// # Errors
/// The data path or the length of a file cannot be read, or an earlier takeover cannot be completed. [`take_over`] would
/// fail, too.
pub fn due_takeover(
    files: &impl Files,
    data_path: &Path,
    topics: &[TopicFacts],
) -> Result<DueTakeover, DiskError> {
    let (completes_earlier, found) = look_ahead(files, data_path, topics)?;
    let queues = found.directory.queues;
    Ok(DueTakeover {
        completes_earlier,
        begins_anew: found.directory.has_new,
        queue_count: queues.len(),
        bytes: queues.values().flat_map(|queue| queue.data.values()).sum(),
        unlisted: found.unlisted,
    })
}

/// The content of the queues that the next start takes over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueContent {
    /// The messages that were read. A message in the queues of several channels counts several times.
    pub message_count: u64,
    /// One sentence for each fault that was found.
    pub notes: Vec<String>,
    /// False if the reading ended before the last queue did.
    pub is_complete: bool,
}

/// Reads the queues that [`take_over`] would read, while `goes_on` returns true. Changes nothing. Blocks.
///
/// # Errors
/// Those of [`due_takeover`], or a file cannot be read. [`take_over`] would fail, too.
pub fn read_due(
    files: &impl Files,
    data_path: &Path,
    topics: &[TopicFacts],
    message_bytes_max: u64,
    goes_on: impl Fn() -> bool,
) -> Result<DueContent, DiskError> {
    let (_, found) = look_ahead(files, data_path, topics)?;
    let mut content = DueContent::default();
    for (name, queue) in &found.directory.queues {
        let name = name.clone();
        let mut reader = QueueReader::open(files, data_path, name, queue, message_bytes_max)?;
        while reader.head().is_some() {
            if !goes_on() {
                return Ok(content);
            }
            content.message_count += 1;
            reader.advance()?;
        }
        content.notes.extend(reader.into_notes());
    }
    content.is_complete = true;
    Ok(content)
}

/// Returns whether the next start completes an earlier takeover first, and the files that it finds then.
fn look_ahead(
    files: &impl Files,
    data_path: &Path,
    topics: &[TopicFacts],
) -> Result<(bool, Found), DiskError> {
    let present = files.list(data_path).in_attempt("list", data_path)?;
    let earlier = Committed::find(files, data_path, &present)?;
    let taken = earlier.iter().flat_map(Committed::taken).collect();
    let found = Found::look(files, data_path, topics, &taken)?;
    Ok((earlier.is_some(), found))
}

/// The files of nsqd in the data path.
struct Found {
    /// The listing, with the queues to take over.
    directory: Directory,
    /// The topics to take over.
    topics: Vec<TopicFacts>,
    /// The queues of topics and channels that nsqd.dat does not list.
    unlisted: Vec<String>,
}

impl Found {
    /// Looks for queues, without the files that a committed takeover has `taken` already.
    fn look(
        files: &impl Files,
        data_path: &Path,
        topics: &[TopicFacts],
        taken: &BTreeSet<&str>,
    ) -> Result<Found, DiskError> {
        let mut directory = Directory::list(files, data_path, taken)?;
        // A tombstone is newer than an nsqd.dat that lists its topic.
        let is_deleted = |topic: &&TopicFacts| directory.deleted.contains(&topic.name);
        let topics = topics.iter().filter(|topic| !is_deleted(topic));
        let topics: Vec<TopicFacts> = topics.filter_map(valid).collect();
        let unlisted = directory.split_off_unlisted(&topics);
        Ok(Found {
            directory,
            topics,
            unlisted,
        })
    }
}

/// Builds the new logs below `import.new`.
fn build<F: Files + Clone>(
    files: &F,
    data_path: &Path,
    topics: &[TopicFacts],
    directory: &Directory,
    options: &TakeoverOptions,
    takeover: &mut Takeover,
) -> Result<(), DiskError> {
    let new = data_path.join(commit::NEW);
    files.create_dir(&new).in_attempt("make", &new)?;
    let import = topic::Import {
        files,
        data_path,
        new: &new,
        directory,
        options,
    };
    for facts in topics {
        let topic = import.topic(facts, &mut takeover.notes)?;
        takeover.topics.extend(topic);
    }
    Ok(())
}

/// Returns the parts of a topic that have valid names and outlive nsqd.
fn valid(facts: &TopicFacts) -> Option<TopicFacts> {
    let topic = TopicName::new(facts.name.as_bytes())?;
    let is_valid = |name: &str| {
        ChannelName::new(name.as_bytes()).is_some_and(|channel| !channel.is_ephemeral())
    };
    let mut facts = facts.clone();
    facts.channels.retain(|channel| is_valid(&channel.name));
    (!topic.is_ephemeral()).then_some(facts)
}

#[cfg(test)]
mod tests;
