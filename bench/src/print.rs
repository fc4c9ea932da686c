//! Results as text for a terminal or a log.

use crate::judgement::{self, Judgement};
use crate::result::{
    Ended, HistogramKind, HistogramRecord, LoopKind, Resources, RunResult, Verdict,
};
use crate::scenario::unit::number;

/// A run's report.
pub fn run(result: &RunResult) -> String {
    let mut out = String::new();
    let daemon = &result.daemon;
    let (kind, version, address) = (&daemon.kind, &daemon.version, &daemon.tcp_address);
    put!(out, "daemon     {kind} {version} at {address}\n");
    put!(out, "scenario   {}\n", result.scenario.summary());
    if result.ended != Ended::Complete {
        let Judgement { head, text, .. } = judgement::ended(&result.ended);
        let text = lower_case(text.trim_end_matches('.'));
        put!(out, "ENDED      {}: {text}\n", lower_case(&head));
    }
    let totals = &result.totals;
    let whose = if judgement::rates_are_the_generators(result) {
        "  <- the generator's limit, not the daemon's"
    } else {
        ""
    };
    if result.loop_kind != LoopKind::None {
        let published = count(totals.acknowledged_per_s);
        let offered = match totals.offered_per_s {
            Some(rate) => format!(" of {} offered", count(rate)),
            None => " (closed loop)".into(),
        };
        let megabytes = count(totals.acknowledged_bytes_per_s / 1e6);
        put!(
            out,
            "published  {published} msg/s{offered}, {megabytes} MB/s of bodies, "
        );
        put!(out, "for {:.1} s{whose}\n", totals.measured_s);
    }
    let channels = result.ledger.channels;
    if channels > 0 {
        let delivered = count(totals.delivered_per_s);
        let plural = if channels == 1 { "" } else { "s" };
        put!(
            out,
            "delivered  {delivered} msg/s over {channels} channel{plural}{whose}\n"
        );
    }
    latencies(&mut out, result);
    ledger(&mut out, result);
    match &result.resources {
        Some(used) => resources(&mut out, used),
        None => {
            out += "daemon     not a process of this machine that we may see: no CPU and memory\n"
        }
    }
    self_check(&mut out, result);
    out
}

fn resources(out: &mut String, used: &Resources) {
    put!(out, "daemon     {:.2} s CPU", used.cpu_s);
    if let Some(us) = used.cpu_us_per_message {
        put!(out, " = {us:.3} us per message published or delivered");
    }
    if let Some(us) = used.cpu_us_per_published {
        put!(out, ", {us:.3} us per published");
    }
    if let Some(us) = used.cpu_us_per_delivered {
        put!(out, ", {us:.3} us per delivered");
    }
    let megabytes = |bytes: u64| count(bytes as f64 / 1e6);
    put!(out, ", RSS up to {} MB", megabytes(used.rss_max_bytes));
    if let Some(bytes) = used.memory_bytes_per_queued {
        put!(out, " = {bytes:.0} bytes per queued message");
    }
    put!(out, ", disk {} MB", megabytes(used.disk_written_bytes));
    if let Some(bytes) = used.disk_bytes_per_message {
        put!(out, " = {bytes:.0} bytes per message");
    }
    let (voluntary, involuntary) = (used.switches_voluntary, used.switches_involuntary);
    put!(out, ", switches {voluntary} + {involuntary}\n");
}

/// A sentence as it stands behind a colon.
fn lower_case(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

fn latencies(out: &mut String, result: &RunResult) {
    if result.histograms.is_empty() {
        return;
    }
    let from = judgement::counted_from(result.loop_kind);
    put!(
        out,
        "latency ms      p50      p90      p99    p99.9   p99.99      max   ({from})\n"
    );
    let columns = |record: &HistogramRecord| record.percentiles_us().map(|(_, value)| value);
    let lateness = result.histogram(HistogramKind::Lateness);
    let mut starred = false;
    for record in &result.histograms {
        let name = match record.kind {
            HistogramKind::Delivery => "deliver",
            kind => kind.name(),
        };
        put!(out, "  {name:9}");
        let own = lateness.map_or([0.0; 6], columns);
        for (value, own) in columns(record).into_iter().zip(own) {
            let is_own = record.kind != HistogramKind::Lateness && own > 200.0 && own > value / 4.0;
            starred |= is_own;
            let star = if is_own { '*' } else { ' ' };
            put!(out, "{:>8.3}{star}", value / 1000.0);
        }
        put!(out, "  {} values\n", record.count);
    }
    if starred {
        *out += "  * a quarter or more of it may be the generator's own lateness\n";
    }
}

fn ledger(out: &mut String, result: &RunResult) {
    let ledger = &result.ledger;
    if result.loop_kind != LoopKind::None {
        let sent = [
            ("sent", ledger.sent),
            ("acknowledged", ledger.acknowledged),
            ("refused", ledger.refused),
            ("unconfirmed", ledger.unconfirmed),
        ];
        counted(out, "ledger", &sent);
    }
    if ledger.channels > 0 {
        let received = [
            ("received", ledger.received),
            ("lost", ledger.lost),
            ("duplicated", ledger.duplicated),
            ("corrupted", ledger.corrupted),
            ("reordered", ledger.reordered),
            ("redelivered", ledger.redelivered),
        ];
        counted(out, "", &received);
        let asides = [
            (
                ledger.outstanding,
                "were still outstanding when the run was cut short",
            ),
            (
                ledger.foreign,
                "messages of somebody else, which were given back",
            ),
        ];
        for (count, what) in asides.into_iter().filter(|(count, _)| *count > 0) {
            put!(out, "           {count} {what}\n");
        }
        if result.loop_kind == LoopKind::None {
            *out += "           lost counts the holes: without producers nothing else is known\n";
        }
    }
    let answers = &result.totals.answers;
    let asides = [
        ("requeued", answers.requeued),
        ("touched", answers.touched),
        ("left to time out", answers.left_to_time_out),
        ("reconnected", answers.reconnected),
        ("error answers", answers.error_answers),
    ];
    let asides: Vec<_> = asides.into_iter().filter(|(_, count)| *count > 0).collect();
    if !asides.is_empty() {
        counted(out, "", &asides);
    }
}

/// Appends a line of counts.
fn counted(out: &mut String, front: &str, counts: &[(&str, u64)]) {
    let counts = counts.iter().map(|(name, count)| format!("{name} {count}"));
    put!(out, "{front:11}{}\n", counts.collect::<Vec<_>>().join(", "));
}

fn self_check(out: &mut String, result: &RunResult) {
    let check = &result.self_check;
    let cpu = check.thread_cpu_percent.iter();
    let cpu: Vec<String> = cpu.map(|cpu| format!("{cpu:.0} %")).collect();
    put!(out, "generator  CPU {} of a core", cpu.join(" + "));
    let Judgement { head, text, .. } = judgement::self_check(result);
    match check.verdict {
        Verdict::Trusted if check.reasons.is_empty() => put!(out, ": {head}\n"),
        Verdict::Trusted => put!(out, ": {head}, but\n"),
        Verdict::GeneratorLimited | Verdict::ClocksDiffer => {
            put!(out, "\nWARNING    {head}\n           {text}\n")
        }
    }
    for reason in &check.reasons {
        put!(out, "           - {reason}\n");
    }
}

/// Writes a number with two decimals below 100, and with spaces between thousands.
pub fn count(value: f64) -> String {
    if value.abs() < 100.0 && value != value.trunc() {
        return format!("{value:.2}");
    }
    number(value).replace(',', " ")
}

#[cfg(test)]
mod tests;
