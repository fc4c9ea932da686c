//! `nsqd.dat`: which topics and channels exist, and which are paused, across restarts.
//!
//! ```text
//!   {"topics":[{"name":"orders","paused":false,"channels":[{"name":"billing","paused":false}]}],
//!    "version":"1.3.0"}
//! ```
//!
//! The file is one line without a line feed, byte for byte as nsqd writes it, so that an operator
//! can go back to nsqd. The file is replaced as a whole: written beside itself, synced, renamed,
//! and the directory synced. nsqd omits the last sync. Everything here blocks and belongs on a
//! helper thread.
//!
//! The parser is as lenient as Go's JSON decoder (keys in any case, `null` for anything), because
//! operators edit the file by hand. Names are not checked: like nsqd, the code that creates the
//! topics skips invalid names with a warning.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use diskq::{ChannelFacts, DataPath, DiskError, OsFiles, SyncError, TopicFacts};
use serde_json::Value;
use wire::NSQ_VERSION;
use wire::go_json::{self, array, boolean, object, string, to_string};
use wire::json_object;

use crate::nsqd_files::is_temporary;
use wire::go_error::system_text;
use wire::name::is_ephemeral;

/// The file's name in the data directory.
pub const FILE_NAME: &str = "nsqd.dat";

/// The content of `nsqd.dat`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The topics in the order of the file. Each name occurs once, and so does each channel of a
    /// topic. The names have not been checked.
    pub topics: Vec<TopicFacts>,
}

impl Metadata {
    /// Returns the path of the file.
    pub fn path(data_path: &Path) -> PathBuf {
        data_path.join(FILE_NAME)
    }

    /// Reads the file. Blocks. A missing file means that no topic exists yet. The texts of the errors are nsqd's.
    pub fn load(data_path: &Path) -> Result<Metadata, DiskError> {
        let path = Metadata::path(data_path);
        let shown = path.display();
        let text = match fs::read(&path) {
            Ok(bytes) => match parse(&bytes) {
                Ok(metadata) => return Ok(metadata),
                // The fault is in Go's words where Go has some.
                Err(why) => format!("failed to parse metadata in {shown} - {why}"),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Metadata::default()),
            Err(error) => {
                let why = system_text(&error);
                format!("failed to read metadata from {shown} - open {shown}: {why}")
            }
        };
        Err(DiskError::Failed(text))
    }

    /// Replaces the file. Blocks until the disk is synced. After success the new content survives a
    /// power failure. After an error the old file is unchanged.
    pub fn store(&self, data_path: &DataPath) -> Result<(), DiskError> {
        let path = Metadata::path(data_path);
        let temporary = data_path.join(format!("{FILE_NAME}.{}.tmp", random_number()));
        let result = self
            .write_to(&temporary)
            .and_then(|()| fs::rename(&temporary, &path).map_err(failed("rename", &temporary)));
        if result.is_err() {
            // The first failure is reported. A leftover file is harmless.
            let _ = fs::remove_file(&temporary);
            return result;
        }
        data_path.sync_names(&OsFiles).map_err(|error| {
            let attempt = match error {
                SyncError::Retryable(_) => "open",
                SyncError::Final(_) => "sync",
            };
            failed(attempt, data_path)(error.into_inner())
        })
    }

    /// Removes the temporary files of every [`Metadata::store`] that a kill interrupted. No program
    /// reads them. The caller must hold the lock of the data path.
    pub fn remove_leftovers(data_path: &Path) -> Result<(), DiskError> {
        let entries = fs::read_dir(data_path).map_err(failed("list", data_path))?;
        for entry in entries {
            let name = entry.map_err(failed("list", data_path))?.file_name();
            if name
                .to_str()
                .is_some_and(|name| is_temporary(name, FILE_NAME))
            {
                let path = data_path.join(name);
                fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(())
    }

    fn write_to(&self, path: &Path) -> Result<(), DiskError> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(failed("open", path))?;
        file.write_all(self.encode().as_bytes())
            .map_err(failed("write", path))?;
        file.sync_all().map_err(failed("sync", path))
    }

    /// Returns the content of the file. Ephemeral topics and channels are omitted. An empty list is
    /// `null`, like an empty slice in Go.
    pub fn encode(&self) -> String {
        let topics = self.topics.iter().filter(|topic| is_kept(&topic.name));
        let topics = topics.map(|topic| {
            let channels = topic.channels.iter().filter(|it| is_kept(&it.name));
            let channels = channels.map(|it| json_object! { name: &it.name, paused: it.paused });
            let channels = null_if_empty(channels.collect());
            json_object! { name: &topic.name, paused: topic.paused, channels }
        });
        // nsqd never reads the version.
        to_string(&json_object! { topics: null_if_empty(topics.collect()), version: NSQ_VERSION })
    }
}

/// The error of an attempt to replace the file, in nsqd's form.
fn failed(attempt: &str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    let attempt = format!("{attempt} {}", path.display());
    move |error| DiskError::Failed(format!("{attempt}: {}", system_text(&error)))
}

/// Returns a number that distinguishes the temporary files of two writers. It need not be hard to
/// guess.
fn random_number() -> u64 {
    // Every RandomState has its own keys. nsqd's number is a non-negative int64.
    RandomState::new().build_hasher().finish() >> 1
}

/// Returns true when `name` is written. Ephemeral topics and channels exist only in memory.
fn is_kept(name: &str) -> bool {
    !is_ephemeral(name.as_bytes())
}

fn null_if_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}

/// Parses the content of the file. The error is the text behind the dash.
fn parse(bytes: &[u8]) -> Result<Metadata, String> {
    let value = go_json::parse(bytes)?;
    let mut metadata = Metadata::default();
    let mut seen = HashMap::new();
    let Some(top) = object(&value, "the file")? else {
        return Ok(metadata);
    };
    for topic in array(top, "topics")? {
        let topic = topic_facts(topic)?;
        merge_topic(&mut metadata.topics, &mut seen, topic);
    }
    Ok(metadata)
}

fn topic_facts(value: &Value) -> Result<TopicFacts, String> {
    let mut topic = TopicFacts::default();
    if let Some(fields) = object(value, "topics")? {
        topic.name = string(fields, "name")?;
        topic.paused = boolean(fields, "paused")?;
        for channel in array(fields, "channels")? {
            let channel = channel_facts(channel)?;
            merge_channel(&mut topic.channels, channel);
        }
    }
    Ok(topic)
}

fn channel_facts(value: &Value) -> Result<ChannelFacts, String> {
    let mut channel = ChannelFacts::default();
    if let Some(fields) = object(value, "channels")? {
        channel.name = string(fields, "name")?;
        channel.paused = boolean(fields, "paused")?;
    }
    Ok(channel)
}

/// Adds a topic. A name that occurs twice is one topic, which is paused if one of its entries is.
fn merge_topic(topics: &mut Vec<TopicFacts>, seen: &mut HashMap<String, usize>, topic: TopicFacts) {
    match seen.get(&topic.name) {
        Some(&known) => {
            topics[known].paused |= topic.paused;
            for channel in topic.channels {
                merge_channel(&mut topics[known].channels, channel);
            }
        }
        None => {
            seen.insert(topic.name.clone(), topics.len());
            topics.push(topic);
        }
    }
}

/// Adds a channel by the same rule. A topic has few channels, so a linear search is enough.
fn merge_channel(channels: &mut Vec<ChannelFacts>, channel: ChannelFacts) {
    match channels.iter_mut().find(|known| known.name == channel.name) {
        Some(known) => known.paused |= channel.paused,
        None => channels.push(channel),
    }
}

#[cfg(test)]
mod tests;
