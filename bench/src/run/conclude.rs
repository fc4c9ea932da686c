//! The result of a run, from its recording.

use super::{Conductor, Recording};
use crate::generator::LastReport;
use crate::generator::pace::Curve;
use crate::machine::process::Usage;
use crate::result::grid::Grid;
use crate::result::ledger::{ChannelLedger, final_ledger};
use crate::result::tally::{per, percentiles, record};
use crate::result::{
    Ended, HistogramKind, Interval, LoopKind, Resources, RunResult, SelfCheck, Totals,
};
use crate::run::self_check::{Observed, judge};
use crate::run::series::{Sample, Series};
use crate::scenario::{Arrivals, Consume, Scenario};

/// A backlog below this says nothing about memory per message.
const BACKLOG_MIN: u64 = 10_000;
/// A sample at an end of the measured time may be late by this part of the measured time.
const LATE_SHARE: f64 = 0.05;

pub(super) fn conclude(
    conductor: &Conductor<'_>,
    grid: Grid,
    recording: Recording,
    rest: LastReport,
) -> RunResult {
    let scenario = conductor.scenario;
    let times = MeasuredTimes::new(scenario, grid, &recording);
    let totals = totals(scenario, &recording, &times);
    let series = recording.series.rows(|at| offered_at(scenario, grid, at));
    let ends = ends(&recording.series, &times);
    let resources = ends.and_then(|ends| resources(&recording, ends, &totals, &series));
    let self_check = self_check(scenario, &recording, ends, &rest);
    let counts = &recording.series.all.counts;
    let histograms = HistogramKind::ALL
        .into_iter()
        .zip(&recording.series.all.latencies);
    let histograms = histograms.filter_map(|(kind, split)| record(kind, &split.measured));
    let ledgers: Vec<_> = conductor.control.all_ledgers().collect();
    let channels: Vec<&ChannelLedger> = ledgers.iter().map(|guard| &**guard).collect();
    let mut ledger = final_ledger(&rest.records, &channels);
    ledger.reordered = counts.reordered;
    ledger.foreign = counts.foreign;
    if matches!(recording.ended, Ended::Interrupted | Ended::Failed { .. }) {
        // The run was cut short, so the missing messages are not lost but outstanding.
        ledger.outstanding = std::mem::take(&mut ledger.lost);
    }
    RunResult {
        daemon: conductor.target.daemon.clone(),
        scenario: scenario.clone(),
        loop_kind: match scenario.offered_per_s() {
            _ if scenario.producers == 0 => LoopKind::None,
            None => LoopKind::Closed,
            Some(_) => LoopKind::Open,
        },
        ended: recording.ended,
        totals,
        ledger,
        resources,
        self_check,
        histograms: histograms.collect(),
        series,
    }
}

/// The actual measured times of a run.
struct MeasuredTimes {
    from_ns: u64,
    /// The end of publishing: the time for rates of publishing ends here.
    published_ns: u64,
    /// From and to: the time for rates of delivery.
    delivered: (u64, u64),
    /// True when deliveries behind the end of publishing count.
    to_the_last: bool,
}

impl MeasuredTimes {
    fn new(scenario: &Scenario, grid: Grid, recording: &Recording) -> MeasuredTimes {
        let all = &recording.series.all;
        let limited = scenario.messages > 0 && all.last_answer_ns < recording.publish_end_ns;
        let published_ns = match recording.ended {
            _ if limited && all.last_answer_ns > 0 => all.last_answer_ns,
            Ended::Failed { .. } => recording.publish_end_ns.min(recording.ended_ns),
            // A run ends soon after the last answer, long before the next message would have been due.
            _ => recording.publish_end_ns,
        };
        let planned_ns = planned_ns(scenario, recording, limited);
        let published_ns = published_ns.max(grid.measure.saturating_add(planned_ns));
        let to_the_last = limited || scenario.consume == Consume::AfterPublish;
        let interrupted = recording.publish_end_ns < grid.publish_end;
        let last_ns = match scenario.consume {
            Consume::AfterPublish => all.last_delivery_ns,
            // Deliveries after the interruption count, and so does their time.
            Consume::AtOnce if limited || interrupted => all.last_delivery_ns.max(published_ns),
            Consume::AtOnce => published_ns,
        };
        let from_ns = recording.consumed_from.map_or(grid.measure, |(at, _)| at);
        MeasuredTimes {
            from_ns: grid.measure.min(published_ns),
            published_ns,
            delivered: (from_ns, last_ns.max(from_ns)),
            to_the_last,
        }
    }
}

/// Returns the time that the messages of the measured time take at the offered rate, in nanoseconds. It is longer than
/// the measured time if the last message is due shortly before its end: with one message a second, three messages are
/// sent in 2.5 s, and their rate is not more than was offered. Zero in a closed loop, and where messages are not evenly
/// spaced.
fn planned_ns(scenario: &Scenario, recording: &Recording, limited: bool) -> u64 {
    let is_even = scenario.arrivals == Arrivals::Even && scenario.peak <= 1.0;
    let (Some(rate), true) = (scenario.rate.per_second(), is_even) else {
        return 0;
    };
    let (all, measured) = (&recording.series.all.counts, &recording.series.measured);
    let counts = if limited { all } else { measured };
    // Answers to messages of the warm-up may come in the measured time.
    let messages = counts.sent.max(counts.acknowledged);
    (messages as f64 / rate * 1e9) as u64
}

fn totals(scenario: &Scenario, recording: &Recording, times: &MeasuredTimes) -> Totals {
    let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
    let (all, measured) = (&recording.series.all.counts, &recording.series.measured);
    let measured_s = seconds(times.from_ns, times.published_ns);
    let limited = times.to_the_last && scenario.consume == Consume::AtOnce;
    let acknowledged = if limited { all } else { measured }.acknowledged;
    let delivered = if times.to_the_last { all } else { measured }.delivered;
    let message_bytes_mean = per(all.sent_bytes, all.sent as f64);
    let acknowledged_per_s = per(acknowledged, measured_s);
    Totals {
        measured_s,
        offered_per_s: scenario.offered_per_s(),
        acknowledged,
        acknowledged_per_s,
        delivered,
        delivered_per_s: per(delivered, seconds(times.delivered.0, times.delivered.1)),
        message_bytes_mean,
        acknowledged_bytes_per_s: acknowledged_per_s * message_bytes_mean,
        answers: all.answers,
    }
}

fn offered_at(scenario: &Scenario, grid: Grid, at: u64) -> Option<f64> {
    let rate = scenario.offered_per_s()?;
    if scenario.peak <= 1.0 {
        return Some(rate);
    }
    let length = (grid.publish_end - grid.measure).max(1) as f64;
    let part = at.saturating_sub(grid.measure) as f64 / length;
    Some(rate * Curve::new(scenario.peak).at(part))
}

/// A sample with its boundary.
type SampleAt<'a> = (u64, &'a Sample);

/// The samples at the two ends of the measured time. When all deliveries count, the second end is that of
/// the run.
fn ends<'a>(series: &'a Series, times: &MeasuredTimes) -> Option<[SampleAt<'a>; 2]> {
    let (from_ns, from) = series.samples.range(times.from_ns..).next()?;
    let mut behind = series.samples.range(times.delivered.1..);
    let end = behind.next().filter(|_| !times.to_the_last);
    let (to_ns, to) = end.or(series.samples.last_key_value())?;
    (from_ns < to_ns).then_some([(*from_ns, from), (*to_ns, to)])
}

/// Returns the lateness of the later of two samples, in nanoseconds, if the samples say too little of the time between
/// their boundaries.
fn samples_lateness((from_ns, from): SampleAt<'_>, (to_ns, to): SampleAt<'_>) -> Option<u64> {
    let late_ns = |boundary_ns: u64, sample: &Sample| sample.taken_ns.saturating_sub(boundary_ns);
    let late_ns = late_ns(from_ns, from).max(late_ns(to_ns, to));
    (late_ns as f64 > LATE_SHARE * (to_ns - from_ns) as f64).then_some(late_ns)
}

fn resources(
    recording: &Recording,
    [(from_ns, from), (to_ns, to)]: [SampleAt<'_>; 2],
    totals: &Totals,
    rows: &[Interval],
) -> Option<Resources> {
    let series = &recording.series;
    if samples_lateness((from_ns, from), (to_ns, to)).is_some() {
        return None;
    }
    let start = series.samples.first_key_value()?.1.usage?;
    let from = from.usage?;
    // A process that died meanwhile has no usage at the end, or that of its remains.
    let alive = |sample: &Sample| sample.usage.filter(|usage| usage.cpu_ns >= from.cpu_ns);
    let whole = alive(to).is_some();
    let mut samples = series.samples.range(from_ns + 1..=to_ns).rev();
    let to = samples.find_map(|(_, sample)| alive(sample))?;
    let used = to.since(from);
    let cpu_s = used.cpu_ns as f64 / 1e9;
    let per =
        |cpu_s: f64, messages: u64| (whole && messages > 0).then(|| cpu_s * 1e6 / messages as f64);
    // Where consuming came after publishing, the usage of each is known.
    let phase = |messages: u64, from: Option<Usage>, to: Option<Usage>| {
        per(to?.since(from?).cpu_ns as f64 / 1e9, messages)
    };
    let consumed_from = recording.consumed_from.and_then(|(_, usage)| usage);
    let published = consumed_from.and(recording.published_usage);
    let rss = |row: &Interval| row.daemon.map_or(0, |daemon| daemon.rss_bytes);
    let deepest = rows.iter().max_by_key(|row| row.depth);
    let per_queued = deepest.and_then(|row| {
        let depth = row.depth.filter(|depth| *depth >= BACKLOG_MIN)?;
        Some(rss(row).saturating_sub(start.rss_bytes) as f64 / depth as f64)
    });
    Some(Resources {
        cpu_s,
        cpu_us_per_message: per(cpu_s, totals.acknowledged + totals.delivered),
        cpu_us_per_published: phase(totals.acknowledged, Some(from), published),
        cpu_us_per_delivered: phase(totals.delivered, consumed_from, Some(to)),
        rss_start_bytes: start.rss_bytes,
        rss_max_bytes: rows.iter().map(rss).max().unwrap_or(0).max(to.rss_bytes),
        memory_bytes_per_queued: per_queued,
        disk_written_bytes: used.disk_written_bytes.unwrap_or(0),
        disk_bytes_per_message: (used.disk_written_bytes)
            .filter(|_| whole && totals.acknowledged > 0)
            .map(|written| written as f64 / totals.acknowledged as f64),
        switches_voluntary: used.switches_voluntary,
        switches_involuntary: used.switches_involuntary,
    })
}

fn self_check(
    scenario: &Scenario,
    recording: &Recording,
    ends: Option<[SampleAt<'_>; 2]>,
    rest: &LastReport,
) -> SelfCheck {
    let series = &recording.series;
    let latencies = series.all.latencies.each_ref();
    let [publish, delivery, lateness] = latencies.map(|split| percentiles(&split.measured));
    let mut observed = Observed {
        lateness,
        publish,
        delivery,
        from_future: (series.all.counts.from_future, series.all.early_ns_max),
        ..Observed::default()
    };
    if scenario.offered_per_s().is_some() {
        // Messages that were due after an interruption were not to be sent.
        let interrupted = recording.ended == Ended::Interrupted;
        let unsent = if interrupted { 0 } else { rest.unsent };
        observed.sent_and_unsent = Some((series.measured.sent, unsent));
    }
    if let Some([(from_ns, from), (to_ns, to)]) = ends {
        observed.samples_late_ns = samples_lateness((from_ns, from), (to_ns, to));
        let length_ns = (to_ns - from_ns) as f64;
        let percent = |from: u64, to: u64| 100.0 * to.saturating_sub(from) as f64 / length_ns;
        let threads = from.threads.iter().zip(&to.threads);
        let shares = threads.map(|(from, to)| (percent(from.0, to.0), percent(from.1, to.1)));
        observed.threads = shares.collect();
        let ticks = to.processors.zip(from.processors);
        observed.stolen_percent = ticks.and_then(|(to, from)| to.stolen_percent_since(from));
    }
    judge(&observed)
}

#[cfg(test)]
mod tests;
