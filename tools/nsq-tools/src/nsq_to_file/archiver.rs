//! [`run`]: starts a thread for each topic, and passes signals on to them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use jiff::Zoned;
use parking_lot::Mutex;
use program::{log_error, log_warn};
use regex::Regex;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};
use wire::name::{InvalidName, is_valid_name};

use super::config::{self, Config, Topics};
use super::shared::{Figures, Orders, Shared};
use super::start_check;
use super::topic_thread::{self, TopicError};
use super::topics::TopicList;
use crate::consuming::Consuming;
use crate::flags::Sources;
use crate::progress;
use crate::stopping::{StopSignals, consumers_within_stop_time};

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
pub(super) async fn run(config: Config, mut stop: StopSignals) -> Result<(), String> {
    let hangup = signal(SignalKind::hangup());
    let mut hangup = hangup.map_err(|error| format!("cannot receive signals: {error}"))?;
    for warning in &config.warnings {
        log_warn!("{warning}");
    }
    let consuming = Consuming::new(&config.sources, config.client.clone())?;
    start_check::check(&config, &Zoned::now()).map_err(|error| error.to_string())?;
    let dedup = match &config.dedup {
        Some(flags) => tokio::select! {
            dedup = flags.start() => Some(dedup?),
            () = stop.wait() => return Ok(()),
        },
        None => None,
    };
    let consuming = consuming.recognising(dedup);
    let (orders, _) = watch::channel(Orders::default());
    let (ended, mut ends) = mpsc::unbounded_channel();
    let mut archiver = Archiver {
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
    progress::beside(work, || shared.figures.shown()).await
}

impl Archiver {
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
                let Sources::Lookupds(lookupds) = &config.sources else {
                    unreachable!("topics are discovered through nsqlookupds");
                };
                let list = TopicList::new(lookupds, &config.client, config.flags.timeouts)?;
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
        if answers.errors.len() == list.len() {
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::io::ErrorKind;
    use std::path::PathBuf;

    use program::log::capture;

    use super::*;
    use crate::nsq_to_file::disk::DiskError;

    /// Returns an archiver of these topics, which run, and the ends of their threads.
    fn archiver(topics: [&str; 3]) -> (Archiver, mpsc::UnboundedReceiver<Ended>) {
        let args = ["--topic=a", "--nsqd-tcp-address=127.0.0.1:1"];
        let config = Config::from_args(args.map(OsString::from)).unwrap();
        let consuming = Consuming::new(&config.sources, config.client.clone()).unwrap();
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
            running: topics.map(str::to_owned).into(),
        };
        (archiver, ends)
    }

    /// The certificate of one topic was replaced while its archive began again, and the archives of all others ended.
    #[tokio::test]
    async fn a_topic_that_cannot_be_set_up_ends_no_other() {
        let (mut archiver, _ends) = archiver(["a", "b", "c"]);
        capture::start();
        let mut end = |topic: &str| {
            archiver.end(Ended {
                topic: topic.to_owned(),
                result: Err(TopicError::Start("no certificate".to_owned())),
            })
        };
        assert_eq!((end("a"), end("b")), (Ok(()), Ok(())));
        let why = "couldn't create logger for new topic c: no certificate".to_owned();
        assert_eq!(end("c"), Err(why));
        assert_eq!(capture::stop().len(), 2);
    }

    /// The stop returned the last failure, and nobody heard of the others.
    #[tokio::test]
    async fn a_stop_returns_the_first_failure_and_logs_the_others() {
        let (mut archiver, mut ends) = archiver(["a", "b", "c"]);
        for topic in ["a", "b", "c"] {
            let error = DiskError {
                verb: "sync",
                path: PathBuf::from(topic),
                source: ErrorKind::Other.into(),
            };
            let end = Ended {
                topic: topic.to_owned(),
                result: match topic {
                    "c" => Ok(()),
                    _ => Err(TopicError::Disk(error)),
                },
            };
            archiver.ended.send(end).unwrap();
        }
        capture::start();
        let stopped = archiver.stop(&mut ends).await;
        let log = capture::stop();
        let failure =
            |topic: &str| format!("[{topic}/nsq_to_file] cannot sync {topic}: other error");
        assert_eq!(stopped, Err(failure("a")));
        assert_eq!(log, [format!("ERROR: {}", failure("b"))]);
    }

    /// A topic with a zero byte ended the program: a thread cannot have this name.
    #[test]
    fn topics_with_impossible_names_are_skipped() {
        let pattern = Regex::new("a").unwrap();
        assert_eq!(skipped_line("a#ephemeral", &pattern), None);
        let other = "skipping topic b (doesn't match pattern a)";
        assert_eq!(skipped_line("b", &pattern).as_deref(), Some(other));
        for topic in ["a\0", "", "a b", "../a", "a/b", &"a".repeat(65)] {
            let line = skipped_line(topic, &pattern).unwrap();
            let start =
                format!("skipping an invalid topic name: {topic:?} is not 1 to 64 characters of ");
            assert!(line.starts_with(&start), "{line}");
        }
    }
}
