//! The audit log: a line for every act and every `PUT /config/*`, also for those that were refused.
//!
//! Each line goes to the log. With `--audit-log-file`, it is also appended to that file as JSON:
//!
//! ```text
//! {"time":"2026-11-24T09:12:50Z","user":"carol","remote_address":"10.0.0.7:50142",
//!  "action":"pause_channel","topic":"clicks","channel":"archive","result":"done","message":""}
//! ```
//!
//! The file is opened for each line, so that it can be moved away at any time. A client that may not act cannot fill the disk:
//! names are cut off, and [`Refusals`] says which refused requests have a line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use program::{log_error, log_info, log_warn};
use wire::go_error::system_text;
use wire::go_json::JsonObject;

use crate::cut_off::cut_off;
use crate::tally::Tally;

mod refusals;

use refusals::Refusals;

/// Most bytes of a name in a line. The names of topics and channels have at most 64 bytes, and those of hosts 253. A client
/// that may not act can send longer ones.
const NAME_BYTES_MAX: usize = 256;

/// Most bytes of a message in a line. The message of an act has a sentence for each node that has failed.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// The result of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All servers have carried it out.
    Done,
    /// Some servers have not carried it out, or had nothing to do.
    Partly,
    /// The act failed.
    Failed,
    /// The user may not act, or the request came from another page.
    Refused,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Seconds since 1970.
    pub unix_seconds: i64,
    /// The user of the proxy's header or of basic authentication, or an empty text.
    pub user: String,
    /// The client's address with its port.
    pub remote_address: String,
    /// The action: `create_topic`, `pause_channel`, ...
    pub action: String,
    /// The topic.
    pub topic: String,
    /// The channel, or an empty text.
    pub channel: String,
    /// The node, or an empty text.
    pub node: String,
    /// The key of `/config`, or an empty text.
    pub key: String,
    /// The result.
    pub outcome: Outcome,
    /// The message of the answer.
    pub message: String,
}

impl Outcome {
    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Partly => "partly",
            Outcome::Failed => "failed",
            Outcome::Refused => "refused",
        }
    }
}

impl Entry {
    /// Cuts off what is too long.
    fn cut_off(&mut self) {
        for name in [
            &mut self.user,
            &mut self.topic,
            &mut self.channel,
            &mut self.node,
            &mut self.key,
        ] {
            cut_off(name, NAME_BYTES_MAX);
        }
        cut_off(&mut self.message, MESSAGE_BYTES_MAX);
    }

    /// Returns the line of the file, without its end.
    pub fn json(&self) -> String {
        let time = Timestamp::from_second(self.unix_seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        let mut json = String::new();
        let mut object = JsonObject::new(&mut json);
        object.text("time", &time.to_string());
        object.text("user", &self.user);
        object.text("remote_address", &self.remote_address);
        object.text("action", &self.action);
        object.text_unless_empty("topic", &self.topic);
        object.text_unless_empty("channel", &self.channel);
        object.text_unless_empty("node", &self.node);
        object.text_unless_empty("key", &self.key);
        object.text("result", self.outcome.word());
        object.text("message", &self.message);
        object.end();
        json
    }

    /// Returns the text of the log line.
    fn text(&self) -> String {
        let mut subject = self.topic.clone();
        if !self.channel.is_empty() {
            subject = format!("{subject}/{}", self.channel);
        }
        if !self.node.is_empty() {
            subject = format!("{subject} on {}", self.node);
        }
        if !self.key.is_empty() {
            subject.clone_from(&self.key);
        }
        let (user, address) = (&self.user, &self.remote_address);
        let (action, result) = (&self.action, self.outcome.word());
        let message = match self.message.as_str() {
            "" => String::new(),
            message => format!(" - {message}"),
        };
        format!("AUDIT: {action} {subject} by user {user:?} ({address}): {result}{message}")
    }
}

/// The audit log.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    file: Option<Arc<Mutex<PathBuf>>>,
    refusals: Refusals,
    tally: Tally,
}

impl Audit {
    /// Returns the audit log with this file. An empty path means no file. The acts are also counted.
    ///
    /// # Errors
    /// The file cannot be opened for writing.
    pub fn open(path: &str, tally: Tally) -> Result<Audit, String> {
        let refusals = Refusals::default();
        if path.is_empty() {
            return Ok(Audit {
                file: None,
                refusals,
                tally,
            });
        }
        let path = PathBuf::from(path);
        open(&path).map_err(|error| {
            let why = system_text(&error);
            format!(
                "failed to open --audit-log-file ({}) - {why}",
                path.display()
            )
        })?;
        Ok(Audit {
            file: Some(Arc::new(Mutex::new(path))),
            refusals,
            tally,
        })
    }

    /// Writes a line. A failure is logged, and the act counts nevertheless.
    pub async fn write(&self, mut entry: Entry) {
        self.tally.count_act(&entry.action, entry.outcome.word());
        if entry.outcome == Outcome::Refused {
            match self.refusals.admit(Instant::now()) {
                None => return,
                Some(0) => {}
                Some(count) => entry.message.push_str(&format!(
                    "; {count} refused requests before this one have no line"
                )),
            }
        }
        entry.cut_off();
        match entry.outcome {
            Outcome::Done | Outcome::Partly => log_info!("{}", entry.text()),
            Outcome::Failed | Outcome::Refused => log_warn!("{}", entry.text()),
        }
        let Some(file) = self.file.clone() else {
            return;
        };
        let written = tokio::task::spawn_blocking(move || {
            let path = file.lock().unwrap_or_else(PoisonError::into_inner);
            open(&path)?.write_all((entry.json() + "\n").as_bytes())
        });
        let why = match written.await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => system_text(&error),
            Err(error) => error.to_string(),
        };
        log_error!("failed to write the audit log - {why}");
    }
}

fn open(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests;
