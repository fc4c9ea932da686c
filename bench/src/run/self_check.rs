//! The self-check decides whether the figures are the daemon's or the generator's own. A pure function:
//! figures go in, a verdict with its reasons comes out.

use std::fmt;

use crate::result::{Percentiles, SelfCheck, Verdict};

/// Less than this is no other clock: two processes of one machine may have read its clock at different moments of its
/// correction.
const EARLY_NS_MIN: u64 = 1_000_000;
/// At this share of a core a generator thread has no time left for more.
const BUSY_PERCENT: f64 = 95.0;
/// A thread that waits for a core for less of the time than this is not worth a note.
const WAIT_PERCENT: f64 = 15.0;
/// The largest part of a latency's p99 that the generator's own p99 lateness may be.
const LATENESS_SHARE: f64 = 0.25;
/// Lateness up to this is ignored, in microseconds: waking up costs as much.
const LATENESS_US_MIN: f64 = 200.0;
/// A host that takes this part of the processors' time is worth a note: it may make a p99 by itself.
const STOLEN_PERCENT: f64 = 1.0;
/// The part of the offered messages that must be sent in time.
const SENT_SHARE: f64 = 0.99;

/// The generator's observations of itself in the measured time of a run.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// CPU of each thread, and its time of waiting for a core, both in percent of a core.
    pub threads: Vec<(f64, f64)>,
    /// The generator's lateness, in an open loop.
    pub lateness: Option<Percentiles>,
    /// The publish latencies; `None` when nothing was acknowledged.
    pub publish: Option<Percentiles>,
    /// The delivery latencies; `None` when nothing was consumed.
    pub delivery: Option<Percentiles>,
    /// Messages that came before their intended send time, and the longest time by which one did, in nanoseconds.
    pub from_future: (u64, u64),
    /// Messages sent, and messages due that nothing but the generator kept back.
    pub sent_and_unsent: Option<(u64, u64)>,
    /// Part of the processors' time that the virtual machine's host took, in percent.
    pub stolen_percent: Option<f64>,
    /// The delay with which the use of resources was read, in nanoseconds, if it is too long for the figures.
    pub samples_late_ns: Option<u64>,
}

/// Generator threads of which the same is true, with their numbers, and the number of all threads.
struct Threads(Vec<(usize, (f64, f64))>, usize);

impl Threads {
    /// Returns a figure of the threads: the least and the most, in whole numbers.
    fn range(&self, figure: impl Fn((f64, f64)) -> f64) -> String {
        let figures = self
            .0
            .iter()
            .map(|(_, of_thread)| figure(*of_thread).round());
        let least = figures.clone().fold(f64::INFINITY, f64::min);
        let most = figures.fold(0.0, f64::max);
        if least == most {
            return format!("{least:.0}");
        }
        format!("{least:.0} to {most:.0}")
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [(thread, _)] => write!(f, "generator thread {thread}"),
            threads if threads.len() == self.1 => write!(f, "all {} generator threads", self.1),
            threads => write!(f, "{} of {} generator threads", threads.len(), self.1),
        }
    }
}

/// Says which threads were busy, in reasons, and which others waited for a core, in notes. `all` are CPU and waiting time
/// of each thread.
fn shares_of_cores(all: &[(f64, f64)]) -> (Vec<String>, Vec<String>) {
    let mut reasons = Vec::new();
    let mut notes = Vec::new();
    for (is_busy, list) in [(true, &mut reasons), (false, &mut notes)] {
        let chosen = |waits: bool| {
            let threads = all.iter().copied().enumerate();
            let threads = threads.filter(|(_, (cpu, wait))| {
                (cpu + wait >= BUSY_PERCENT) == is_busy && (*wait >= WAIT_PERCENT) == waits
            });
            Threads(threads.collect(), all.len())
        };
        let (waiting, working) = (chosen(true), chosen(false));
        if !waiting.0.is_empty() {
            list.push(format!(
                "{waiting} used {} % of a core and waited {} % of the time for one: generator and daemon (or others) \
                 compete for this machine's cores",
                waiting.range(|(cpu, _)| cpu),
                waiting.range(|(_, wait)| wait)
            ));
        }
        if is_busy && !working.0.is_empty() {
            list.push(format!(
                "{working} used {} % of a core: the generator could not have done more; give it more threads \
                 (--threads) or a machine of its own",
                working.range(|(cpu, _)| cpu)
            ));
        }
    }
    (reasons, notes)
}

/// Says of which latencies the generator's own lateness may be a large part.
fn too_late(observed: &Observed, late_us: f64) -> impl Iterator<Item = String> {
    let publish = observed.publish.map(|latency| ("publish", latency));
    let delivery = observed.delivery.map(|latency| ("delivery", latency));
    let shares = publish.into_iter().chain(delivery);
    let shares = shares.map(move |(name, latency)| (name, late_us / latency.p99_us));
    let large = shares.filter(|(_, share)| *share > LATENESS_SHARE);
    large.map(move |(name, share)| {
        let percent = 100.0 * share;
        format!(
            "the generator sent up to {late_us:.0} us late (p99), which is {percent:.0} % of the p99 {name} latency"
        )
    })
}

/// Judges the observations.
pub fn judge(observed: &Observed) -> SelfCheck {
    let (mut reasons, mut notes) = shares_of_cores(&observed.threads);
    let late_us = observed.lateness.map(|lateness| lateness.p99_us);
    let late_us = late_us.filter(|late_us| *late_us > LATENESS_US_MIN);
    reasons.extend(
        late_us
            .into_iter()
            .flat_map(|late_us| too_late(observed, late_us)),
    );
    let sent_share = observed
        .sent_and_unsent
        .map(|(sent, unsent)| match sent + unsent {
            0 => 1.0,
            due => sent as f64 / due as f64,
        });
    if let Some(share) = sent_share.filter(|share| *share < SENT_SHARE && late_us.is_some()) {
        let percent = 100.0 * share;
        reasons.push(format!(
            "only {percent:.1} % of the offered messages were sent in time"
        ));
    }
    if let Some(late_ns) = observed.samples_late_ns {
        reasons.push(format!(
            "the daemon's use of resources was read {:.0} ms late, so it is left out: the generator's threads left no time \
             for it; give it fewer threads (--threads)",
            late_ns as f64 / 1e6
        ));
    }
    let stolen = observed.stolen_percent;
    if let Some(percent) = stolen.filter(|percent| *percent >= STOLEN_PERCENT) {
        notes.push(format!(
            "the host took {percent:.1} % of this virtual machine's processor time: that is in the latencies, \
             measure again when it takes less"
        ));
    }
    let (early_count, early_ns) = observed.from_future;
    let is_early = early_count > 0 && early_ns > EARLY_NS_MIN;
    let verdict = match (is_early, reasons.is_empty()) {
        (true, _) => Verdict::ClocksDiffer,
        (false, true) => Verdict::Trusted,
        (false, false) => Verdict::GeneratorLimited,
    };
    if is_early {
        let early = format!(
            "{early_count} messages came up to {:.3} ms before they were to be sent: this machine's clock is behind \
             that of the producers by more than that; set the clocks (NTP), or consume on the machine that publishes",
            early_ns as f64 / 1e6
        );
        reasons.insert(0, early);
    }
    reasons.extend(notes);
    SelfCheck {
        verdict,
        reasons,
        thread_cpu_percent: observed.threads.iter().map(|(cpu, _)| *cpu).collect(),
        sent_share,
        stolen_percent: observed.stolen_percent,
    }
}

#[cfg(test)]
mod tests;
