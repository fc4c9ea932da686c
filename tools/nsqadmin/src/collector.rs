//! [`Collector`]: asks all nsqds again and again, and keeps the present figures and the history.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use program::log_warn;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::answer_time::AnswerTime;
use crate::checkup::{Checker, Checkup, Pace, Round};
use crate::cluster::{Builds, Cluster, Stats, Surveyed, Target};
use crate::config::Collection;
use crate::figures::NodeStats;
use crate::history::History;
use crate::live::Snapshot;
use crate::outcome::{Gathered, Refusal, Warnings};
use crate::tally::Tally;
use crate::unix_time;
use crate::upstream::Server;

mod history_file;
mod silence;

use history_file::{HistoryFile, Saves};
use silence::Silence;

/// Time after which the list of nodes is asked for again. A failure asks for it at once.
const TARGETS_LIFETIME: Duration = Duration::from_secs(5);

/// Smallest pause after a collection, in the time in which servers answered. So answers take at most a fifth of the time,
/// however large the cluster is. The wait for a silent server costs the others nothing, and must not make their figures
/// old: a question without an answer has a pause of its own ([`Unanswered`](crate::upstream::Unanswered)).
const PAUSE_FACTOR: u32 = 4;

/// The present figures and the history, which a task keeps up to date.
#[derive(Clone, Debug)]
pub struct Collector {
    /// The present figures.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// The last checkup. Reading it does not count as a look: see [`Collector::checkup`].
    pub checkups: watch::Receiver<Arc<Checkup>>,
    history: Arc<Mutex<History>>,
    looks: Arc<Looks>,
    file: Option<Arc<HistoryFile>>,
}

impl Collector {
    /// Reads the saved history, and starts to ask the cluster. A damaged history is reported, moved to `<file>.bad` and begun
    /// anew. No other file of this name is replaced.
    ///
    /// # Errors
    /// The saved history cannot be read, for the FATAL line.
    pub fn start(
        cluster: &Cluster,
        collection: &Collection,
        tally: Tally,
    ) -> Result<Collector, String> {
        let (history, file) = match collection.file.as_str() {
            "" => {
                let history = History::new(collection.series_max);
                (Arc::new(Mutex::new(history)), None)
            }
            path => {
                let file = HistoryFile::read(path.into(), collection.series_max)?;
                (file.history(), Some(Arc::new(file)))
            }
        };
        let (sender, snapshots) = watch::channel(Arc::default());
        let (checkup_sender, checkups) = watch::channel(Arc::default());
        let collector = Collector {
            snapshots,
            checkups,
            history,
            looks: Arc::new(Looks::begin()),
            file,
        };
        let answer_time = AnswerTime::default();
        let task = Task {
            cluster: cluster.for_collecting(answer_time.clone()),
            answer_time,
            builds: Builds::new(),
            targets: None,
            history: collector.history.clone(),
            file: collector.file.clone(),
            sender,
            checker: Checker::default(),
            silence: Silence::default(),
            pace: Pace::default(),
            looks: collector.looks.clone(),
            checkup_sender,
            has_left_out: false,
            tally,
        };
        tokio::spawn(collect(task, collection.interval));
        Ok(collector)
    }

    /// Returns the last checkup for somebody who looks at it: the next ones come more often for a while.
    pub fn checkup(&self) -> Arc<Checkup> {
        self.looks.count();
        self.checkups.borrow().clone()
    }

    /// Returns the history.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Saves the history, if there is a file for it. Blocks until the file is on disk, for some seconds at most.
    pub fn save_at_end(&self) {
        if let Some(file) = &self.file {
            file.save_at_end();
        }
    }
}

/// The time of the last look at a checkup.
#[derive(Debug)]
struct Looks {
    began: Instant,
    /// The time of the last look in milliseconds since `began`. 0 before the first look.
    last: AtomicU64,
}

impl Looks {
    fn begin() -> Looks {
        Looks {
            began: Instant::now(),
            last: AtomicU64::new(0),
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn count(&self) {
        let millis = u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis.max(1), Ordering::Relaxed);
    }

    fn last(&self) -> Option<Duration> {
        let millis = self.last.load(Ordering::Relaxed);
        (millis > 0).then(|| Duration::from_millis(millis))
    }
}

/// The state of the collecting task.
struct Task {
    cluster: Cluster,
    /// The time of the cluster's answers since the last pause.
    answer_time: AnswerTime,
    /// The builds of the nodes that answered in the last round.
    builds: Builds,
    /// The nodes, and the time at which they were asked for.
    targets: Option<(Instant, Vec<Target>)>,
    history: Arc<Mutex<History>>,
    file: Option<Arc<HistoryFile>>,
    sender: watch::Sender<Arc<Snapshot>>,
    checker: Checker,
    silence: Silence,
    pace: Pace,
    looks: Arc<Looks>,
    checkup_sender: watch::Sender<Arc<Checkup>>,
    /// True if the log says already that the history is full.
    has_left_out: bool,
    tally: Tally,
}

/// Collects until the process ends.
async fn collect(mut task: Task, interval: Duration) {
    let mut saves = task
        .file
        .clone()
        .map(|file| Saves::new(move || file.save()));
    loop {
        let started = Instant::now();
        task.collect_once().await;
        let took = started.elapsed();
        let has_figures = task.sender.borrow().unix_millis > 0;
        if let Some(saves) = saves.as_mut().filter(|_| has_figures) {
            saves.start_if_due(Instant::now());
        }
        let rest = task.answer_time.take() * PAUSE_FACTOR;
        sleep(interval.saturating_sub(took).max(rest)).await;
    }
}

impl Task {
    async fn collect_once(&mut self) {
        let mut warnings = Warnings::default();
        let started = Instant::now();
        let is_due = self.pace.is_due(self.looks.now(), self.looks.last());
        let stats = match is_due {
            true => self.check(&mut warnings).await,
            false => self.ask(&mut warnings).await,
        };
        let is_complete = stats.as_ref().ok().map(|_| warnings.is_empty());
        self.tally.count_collection(started.elapsed(), is_complete);
        if stats.is_err() || !warnings.is_empty() {
            self.targets = None;
        }
        let unix_millis = unix_time::millis();
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
        let snapshot = Snapshot::next(&before, &stats, unix_millis, warnings.message());
        let left_out = {
            let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
            history.add(unix_millis / 1000, snapshot.samples())
        };
        self.tally.set_left_out_series(left_out);
        if left_out > 0 && !self.has_left_out {
            log_warn!("history: no room for {left_out} series (--history-max-series)");
            self.has_left_out = true;
        }
        self.sender.send_replace(Arc::new(snapshot));
    }

    async fn ask(&mut self, warnings: &mut Warnings) -> Result<Vec<NodeStats>, Refusal> {
        let targets = self.present_targets(warnings).await?;
        self.cluster
            .stats(targets, Stats::default(), warnings)
            .await
    }

    async fn present_targets(&mut self, warnings: &mut Warnings) -> Result<Vec<Target>, Refusal> {
        if let Some((asked, targets)) = &self.targets
            && asked.elapsed() < TARGETS_LIFETIME
        {
            return Ok(targets.clone());
        }
        let asked = Instant::now();
        let targets = self.cluster.targets(warnings).await?;
        self.targets = Some((asked, targets.clone()));
        Ok(targets)
    }

    /// Asks the nodes for their clients, too, and the nsqlookupds for their nodes, and makes a checkup.
    /// Servers that do not answer are a part of the checkup.
    async fn check(&mut self, warnings: &mut Warnings) -> Result<Vec<NodeStats>, Refusal> {
        let began = self.looks.now();
        let targets = self.present_targets(warnings).await;
        let mut round = Round {
            lookupds: self.cluster.lookupd_rounds().await,
            ..Round::default()
        };
        self.silence.log_changes(&round.lookupds);
        let known = targets.as_deref().unwrap_or_default();
        for address in self.cluster.silent_nsqds(known) {
            round.add_failure(&address, "it does not say what it is (/info)".to_owned());
        }
        let answers = self
            .cluster
            .survey(known.to_vec(), &self.builds, warnings)
            .await;
        self.builds = Builds::new();
        round.unix_millis = unix_time::millis();
        let mut gathered = Gathered {
            data: Vec::new(),
            failures: Vec::new(),
        };
        for Surveyed {
            node,
            stats,
            metrics,
            build,
        } in answers
        {
            match stats {
                Ok(stats) => {
                    round.add_node(&node.address, &stats, metrics);
                    if let Some(build) = build {
                        round.set_ringq_version(&node.address, build.ringq_version.clone());
                        self.builds.insert(node.address.clone(), build);
                    }
                    let topics = stats.topics;
                    gathered.data.push(NodeStats { node, topics });
                }
                Err(failed) => {
                    round.add_failure(&node.address, failed.why.clone());
                    gathered.failures.push(failed);
                }
            }
        }
        let is_complete = targets.is_ok() && round.is_complete();
        let checkup = self.checker.check(round);
        self.pace.count(began, self.looks.now(), is_complete);
        self.checkup_sender.send_replace(Arc::new(checkup));
        match targets?.is_empty() {
            true => Ok(Vec::new()),
            false => gathered.or_refuse(Server::Nsqd, warnings),
        }
    }
}
