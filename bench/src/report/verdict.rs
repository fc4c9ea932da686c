//! What to know before reading any figure: did everything arrive, whose limit was it, how was it
//! measured, how did it end.

use super::markup::{escape, put};
use super::unit::{grouped, significant};
use crate::result::{Ended, Ledger, LoopKind, RunResult, Verdict};

/// How a judgement turned out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Warn,
    Bad,
}

/// One judgement.
#[derive(Debug)]
pub(crate) struct Judgement {
    pub(crate) tone: Tone,
    pub(crate) head: String,
    pub(crate) text: String,
    pub(crate) reasons: Vec<String>,
}

impl Judgement {
    pub(crate) fn new(tone: Tone, head: &str, text: impl Into<String>) -> Judgement {
        Judgement {
            tone,
            head: head.to_owned(),
            text: text.into(),
            reasons: Vec::new(),
        }
    }

    pub(crate) fn render(&self, out: &mut String) {
        let (class, sign) = match self.tone {
            Tone::Good => ("good", "✓"),
            Tone::Warn => ("warn", "!"),
            Tone::Bad => ("bad", "✗"),
        };
        put!(
            out,
            "<div class=\"verdict {class}\"><b>{sign} {}</b>",
            escape(&self.head)
        );
        out.push_str(&escape(&self.text));
        if !self.reasons.is_empty() {
            out.push_str("<ul>");
            for reason in &self.reasons {
                put!(out, "<li>{}</li>", escape(reason));
            }
            out.push_str("</ul>");
        }
        out.push_str("</div>\n");
    }
}

/// All judgements of a run: ledger, self-check, loop, end.
pub(crate) fn of_run(run: &RunResult) -> Vec<Judgement> {
    vec![
        ledger(&run.ledger),
        self_check(run),
        loop_kind(run.loop_kind),
        ended(&run.ended),
    ]
}

/// The ledgers of many runs added up.
pub(crate) fn added_up<'a>(runs: impl IntoIterator<Item = &'a RunResult>) -> Ledger {
    let mut all = Ledger::default();
    for run in runs {
        let one = &run.ledger;
        all.sent += one.sent;
        all.acknowledged += one.acknowledged;
        all.unconfirmed += one.unconfirmed;
        all.refused += one.refused;
        all.channels = all.channels.max(one.channels);
        all.received += one.received;
        all.lost += one.lost;
        all.duplicated += one.duplicated;
        all.corrupted += one.corrupted;
        all.reordered += one.reordered;
        all.redelivered += one.redelivered;
        all.foreign += one.foreign;
    }
    all
}

/// The judgements of several runs together: the ledgers added up, and how many runs have figures
/// that are not the daemon's. `what` they are called: "step", "round".
pub(crate) fn of_many(runs: &[&RunResult], what: &str) -> Vec<Judgement> {
    let all = added_up(runs.iter().copied());
    let is_limited = |run: &&&RunResult| run.self_check.verdict == Verdict::GeneratorLimited;
    let check = match runs.iter().filter(is_limited).count() {
        0 => Judgement::new(
            Tone::Good,
            "Self-check: the figures are the daemon's",
            format!("The generator kept up in every {what}."),
        ),
        limited => Judgement::new(
            Tone::Warn,
            "Self-check: the generator was the bottleneck",
            format!("In {limited} of {} {what}s.", runs.len()),
        ),
    };
    let mut judgements = vec![ledger(&all), check];
    judgements.extend(runs.first().map(|run| loop_kind(run.loop_kind)));
    let unusual = runs.iter().find(|run| run.ended != Ended::Complete);
    judgements.extend(unusual.or(runs.last()).map(|run| ended(&run.ended)));
    judgements
}

pub(crate) fn ledger(ledger: &Ledger) -> Judgement {
    let count = |value: u64| grouped(value as f64);
    let mut aside = Vec::new();
    let asides = [
        (
            ledger.reordered,
            "arrived behind a later one (NSQ promises no order)",
        ),
        (
            ledger.redelivered,
            "redelivered after REQ, timeout or a dropped connection, as expected",
        ),
        (ledger.refused, "refused with an error"),
        (ledger.unconfirmed, "neither acknowledged nor refused"),
        (ledger.foreign, "of somebody else on the same channels"),
    ];
    for (value, what) in asides.into_iter().filter(|(value, _)| *value > 0) {
        aside.push(format!("{} {what}", count(value)));
    }
    let (tone, head, text) = if !ledger.is_clean() {
        let wrong = [
            (ledger.lost, "lost"),
            (ledger.duplicated, "duplicated"),
            (ledger.corrupted, "corrupted"),
        ];
        let wrong: Vec<String> = wrong
            .into_iter()
            .filter(|(value, _)| *value > 0)
            .map(|(value, what)| format!("{} {what}", count(value)))
            .collect();
        let head = format!("Ledger: {}", wrong.join(", "));
        let text = format!("Of {} acknowledged messages.", count(ledger.acknowledged));
        (Tone::Bad, head, text)
    } else if ledger.sent == 0 {
        (
            Tone::Warn,
            "Ledger: nothing was published".to_owned(),
            String::new(),
        )
    } else if ledger.channels == 0 {
        let text = format!(
            "{} messages acknowledged; with no consumers nobody checked that they can be had.",
            count(ledger.acknowledged)
        );
        (Tone::Warn, "Ledger: arrival not checked".to_owned(), text)
    } else {
        let tone = if ledger.refused + ledger.unconfirmed > 0 {
            Tone::Warn
        } else {
            Tone::Good
        };
        let channels = match ledger.channels {
            1 => "one channel".to_owned(),
            channels => format!("each of {channels} channels"),
        };
        let text = format!(
            "{} messages acknowledged; none lost, duplicated or corrupted on {channels}.",
            count(ledger.acknowledged)
        );
        (
            tone,
            "Ledger: everything arrived once, intact".to_owned(),
            text,
        )
    };
    Judgement {
        tone,
        head,
        text,
        reasons: aside,
    }
}

fn self_check(run: &RunResult) -> Judgement {
    let check = &run.self_check;
    let busiest = check.thread_cpu_percent.iter().copied().fold(0.0, f64::max);
    let busiest = match busiest {
        0.0 => String::new(),
        percent => format!(" Its busiest thread used {percent:.0} % of a core."),
    };
    let sent = check.sent_share.map_or(String::new(), |share| {
        format!(
            " Of what was due, {} % was sent in time.",
            significant(share * 100.0)
        )
    });
    let (tone, head, text) = match check.verdict {
        Verdict::Trusted => (
            Tone::Good,
            "Self-check: the figures are the daemon's",
            "The generator kept up.",
        ),
        Verdict::GeneratorLimited => (
            Tone::Bad,
            "Self-check: the generator was the bottleneck",
            "The figures are the generator's own; the daemon may do better.",
        ),
    };
    let text = format!("{text}{sent}{busiest}");
    Judgement {
        reasons: check.reasons.clone(),
        ..Judgement::new(tone, head, text)
    }
}

fn loop_kind(kind: LoopKind) -> Judgement {
    match kind {
        LoopKind::Open => Judgement::new(
            Tone::Good,
            "Open loop",
            "Latency counts from the intended send time: stalls are in it with their whole length.",
        ),
        LoopKind::Closed => Judgement::new(
            Tone::Warn,
            "Closed loop",
            "Publishing waited for answers and latency counts from the actual send: good for the \
             highest rate, but stalls are hidden.",
        ),
        LoopKind::None => Judgement::new(
            Tone::Warn,
            "Nothing was published",
            "Latency counts from the intended send times that the messages carry.",
        ),
    }
}

fn ended(ended: &Ended) -> Judgement {
    match ended {
        Ended::Complete => Judgement::new(
            Tone::Good,
            "Ran to its end",
            "Everything outstanding was waited for.",
        ),
        Ended::NotDrained => Judgement::new(
            Tone::Bad,
            "Not drained",
            "Not everything had arrived when the drain time was over; what is missing counts as \
             lost.",
        ),
        Ended::Interrupted => {
            Judgement::new(Tone::Warn, "Interrupted", "This is of what ran until then.")
        }
        Ended::Failed { reason } => Judgement::new(
            Tone::Bad,
            "Failed",
            format!("{reason}. This is of what ran until then."),
        ),
    }
}
