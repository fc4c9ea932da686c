//! [`Collector`]: asks all nsqds again and again, and keeps the present figures and the history.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use program::{log_error, log_info, log_warn};
use tokio::sync::watch;
use tokio::time::sleep;
use wire::go_error::system_text;

use crate::checkup::{Checker, Checkup, Pace, Round};
use crate::cluster::{Cluster, Stats, Surveyed, Target};
use crate::config::Collection;
use crate::figures::NodeStats;
use crate::history::History;
use crate::live::Snapshot;
use crate::outcome::{Gathered, Refusal, Warnings};
use crate::tally::Tally;
use crate::unix_time;
use crate::upstream::Server;

/// Time after which the list of nodes is asked for again. A failure asks for it at once.
const TARGETS_LIFETIME: Duration = Duration::from_secs(5);

/// Smallest pause after a collection, in durations of that collection. So collections take at most a
/// fifth of the time, however large the cluster is.
const PAUSE_FACTOR: u32 = 4;

/// Time between two saves of the history.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// The present figures and the history, which a task keeps up to date.
#[derive(Clone, Debug)]
pub struct Collector {
    /// The present figures.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// The last checkup. Reading it does not count as a look: see [`Collector::checkup`].
    pub checkups: watch::Receiver<Arc<Checkup>>,
    history: Arc<Mutex<History>>,
    looks: Arc<Looks>,
    file: Option<Arc<PathBuf>>,
}

impl Collector {
    /// Reads the saved history, and starts to ask the cluster. A saved history that cannot be read is
    /// reported, moved to `<file>.bad` and begun anew. No other file of this name is replaced.
    pub fn start(cluster: &Cluster, collection: &Collection, tally: Tally) -> Collector {
        let file = match collection.file.as_str() {
            "" => None,
            path => Some(Arc::new(PathBuf::from(path))),
        };
        let saved = file
            .as_deref()
            .map(|path| read(path, collection.series_max));
        let history = saved.unwrap_or_else(|| History::new(collection.series_max));
        let (sender, snapshots) = watch::channel(Arc::default());
        let (checkup_sender, checkups) = watch::channel(Arc::default());
        let collector = Collector {
            snapshots,
            checkups,
            history: Arc::new(Mutex::new(history)),
            looks: Arc::new(Looks::begin()),
            file,
        };
        let task = Task {
            cluster: cluster.quiet(),
            targets: None,
            history: collector.history.clone(),
            sender,
            checker: Checker::default(),
            pace: Pace::default(),
            looks: collector.looks.clone(),
            checkup_sender,
            has_left_out: false,
            tally,
        };
        tokio::spawn(collect(task, collector.clone(), collection.interval));
        collector
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

    /// Saves the history, if there is a file for it. Blocks until the file is on disk.
    pub fn save(&self) {
        let Some(path) = self.file.as_deref() else {
            return;
        };
        let bytes = self.history().to_bytes();
        let written = new_file::replace(path, |mut file| file.write_all(&bytes));
        if let Err(error) = written {
            let why = system_text(&error);
            log_error!("failed to save the history in {} - {why}", path.display());
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

/// Reads a saved history, or returns an empty one.
fn read(path: &Path, series_max: usize) -> History {
    let why = match std::fs::read(path) {
        Ok(bytes) => match History::from_bytes(&bytes, series_max) {
            Ok(history) => {
                log_info!("history: {} series from {}", history.len(), path.display());
                return history;
            }
            Err(why) => why,
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => return History::new(series_max),
        Err(error) => system_text(&error),
    };
    let shown = path.display();
    match move_aside(path) {
        Ok(aside) => log_error!(
            "history: {shown} cannot be read and is moved to {}: {why}",
            aside.display()
        ),
        Err(error) => log_error!(
            "history: {shown} cannot be read, and cannot be moved aside ({}): {why}",
            system_text(&error)
        ),
    }
    History::new(series_max)
}

/// Renames a file to `<file>.bad`, or to `<file>.bad-1` and so on if that name is taken. Returns the new name.
fn move_aside(path: &Path) -> io::Result<PathBuf> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".bad");
    let mut target = PathBuf::from(&aside);
    for number in 1_u32.. {
        match new_file::rename_new(path, &target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            renamed => return renamed.map(|()| target),
        }
        let mut numbered = aside.clone();
        numbered.push(format!("-{number}"));
        target = PathBuf::from(numbered);
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The state of the collecting task.
struct Task {
    cluster: Cluster,
    /// The nodes, and the time at which they were asked for.
    targets: Option<(Instant, Vec<Target>)>,
    history: Arc<Mutex<History>>,
    sender: watch::Sender<Arc<Snapshot>>,
    checker: Checker,
    pace: Pace,
    looks: Arc<Looks>,
    checkup_sender: watch::Sender<Arc<Checkup>>,
    /// True if the log says already that the history is full.
    has_left_out: bool,
    tally: Tally,
}

/// Collects until the process ends.
async fn collect(mut task: Task, collector: Collector, interval: Duration) {
    let mut saved: Option<Instant> = None;
    loop {
        let started = Instant::now();
        task.collect_once().await;
        // The first figures are saved at once, so that a file that cannot be written is known soon after the start.
        let is_due = match saved {
            Some(saved) => saved.elapsed() >= SAVE_INTERVAL,
            None => task.sender.borrow().unix_millis > 0,
        };
        if is_due {
            saved = Some(Instant::now());
            let collector = collector.clone();
            // The save logs its own failures, and only a stop of the runtime ends it.
            let _ = tokio::task::spawn_blocking(move || collector.save()).await;
        }
        let took = started.elapsed();
        sleep(interval.saturating_sub(took).max(took * PAUSE_FACTOR)).await;
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
        let known = targets.as_deref().unwrap_or_default();
        for address in self.cluster.silent_nsqds(known) {
            round.add_failure(&address, "it does not say what it is (/info)".to_owned());
        }
        let answers = self.cluster.survey(known.to_vec(), warnings).await;
        round.unix_millis = unix_time::millis();
        let mut gathered = Gathered {
            data: Vec::new(),
            failures: Vec::new(),
        };
        for Surveyed {
            node,
            stats,
            machine,
        } in answers
        {
            match stats {
                Ok(stats) => {
                    round.add_node(&node.address, &stats, machine);
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
