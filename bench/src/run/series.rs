//! [`Series`]: the intervals of all threads put together on one time axis, and the sums over them.

use std::collections::BTreeMap;

use crate::machine::ProcessorTicks;
use crate::machine::process::Usage;
use crate::result::grid::Grid;
use crate::result::tally::{Counts, Tally, per, percentiles, serialised};
use crate::result::{HistogramKind, Interval, Phase, ProcessInterval};
use crate::run::depth::Depth;

/// A histogram of one interval in its serialised form, for the HDR log.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedHistogram {
    /// The latency that the histogram counts.
    pub kind: HistogramKind,
    /// The start of the interval, in seconds since the start of the run.
    pub start_s: f64,
    /// The length of the interval, in seconds.
    pub length_s: f64,
    /// The histogram: HdrHistogram V2, deflated.
    pub bytes: Vec<u8>,
}

/// The measurements at one boundary, besides the tallies.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The time at which the sample was taken. A generator whose threads take all cores takes samples late.
    pub taken_ns: u64,
    /// The daemon's use of resources up to the boundary; `None` when its process is not watched.
    pub usage: Option<Usage>,
    /// CPU and waiting time of each generator thread, in nanoseconds.
    pub threads: Vec<(u64, u64)>,
    /// The machine's processor time up to the boundary; `None` where the system does not say.
    pub processors: Option<ProcessorTicks>,
}

/// The time series of a run, while it is collected.
#[derive(Debug)]
pub struct Series {
    grid: Grid,
    generators: usize,
    /// Intervals that not all generator threads have reported, with the number of those that have.
    open: BTreeMap<u64, (usize, Tally)>,
    /// Finished intervals by their end.
    rows: BTreeMap<u64, Interval>,
    /// Samples by boundary.
    pub samples: BTreeMap<u64, Sample>,
    /// Depths by boundary.
    pub depths: BTreeMap<u64, Depth>,
    /// The counts and latencies of the whole run.
    pub all: Tally,
    /// Counts of the measured intervals.
    pub measured: Counts,
    /// The histograms for the HDR log.
    pub log: Vec<LoggedHistogram>,
}

impl Series {
    /// Makes an empty series that expects tallies of `generators` threads.
    pub fn new(grid: Grid, generators: usize) -> Series {
        Series {
            grid,
            generators,
            open: BTreeMap::new(),
            rows: BTreeMap::new(),
            samples: BTreeMap::new(),
            depths: BTreeMap::new(),
            all: Tally::default(),
            measured: Counts::default(),
            log: Vec::new(),
        }
    }

    /// Adds one thread's interval.
    pub fn interval(&mut self, boundary_ns: u64, tally: &Tally) {
        let (reported, sum) = self.open.entry(boundary_ns).or_default();
        *reported += 1;
        sum.add(tally);
        if *reported == self.generators
            && let Some((_, sum)) = self.open.remove(&boundary_ns)
        {
            self.close(boundary_ns, &sum);
        }
    }

    /// Returns the newest finished interval.
    pub fn last(&self) -> Option<&Interval> {
        self.rows.last_key_value().map(|(_, row)| row)
    }

    /// Returns the end of the newest finished interval, or the start of the run.
    fn end_ns(&self) -> u64 {
        let last = self.rows.last_key_value();
        last.map_or(self.grid.start, |(end, _)| *end)
    }

    fn close(&mut self, boundary_ns: u64, tally: &Tally) {
        let phase = self.grid.phase_before(boundary_ns);
        let from_ns = self.end_ns();
        let start_s = (from_ns - self.grid.start) as f64 / 1e9;
        let length_s = (boundary_ns.saturating_sub(from_ns)) as f64 / 1e9;
        let counts = &tally.counts;
        if phase == Phase::Measure {
            self.measured.add(counts);
        }
        let split = tally.latencies.each_ref();
        let [publish, delivery, lateness] = split.map(|split| percentiles(&split.both()));
        let row = Interval {
            at_s: start_s + length_s,
            length_s,
            phase,
            sent_per_s: per(counts.sent, length_s),
            acknowledged_per_s: per(counts.acknowledged, length_s),
            delivered_per_s: per(counts.delivered, length_s),
            publish,
            delivery,
            lateness,
            ..Interval::default()
        };
        let kinds = HistogramKind::ALL.into_iter().zip(split);
        for (kind, part) in kinds.filter(|(_, part)| !part.measured.is_empty()) {
            self.log.push(LoggedHistogram {
                kind,
                start_s,
                length_s,
                bytes: serialised(&part.measured),
            });
        }
        self.all.add(tally);
        self.rows.insert(boundary_ns, row);
    }

    /// Ends the series: closes the open intervals, and adds what happened since the last boundary.
    pub fn end(&mut self, end_ns: u64, rest: &Tally) {
        let mut sum = rest.clone();
        for (_, tally) in std::mem::take(&mut self.open).values() {
            sum.add(tally);
        }
        self.close(end_ns.max(self.end_ns() + 1), &sum);
    }

    /// The rows, with everything that was sampled at their ends. `offered` says what was offered then,
    /// in messages per second.
    pub fn rows(&self, offered: impl Fn(u64) -> Option<f64>) -> Vec<Interval> {
        let mut rows = Vec::with_capacity(self.rows.len());
        for (end, row) in &self.rows {
            let mut row = row.clone();
            if row.phase != Phase::Drain {
                row.offered_per_s = offered(*end);
            }
            if let Some(depth) = self.depths.get(end) {
                row.depth = Some(depth.depth);
                row.in_flight = Some(depth.in_flight);
                row.deferred = Some(depth.deferred);
            }
            let before = self.samples.range(..end).next_back();
            if let Some((now, (_, before))) = self.samples.get(end).zip(before) {
                let per_s = |count: u64| count as f64 / row.length_s.max(1e-9);
                let percent = |ns: u64| per_s(ns) / 1e7;
                let cpu = |sample: &Sample| sample.threads.iter().map(|(cpu, _)| cpu).sum::<u64>();
                row.generator_cpu_percent = percent(cpu(now).saturating_sub(cpu(before)));
                row.daemon = now.usage.zip(before.usage).map(|(now, before)| {
                    let used = now.since(before);
                    ProcessInterval {
                        cpu_percent: percent(used.cpu_ns),
                        rss_bytes: used.rss_bytes,
                        switches_voluntary_per_s: per_s(used.switches_voluntary),
                        switches_involuntary_per_s: per_s(used.switches_involuntary),
                        disk_written_bytes_per_s: per_s(used.disk_written_bytes.unwrap_or(0)),
                    }
                });
            }
            rows.push(row);
        }
        rows
    }
}
