//! [`Collector`]: asks all nsqds again and again, and keeps the present figures and the history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use program::{log_info, log_warn};
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

use crate::checkup::{Checker, Checkup, LookupdRound, Round};
use crate::cluster::{Builds, Cluster, Gathered, Refusal, Stats, Surveyed, Warnings};
use crate::config::LiveFlags;
use crate::figures::{NodeStats, Now};
use crate::history::History;
use crate::live::Snapshot;
use crate::tally::Tally;
use crate::upstream::{AnswerTime, Server};

mod discovery;
mod history_file;
mod pace;

use discovery::Discovery;
pub(crate) use history_file::check_history_file;
use history_file::{HistoryFile, Saves};
use pace::{Looks, Pace};

/// Time after which the figures alone ask again which nodes there are. A failure asks at once, and so does a checkup.
const NODES_LIFETIME: Duration = Duration::from_secs(5);

/// Smallest pause after a collection, in the time in which servers answered. So answers take at most a fifth of the time,
/// however large the cluster is. The wait for a silent server costs the others nothing, and must not make their figures
/// old: a question without an answer has a pause of its own ([`Unanswered`](crate::upstream::Unanswered)).
const PAUSE_FACTOR: u32 = 4;

/// Shortest time between the questions of two collections, if somebody begins to look and the interval is not shorter.
/// A rate over some milliseconds says nothing.
const RATE_TIME_MIN: Duration = Duration::from_millis(500);

/// Most streams of events at the same time.
pub const STREAMS_MAX: usize = 256;

/// The present figures and the history, which a task keeps up to date.
#[derive(Clone, Debug)]
pub struct Collector {
    /// The present figures.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// The last checkup. Reading it does not count as a look: see [`Collector::checkup`].
    pub checkups: watch::Receiver<Arc<Checkup>>,
    /// One permit for each stream of events that may be open.
    pub streams: Arc<Semaphore>,
    /// The history.
    pub history: Arc<Mutex<History>>,
    looks: Arc<Looks>,
    file: Option<Arc<HistoryFile>>,
}

impl Collector {
    /// Reads the saved history, and starts to ask the cluster. A damaged history is reported, moved to `<file>.bad` and
    /// begun anew. No other file of this name is replaced.
    ///
    /// # Errors
    /// The saved history cannot be read, or another process uses it, for the FATAL line.
    pub fn start(
        cluster: &Cluster,
        collection: &LiveFlags,
        tally: Tally,
    ) -> Result<Collector, String> {
        let (history, file) = match collection.file.as_str() {
            "" => {
                let history = History::new(collection.history_bytes_max);
                (Arc::new(Mutex::new(history)), None)
            }
            path => {
                let file = HistoryFile::read(path.as_ref(), collection.history_bytes_max)?;
                (file.history.clone(), Some(Arc::new(file)))
            }
        };
        let (sender, snapshots) = watch::channel(Arc::default());
        let (checkup_sender, checkups) = watch::channel(Arc::default());
        let collector = Collector {
            snapshots,
            checkups,
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            history,
            looks: Arc::new(Looks::begin()),
            file,
        };
        let answer_time = AnswerTime::default();
        let task = Task {
            discovery: Discovery::new(cluster),
            cluster: cluster.for_collecting(answer_time.clone()),
            asked: Instant::now(),
            answer_time,
            builds: Builds::new(),
            collector: collector.clone(),
            sender,
            checker: Checker::default(),
            silence: Silence::default(),
            pace: Pace::default(),
            checkup_sender,
            tally,
        };
        tokio::spawn(collect(task, collection.interval));
        Ok(collector)
    }

    /// Returns the last checkup for somebody who looks at it: the next ones come more often for a while. The first look
    /// after some time makes the next one come at once.
    pub fn checkup(&self) -> Arc<Checkup> {
        self.looks.count();
        self.checkups.borrow().clone()
    }

    /// Returns the time until the next checkup is expected.
    pub fn next_checkup(&self) -> Duration {
        self.looks.next_checkup()
    }

    /// Saves the history, if there is a file for it. Blocks until the file is on disk, for some seconds at most.
    pub fn save_at_end(&self) {
        if let Some(file) = &self.file {
            file.save_at_end();
        }
    }
}

/// Returns the pause after a collection that took this time, and whose question to the nodes was `asked` ago. The
/// answers of two collections are at least half an interval apart: the rate over some milliseconds says nothing. A
/// collection that has waited for other servers first asks late.
fn pause(interval: Duration, took: Duration, asked: Duration) -> Duration {
    let until_next = interval.saturating_sub(took);
    until_next.max((interval / 2).saturating_sub(asked))
}

/// Returns the pause after a collection if somebody begins to look. `rest` is for the servers that have answered.
fn early_pause(interval: Duration, rest: Duration, asked: Duration) -> Duration {
    let apart = RATE_TIME_MIN.min(interval / 2);
    rest.max(apart.saturating_sub(asked))
}

/// The state of the collecting task.
struct Task {
    cluster: Cluster,
    /// The time of the last question to the nodes.
    asked: Instant,
    /// The time of the cluster's answers since the last pause.
    answer_time: AnswerTime,
    /// The builds of the nodes that answered in the last round.
    builds: Builds,
    discovery: Discovery,
    collector: Collector,
    sender: watch::Sender<Arc<Snapshot>>,
    checker: Checker,
    silence: Silence,
    pace: Pace,
    checkup_sender: watch::Sender<Arc<Checkup>>,
    tally: Tally,
}

/// Collects until the process ends.
async fn collect(mut task: Task, interval: Duration) {
    let file = task.collector.file.clone();
    let mut saves = file.map(|file| Saves::new(move || file.save()));
    loop {
        let started = Instant::now();
        task.collect_once().await;
        let took = started.elapsed();
        let has_figures = task.sender.borrow().now.unix_millis > 0;
        if let Some(saves) = saves.as_mut().filter(|_| has_figures) {
            saves.start_if_due(Instant::now());
        }
        let rest = task.answer_time.take() * PAUSE_FACTOR;
        let asked = task.asked.elapsed();
        let pause = pause(interval, took, asked).max(rest);
        let early = early_pause(interval, rest, asked);
        task.expect_checkup(pause);
        tokio::select! {
            () = sleep(pause) => {}
            () = async { tokio::join!(sleep(early), task.collector.looks.begin.notified()); } => {}
        }
    }
}

impl Task {
    /// Tells those who look when the next checkup is expected, if the next collection comes after this pause.
    fn expect_checkup(&self, pause: Duration) {
        let looks = &self.collector.looks;
        let now = looks.now();
        let due_in = self.pace.due_in(now, Some(now));
        looks.expect_checkup(now + pause.max(due_in) + self.pace.duration());
    }

    async fn collect_once(&mut self) {
        let mut warnings = Warnings::default();
        let started = Instant::now();
        let looks = &self.collector.looks;
        let is_due = self.pace.is_due(looks.now(), looks.last());
        let (now, stats) = if is_due {
            self.check(&mut warnings).await
        } else {
            self.ask(&mut warnings).await
        };
        let is_complete = stats.as_ref().ok().map(|_| warnings.is_empty());
        self.tally.count_collection(started.elapsed(), is_complete);
        if stats.is_err() || !warnings.is_empty() {
            self.discovery.expire();
        }
        let before = self.sender.borrow().clone();
        let stats = match stats {
            Ok(stats) => stats,
            Err(refusal) => {
                // The last figures stay, with the reason why there are no newer ones.
                let snapshot = Snapshot {
                    message: refusal.message,
                    ..(*before).clone()
                };
                self.sender.send_replace(Arc::new(snapshot));
                return;
            }
        };
        let snapshot = Snapshot::next(&before, &stats, now, warnings.message());
        if !is_due {
            self.checker.watch(now.steady_millis, snapshot.ages());
        }
        self.remember(now, &snapshot);
        self.sender.send_replace(Arc::new(snapshot));
    }

    /// Tells the metrics which nsqds are gone: nobody asks them any more.
    fn count_gone(&self, checkup: &Checkup) {
        let names = |addresses: &mut dyn Iterator<Item = &String>| -> BTreeSet<_> {
            addresses
                .map(|address| self.cluster.counted_name(address))
                .collect()
        };
        let mut gone = names(&mut checkup.gone.iter().map(|gone| &gone.address));
        if !gone.is_empty() {
            // Several nsqds may be behind one address (--nsqd-url-map).
            let there = names(&mut checkup.nodes.keys());
            gone.retain(|name| !there.contains(name));
        }
        self.tally.set_gone(&gone, Instant::now());
    }

    /// Adds the figures to the history.
    fn remember(&self, now: Now, snapshot: &Snapshot) {
        let unix_seconds = now.unix_millis / 1000;
        let samples = snapshot.samples();
        let left_out = self.collector.history.lock().add(unix_seconds, samples);
        self.tally.set_left_out_series(left_out);
    }

    /// Asks the nodes for their figures. Returns the time of the question, too: the figures are as old as that, however
    /// long one of the nodes keeps the others waiting.
    async fn ask(&mut self, warnings: &mut Warnings) -> (Now, Result<Vec<NodeStats>, Refusal>) {
        let discovered = self.discovery.nodes(NODES_LIFETIME).await;
        warnings.add_all(&discovered.warnings);
        self.asked = Instant::now();
        let now = Now::read();
        let stats = match discovered.targets {
            Ok(targets) => {
                let asked = self.cluster.stats(targets, Stats::default(), warnings);
                asked.await
            }
            Err(refusal) => Err(refusal),
        };
        (now, stats)
    }

    /// Asks the nodes for their clients, too, and the nsqlookupds for their nodes, and makes a checkup.
    /// Servers that do not answer are a part of the checkup. Returns the time of the question to the nodes, too.
    async fn check(&mut self, warnings: &mut Warnings) -> (Now, Result<Vec<NodeStats>, Refusal>) {
        // A node that dies is told by nsqlookupds. In direct mode, its figures fail.
        let age_max = if self.cluster.is_lookup_mode() {
            Duration::ZERO
        } else {
            NODES_LIFETIME
        };
        let found = self.discovery.nodes(age_max).await;
        // The wait for an nsqlookupd costs the nsqds nothing, so it makes no later round late.
        let began = self.collector.looks.now();
        warnings.add_all(&found.warnings);
        self.asked = Instant::now();
        let now = Now::read();
        let mut round = Round {
            now,
            lookupds: found.lookupds,
            ..Round::default()
        };
        self.silence.log_changes(&round.lookupds);
        let known = found.targets.as_deref().unwrap_or_default();
        for address in self.cluster.silent_nsqds(known) {
            round.add_failure(&address, "it does not say what it is (/info)".to_owned());
        }
        let known = known.to_vec();
        let answers = Surveyed::of_all(&self.cluster, known, &self.builds, warnings).await;
        self.builds = Builds::new();
        let gathered = answers.into_iter().map(|answer| {
            let node = answer.node;
            match answer.stats {
                Ok((stats, answered)) => {
                    let of_node = round.add_node(&node.address, &stats, answer.metrics);
                    of_node.answered = answered;
                    if let Some(build) = answer.build {
                        of_node.ringq_version = Some(build.ringq_version.clone());
                        self.builds.insert(node.address.clone(), build);
                    }
                    let topics = stats.topics;
                    Ok(NodeStats {
                        node,
                        answered,
                        topics,
                    })
                }
                Err(failed) => {
                    round.add_failure(&node.address, failed.why.clone());
                    Err(failed)
                }
            }
        });
        let gathered: Gathered<NodeStats> = gathered.collect();
        let checkup = self.checker.check(round);
        self.count_gone(&checkup);
        self.pace.count(began, self.answer_time.so_far());
        self.checkup_sender.send_replace(Arc::new(checkup));
        let stats = match found.targets {
            Ok(targets) if targets.is_empty() => Ok(Vec::new()),
            Ok(_) => gathered.or_refuse(Server::Nsqd, warnings),
            Err(refusal) => Err(refusal),
        };
        (now, stats)
    }
}

/// The nsqlookupds that did not answer in the last round. The log has a line when one stops answering, and one when it
/// answers again.
#[derive(Debug, Default)]
struct Silence(BTreeSet<String>);

impl Silence {
    /// Takes the answers of a round, and logs what has changed since the last one.
    fn log_changes(&mut self, lookupds: &BTreeMap<String, LookupdRound>) {
        for (address, round) in lookupds {
            match round {
                Err(why) if self.0.insert(address.clone()) => log_warn!(
                    "nsqlookupd {address} does not answer: {why}. Start it, or correct \
                     --lookupd-http-address, which takes addresses of HTTP such as 127.0.0.1:4161"
                ),
                Ok(_) if self.0.remove(address) => {
                    log_info!("nsqlookupd {address} answers again");
                }
                _ => {}
            }
        }
        // An operator may have taken an address away.
        self.0.retain(|address| lookupds.contains_key(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While an nsqd of direct mode hung, a collection waited for it to say what it is, and the next one came at once:
    /// the rate over 10 ms was 0 instead of 100/s.
    #[test]
    fn a_late_question_puts_the_next_one_off() {
        let millis = Duration::from_millis;
        let second = millis(1000);
        assert_eq!(pause(second, millis(20), millis(20)), millis(980));
        // The collection has waited for servers before the question.
        assert_eq!(pause(second, millis(1020), millis(20)), millis(480));
        // It has waited for a node after the question.
        assert_eq!(pause(second, millis(4000), millis(4000)), Duration::ZERO);
    }

    /// A page that was opened right after a collection got rates over some milliseconds, and so did the past.
    #[test]
    fn a_first_look_does_not_make_rates_over_some_milliseconds() {
        let millis = Duration::from_millis;
        let pause = |interval, rest, asked| {
            early_pause(millis(interval), millis(rest), millis(asked)).as_millis()
        };
        assert_eq!(pause(1000, 8, 2), 498);
        assert_eq!(pause(60_000, 8, 2), 498);
        assert_eq!(pause(100, 8, 2), 48);
        assert_eq!(pause(1000, 800, 200), 800);
        assert_eq!(pause(1000, 8, 4000), 8);
    }
}
