//! `nsq_to_file`: archives topics to files. A message is finished only when it is synced to the disk.
//!
//! ```text
//!   config ─► Archiver       which topics there are, and can files be made here?
//!                └─► topic_thread        one thread for each topic: its consumer, and
//!                      ├─► leftovers     the files of a run that was killed
//!                      ├─► archive       the rules for its files: names, rotation, syncs
//!                      │     ├─► file_name
//!                      │     └─► compression
//!                      └─► output_move   the way of both to --output-dir
//!                            └─► disk    the file system
//! ```
//!
//! A sync blocks for milliseconds. So each topic has a thread of its own, which waits for the disk
//! while the runtime's threads receive the next messages. A sync of many bytes has a thread, too, so
//! that the topic's thread writes the next messages meanwhile.

mod archive;
mod compression;
mod config;
mod disk;
mod file_name;
mod leftovers;
mod output_move;
mod topic_thread;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Zoned;
use new_file::temporary_file;
use parking_lot::Mutex;
use program::{log_error, log_warn};
use regex::Regex;
use ringq_client::{Lookupd, LookupdError};
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};
use wire::name::{InvalidName, is_valid_name};

pub use self::config::NSQ_TO_FILE;
use self::config::{Config, Topics};
use self::disk::DiskError;
use self::file_name::with_revision;
use self::topic_thread::{Figures, Orders, Shared, TopicError};
use crate::cluster::QueryTimeouts;
use crate::consuming::Consuming;
use crate::flags::{Sources, distinct};
use crate::process::{self, StopSignals, consumers_within_stop_time};

/// Runs the program with this command line, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match Config::from_args(args) {
        Ok(config) => {
            let style = config.log_style.clone();
            process::run_with_log(config.log_level, style, |signals| archive(config, signals))
        }
        Err(exit) => exit.print(),
    }
}

/// The end of a topic's thread.
struct Ended {
    topic: String,
    result: Result<(), TopicError>,
}

struct Archiver {
    shared: Arc<Shared>,
    orders: watch::Sender<Orders>,
    ended: mpsc::UnboundedSender<Ended>,
    /// The topics with a thread.
    running: BTreeSet<String>,
}

/// Archives until a signal comes. The error is the text for the FATAL line.
async fn archive(config: Config, mut stop: StopSignals) -> Result<(), String> {
    let hangup = signal(SignalKind::hangup());
    let mut hangup = hangup.map_err(|error| format!("cannot receive signals: {error}"))?;
    for warning in &config.warnings {
        log_warn!("{warning}");
    }
    let consuming = Consuming::new(&config.consumer)?;
    check(&config, &Zoned::now()).map_err(|error| error.to_string())?;
    let consuming = tokio::select! {
        consuming = consuming.with_filter(&config.consumer) => consuming?,
        () = stop.wait() => return Ok(()),
    };
    let (mut archiver, mut ends) = Archiver::new(config, consuming);
    let shared = Arc::clone(&archiver.shared);
    let work = async move {
        let archived = archiver.archive(&mut stop, &mut hangup, &mut ends).await;
        // Also after a failure of one topic: the others finish what they have begun, such as the copy of a file.
        let stopped = archiver.stop(&mut ends).await;
        if let (Err(_), Err(why)) = (&archived, &stopped) {
            log_error!("{why}");
        }
        archived.and(stopped)
    };
    process::beside(work, || shared.figures.shown()).await
}

impl Archiver {
    /// Returns an archiver without topics, and the ends of its threads.
    fn new(config: Config, consuming: Consuming) -> (Archiver, mpsc::UnboundedReceiver<Ended>) {
        let (orders, _) = watch::channel(Orders::default());
        let (ended, ends) = mpsc::unbounded_channel();
        let archiver = Archiver {
            shared: Arc::new(Shared {
                config,
                consuming,
                figures: Figures::default(),
                controls: Mutex::default(),
            }),
            orders,
            ended,
            running: BTreeSet::new(),
        };
        (archiver, ends)
    }

    /// Archives until a signal comes, or no topic can be archived.
    async fn archive(
        &mut self,
        stop: &mut StopSignals,
        hangup: &mut Signal,
        ends: &mut mpsc::UnboundedReceiver<Ended>,
    ) -> Result<(), String> {
        let mut discovered = self.start_topics()?;
        loop {
            tokio::select! {
                () = stop.wait() => return Ok(()),
                _ = hangup.recv() => self.orders.send_modify(|orders| orders.hangup_count += 1),
                Some(topic) = discovered.recv() => self.start(topic)?,
                Some(end) = ends.recv() => self.end(end)?,
            }
        }
    }

    /// Ends all topics. Returns the first failure, and logs the others.
    async fn stop(&mut self, ends: &mut mpsc::UnboundedReceiver<Ended>) -> Result<(), String> {
        self.orders.send_modify(|orders| orders.stop = true);
        let mut result = Ok(());
        let shared = Arc::clone(&self.shared);
        let work = async {
            while !self.running.is_empty()
                && let Some(end) = ends.recv().await
            {
                match (self.end(end), &result) {
                    (Ok(()), _) => {}
                    (Err(why), Ok(())) => result = Err(why),
                    (Err(why), Err(_)) => log_error!("{why}"),
                }
            }
        };
        let controls = || shared.controls.lock().values().cloned().collect::<Vec<_>>();
        consumers_within_stop_time(work, controls).await;
        result
    }

    /// Starts the fixed topics. Returns the topics to start later: those that nsqlookupds name, or the fixed ones again, because
    /// their archives may have ended.
    fn start_topics(&mut self) -> Result<mpsc::Receiver<String>, String> {
        let (found, discovered) = mpsc::channel(1);
        let period = self.shared.config.flags.topic_refresh;
        match self.shared.config.topics.clone() {
            Topics::Fixed(topics) => {
                for topic in topics.clone() {
                    self.start(topic)?;
                }
                tokio::spawn(repeat_fixed(topics, period, found));
            }
            Topics::Discovered { pattern } => {
                let config = &self.shared.config;
                let Sources::Lookupds(lookupds) = &config.consumer.sources else {
                    unreachable!("topics are discovered through nsqlookupds");
                };
                let client = &config.consumer.client;
                let list = TopicList::new(lookupds, client, config.flags.timeouts)?;
                tokio::spawn(watch_topics(list, pattern, period, found));
            }
        }
        Ok(discovered)
    }

    /// Starts the thread of a topic, unless it has one.
    fn start(&mut self, topic: String) -> Result<(), String> {
        if !self.running.insert(topic.clone()) {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let (orders, ended) = (self.orders.subscribe(), self.ended.clone());
        let runtime = Handle::current();
        let thread = thread::Builder::new().name(topic.clone());
        let name = topic.clone();
        let started = thread.spawn(move || {
            let result = runtime.block_on(topic_thread::run(&shared, &topic, orders));
            // Without a receiver, the process is ending.
            let _ = ended.send(Ended { topic, result });
        });
        match started {
            Ok(_) => Ok(()),
            // No thread tells of its end.
            Err(error) => self.end(Ended {
                topic: name,
                result: Err(TopicError::Start(format!("cannot start a thread: {error}"))),
            }),
        }
    }

    /// Handles the end of a topic. A failed topic is tried again, unless it was the last fixed topic that was archived, or the
    /// tool stops: anybody who may publish can make a topic whose files cannot be written.
    fn end(&mut self, Ended { topic, result }: Ended) -> Result<(), String> {
        self.running.remove(&topic);
        let Config { flags, topics, .. } = &self.shared.config;
        let (channel, topic_refresh) = (&flags.channel, flags.topic_refresh);
        let why = match result {
            Ok(()) => return Ok(()),
            Err(TopicError::Start(why)) => {
                format!("couldn't create logger for new topic {topic}: {why}")
            }
            Err(TopicError::Disk(error)) => format!("[{topic}/{channel}] {error}"),
        };
        let is_last = matches!(topics, Topics::Fixed(_)) && self.running.is_empty();
        if is_last || self.orders.borrow().stop {
            return Err(why);
        }
        log_error!(
            "{why}; the topic's archive has ended, and is tried again after {topic_refresh:?}"
        );
        Ok(())
    }
}

/// Asks the nsqlookupds for topics at once and then once per interval, and sends those that match.
async fn watch_topics(
    list: TopicList,
    pattern: Regex,
    period: Duration,
    found: mpsc::Sender<String>,
) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answers = list.ask().await;
        if answers.errors.len() == list.0.len() {
            let why = answers.errors.join("; ");
            log_error!("could not retrieve topic list: failed to query any nsqlookupd: {why}");
        } else {
            for why in &answers.errors {
                log_warn!(
                    "an nsqlookupd did not name its topics, those of the others count: {why}"
                );
            }
        }
        for topic in answers.topics {
            if let Some(line) = skipped_line(&topic, &pattern) {
                log_warn!("{line}");
            } else if found.send(topic).await.is_err() {
                return;
            }
        }
    }
}

/// Sends the fixed topics once per period.
async fn repeat_fixed(topics: Vec<String>, period: Duration, found: mpsc::Sender<String>) {
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for topic in &topics {
            if found.send(topic.clone()).await.is_err() {
                return;
            }
        }
    }
}

/// Returns the line about a topic that an nsqlookupd named and that is not archived. The answer is input from outside: a
/// thread cannot even have each text as its name.
fn skipped_line(topic: &str, pattern: &Regex) -> Option<String> {
    if !is_valid_name(topic.as_bytes()) {
        let why = InvalidName(topic);
        return Some(format!("skipping an invalid topic name: {why}"));
    }
    let matches = pattern.is_match(topic);
    (!matches).then(|| config::skipped(topic, pattern))
}

/// Makes a file in each directory where the first files of the fixed topics belong, and removes it. A directory that is
/// not there yet is not made: the nearest directory above is tried. Topics that nsqlookupds name later are checked if
/// their files have no directories of their own.
///
/// # Errors
/// A directory takes no files.
fn check(config: &Config, now: &Zoned) -> Result<(), DiskError> {
    let mut directories = directories(config, now).into_iter();
    directories.try_for_each(|directory| probe(&directory))
}

/// Returns the directories of the first files.
fn directories(config: &Config, now: &Zoned) -> Vec<PathBuf> {
    let settings = &config.archive;
    let first_file = |topic: &str| with_revision(settings.names.of_topic(topic).at(now), 0);
    let mut relative: Vec<PathBuf> = match &config.topics {
        Topics::Fixed(topics) => topics.iter().map(|topic| first_file(topic)).collect(),
        Topics::Discovered { .. } => vec![first_file("<TOPIC>")],
    };
    if let Topics::Discovered { .. } = &config.topics {
        relative.retain(|path| path.components().count() == 1);
    }
    let bases = [&settings.work_dir, &settings.output_dir].into_iter();
    let directories = bases.flat_map(|base| {
        // A join with an empty path would add a slash, which errors would show.
        relative.iter().map(move |path| match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => base.join(parent),
            _ => base.clone(),
        })
    });
    distinct(directories)
}

/// Tries to make a file in a directory, or in the nearest one above that is there.
fn probe(directory: &Path) -> Result<(), DiskError> {
    let mut tried = directory;
    loop {
        let shown = if tried.as_os_str().is_empty() {
            Path::new(".")
        } else {
            tried
        };
        let made = temporary_file(&shown.join("nsq_to_file"));
        let made = made.and_then(|(path, _)| std::fs::remove_file(path));
        let is_missing =
            |error: &io::Error| error.kind() == io::ErrorKind::NotFound && !shown.exists();
        match (made, tried.parent()) {
            (Err(error), Some(parent)) if is_missing(&error) => tried = parent,
            // A directory that is there and cannot have this file will not get it later either.
            (made, _) => {
                return made.map_err(|source| DiskError::new("make a file in", shown, source));
            }
        }
    }
}

/// Asks nsqlookupds for their topics, in the way in which the consumers ask them for nodes.
#[derive(Debug)]
struct TopicList(Vec<Lookupd>);

/// The topics of all nsqlookupds that answered, and the reasons why the others did not.
#[derive(Debug, PartialEq, Eq)]
struct Answers {
    topics: BTreeSet<String>,
    errors: Vec<String>,
}

impl TopicList {
    /// Returns the list of these nsqlookupds.
    ///
    /// # Errors
    /// An address, a certificate or the secret cannot be used. The error is the text for the user.
    fn new(
        addresses: &[String],
        client: &ringq_client::Config,
        QueryTimeouts { connect, request }: QueryTimeouts,
    ) -> Result<TopicList, String> {
        let lookupds = addresses
            .iter()
            .map(|address| Lookupd::with_timeouts(address, client, connect, request));
        let lookupds: Result<_, LookupdError> = lookupds.collect();
        lookupds.map(TopicList).map_err(|error| error.to_string())
    }

    /// Asks all nsqlookupds at the same time.
    async fn ask(&self) -> Answers {
        let mut result = Answers {
            topics: BTreeSet::new(),
            errors: Vec::new(),
        };
        for answer in join_all(self.0.iter().map(Lookupd::topics)).await {
            match answer {
                Ok(topics) => result.topics.extend(topics),
                Err(why) => result.errors.push(why.to_string()),
            }
        }
        result
    }
}

#[cfg(test)]
mod tests;
