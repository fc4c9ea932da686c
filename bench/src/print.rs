//! Results as text for a terminal or a log.

use crate::judgement::{self, Judgement};
use crate::result::{Ended, HistogramKind, HistogramRecord, LoopKind, RunResult, Verdict};
use crate::unit::number;

/// A run's report.
pub fn run(result: &RunResult) -> String {
    let mut out = String::new();
    write_run(&mut out, result);
    out
}

fn write_run(out: &mut String, result: &RunResult) {
    let daemon = &result.daemon;
    put!(
        out,
        "daemon     {} {} at {}\n",
        daemon.kind,
        daemon.version,
        daemon.tcp_address
    );
    put!(out, "scenario   {}\n", result.scenario.summary());
    if result.ended != Ended::Complete {
        let ended = judgement::ended(&result.ended);
        let text = lower_case(&ended.text);
        let text = text.trim_end_matches('.');
        put!(out, "ENDED      {}: {text}\n", lower_case(&ended.head));
    }
    let totals = &result.totals;
    let whose = if judgement::rates_are_the_generators(result) {
        "  <- the generator's limit, not the daemon's"
    } else {
        ""
    };
    if result.loop_kind != LoopKind::None {
        let offered = match totals.offered_per_s {
            Some(rate) => format!(" of {} offered", count(rate)),
            None => " (closed loop)".into(),
        };
        put!(
            out,
            "published  {} msg/s{offered}, {} MB/s of bodies, for {:.1} s{whose}\n",
            count(totals.acknowledged_per_s),
            count(totals.acknowledged_bytes_per_s / 1e6),
            totals.measured_s
        );
    }
    if result.ledger.channels > 0 {
        let channels = result.ledger.channels;
        put!(
            out,
            "delivered  {} msg/s over {channels} channel{}{whose}\n",
            count(totals.delivered_per_s),
            if channels == 1 { "" } else { "s" }
        );
    }
    latencies(out, result);
    ledger(out, result);
    if let Some(resources) = &result.resources {
        put!(out, "daemon     {:.2} s CPU", resources.cpu_s);
        if let Some(us) = resources.cpu_us_per_message {
            put!(out, " = {us:.3} us per message published or delivered");
        }
        let phases = [
            (resources.cpu_us_per_published, "published"),
            (resources.cpu_us_per_delivered, "delivered"),
        ];
        for (us, what) in phases {
            if let Some(us) = us {
                put!(out, ", {us:.3} us per {what}");
            }
        }
        put!(
            out,
            ", RSS up to {} MB",
            count(resources.rss_max_bytes as f64 / 1e6)
        );
        if let Some(bytes) = resources.memory_bytes_per_queued {
            put!(out, " = {bytes:.0} bytes per queued message");
        }
        put!(
            out,
            ", disk {} MB",
            count(resources.disk_written_bytes as f64 / 1e6)
        );
        if let Some(bytes) = resources.disk_bytes_per_message {
            put!(out, " = {bytes:.0} bytes per message");
        }
        put!(
            out,
            ", switches {} + {}\n",
            resources.switches_voluntary,
            resources.switches_involuntary
        );
    } else {
        put!(
            out,
            "daemon     not a process of this machine that we may see: no CPU and memory\n"
        );
    }
    self_check(out, result);
}

/// A sentence as it stands behind a colon.
fn lower_case(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

fn latencies(out: &mut String, result: &RunResult) {
    let from = judgement::counted_from(result.loop_kind);
    if result.histograms.is_empty() {
        return;
    }
    put!(
        out,
        "latency ms      p50      p90      p99    p99.9   p99.99      max   ({from})\n"
    );
    let lateness = result.histogram(HistogramKind::Lateness);
    let mut starred = false;
    for record in &result.histograms {
        let name = match record.kind {
            HistogramKind::Publish => "publish",
            HistogramKind::Delivery => "deliver",
            HistogramKind::Lateness => "lateness",
        };
        put!(out, "  {name:9}");
        for (value, own) in columns(record)
            .into_iter()
            .zip(lateness.map_or([0.0; 6], columns))
        {
            let star = record.kind != HistogramKind::Lateness && own > 200.0 && own > value / 4.0;
            starred |= star;
            put!(
                out,
                "{:>8.3}{}",
                value / 1000.0,
                if star { '*' } else { ' ' }
            );
        }
        put!(out, "  {} values\n", record.count);
    }
    if starred {
        put!(
            out,
            "  * a quarter or more of it may be the generator's own lateness\n"
        );
    }
}

fn columns(record: &HistogramRecord) -> [f64; 6] {
    [
        record.p50_us,
        record.p90_us,
        record.p99_us,
        record.p999_us,
        record.p9999_us,
        record.max_us,
    ]
}

fn ledger(out: &mut String, result: &RunResult) {
    let ledger = &result.ledger;
    if result.loop_kind != LoopKind::None {
        put!(
            out,
            "ledger     sent {}, acknowledged {}, refused {}, unconfirmed {}\n",
            ledger.sent,
            ledger.acknowledged,
            ledger.refused,
            ledger.unconfirmed
        );
    }
    if ledger.channels > 0 {
        put!(
            out,
            "           received {}, lost {}, duplicated {}, corrupted {}, reordered {}, redelivered {}\n",
            ledger.received,
            ledger.lost,
            ledger.duplicated,
            ledger.corrupted,
            ledger.reordered,
            ledger.redelivered
        );
        if ledger.outstanding > 0 {
            put!(
                out,
                "           {} were still outstanding when the run was cut short\n",
                ledger.outstanding
            );
        }
        if ledger.foreign > 0 {
            put!(
                out,
                "           {} messages of somebody else\n",
                ledger.foreign
            );
        }
        if result.loop_kind == LoopKind::None {
            put!(
                out,
                "           lost counts the holes: without producers nothing else is known\n"
            );
        }
    }
    let totals = &result.totals;
    let asides = [
        ("requeued", totals.requeued),
        ("touched", totals.touched),
        ("left to time out", totals.left_to_time_out),
        ("reconnected", totals.reconnected),
        ("error answers", totals.error_answers),
    ];
    let asides: Vec<String> = asides
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if !asides.is_empty() {
        put!(out, "           {}\n", asides.join(", "));
    }
}

fn self_check(out: &mut String, result: &RunResult) {
    let check = &result.self_check;
    let cpu: Vec<String> = check
        .thread_cpu_percent
        .iter()
        .map(|cpu| format!("{cpu:.0} %"))
        .collect();
    put!(out, "generator  CPU {} of a core", cpu.join(" + "));
    let Judgement { head, text, .. } = judgement::self_check(result);
    match check.verdict {
        Verdict::Trusted if check.reasons.is_empty() => put!(out, ": {head}\n"),
        Verdict::Trusted => put!(out, ": {head}, but\n"),
        Verdict::GeneratorLimited => put!(out, "\nWARNING    {head}: {}\n", lower_case(&text)),
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
