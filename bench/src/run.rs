//! [`run`]: one scenario against one daemon, from the connections to the result.
//!
//! ```text
//!   prepare   names, channels, bodies, settings of the generator threads
//!   set up    the threads connect and subscribe; all ready -> the time of the first send
//!   conduct   intervals come in, samples are taken; publishing ends, the drain is awaited
//!   conclude  ledger, totals, resources, self-check
//! ```

mod conclude;
pub mod depth;
mod prepare;
pub mod progress;
pub mod self_check;
pub mod series;

pub use prepare::check_topics;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::builder::TypedValueParser;

use crate::clock::Clock;
use crate::generator::control::Control;
use crate::generator::{self, GeneratorSettings, LastReport, Report};
use crate::machine::ProcessorTicks;
use crate::machine::process::{Usage, thread_times_ns};
use crate::result::grid::Grid;
use crate::result::tally::Tally;
use crate::result::{Ended, RunResult};
use crate::run::depth::DepthSampler;
use crate::run::progress::Progress;
use crate::run::series::{LoggedHistogram, Sample, Series};
use crate::scenario::span::Span;
use crate::scenario::{Consume, Scenario};
use crate::target::Target;

/// Time between the last connection and the first send, for all threads to learn of it.
const LEAD_NS: u64 = 20_000_000;
/// Longest wait for one more connection to be set up.
const SETUP_NS_MAX: u64 = 60_000_000_000;
/// Time after the last arrival, in which duplicates would show.
const AFTERMATH_NS: u64 = 300_000_000;
/// Longest wait for outstanding messages after an interruption.
const INTERRUPTED_NS_MAX: u64 = 5_000_000_000;
/// The most that a daemon may be late with a message that is deferred or timed out.
const LATE_NS_MAX: u64 = 5_000_000_000;
/// Time between two looks of the conductor at flags.
const LOOK: Duration = Duration::from_millis(10);

/// The options that are not part of the scenario: how this machine plays it. Most are flags.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Generator threads
    #[arg(long, value_name = "COUNT", default_value = "1", help_heading = "Generator",
          value_parser = clap::value_parser!(u16).range(1..=256).map(usize::from))]
    pub threads: usize,
    /// Cores to pin the threads to, in turn, such as 0,2 [left to the system]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Generator"
    )]
    pub cores: Vec<usize>,
    /// Length of an interval of the time series
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        help_heading = "Output"
    )]
    pub interval: Span,
    /// Topic name; with several topics their prefix [made up, and deleted at the end]
    #[arg(long, value_name = "NAME", help_heading = "Topics and connections")]
    pub topic: Option<String>,
    /// Leave made-up topics in the daemon
    #[arg(long, help_heading = "Topics and connections")]
    pub keep_topics: bool,
    /// Use the topic of --topic even if it has messages already, which are given back
    #[arg(long, help_heading = "Topics and connections")]
    pub allow_messages: bool,
    /// The flag that ends the run early.
    #[arg(skip)]
    pub stop: Arc<AtomicBool>,
    /// True to show progress on a terminal.
    #[arg(skip)]
    pub progress: bool,
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The result that is saved.
    pub result: RunResult,
    /// The histograms of every interval, for the HDR logs.
    pub log: Vec<LoggedHistogram>,
    /// The first intended send, in milliseconds of Unix time.
    pub started_unix_ms: u64,
}

/// Runs a scenario.
/// Fails when the run could not begin, in words for the user. A later failure is part of the result.
pub fn run(target: &Target, scenario: &Scenario, options: &Options) -> Result<Finished, String> {
    scenario.check()?;
    let mut scenario = scenario.clone();
    if scenario.messages > 0 {
        // A number of messages is a run's whole work: all of it is measured.
        scenario.warm_up = Span::default();
    }
    let scenario = &scenario;
    let clock = Clock::start();
    let prepared = prepare::prepare(target, scenario, options, clock)?;
    let (report_tx, reports) = channel();
    let mut conductor = Conductor {
        target,
        scenario,
        options,
        clock,
        control: Arc::clone(&prepared.control),
        reports,
        spares: Vec::new(),
        threads: Vec::new(),
        handles: Vec::new(),
        failure: None,
        rest: LastReport::default(),
    };
    conductor.spawn(prepared.generators, &report_tx)?;
    drop(report_tx);
    let grid = conductor.set_up(prepared.connections).inspect_err(|_| {
        conductor.stop();
        prepare::clean_up(target, &prepared.topics, options);
    })?;
    let single = prepared.topics.len() == 1;
    let mut depths = DepthSampler::start(target.http, &prepared.prefix, single, clock, grid);
    let mut recording = conductor.conduct(grid, &mut depths);
    let rest = conductor.stop();
    let series = &mut recording.series;
    series.end(recording.ended_ns, &rest.tally);
    series.depths.extend(depths.stop());
    prepare::clean_up(target, &prepared.topics, options);
    Ok(Finished {
        log: std::mem::take(&mut series.log),
        result: conclude::conclude(&conductor, grid, recording, rest),
        started_unix_ms: grid.start / 1_000_000,
    })
}

/// The recording of a run between the first send and the end.
struct Recording {
    series: Series,
    ended: Ended,
    ended_ns: u64,
    /// When publishing was to end, or was interrupted.
    publish_end_ns: u64,
    /// The daemon's usage when publishing was done, if consumers begin after it.
    published_usage: Option<Usage>,
    /// The time at which consumers began, if after publishing, and the daemon's usage then.
    consumed_from: Option<(u64, Option<Usage>)>,
    /// The time at which the user stopped the run.
    interrupted_ns: Option<u64>,
    /// The wait at the end, once everything is published.
    drain: Option<Drain>,
}

/// The wait for what is outstanding when everything is published.
#[derive(Default)]
struct Drain {
    since_ns: u64,
    /// The time of the last arrival, or of the start of the wait.
    progress_ns: u64,
    arrived: u64,
    /// The number of the first look at /stats after that.
    looks_from: usize,
    /// The time at which nothing was outstanding any more.
    drained_ns: Option<u64>,
}

/// The thread that directs a run.
struct Conductor<'a> {
    target: &'a Target,
    scenario: &'a Scenario,
    options: &'a Options,
    clock: Clock,
    control: Arc<Control>,
    reports: Receiver<Report>,
    /// The channels that return used tallies to each generator thread.
    spares: Vec<Sender<Box<Tally>>>,
    /// The system's ids of the generator threads.
    threads: Vec<u32>,
    handles: Vec<JoinHandle<()>>,
    failure: Option<String>,
    /// The last reports of the threads that ended already.
    rest: LastReport,
}

impl Conductor<'_> {
    fn spawn(
        &mut self,
        generators: Vec<GeneratorSettings>,
        reports: &Sender<Report>,
    ) -> Result<(), String> {
        for settings in generators {
            let (spare_tx, spare_rx) = channel();
            // The memory of the tallies is touched now, so that the first intervals do not begin with page faults.
            for _ in 0..2 {
                drop(spare_tx.send(Box::default()));
            }
            self.spares.push(spare_tx);
            self.threads.push(0);
            let reports = reports.clone();
            let handle = thread::Builder::new()
                .name(format!("generator-{}", settings.generator))
                .spawn(move || generator::run(settings, reports, spare_rx))
                .map_err(|error| format!("cannot start a thread: {error}"))?;
            self.handles.push(handle);
        }
        Ok(())
    }

    /// Waits for all connections and sets the time of the first send.
    fn set_up(&mut self, connections: usize) -> Result<Grid, String> {
        let (mut seen, mut since_ns) = (0, self.clock.now_ns());
        loop {
            self.receive(None, LOOK);
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if Control::is_set(&self.options.stop) {
                return Err("interrupted before the first message".into());
            }
            let ready = self.control.ready.load(Ordering::Acquire);
            if ready == connections {
                break;
            }
            if ready > seen {
                (seen, since_ns) = (ready, self.clock.now_ns());
            }
            if self.clock.now_ns() > since_ns + SETUP_NS_MAX {
                return Err(format!(
                    "{ready} of {connections} connections were accepted, and in {} s no more",
                    SETUP_NS_MAX / 1_000_000_000
                ));
            }
        }
        if self.scenario.consume == Consume::AtOnce {
            Control::set(&self.control.consume);
        }
        let start = self.clock.now_ns() + LEAD_NS;
        let measure = start + self.scenario.warm_up.as_ns();
        let grid = Grid {
            start,
            measure,
            publish_end: measure + self.scenario.duration.as_ns(),
            interval: self.options.interval.as_ns(),
        };
        Ok(*self.control.grid.get_or_init(|| grid))
    }

    fn conduct(&mut self, grid: Grid, depths: &mut DepthSampler) -> Recording {
        let mut recording = Recording {
            series: Series::new(grid, self.handles.len()),
            ended: Ended::Complete,
            ended_ns: 0,
            publish_end_ns: grid.publish_end,
            published_usage: None,
            consumed_from: None,
            interrupted_ns: None,
            drain: None,
        };
        let mut progress = Progress::new(self.options.progress, self.scenario, grid);
        let mut next_ns = grid.start;
        recording.ended = loop {
            let now_ns = self.clock.now_ns();
            while now_ns >= next_ns {
                recording.series.samples.insert(next_ns, self.sample());
                next_ns = grid.boundary_after(next_ns);
            }
            let wait = Duration::from_nanos(next_ns.saturating_sub(self.clock.now_ns()));
            self.receive(Some(&mut recording.series), wait.min(LOOK));
            depths.receive();
            progress.show(now_ns, &recording.series, depths.looks.last());
            if let Some(reason) = self.failure.take() {
                break Ended::Failed { reason };
            }
            if Control::is_set(&self.options.stop) && recording.interrupted_ns.is_none() {
                // Publishing ends; messages under way may still arrive.
                recording.interrupted_ns = Some(now_ns);
                recording.publish_end_ns = now_ns.min(grid.publish_end);
                Control::set(&self.control.end_publishing);
            }
            let is_long_ago = |at: u64| now_ns > at + INTERRUPTED_NS_MAX;
            if recording.interrupted_ns.is_some_and(is_long_ago) {
                break Ended::Interrupted;
            }
            if let Some(ended) = self.proceed(&mut recording, depths, now_ns, grid.publish_end) {
                break ended;
            }
        };
        if recording.interrupted_ns.is_some() && recording.ended == Ended::Complete {
            recording.ended = Ended::Interrupted;
        }
        recording.ended_ns = self.clock.now_ns();
        let last = self.sample();
        recording.series.samples.insert(recording.ended_ns, last);
        progress.end();
        recording
    }

    /// Goes on to the drain when all is published, and to consuming when that comes after publishing. Returns how the run
    /// ends, if it ends now.
    fn proceed(
        &self,
        recording: &mut Recording,
        depths: &DepthSampler,
        now_ns: u64,
        publish_end_ns: u64,
    ) -> Option<Ended> {
        let (scenario, control) = (self.scenario, &self.control);
        let ends_at = recording.interrupted_ns.unwrap_or(publish_end_ns);
        let producers = scenario.producers as usize;
        let done = control.producers_done.load(Ordering::Acquire) == producers
            && (producers > 0 || now_ns >= ends_at);
        let Some(drain) = &mut recording.drain else {
            if done {
                recording.drain = Some(Drain {
                    since_ns: now_ns,
                    progress_ns: now_ns,
                    looks_from: depths.looks.len(),
                    ..Drain::default()
                });
                Control::set(&control.published);
                recording.published_usage = self.usage();
                return None;
            }
            return (now_ns > ends_at + scenario.drain.as_ns()).then_some(Ended::NotDrained);
        };
        if scenario.consumers == 0 || producers == 0 {
            return Some(Ended::Complete);
        }
        if scenario.consume == Consume::AfterPublish && recording.consumed_from.is_none() {
            if recording.interrupted_ns.is_none()
                && now_ns < drain.since_ns + scenario.pause.as_ns()
            {
                drain.progress_ns = now_ns;
                return None;
            }
            recording.consumed_from = Some((now_ns, self.usage()));
            Control::set(&control.consume);
        }
        self.drained(drain, depths, now_ns)
    }

    /// Returns how the run ends, when nothing is outstanding, or nothing outstanding is likely to come.
    fn drained(&self, drain: &mut Drain, depths: &DepthSampler, now_ns: u64) -> Option<Ended> {
        let arrived = self.control.arrived();
        if arrived != drain.arrived {
            drain.arrived = arrived;
            drain.progress_ns = now_ns;
            drain.looks_from = depths.looks.len();
        }
        if self.control.is_drained() {
            let at = *drain.drained_ns.get_or_insert(now_ns);
            return (now_ns > at + AFTERMATH_NS).then_some(Ended::Complete);
        }
        let gives_up_ns = drain.progress_ns.saturating_add(self.idle_ns_max());
        if now_ns <= gives_up_ns && !depths.empty_since(drain.looks_from) {
            return None;
        }
        // A message that a late reader gives back may have timed out and come again long before.
        if self.scenario.reads_late() && self.control.has_arrived() {
            return Some(Ended::Complete);
        }
        Some(Ended::NotDrained)
    }

    /// The longest time without an arrival, at the end, before what is outstanding counts as lost: `drain`,
    /// or longer where the scenario itself lets messages rest in the daemon until they are due.
    fn idle_ns_max(&self) -> u64 {
        let rest = self.scenario.rest_max(self.target.msg_timeout);
        let late_ns_max = if rest.is_zero() { 0 } else { LATE_NS_MAX };
        let due_ns = rest.as_ns().saturating_add(late_ns_max);
        self.scenario.drain.as_ns().max(due_ns)
    }

    /// Takes reports for `wait` at most.
    fn receive(&mut self, mut series: Option<&mut Series>, wait: Duration) {
        let mut next = self.reports.recv_timeout(wait);
        loop {
            match next {
                Ok(Report::Started { generator, thread }) => self.threads[generator] = thread,
                Ok(Report::Interval {
                    generator,
                    boundary_ns,
                    mut tally,
                }) => {
                    match &mut series {
                        Some(series) => series.interval(boundary_ns, &tally),
                        None => self.rest.tally.add(&tally),
                    }
                    tally.clear();
                    // A thread that has ended needs no more.
                    drop(self.spares[generator].send(tally));
                }
                Ok(Report::Failed(reason)) => {
                    self.failure.get_or_insert(reason);
                }
                Ok(Report::Ended(last)) => {
                    self.rest.records.extend(last.records);
                    self.rest.unsent += last.unsent;
                    self.rest.tally.add(&last.tally);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
            next = self.reports.recv_timeout(Duration::ZERO);
        }
    }

    fn usage(&self) -> Option<Usage> {
        self.target.process?.usage()
    }

    fn sample(&self) -> Sample {
        Sample {
            taken_ns: self.clock.now_ns(),
            usage: self.usage(),
            threads: self.threads.iter().copied().map(thread_times_ns).collect(),
            processors: ProcessorTicks::now(),
        }
    }

    /// Ends the generator threads and takes their last reports.
    fn stop(&mut self) -> LastReport {
        Control::set(&self.control.stop);
        for handle in self.handles.drain(..) {
            // A panic aborts the program.
            drop(handle.join());
        }
        self.receive(None, Duration::ZERO);
        std::mem::take(&mut self.rest)
    }
}
