//! The audit log: a line for every act and every `PUT /config/*`, also for those that were refused.
//!
//! Each line goes to the log, whatever `--log-level` says. With `--audit-log-file`, it is also appended to that file as
//! JSON:
//!
//! ```text
//! {"time":"2026-11-24T09:12:50Z","user":"carol","remote_address":"10.0.0.7:50142",
//!  "action":"pause_channel","topic":"clicks","channel":"archive","result":"done","message":""}
//! ```
//!
//! The file is opened for each line, so that it can be moved away at any time. A client that may not act cannot fill
//! the disk: names are cut off, and [`Refusals`] says which refused requests have a line. The number of the others
//! comes with the next refused request that has a line, and at the end of the process.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;
use jiff::Timestamp;
use new_file::STATE_MODE;
use parking_lot::Mutex;
use program::log::{self, Level};
use program::log_error;
use serde::Serialize;
use wire::go_error::system_text;
use wire::go_json::{is_default, to_string};
use wire::json_object;

use crate::access::{cut_off, is_invisible};
use crate::cluster::{Act, Acted, Terms};
use crate::tally::Tally;

/// Most bytes of a name in a line. The names of topics and channels have at most 64 bytes, and those of hosts 253. A client
/// that may not act can send longer ones.
const NAME_BYTES_MAX: usize = 256;

/// Most bytes of a message in a line. The message of an act has a sentence for each node that has failed.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Longest name of an admin that nsqd takes, in characters.
const BY_MAX: usize = 64;

/// The mark behind a name that nobody has checked. The longest such name and the mark have at most [`BY_MAX`] characters.
const UNVERIFIED: &str = " (unverified)";

/// The action of the line with the number of refused requests that had none.
const LEFT_OUT: &str = "left_out";

/// The time between two lines in the long run. Any client can send requests that are refused. A line has at most 6 KB, in
/// which each byte of a name takes six, so such clients add at most 52 MB a day.
const ONE_EVERY: Duration = Duration::from_secs(10);

/// Most lines at once.
const BURST: u32 = 100;

/// The result of an act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// All servers have carried it out.
    Done,
    /// Some servers have not carried it out, or had nothing to do.
    Partly,
    /// The act failed.
    Failed,
    /// The user may not act, or the request came from another page.
    #[default]
    Refused,
}

/// The client that acts, as the audit log, the notifications and the pauses name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Actor {
    /// The user that a trusted proxy has named, or an empty text.
    pub user: String,
    /// The name that a client without a user gives itself, in basic authentication or in a header. Nobody has checked it.
    /// Empty if there is a user.
    #[serde(skip_serializing_if = "is_default")]
    pub claimed_user: String,
    /// The client's address with its port.
    pub remote_address: String,
    /// The client's name for itself.
    #[serde(skip)]
    pub user_agent: String,
    /// The URL of the request.
    #[serde(skip)]
    pub url: String,
}

/// What an act is about. Texts that mean nothing to it are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Subject {
    /// The topic.
    #[serde(skip_serializing_if = "is_default")]
    pub topic: String,
    /// The channel. Empty for an act on a topic.
    #[serde(skip_serializing_if = "is_default")]
    pub channel: String,
    /// The node of a tombstone.
    #[serde(skip_serializing_if = "is_default")]
    pub node: String,
    /// The key of `PUT /config/*`.
    #[serde(skip_serializing_if = "is_default")]
    pub key: String,
    /// The terms.
    #[serde(skip)]
    pub details: Details,
}

/// An act, or one that was refused, and its result: a line of the audit log, and a notification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Seconds since 1970.
    pub unix_seconds: i64,
    /// The client.
    pub actor: Actor,
    /// The action: `create_topic`, `pause_channel`, ...
    pub action: String,
    /// What it is about.
    pub subject: Subject,
    /// The result.
    pub outcome: Outcome,
    /// The message of the answer.
    pub message: String,
}

/// The terms of an act and the number of its messages. Lines and notifications have them at their ends, behind what the
/// original has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Details {
    /// The time after which a pause ends, or an empty text.
    #[serde(rename = "for", skip_serializing_if = "is_default")]
    pub limit: String,
    /// The reason of a pause, or an empty text.
    #[serde(skip_serializing_if = "is_default")]
    pub note: String,
    /// The time for which dropped messages can come back, or an empty text.
    #[serde(skip_serializing_if = "is_default")]
    pub undo: String,
    /// The messages that an empty drops or an undo brings back, if nsqadmin knows their number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<i64>,
}

impl Actor {
    /// Returns the name for the terms of a pause: what nsqd takes of the user's name. A name that nobody has checked has a
    /// mark, so that it is never taken for a user.
    pub fn by(&self) -> String {
        if !self.claimed_user.is_empty() {
            return format!("{}{UNVERIFIED}", self.claimed_user);
        }
        let plain = self.user.chars().filter(|c| !is_invisible(*c));
        plain.take(BY_MAX).collect()
    }
}

impl Subject {
    /// Returns the name of an action: `pause_topic`, `pause_channel`, ...
    pub fn action(&self, act: Act) -> String {
        format!("{}_{}", act.word(), Act::subject(&self.channel))
    }
}

impl Details {
    /// Returns the terms of an act, as far as they mean something to it. `messages` is the number of messages that an empty
    /// drops or an undo brings back.
    pub fn of(act: Act, terms: &Terms, messages: Option<i64>) -> Details {
        let mut details = Details::default();
        match act {
            Act::Pause => {
                details.limit.clone_from(&terms.limit);
                details.note.clone_from(&terms.note);
            }
            Act::Empty => {
                details.undo.clone_from(&terms.undo);
                details.messages = messages;
            }
            Act::Unempty => details.messages = messages,
            Act::Create | Act::Delete | Act::Unpause => {}
        }
        details
    }

    /// Returns the end of the log line: ` [for 10m, note "deploying"]`, or an empty text.
    fn text(&self) -> String {
        let known = |text: &str, shown: String| (!text.is_empty()).then_some(shown);
        let parts = [
            known(&self.limit, format!("for {}", self.limit.escape_debug())),
            known(&self.note, format!("note {:?}", self.note)),
            known(&self.undo, format!("undo {}", self.undo.escape_debug())),
            self.messages.map(|messages| format!("messages {messages}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() {
            String::new()
        } else {
            format!(" [{}]", parts.join(", "))
        }
    }
}

impl Outcome {
    /// Returns the result of an act, and the message of its answer.
    pub fn of(acted: &Acted) -> (Outcome, String) {
        match acted {
            Ok(warnings) if warnings.is_empty() => (Outcome::Done, String::new()),
            Ok(warnings) => (Outcome::Partly, warnings.message()),
            Err(refusal) if refusal.status == StatusCode::FORBIDDEN => {
                (Outcome::Refused, refusal.message.clone())
            }
            Err(refusal) => (Outcome::Failed, refusal.message.clone()),
        }
    }

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
    /// Returns an act of now.
    pub fn new(actor: Actor, action: String, subject: Subject, acted: &Acted) -> Entry {
        let (outcome, message) = Outcome::of(acted);
        Entry {
            unix_seconds: Timestamp::now().as_second(),
            actor,
            action,
            subject,
            outcome,
            message,
        }
    }

    /// Cuts off what is too long.
    fn cut_off(&mut self) {
        let subject = &mut self.subject;
        let details = &mut subject.details;
        for name in [
            &mut self.actor.user,
            &mut subject.topic,
            &mut subject.channel,
            &mut subject.node,
            &mut subject.key,
            &mut details.limit,
            &mut details.note,
            &mut details.undo,
        ] {
            cut_off(name, NAME_BYTES_MAX);
        }
        cut_off(&mut self.message, MESSAGE_BYTES_MAX);
    }

    /// Returns the line of the file, without its end.
    fn json(&self) -> String {
        let time = Timestamp::from_second(self.unix_seconds);
        to_string(&json_object! {
            time: time.unwrap_or(Timestamp::UNIX_EPOCH).to_string(),
            #[serde(flatten)]
            actor: &self.actor,
            action: &self.action,
            #[serde(flatten)]
            subject: &self.subject,
            result: self.outcome.word(),
            message: &self.message,
            #[serde(flatten)]
            details: &self.subject.details,
        })
    }

    /// Returns the line about refused requests that had none.
    fn left_out(count: u64) -> Entry {
        Entry {
            unix_seconds: Timestamp::now().as_second(),
            action: LEFT_OUT.to_owned(),
            message: without_line(count),
            ..Entry::default()
        }
    }

    /// Returns the text of the log line.
    fn text(&self) -> String {
        if self.action == LEFT_OUT {
            return format!("AUDIT: {}", self.message);
        }
        let about = &self.subject;
        let mut subject = about.topic.clone();
        if !about.channel.is_empty() {
            subject = format!("{subject}/{}", about.channel);
        }
        if !about.node.is_empty() {
            subject = format!("{subject} on {}", about.node);
        }
        if !about.key.is_empty() {
            subject.clone_from(&about.key);
        }
        let (user, address) = (&self.actor.user, &self.actor.remote_address);
        let (action, result) = (&self.action, self.outcome.word());
        let message = match self.message.as_str() {
            "" => String::new(),
            message => format!(" - {message}"),
        };
        let claimed = match self.actor.claimed_user.as_str() {
            "" => String::new(),
            name => format!(", unverified name {name:?}"),
        };
        let details = about.details.text();
        format!(
            "AUDIT: {action} {subject} by user {user:?} ({address}{claimed}): {result}{message}{details}"
        )
    }
}

/// Says that refused requests have no line.
fn without_line(count: u64) -> String {
    match count {
        1 => "1 refused request before this line has none".to_owned(),
        count => format!("{count} refused requests before this line have none"),
    }
}

/// The audit log.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    file: Option<Arc<Mutex<PathBuf>>>,
    /// Taken for the time of an append, so that a disk that hangs takes one of the runtime's threads, and not all of them.
    turn: Arc<tokio::sync::Mutex<()>>,
    refusals: Refusals,
    /// The refused requests without a line since the last one that tells their number.
    left_out: Arc<AtomicU64>,
    tally: Tally,
}

impl Audit {
    /// Returns the audit log with this file. An empty path means no file. The acts are also counted.
    ///
    /// # Errors
    /// The file cannot be opened for writing.
    pub fn open(path: &str, tally: Tally) -> Result<Audit, String> {
        let mut audit = Audit {
            tally,
            ..Audit::default()
        };
        if path.is_empty() {
            return Ok(audit);
        }
        let path = PathBuf::from(path);
        open(&path).map_err(|error| {
            let why = system_text(&error);
            format!(
                "failed to open --audit-log-file ({}) - {why}",
                path.display()
            )
        })?;
        audit.file = Some(Arc::new(Mutex::new(path)));
        Ok(audit)
    }

    /// Writes a line. A failure is logged and counted, and the act counts nevertheless.
    pub async fn write(&self, mut entry: Entry) {
        self.tally.count_act(&entry.action, entry.outcome.word());
        if entry.outcome == Outcome::Refused {
            if !self.refusals.admit(Instant::now()) {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let count = self.left_out.swap(0, Ordering::Relaxed);
            if count > 0 {
                entry.message += &format!("; {}", without_line(count));
            }
        }
        let line = self.log(entry);
        self.append(line).await;
    }

    /// Writes the number of refused requests that have no line, at the end of the process. Blocks until it is written.
    pub fn write_left_out(&self) {
        let count = self.left_out.swap(0, Ordering::Relaxed);
        if count > 0 {
            let line = self.log(Entry::left_out(count));
            self.tell(self.append_now(&line));
        }
    }

    /// Writes an entry to the log, and returns its line for the file.
    fn log(&self, mut entry: Entry) -> String {
        entry.cut_off();
        let level = match entry.outcome {
            Outcome::Done | Outcome::Partly => Level::Info,
            Outcome::Failed | Outcome::Refused => Level::Warn,
        };
        // The macros would leave the line out at a higher --log-level.
        log::write(level, format_args!("{}", entry.text()));
        entry.json() + "\n"
    }

    async fn append(&self, line: String) {
        if self.file.is_none() {
            return;
        }
        let turn = self.turn.clone().lock_owned().await;
        let audit = self.clone();
        let appended = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            audit.append_now(&line)
        });
        self.tell(appended.await.unwrap_or_else(|error| Err(error.into())));
    }

    /// Logs and counts a line that could not be appended.
    fn tell(&self, appended: io::Result<()>) {
        if let Err(error) = appended {
            self.tally.count_audit_failure();
            log_error!("failed to write the audit log - {}", system_text(&error));
        }
    }

    fn append_now(&self, line: &str) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let path = file.lock();
        open(&path)?.write_all(line.as_bytes())
    }
}

/// Finds out if a start can open the file. No file is changed.
///
/// # Errors
/// The reason.
pub(crate) fn check_audit_file(path: &str) -> Result<(), String> {
    let opened = OpenOptions::new().append(true).open(path).map(drop);
    let checked = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            new_file::check_replaceable(path.as_ref())
        }
        opened => opened,
    };
    checked.map_err(|error| {
        let why = system_text(&error);
        format!("--audit-log-file ({path}) cannot be opened: {why}")
    })
}

/// Opens the file for one line. A new file can be read by this user only: it has the users' names and addresses. A file
/// that is there keeps its mode, so an administrator or logrotate can let others read it.
fn open(path: &PathBuf) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .create(true)
        .append(true)
        .mode(STATE_MODE)
        .open(path)
}

/// The refused requests that have a line in the audit log: the time at which the next line is due, if lines came one by
/// one. All clones count the same.
#[derive(Clone, Debug, Default)]
struct Refusals(Arc<Mutex<Option<Instant>>>);

impl Refusals {
    /// Returns true if a request that comes now has a line.
    fn admit(&self, now: Instant) -> bool {
        let mut due = self.0.lock();
        let next = due.map_or(now, |next| next.max(now));
        if next - now > ONE_EVERY * (BURST - 1) {
            return false;
        }
        *due = Some(next + ONE_EVERY);
        true
    }
}

#[cfg(test)]
mod tests;
