//! The result of a run, from its recording.

use std::sync::MutexGuard;

use super::{Conductor, LastReports, Recording};
use crate::control::Control;
use crate::grid::Grid;
use crate::ledger::{ChannelLedger, final_ledger};
use crate::pace::Curve;
use crate::process::Usage;
use crate::result::{
    Ended, HistogramKind, Interval, LoopKind, Resources, RunResult, SelfCheck, Totals,
};
use crate::scenario::{Arrivals, Consume, Scenario};
use crate::self_check::{Observed, judge};
use crate::series::{Sample, Series};
use crate::tally::{per, percentiles, record};

/// A backlog below this says nothing about memory per message.
const BACKLOG_MIN: u64 = 10_000;
/// A sample at an end of the measured time may be late by this part of the measured time.
const LATE_SHARE: f64 = 0.05;

pub(super) fn conclude(
    conductor: &Conductor<'_>,
    grid: Grid,
    recording: Recording,
    rest: LastReports,
) -> RunResult {
    let scenario = conductor.scenario;
    let times = MeasuredTimes::new(scenario, grid, &recording);
    let totals = totals(scenario, &recording, &times);
    let offered = |at: u64| offered_at(scenario, grid, at);
    let series = recording.series.rows(offered);
    let resources = resources(&recording, &times, &totals, &series);
    let self_check = self_check(scenario, &recording, &times, &rest);
    let counts = &recording.series.all.counts;
    let histograms = HistogramKind::ALL.into_iter().zip(&recording.series.sums);
    let histograms = histograms.filter_map(|(kind, sum)| record(kind, sum));
    let control: &Control = &conductor.control;
    let ledgers: Vec<MutexGuard<'_, ChannelLedger>> = control
        .ledgers
        .iter()
        .map(|ledger| ledger.lock().expect("no generator panics"))
        .collect();
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
        loop_kind: match (scenario.producers, scenario.rate.per_second()) {
            (0, _) => LoopKind::None,
            (_, None) => LoopKind::Closed,
            (_, Some(_)) => LoopKind::Open,
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
        let failed = matches!(recording.ended, Ended::Failed { .. });
        let published_ns = if limited && all.last_answer_ns > 0 {
            all.last_answer_ns
        } else if failed {
            recording.publish_end_ns.min(recording.ended_ns)
        } else {
            // A run ends soon after the last answer, long before the next message would have been due.
            recording.publish_end_ns
        };
        let planned_ns = planned_ns(scenario, recording, limited);
        let published_ns = published_ns.max(grid.measure.saturating_add(planned_ns));
        let to_the_last = limited || scenario.consume == Consume::AfterPublish;
        let interrupted = recording.publish_end_ns < grid.publish_end;
        let last_ns = if to_the_last && scenario.consume == Consume::AtOnce {
            all.last_delivery_ns.max(published_ns)
        } else if to_the_last {
            all.last_delivery_ns
        } else if interrupted {
            // Deliveries after the interruption count, and so does their time.
            all.last_delivery_ns.max(published_ns)
        } else {
            published_ns
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
    let series = &recording.series;
    let counts = match limited {
        true => &series.all.counts,
        false => &series.measured,
    };
    // Answers to messages of the warm-up may come in the measured time.
    let messages = counts.sent.max(counts.acknowledged);
    (messages as f64 / rate * 1e9) as u64
}

fn totals(scenario: &Scenario, recording: &Recording, times: &MeasuredTimes) -> Totals {
    let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
    let (all, measured) = (&recording.series.all.counts, &recording.series.measured);
    let measured_s = seconds(times.from_ns, times.published_ns);
    let limited = times.to_the_last && scenario.consume == Consume::AtOnce;
    let acknowledged = if limited {
        all.acknowledged
    } else {
        measured.acknowledged
    };
    let delivered = if times.to_the_last {
        all.delivered
    } else {
        measured.delivered
    };
    let message_bytes_mean = per(all.sent_bytes, all.sent as f64);
    let acknowledged_per_s = per(acknowledged, measured_s);
    Totals {
        measured_s,
        offered_per_s: scenario
            .rate
            .per_second()
            .filter(|_| scenario.producers > 0),
        acknowledged,
        acknowledged_per_s,
        delivered,
        delivered_per_s: per(delivered, seconds(times.delivered.0, times.delivered.1)),
        message_bytes_mean,
        acknowledged_bytes_per_s: acknowledged_per_s * message_bytes_mean,
        finished: all.finished,
        requeued: all.requeued,
        touched: all.touched,
        left_to_time_out: all.left_to_time_out,
        reconnected: all.reconnected,
        error_answers: all.error_answers,
    }
}

fn offered_at(scenario: &Scenario, grid: Grid, at: u64) -> Option<f64> {
    let rate = scenario
        .rate
        .per_second()
        .filter(|_| scenario.producers > 0)?;
    if scenario.peak <= 1.0 {
        return Some(rate);
    }
    let length = (grid.publish_end - grid.measure).max(1) as f64;
    let part = at.saturating_sub(grid.measure) as f64 / length;
    Some(rate * Curve::new(scenario.peak).at(part))
}

/// The samples at the two ends of the measured time. When all deliveries count, the second end is that of
/// the run.
fn ends<'a>(
    series: &'a Series,
    times: &MeasuredTimes,
) -> Option<(u64, &'a Sample, u64, &'a Sample)> {
    let (from_ns, from) = series.samples.range(times.from_ns..).next()?;
    let (to_ns, to) = if times.to_the_last {
        series.samples.last_key_value()?
    } else {
        let end = series.samples.range(times.delivered.1..).next();
        end.or(series.samples.last_key_value())?
    };
    (from_ns < to_ns).then_some((*from_ns, from, *to_ns, to))
}

/// Returns the lateness of the later of two samples, in nanoseconds, if the samples say too little of the time between
/// their boundaries.
fn samples_lateness((from_ns, from): (u64, &Sample), (to_ns, to): (u64, &Sample)) -> Option<u64> {
    let late_ns = |boundary_ns: u64, sample: &Sample| sample.taken_ns.saturating_sub(boundary_ns);
    let late_ns = late_ns(from_ns, from).max(late_ns(to_ns, to));
    (late_ns as f64 > LATE_SHARE * (to_ns - from_ns) as f64).then_some(late_ns)
}

fn resources(
    recording: &Recording,
    times: &MeasuredTimes,
    totals: &Totals,
    rows: &[Interval],
) -> Option<Resources> {
    let series = &recording.series;
    let (from_ns, from, to_ns, to) = ends(series, times)?;
    if samples_lateness((from_ns, from), (to_ns, to)).is_some() {
        return None;
    }
    let start = series.samples.first_key_value()?.1.usage?;
    let from = from.usage?;
    // A process that died meanwhile has no usage at the end, or that of its remains.
    let alive = |sample: &Sample| sample.usage.filter(|usage| usage.cpu_ns >= from.cpu_ns);
    let (to, whole) = match alive(to) {
        Some(usage) => (usage, true),
        None => {
            let mut between = series.samples.range(from_ns + 1..to_ns).rev();
            (between.find_map(|(_, sample)| alive(sample))?, false)
        }
    };
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
    let written = used.disk_written_bytes;
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
        disk_written_bytes: written.unwrap_or(0),
        disk_bytes_per_message: written
            .filter(|_| whole && totals.acknowledged > 0)
            .map(|written| written as f64 / totals.acknowledged as f64),
        switches_voluntary: used.switches_voluntary,
        switches_involuntary: used.switches_involuntary,
    })
}

fn self_check(
    scenario: &Scenario,
    recording: &Recording,
    times: &MeasuredTimes,
    rest: &LastReports,
) -> SelfCheck {
    let series = &recording.series;
    let [publish, delivery, lateness] = series.sums.each_ref().map(percentiles);
    let mut observed = Observed {
        lateness,
        publish,
        delivery,
        from_future: (series.all.counts.from_future, series.all.early_ns_max),
        ..Observed::default()
    };
    if scenario.rate.per_second().is_some() && scenario.producers > 0 {
        // Messages that were due after an interruption were not to be sent.
        let interrupted = recording.ended == Ended::Interrupted;
        let unsent = if interrupted { 0 } else { rest.unsent };
        observed.sent_and_unsent = Some((series.measured.sent, unsent));
    }
    if let Some((from_ns, from, to_ns, to)) = ends(series, times) {
        observed.samples_late_ns = samples_lateness((from_ns, from), (to_ns, to));
        let percent = |ns: u64| 100.0 * ns as f64 / (to_ns - from_ns) as f64;
        let threads = from.threads.iter().zip(&to.threads);
        let shares = threads.map(|(from, to)| {
            (
                percent(to.0.saturating_sub(from.0)),
                percent(to.1.saturating_sub(from.1)),
            )
        });
        observed.threads = shares.collect();
        let ticks = to.processors.zip(from.processors);
        observed.stolen_percent = ticks.and_then(|(to, from)| to.stolen_percent_since(from));
    }
    judge(&observed)
}

#[cfg(test)]
mod tests;
