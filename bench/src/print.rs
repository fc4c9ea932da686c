//! Results as text for a terminal or a log.

use std::fmt::Write;

use crate::result::{Ended, HistogramKind, HistogramRecord, LoopKind, RunResult, Verdict};

/// A run's report.
#[must_use]
pub fn run(result: &RunResult) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_run(&mut out, result);
    out
}

fn write_run(out: &mut String, result: &RunResult) -> std::fmt::Result {
    let daemon = &result.daemon;
    writeln!(
        out,
        "daemon     {} {} at {}",
        daemon.kind, daemon.version, daemon.tcp_address
    )?;
    writeln!(out, "scenario   {}", result.scenario.summary())?;
    match &result.ended {
        Ended::Complete => {}
        Ended::NotDrained => {
            writeln!(
                out,
                "ENDED      not everything arrived within the drain time"
            )?;
        }
        Ended::Interrupted => writeln!(out, "ENDED      interrupted: this is what ran until then")?,
        Ended::Failed { reason } => {
            writeln!(
                out,
                "ENDED      {reason}\n           this is what ran until then"
            )?;
        }
    }
    let totals = &result.totals;
    let whose = if rates_are_ours(result) {
        "  <- the generator's limit, not the daemon's"
    } else {
        ""
    };
    if result.loop_kind != LoopKind::None {
        let offered = match totals.offered_per_s {
            Some(rate) => format!(" of {} offered", count(rate)),
            None => " (closed loop)".into(),
        };
        writeln!(
            out,
            "published  {} msg/s{offered}, {} MB/s of bodies, for {:.1} s{whose}",
            count(totals.acknowledged_per_s),
            count(totals.acknowledged_bytes_per_s / 1e6),
            totals.measured_s
        )?;
    }
    if result.ledger.channels > 0 {
        let channels = result.ledger.channels;
        writeln!(
            out,
            "delivered  {} msg/s over {channels} channel{}{whose}",
            count(totals.delivered_per_s),
            if channels == 1 { "" } else { "s" }
        )?;
    }
    latencies(out, result)?;
    ledger(out, result)?;
    if let Some(resources) = &result.resources {
        write!(out, "daemon     {:.2} s CPU", resources.cpu_s)?;
        if let Some(us) = resources.cpu_us_per_message {
            write!(out, " = {us:.3} us per message published or delivered")?;
        }
        let phases = [
            (resources.cpu_us_per_published, "published"),
            (resources.cpu_us_per_delivered, "delivered"),
        ];
        for (us, what) in phases {
            if let Some(us) = us {
                write!(out, ", {us:.3} us per {what}")?;
            }
        }
        write!(
            out,
            ", RSS up to {} MB",
            count(resources.rss_max_bytes as f64 / 1e6)
        )?;
        if let Some(bytes) = resources.memory_bytes_per_queued {
            write!(out, " = {bytes:.0} bytes per queued message")?;
        }
        write!(
            out,
            ", disk {} MB",
            count(resources.disk_written_bytes as f64 / 1e6)
        )?;
        if let Some(bytes) = resources.disk_bytes_per_message {
            write!(out, " = {bytes:.0} bytes per message")?;
        }
        writeln!(
            out,
            ", switches {} + {}",
            resources.switches_voluntary, resources.switches_involuntary
        )?;
    } else {
        writeln!(
            out,
            "daemon     not a process of this machine that we may see: no CPU and memory"
        )?;
    }
    self_check(out, result)
}

/// Whether the rates are what the generator could do. In an open loop that kept its rate they are what
/// was offered, and only the latencies can be in doubt.
fn rates_are_ours(result: &RunResult) -> bool {
    let check = &result.self_check;
    let kept =
        result.loop_kind == LoopKind::Open && check.sent_share.is_none_or(|share| share >= 0.99);
    check.verdict == Verdict::GeneratorLimited && !kept
}

fn latencies(out: &mut String, result: &RunResult) -> std::fmt::Result {
    let from = match result.loop_kind {
        LoopKind::Open => "from the intended send",
        LoopKind::Closed => "closed loop: from the actual send, hides stalls",
        LoopKind::None => "from the producer's clock",
    };
    if result.histograms.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "latency ms      p50      p90      p99    p99.9   p99.99      max   ({from})"
    )?;
    let lateness = result.histogram(HistogramKind::Lateness);
    let mut starred = false;
    for record in &result.histograms {
        let name = match record.kind {
            HistogramKind::Publish => "publish",
            HistogramKind::Delivery => "deliver",
            HistogramKind::Lateness => "lateness",
        };
        write!(out, "  {name:9}")?;
        for (value, own) in columns(record)
            .into_iter()
            .zip(lateness.map_or([0.0; 6], columns))
        {
            let star = record.kind != HistogramKind::Lateness && own > 200.0 && own > value / 4.0;
            starred |= star;
            write!(
                out,
                "{:>8.3}{}",
                value / 1000.0,
                if star { '*' } else { ' ' }
            )?;
        }
        writeln!(out, "  {} values", record.count)?;
    }
    if starred {
        writeln!(
            out,
            "  * a quarter or more of it may be the generator's own lateness"
        )?;
    }
    Ok(())
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

fn ledger(out: &mut String, result: &RunResult) -> std::fmt::Result {
    let ledger = &result.ledger;
    if result.loop_kind != LoopKind::None {
        writeln!(
            out,
            "ledger     sent {}, acknowledged {}, refused {}, unconfirmed {}",
            ledger.sent, ledger.acknowledged, ledger.refused, ledger.unconfirmed
        )?;
    }
    if ledger.channels > 0 {
        writeln!(
            out,
            "           received {}, lost {}, duplicated {}, corrupted {}, reordered {}, redelivered {}",
            ledger.received,
            ledger.lost,
            ledger.duplicated,
            ledger.corrupted,
            ledger.reordered,
            ledger.redelivered
        )?;
        if ledger.outstanding > 0 {
            writeln!(
                out,
                "           {} were still outstanding when the run was cut short",
                ledger.outstanding
            )?;
        }
        if ledger.foreign > 0 {
            writeln!(
                out,
                "           {} messages of somebody else",
                ledger.foreign
            )?;
        }
        if result.loop_kind == LoopKind::None {
            writeln!(
                out,
                "           lost counts the holes: without producers nothing else is known"
            )?;
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
        writeln!(out, "           {}", asides.join(", "))?;
    }
    Ok(())
}

fn self_check(out: &mut String, result: &RunResult) -> std::fmt::Result {
    let check = &result.self_check;
    let cpu: Vec<String> = check
        .thread_cpu_percent
        .iter()
        .map(|cpu| format!("{cpu:.0} %"))
        .collect();
    write!(out, "generator  CPU {} of a core", cpu.join(" + "))?;
    match check.verdict {
        Verdict::Trusted if check.reasons.is_empty() => {
            writeln!(out, ": it was not the bottleneck")?;
        }
        Verdict::Trusted => writeln!(out, ": it was not the bottleneck, but")?,
        Verdict::GeneratorLimited => {
            let what = if rates_are_ours(result) {
                "rates"
            } else {
                "latencies"
            };
            writeln!(
                out,
                "\nWARNING    the generator was the bottleneck: these {what} are not the daemon's"
            )?;
        }
    }
    for reason in &check.reasons {
        writeln!(out, "           - {reason}")?;
    }
    Ok(())
}

/// A number with three or more significant digits and spaces between thousands.
#[must_use]
pub fn count(value: f64) -> String {
    if value.abs() < 100.0 && value != value.trunc() {
        return format!("{value:.2}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut out = String::from(if value < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        for (value, text) in [
            (0.0, "0"),
            (1.234, "1.23"),
            (999.6, "1 000"),
            (1_234_567.0, "1 234 567"),
            (-1500.0, "-1 500"),
        ] {
            assert_eq!(count(value), text);
        }
    }
}
