//! [`Judgement`]: what a result means, in words. The terminal (`print.rs`) and the page (`report.rs`)
//! both take their sentences from here.

use serde::Serialize;

use crate::result::{CompareResult, Ended, Ledger, LoopKind, RunResult, SelfCheck, Verdict};
use crate::scenario::unit::{Unit, number};

/// The tone of a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tone {
    /// Nothing is wrong.
    Good,
    /// Something limits what the figures say.
    Warn,
    /// The figures are not to be relied on, or the daemon failed.
    Bad,
}

/// One statement about a result.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// The tone, which chooses the colour in the page.
    pub tone: Tone,
    /// The subject, such as `Ledger`; empty where the head names it.
    pub about: &'static str,
    /// The statement in a few words.
    pub head: String,
    /// The meaning, in sentences. May be empty.
    pub text: String,
    /// Details, one a line.
    pub reasons: Vec<String>,
}

impl Judgement {
    fn new(tone: Tone, about: &'static str, head: &str, text: impl Into<String>) -> Judgement {
        Judgement {
            tone,
            about,
            head: head.to_owned(),
            text: text.into(),
            reasons: Vec::new(),
        }
    }
}

/// Judges a run: ledger, self-check, loop, end.
pub fn of_run(run: &RunResult) -> Vec<Judgement> {
    let mut check = self_check(run);
    check.text += &generator_load(&run.self_check);
    vec![
        ledger(&run.ledger),
        check,
        loop_kind(run.loop_kind),
        ended(&run.ended),
    ]
}

/// Judges several runs together; `what` names one of them: "step", "round".
pub fn of_many(runs: &[&RunResult], what: &str) -> Vec<Judgement> {
    let is_limited = |run: &&&RunResult| run.self_check.verdict == Verdict::GeneratorLimited;
    let check = match runs.iter().filter(is_limited).count() {
        0 => trusted(format!("The generator kept up in every {what}.")),
        limited => Judgement {
            tone: Tone::Warn,
            ..limited_by_generator(format!("In {limited} of {} {what}s.", runs.len()))
        },
    };
    let mut judgements = vec![ledger(&added_up(runs)), check];
    judgements.extend(runs.first().map(|run| loop_kind(run.loop_kind)));
    let unusual = runs.iter().find(|run| run.ended != Ended::Complete);
    judgements.extend(unusual.or(runs.last()).map(|run| ended(&run.ended)));
    judgements
}

/// Adds up the ledgers of several runs.
pub fn added_up(runs: &[&RunResult]) -> Ledger {
    let mut all = Ledger::default();
    for run in runs {
        let one = &run.ledger;
        all.channels = all.channels.max(one.channels);
        add_fields!(all, one, sent acknowledged unconfirmed refused received lost outstanding);
        add_fields!(all, one, duplicated corrupted reordered redelivered foreign);
    }
    all
}

/// Judges whether every message arrived once and intact.
pub fn ledger(ledger: &Ledger) -> Judgement {
    let counted = |counts: &[(u64, &str)]| -> Vec<String> {
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let shown = counts.map(|(count, what)| format!("{} {what}", number(*count as f64)));
        shown.collect()
    };
    let acknowledged = number(ledger.acknowledged as f64);
    let new = |tone, head: &str, text| Judgement::new(tone, "Ledger", head, text);
    let mut judgement = if !ledger.is_clean() {
        let wrong = counted(&[
            (ledger.lost, "lost"),
            (ledger.duplicated, "duplicated"),
            (ledger.corrupted, "corrupted"),
        ]);
        let text = format!("Of {acknowledged} acknowledged messages.");
        new(Tone::Bad, &wrong.join(", "), text)
    } else if ledger.sent == 0 {
        new(Tone::Warn, "nothing was published", String::new())
    } else if ledger.channels == 0 {
        let text = format!(
            "{acknowledged} messages acknowledged; with no consumers nobody checked that they can be had."
        );
        new(Tone::Warn, "arrival not checked", text)
    } else {
        let is_whole = ledger.refused + ledger.unconfirmed == 0;
        let tone = if is_whole { Tone::Good } else { Tone::Warn };
        let channels = match ledger.channels {
            1 => "one channel".to_owned(),
            channels => format!("each of {channels} channels"),
        };
        let text = format!(
            "{acknowledged} messages acknowledged; none lost, duplicated or corrupted on {channels}."
        );
        new(tone, "everything arrived once, intact", text)
    };
    let redelivered = "redelivered after REQ, timeout or a dropped connection, as expected";
    let foreign = "of somebody else on the same channels, given back";
    judgement.reasons = counted(&[
        (
            ledger.reordered,
            "arrived behind a later one (NSQ promises no order)",
        ),
        (ledger.redelivered, redelivered),
        (ledger.refused, "refused with an error"),
        (ledger.unconfirmed, "neither acknowledged nor refused"),
        (ledger.foreign, foreign),
    ]);
    judgement
}

/// Lists the counts that make a ledger unclean.
pub fn faults(ledger: &Ledger) -> String {
    format!(
        "lost {}, duplicated {}, corrupted {}",
        ledger.lost, ledger.duplicated, ledger.corrupted
    )
}

/// Judges whether a run's figures are the daemon's or the generator's own.
pub fn self_check(run: &RunResult) -> Judgement {
    let is_rates = rates_are_the_generators(run);
    let figures = if is_rates { "rates" } else { "latencies" };
    Judgement {
        reasons: run.self_check.reasons.clone(),
        ..match run.self_check.verdict {
            Verdict::Trusted => trusted("The generator kept up."),
            Verdict::GeneratorLimited => limited_by_generator(format!(
                "These {figures} are the generator's own. The daemon may do better."
            )),
            Verdict::ClocksDiffer => Judgement::new(
                Tone::Bad,
                "Self-check",
                "the clocks of producers and consumers differ",
                "The latencies of deliveries are wrong by the difference.",
            ),
        }
    }
}

/// Says how much the generator sent in time, and how busy it was.
fn generator_load(check: &SelfCheck) -> String {
    let sent = check.sent_share.map(|share| {
        let percent = number(share * 100.0);
        format!(" Of what was due, {percent} % was sent in time.")
    });
    let busiest = check.thread_cpu_percent.iter().copied().fold(0.0, f64::max);
    let used = (busiest > 0.0)
        .then(|| format!(" The generator's busiest thread used {busiest:.0} % of a core."));
    sent.into_iter().chain(used).collect()
}

fn trusted(text: impl Into<String>) -> Judgement {
    let head = "the figures are the daemon's";
    Judgement::new(Tone::Good, "Self-check", head, text)
}

fn limited_by_generator(text: impl Into<String>) -> Judgement {
    let head = "the generator was the bottleneck";
    Judgement::new(Tone::Bad, "Self-check", head, text)
}

/// Says whether the limit of a step was the daemon's or the generator's.
pub fn whose(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Trusted => "the daemon's",
        Verdict::GeneratorLimited => "the generator's limit",
        Verdict::ClocksDiffer => "the clocks differ",
    }
}

/// Explains a search that ended because the generator reached its limit.
pub const SEARCH_LIMITED: &str = "above that the generator was the limit: the daemon may do more";

/// Explains a search that ended because it was not to try a higher rate.
pub const SEARCH_REACHED_MOST: &str =
    "no rate above --most was tried: the daemon may do more; give a higher --most";

/// Explains a profile without the CPU time of each publish and each delivery.
pub const CPU_NOT_TOLD_APART: &str = "the CPU times of a publish and of a delivery could not be told apart: `plan` uses \
    their sum, and takes a delivery to cost as much as a publish";

/// Tells whether the rates are limited by the generator. In an open loop that kept its rate the rates are the offered
/// ones, and only the latencies can be in doubt.
pub fn rates_are_the_generators(run: &RunResult) -> bool {
    let sent_share = run.self_check.sent_share;
    let is_kept = run.loop_kind == LoopKind::Open && sent_share.is_none_or(|share| share >= 0.99);
    run.self_check.verdict == Verdict::GeneratorLimited && !is_kept
}

/// Says from which moment latencies count.
pub fn counted_from(kind: LoopKind) -> &'static str {
    match kind {
        LoopKind::Open | LoopKind::None => "from the intended send time",
        LoopKind::Closed => "from the actual send: closed loop, stalls are hidden",
    }
}

fn loop_kind(kind: LoopKind) -> Judgement {
    let open =
        "Latency counts from the intended send time: stalls are in it with their whole length.";
    let closed = "Publishing waited for answers and latency counts from the actual send: good for \
                  the highest rate, but stalls are hidden.";
    let none = "Latency counts from the intended send times that the messages carry.";
    match kind {
        LoopKind::Open => Judgement::new(Tone::Good, "", "Open loop", open),
        LoopKind::Closed => Judgement::new(Tone::Warn, "", "Closed loop", closed),
        LoopKind::None => Judgement::new(Tone::Warn, "", "Nothing was published", none),
    }
}

/// Judges how a run ended.
pub fn ended(ended: &Ended) -> Judgement {
    let new = |tone, head, text: &str| Judgement::new(tone, "", head, text);
    let missing =
        "Not everything had arrived when the drain time was over; what is missing counts as lost.";
    match ended {
        Ended::Complete => new(
            Tone::Good,
            "Ran to its end",
            "Everything outstanding was waited for.",
        ),
        Ended::NotDrained => new(Tone::Bad, "Not drained", missing),
        Ended::Interrupted => new(Tone::Warn, "Interrupted", "This is what ran until then."),
        Ended::Failed { reason } => {
            let text = format!("{reason}; this is what ran until then.");
            new(Tone::Bad, "Failed", &text)
        }
    }
}

/// Judges whether a comparison passed.
pub fn comparison(compare: &CompareResult) -> Judgement {
    let clean =
        "Every run was clean and no figure was the generator's own. No thresholds were given.";
    let passed = "Every threshold was met, every run was clean, no figure was the generator's own.";
    let new = |tone, head, text| Judgement::new(tone, "Comparison", head, text);
    Judgement {
        reasons: compare.failures.clone(),
        ..match (compare.passed, compare.thresholds.is_empty()) {
            (true, true) => new(Tone::Good, "clean", clean),
            (true, false) => new(Tone::Good, "passed", passed),
            (false, _) => new(Tone::Bad, "not passed", ""),
        }
    }
}

/// Says where the knee of a sweep is.
pub fn knee(knee_per_s: Option<f64>) -> String {
    let Some(rate) = knee_per_s else {
        return "There is no knee: no rate was carried with latencies that are the daemon's own."
            .to_owned();
    };
    format!(
        "The knee is at {}: beyond it the rate was not carried, p99 was more than ten times the \
         smallest of all steps, or the figures were the generator's own.",
        Unit::PerSecond.show(rate)
    )
}
