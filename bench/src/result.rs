//! [`SavedResult`]: the JSON file that a run leaves, and that `plan` and `report` read.
//!
//! ```text
//!   SavedResult
//!     schema, tool, command, started, machine
//!     outcome = run      RunResult
//!             | sweep    SweepResult     steps of RunResult
//!             | find-max FindMaxResult   the held RunResult, the steps, a Profile for `plan`
//!             | compare  CompareResult   two sides of RunResults, ratios
//!
//!   RunResult
//!     daemon, scenario, loop, ended
//!     totals, ledger, resources, self_check
//!     histograms  one per kind: percentiles, and the whole histogram
//!     series      one row per interval, all on the same time axis
//! ```
//!
//! Names end in their unit. Rates are per second, times of the series are seconds since the first
//! intended send. Latencies are microseconds; the histograms themselves count nanoseconds. What could
//! not be measured (no local process, no HTTP) is absent, never zero.

pub mod grid;
pub mod ledger;
pub mod tally;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::scenario::Scenario;

/// The version of this file's layout. It grows when an old reader would misread a new file; added
/// optional fields do not count.
pub const SCHEMA: u32 = 1;

/// A saved measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedResult {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Program and version that measured, such as `nsq-bench 0.1.0`.
    pub tool: String,
    /// The exact command line, program name included, one word an element.
    pub command: Vec<String>,
    /// When the measurement started: milliseconds of Unix time.
    pub started_unix_ms: u64,
    /// The machine on which the program ran.
    pub machine: Machine,
    /// The measurement itself.
    pub outcome: Outcome,
}

/// A machine's fingerprint: what a figure depends on, and nothing that names the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model name, from /proc/cpuinfo.
    pub cpu_model: String,
    /// Cores that the program may use.
    pub cores: u32,
    /// The system's name, release and architecture, from uname.
    pub kernel: String,
    /// The machine's memory in bytes.
    pub memory_bytes: u64,
}

/// The result by the kind of measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of them in a program"
)]
pub enum Outcome {
    /// The result of `nsq-bench run`.
    Run(Box<RunResult>),
    /// The result of `nsq-bench sweep`.
    Sweep(SweepResult),
    /// The result of `nsq-bench find-max`.
    FindMax(Box<FindMaxResult>),
    /// The result of `nsq-bench compare`.
    Compare(CompareResult),
}

/// One run of one scenario against one daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The daemon that was measured.
    pub daemon: Daemon,
    /// The scenario that was run, every default filled in.
    pub scenario: Scenario,
    /// The kind of loop. Latencies of a closed loop hide stalls.
    #[serde(rename = "loop")]
    pub loop_kind: LoopKind,
    /// The end of the run: whole, or cut short.
    pub ended: Ended,
    /// Counts and rates of the measured time.
    pub totals: Totals,
    /// The account of every message, warm-up included.
    pub ledger: Ledger,
    /// The resources that the daemon's process used, when it is local.
    pub resources: Option<Resources>,
    /// The judgement whether the generator was the limit.
    pub self_check: SelfCheck,
    /// One per [`HistogramKind`] that has values.
    pub histograms: Vec<HistogramRecord>,
    /// One row per interval in order of time, warm-up and drain included.
    pub series: Vec<Interval>,
}

impl RunResult {
    /// Tells whether a daemon or a connection failed.
    pub fn is_failed(&self) -> bool {
        matches!(self.ended, Ended::Failed { .. })
    }

    /// The histogram of a kind, if anything of it was recorded.
    pub fn histogram(&self, kind: HistogramKind) -> Option<&HistogramRecord> {
        self.histograms.iter().find(|record| record.kind == kind)
    }

    /// The latency that counts: delivery, or publish where nothing was consumed.
    pub fn main_latency(&self) -> Option<&HistogramRecord> {
        let delivery = self.histogram(HistogramKind::Delivery);
        delivery.or_else(|| self.histogram(HistogramKind::Publish))
    }

    /// Cores that the daemon used in the measured time.
    pub fn cores_used(&self) -> Option<f64> {
        let measured_s = self.totals.measured_s;
        let used = self.resources.filter(|_| measured_s > 0.0)?;
        Some(used.cpu_s / measured_s)
    }
}

/// A daemon: what it is, and where it listened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Daemon {
    /// `nsqd`, `sink`, or in a comparison the name of the side.
    pub kind: String,
    /// The version in its answer to IDENTIFY; empty if it did not say.
    pub version: String,
    /// The TCP address that the generator connected to.
    pub tcp_address: String,
    /// The command that started it, when this program did.
    pub command: Option<String>,
}

/// The kind of loop: open, or closed if publishing waited for answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoopKind {
    /// Each message had an intended send time of its own; latencies count from it.
    Open,
    /// A publish waited for room in the window; latencies count from the actual send.
    Closed,
    /// Nothing was published. Latencies count from the intended send times that the messages carry.
    None,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum Ended {
    /// All of it ran and everything outstanding arrived.
    Complete,
    /// All of it ran, but not everything arrived before the drain time was over.
    NotDrained,
    /// The user stopped it; the result is of what ran.
    Interrupted,
    /// The daemon or a connection failed; the result is of what ran.
    Failed {
        /// The error, in words for the user.
        reason: String,
    },
}

/// Counts and rates. Rates count what happened in `measured_s`, without warm-up and drain; `answers` are
/// those of the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// The measured time, in seconds.
    pub measured_s: f64,
    /// Offered load in messages per second; absent in a closed loop.
    pub offered_per_s: Option<f64>,
    /// Messages acknowledged (OK) in the measured time.
    pub acknowledged: u64,
    /// Messages acknowledged per second.
    pub acknowledged_per_s: f64,
    /// Messages delivered in the time from the start of measuring (or of consuming, if later) to its
    /// end (or the last delivery, when consumers begin after publishing), over all channels.
    pub delivered: u64,
    /// Messages delivered per second of that time.
    pub delivered_per_s: f64,
    /// Mean size of the bodies sent in the whole run, in bytes.
    pub message_bytes_mean: f64,
    /// Bytes of bodies acknowledged per second: the rate of messages times their mean size.
    pub acknowledged_bytes_per_s: f64,
    /// The answers of consumers, and what went on beside them.
    #[serde(flatten)]
    pub answers: Answers,
}

/// Counts of the whole run that are saved as they were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// Messages answered with FIN.
    pub finished: u64,
    /// Messages answered with REQ.
    pub requeued: u64,
    /// TOUCHes sent.
    pub touched: u64,
    /// Deliveries deliberately left to time out.
    pub left_to_time_out: u64,
    /// Connections made again: storms dropped them, or the daemon dropped a slow reader.
    pub reconnected: u64,
    /// Error answers received (E_FIN_FAILED and the like), which do not end a connection.
    pub error_answers: u64,
}

/// The account of every message. It is exact: each message carries its producer, number and checksum.
/// `received`, `lost`, `duplicated`, `corrupted` and `reordered` are summed over the channels, each of
/// which has to get every message once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Messages sent.
    pub sent: u64,
    /// Messages that the daemon acknowledged.
    pub acknowledged: u64,
    /// Sent, but neither acknowledged nor refused when the connection or the run ended.
    pub unconfirmed: u64,
    /// Messages that the daemon refused.
    pub refused: u64,
    /// Channels that were consumed; zero when there were no consumers, then nothing below counts.
    pub channels: u32,
    /// Different messages received intact.
    pub received: u64,
    /// Acknowledged, but not received in any form although the end of the drain was awaited.
    pub lost: u64,
    /// Acknowledged and not received when the run was cut short (interrupted, failed): neither lost nor
    /// delivered, as far as one can know.
    #[serde(default)]
    pub outstanding: u64,
    /// Deliveries of a message that had already been received and not been given back (REQ, timeout).
    pub duplicated: u64,
    /// Messages whose checksum did not fit. Each stands for one message that did not arrive intact.
    pub corrupted: u64,
    /// First deliveries of a message behind a later one of its producer on the same connection.
    pub reordered: u64,
    /// Deliveries after a REQ, a timeout or a dropped connection of the consumer's: expected.
    pub redelivered: u64,
    /// Deliveries of messages of somebody else, which were given back.
    pub foreign: u64,
}

impl Ledger {
    /// Tells whether every channel got everything once, intact. Order does not matter: NSQ promises none.
    pub fn is_clean(&self) -> bool {
        self.lost == 0 && self.duplicated == 0 && self.corrupted == 0
    }
}

/// The resources of the daemon's process. CPU, switches and bytes count in the measured time (until the last
/// delivery when consumers begin after publishing).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// CPU time of all its threads, user and system, in seconds.
    pub cpu_s: f64,
    /// CPU time per message acknowledged or delivered, in microseconds.
    pub cpu_us_per_message: Option<f64>,
    /// CPU time until consumers began per message acknowledged, in microseconds. Only when they begin
    /// after publishing.
    #[serde(default)]
    pub cpu_us_per_published: Option<f64>,
    /// CPU time from then on per message delivered, in microseconds.
    #[serde(default)]
    pub cpu_us_per_delivered: Option<f64>,
    /// Resident memory at the start, in bytes.
    pub rss_start_bytes: u64,
    /// Largest resident memory seen, in bytes.
    pub rss_max_bytes: u64,
    /// Growth of resident memory up to the deepest backlog seen, per message of it, in bytes. Absent
    /// when the backlog was small.
    pub memory_bytes_per_queued: Option<f64>,
    /// Bytes it caused to be written to disk. A file system that delays writing may not have counted
    /// all of them yet.
    pub disk_written_bytes: u64,
    /// Bytes written to disk per message acknowledged. Absent when nothing was acknowledged, or the bytes are
    /// unknown.
    pub disk_bytes_per_message: Option<f64>,
    /// Voluntary context switches of all its threads.
    pub switches_voluntary: u64,
    /// Involuntary context switches of all its threads.
    pub switches_involuntary: u64,
}

/// The generator's check of itself: whose limit was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SelfCheck {
    /// The conclusion.
    pub verdict: Verdict,
    /// The reasons, and what else is worth a note, in sentences for the user.
    pub reasons: Vec<String>,
    /// CPU share of each generator thread in the measured time, in percent of a core.
    pub thread_cpu_percent: Vec<f64>,
    /// Offered messages that were sent in the measured time, as a share of the offered ones. Absent
    /// in a closed loop.
    pub sent_share: Option<f64>,
    /// Part of the time of this machine's processors that the host of the virtual machine did not give it, in
    /// percent. Absent where the system does not say, and in results of earlier versions.
    pub stolen_percent: Option<f64>,
}

/// The verdict of a self-check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The generator kept up: the figures are the daemon's.
    #[default]
    Trusted,
    /// The generator was the bottleneck: the figures are its own, the daemon may do better.
    GeneratorLimited,
    /// Messages came before their intended send time: the clocks of the producers' and the consumers' machines differ,
    /// and the latencies of deliveries are wrong.
    ClocksDiffer,
}

/// The latency that a histogram counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistogramKind {
    /// From the intended send of a message to its OK.
    Publish,
    /// From the intended send of a message to its first delivery, for each channel.
    Delivery,
    /// From the intended send of a message to its actual send where nothing but the generator itself
    /// was in the way.
    Lateness,
}

impl HistogramKind {
    /// All kinds, in their order.
    pub const ALL: [HistogramKind; 3] = [
        HistogramKind::Publish,
        HistogramKind::Delivery,
        HistogramKind::Lateness,
    ];

    /// Returns the name that results and tables use.
    pub fn name(self) -> &'static str {
        match self {
            HistogramKind::Publish => "publish",
            HistogramKind::Delivery => "delivery",
            HistogramKind::Lateness => "lateness",
        }
    }
}

/// A histogram: its percentiles, and all of it. Values are those with an intended send in the measured
/// time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistogramRecord {
    /// The latency that the histogram counts.
    pub kind: HistogramKind,
    /// The number of recorded values.
    pub count: u64,
    /// The smallest value, in microseconds.
    pub min_us: f64,
    /// The mean, in microseconds.
    pub mean_us: f64,
    /// The median, in microseconds.
    pub p50_us: f64,
    /// The 90th percentile, in microseconds.
    pub p90_us: f64,
    /// The 99th percentile, in microseconds.
    pub p99_us: f64,
    /// The 99.9th percentile, in microseconds.
    pub p999_us: f64,
    /// The 99.99th percentile, in microseconds.
    pub p9999_us: f64,
    /// The largest value, in microseconds.
    pub max_us: f64,
    /// All of it: HdrHistogram V2, deflated, base64, with values in nanoseconds.
    pub hdr_base64: String,
    /// The HDR interval log with the same values, a file name beside this file, if it was written.
    pub hdr_log: Option<String>,
}

impl HistogramRecord {
    /// Returns the saved percentiles, each with its value in microseconds. The last is the largest value.
    pub fn percentiles_us(&self) -> [(f64, f64); 6] {
        [
            (50.0, self.p50_us),
            (90.0, self.p90_us),
            (99.0, self.p99_us),
            (99.9, self.p999_us),
            (99.99, self.p9999_us),
            (100.0, self.max_us),
        ]
    }
}

/// One row of the time series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// End of the interval: seconds since the first intended send.
    pub at_s: f64,
    /// The length of the interval, in seconds.
    pub length_s: f64,
    /// The phase that the interval belongs to.
    pub phase: Phase,
    /// Offered load at its end, in messages per second; absent in a closed loop and in the drain.
    pub offered_per_s: Option<f64>,
    /// Messages sent per second.
    pub sent_per_s: f64,
    /// Messages acknowledged per second.
    pub acknowledged_per_s: f64,
    /// Messages delivered per second, over all channels.
    pub delivered_per_s: f64,
    /// Publish latencies of the OKs that came in the interval.
    pub publish: Option<Percentiles>,
    /// Delivery latencies of the messages that came in the interval.
    pub delivery: Option<Percentiles>,
    /// Lateness of the messages sent in the interval; absent in a closed loop.
    pub lateness: Option<Percentiles>,
    /// Messages waiting in the channels (in the topics, where there is no channel), from /stats.
    pub depth: Option<u64>,
    /// Messages delivered and not answered yet, from /stats.
    pub in_flight: Option<u64>,
    /// Messages that wait for the end of their delay, from /stats.
    pub deferred: Option<u64>,
    /// The daemon's process, when it is watched.
    pub daemon: Option<ProcessInterval>,
    /// CPU of the generator's threads together, in percent of one core.
    pub generator_cpu_percent: f64,
}

/// A phase of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Publishing, not measured.
    #[default]
    WarmUp,
    /// Publishing, measured.
    Measure,
    /// Publishing has ended; what is outstanding arrives.
    Drain,
}

/// Percentiles of an interval, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The number of recorded values.
    pub count: u64,
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The largest value.
    pub max_us: f64,
}

/// The daemon's process in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessInterval {
    /// CPU in percent of one core; several cores make more than 100.
    pub cpu_percent: f64,
    /// Resident memory at the end of the interval, in bytes.
    pub rss_bytes: u64,
    /// Voluntary context switches per second.
    pub switches_voluntary_per_s: f64,
    /// Involuntary context switches per second.
    pub switches_involuntary_per_s: f64,
    /// Bytes per second that the process caused to be written to disk.
    pub disk_written_bytes_per_s: f64,
}

/// A staircase of rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepResult {
    /// The steps in the order they ran, each with its offered rate in the totals.
    pub steps: Vec<RunResult>,
    /// The knee: the highest offered rate that was carried, with a p99 delivery (or publish) latency
    /// of at most ten times the smallest of all steps, by figures that are the daemon's own. Absent
    /// when there is none.
    pub knee_per_s: Option<f64>,
}

/// The highest rate within an objective.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FindMaxResult {
    /// The objective as written, such as `p99<5ms,lost=0`.
    pub slo: String,
    /// The highest offered rate that met it and was confirmed, in messages per second. Absent when
    /// none did.
    pub found_per_s: Option<f64>,
    /// True when the search ended because the generator, not the daemon, reached its limit: the daemon
    /// can do at least `found_per_s`.
    pub generator_limited: bool,
    /// True when the search ended at the highest rate that it was to try (`--most`).
    #[serde(default)]
    pub reached_most: bool,
    /// The lowest rate that missed the objective, in messages per second. Absent when every rate met it.
    pub failed_per_s: Option<f64>,
    /// For each term of the objective, how far the confirming run was from it, as a share of the
    /// limit: 0.4 means 40 % of it were left.
    pub headroom: Vec<Headroom>,
    /// The rates tried, in order.
    pub steps: Vec<SearchStep>,
    /// The confirming run at `found_per_s`.
    pub held: Option<RunResult>,
    /// The profile that `plan` reads. Absent when nothing was found.
    pub profile: Option<Profile>,
}

/// The distance of a term of an objective from its limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Headroom {
    /// The term as written, such as `p99<5ms`.
    pub term: String,
    /// The value measured, in the term's unit: microseconds, or messages.
    pub measured: f64,
    /// The rest up to the limit, as a share of the limit; absent when the limit is zero.
    pub left_share: Option<f64>,
}

/// One rate of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchStep {
    /// The offered rate, in messages per second.
    pub offered_per_s: f64,
    /// `ramp`, `bisect` or `hold`.
    pub stage: String,
    /// True when the run met every term of the objective.
    pub passed: bool,
    /// The terms that were missed, each with the measured value.
    pub missed: Vec<String>,
    /// The judgement whether the generator was the limit of this run.
    pub verdict: Verdict,
    /// Messages acknowledged per second.
    pub acknowledged_per_s: f64,
    /// The 99th percentile of the publish latency, in microseconds.
    pub publish_p99_us: Option<f64>,
    /// The 99th percentile of the delivery latency, in microseconds; absent when nothing was consumed.
    pub delivery_p99_us: Option<f64>,
}

/// A daemon on a machine in the figures that capacity is planned by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The daemon that was measured.
    pub daemon: Daemon,
    /// The machine that it was measured on.
    pub machine: Machine,
    /// The objective as written, such as `p99<5ms,lost=0`.
    pub slo: String,
    /// The highest rate within the objective, in messages published per second.
    pub messages_per_s: f64,
    /// True when the generator was the limit: then `messages_per_s` is a lower bound.
    pub generator_limited: bool,
    /// True when `--most` was the limit: then `messages_per_s` is a lower bound, too.
    #[serde(default)]
    pub reached_most: bool,
    /// Mean size of a message's body, in bytes.
    pub message_bytes: f64,
    /// Channels of each topic, each with consumers.
    pub channels: u32,
    /// Messages of one publish command.
    pub batch: u32,
    /// Cores of the machine. Generator and daemon share them when both are local.
    pub cores: u32,
    /// Cores the daemon was using at `messages_per_s`.
    pub daemon_cores_used: Option<f64>,
    /// CPU-seconds of the daemon per message published, from a phase without consumers.
    pub cpu_s_per_published: Option<f64>,
    /// CPU-seconds of the daemon per message delivered and finished on one channel: what the held
    /// run used beyond its publishing, over its deliveries. Absent if that is nothing: the two runs then do not tell
    /// the times of a publish and of a delivery apart.
    pub cpu_s_per_delivered: Option<f64>,
    /// Resident memory per message queued, in bytes; absent when the backlog was too small to tell.
    pub memory_bytes_per_queued: Option<f64>,
    /// Resident memory of the daemon with nothing queued, in bytes.
    pub memory_bytes_idle: Option<u64>,
    /// Bytes written to disk per message published, with messages staying queued.
    pub disk_bytes_per_message: Option<f64>,
}

impl Profile {
    /// Tells whether the CPU time of a delivery is known beside that of a publish, as far as CPU time was measured.
    pub fn tells_cpu_apart(&self) -> bool {
        let parts = self.cpu_s_per_published.zip(self.cpu_s_per_delivered);
        parts.is_some() || self.daemon_cores_used.is_none()
    }
}

/// Two daemons under the same scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompareResult {
    /// The scenario's name; empty for flags alone.
    pub scenario: String,
    /// Rounds, each of which ran A and then B.
    pub rounds: u32,
    /// Side A: the baseline.
    pub a: Side,
    /// Side B: the daemon that is judged.
    pub b: Side,
    /// B over A for each metric that both sides have.
    pub ratios: Vec<Ratio>,
    /// The bounds that were asked for, each with the measured ratio.
    pub thresholds: Vec<Threshold>,
    /// True when every threshold was met by figures that are the daemon's own, and every run was clean.
    pub passed: bool,
    /// The reasons why the comparison did not pass, in sentences for the user.
    pub failures: Vec<String>,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The name of the side.
    pub name: String,
    /// The command line with its placeholders.
    pub command: String,
    /// One per round, in order.
    pub runs: Vec<RunResult>,
    /// The median over the rounds of each metric, with its range.
    pub metrics: Vec<Metric>,
}

impl Side {
    /// Returns the metric of a name; `None` when no round measured it.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

/// A metric of one side over the rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Its name, the same on both sides and in [`Ratio::metric`], such as `delivered_per_s`.
    pub name: String,
    /// Its unit, such as `msg/s`, `us`, `bytes`.
    pub unit: String,
    /// True when more is better.
    pub higher_is_better: bool,
    /// The value of each round in order; `None` where a round could not measure it.
    pub values: Vec<Option<f64>>,
    /// The median of those there are.
    pub median: f64,
    /// The smallest value of the rounds.
    pub min: f64,
    /// The largest value of the rounds.
    pub max: f64,
}

/// B over A.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The [`Metric::name`].
    pub metric: String,
    /// True when more than 1 speaks for B.
    pub higher_is_better: bool,
    /// The median of the rounds' ratios: each round compares neighbours in time.
    pub median: f64,
    /// The smallest ratio of the rounds.
    pub min: f64,
    /// The largest ratio of the rounds.
    pub max: f64,
}

/// A bound on a ratio, for use in CI.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Threshold {
    /// The [`Ratio::metric`].
    pub metric: String,
    /// `at-least` or `at-most`.
    pub bound: Bound,
    /// The bound: the ratio B/A that is required.
    pub limit: f64,
    /// The ratio B/A that was measured; absent when a side lacks the metric.
    pub measured: Option<f64>,
    /// True when the measured ratio keeps the bound.
    pub met: bool,
}

/// The direction of a [`Threshold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The ratio has to be the limit or more.
    AtLeast,
    /// The ratio has to be the limit or less.
    AtMost,
}

impl SavedResult {
    /// Reads a file. `what` it is to the user is said when that fails.
    pub fn load(path: &Path, what: &str) -> Result<SavedResult, String> {
        let name = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read the {what} {name}: {error}"))?;
        SavedResult::from_json(&text).map_err(|why| format!("the {what} {name} {why}"))
    }

    /// Reads a saved result.
    /// Fails when the text is no saved result, or of a layout this program does not know; in words for the
    /// user, without the file's name.
    pub fn from_json(text: &str) -> Result<SavedResult, String> {
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
        }
        let head: Head = serde_json::from_str(text)
            .map_err(|error| format!("is not a result of nsq-bench: {error}"))?;
        if head.schema != SCHEMA {
            return Err(format!(
                "has layout {} and this program reads layout {SCHEMA}: use the version that wrote it",
                head.schema
            ));
        }
        serde_json::from_str(text).map_err(|error| format!("is damaged: {error}"))
    }

    /// Formats the result as indented JSON, the text of a saved file.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data")
    }
}

#[cfg(test)]
mod tests;
