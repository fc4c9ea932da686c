//! Results like those of a daemon with stalls, made from a seed.

use fastrand::Rng;
use nsq_bench::random::normal;
use nsq_bench::result::tally::{latencies, percentiles, record};
use nsq_bench::result::*;
use nsq_bench::scenario::rate::Rate;
use nsq_bench::scenario::{Scenario, Via};

/// A text with markup, which a page must show as text.
pub(crate) const HOSTILE: &str =
    "<script>document.title='owned'</script>\"><img src=x onerror=alert(1)>&amp;";

/// The behaviour of a run.
#[derive(Clone, Copy)]
pub(crate) struct Behaviour {
    pub(crate) seed: u64,
    pub(crate) rate: f64,
    /// Median latency in microseconds.
    pub(crate) median_us: f64,
    /// Length of the stalls, which come every 15 s, in microseconds.
    pub(crate) stall_us: f64,
    pub(crate) cpu_percent: f64,
}

pub(crate) fn saved(command: &[&str], outcome: Outcome) -> SavedResult {
    SavedResult {
        schema: SCHEMA,
        tool: "nsq-bench 0.1.0".into(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        started_unix_ms: 1_767_261_600_000,
        machine: machine(),
        outcome,
    }
}

fn machine() -> Machine {
    Machine {
        cpu_model: "Fictional Processor 9000 @ 2.70GHz".into(),
        cores: 4,
        kernel: "Linux 6.18.0 x86_64".into(),
        memory_bytes: 24_000_000_000,
    }
}

/// Makes a run of a minute, after 5 s of warm-up and before 2 s of drain.
pub(crate) fn run(behaviour: Behaviour) -> RunResult {
    let mut random = Rng::with_seed(behaviour.seed);
    let (mut publish, mut delivery) = (latencies(), latencies());
    let mut series = Vec::new();
    for second in 1..=67u32 {
        let phase = match second {
            ..=5 => Phase::WarmUp,
            6..=65 => Phase::Measure,
            _ => Phase::Drain,
        };
        let stalls = second % 15 == 12;
        let (mut published, mut delivered) = (latencies(), latencies());
        for sample in 0..2000 {
            let draw = |random: &mut Rng, median: f64| median * (0.45 * normal(random)).exp();
            let mut waited = draw(&mut random, behaviour.median_us);
            if stalls && sample < 300 {
                waited += behaviour.stall_us * (1.0 - f64::from(sample) / 300.0);
            }
            published.record((waited * 600.0) as u64 + 1).unwrap();
            let further = draw(&mut random, 60.0);
            delivered
                .record(((waited + further) * 1e3) as u64 + 1)
                .unwrap();
        }
        let is_drain = phase == Phase::Drain;
        if phase == Phase::Measure {
            publish.add(&published).unwrap();
            delivery.add(&delivered).unwrap();
        }
        let jitter = 1.0 + 0.01 * normal(&mut random);
        let rate = if is_drain {
            0.0
        } else {
            behaviour.rate * jitter
        };
        series.push(Interval {
            at_s: f64::from(second),
            length_s: 1.0,
            phase,
            offered_per_s: (!is_drain).then_some(behaviour.rate),
            sent_per_s: rate,
            acknowledged_per_s: if stalls { rate * 0.85 } else { rate },
            delivered_per_s: if stalls { rate * 0.85 } else { rate },
            publish: percentiles(&published).filter(|_| !is_drain),
            delivery: percentiles(&delivered),
            lateness: percentiles(&published).map(|p| Percentiles {
                p50_us: 2.0,
                p99_us: 9.0 * jitter,
                p999_us: 30.0,
                max_us: 40.0 * jitter,
                ..p
            }),
            depth: Some(if stalls {
                18_000
            } else {
                (40.0 * jitter) as u64
            }),
            in_flight: Some((120.0 * jitter) as u64),
            deferred: Some(0),
            daemon: Some(ProcessInterval {
                cpu_percent: behaviour.cpu_percent * jitter,
                rss_bytes: 48_000_000 + u64::from(second) * 90_000,
                switches_voluntary_per_s: 4000.0,
                switches_involuntary_per_s: 40.0,
                disk_written_bytes_per_s: if stalls { 9e6 } else { 2e5 },
            }),
            generator_cpu_percent: 31.0 * jitter,
        });
    }
    let count = (behaviour.rate * 60.0) as u64;
    RunResult {
        daemon: Daemon {
            kind: "nsqd".into(),
            version: "1.3.0".into(),
            tcp_address: "127.0.0.1:4150".into(),
            command: None,
        },
        scenario: Scenario {
            name: "pub-sub".into(),
            via: Via::Mpub,
            rate: Rate::PerSecond(behaviour.rate),
            ..Scenario::default()
        },
        loop_kind: LoopKind::Open,
        ended: Ended::Complete,
        totals: Totals {
            measured_s: 60.0,
            offered_per_s: Some(behaviour.rate),
            acknowledged: count,
            acknowledged_per_s: behaviour.rate,
            delivered: count,
            delivered_per_s: behaviour.rate,
            message_bytes_mean: 200.0,
            acknowledged_bytes_per_s: behaviour.rate * 200.0,
            answers: Answers {
                finished: count,
                ..Answers::default()
            },
        },
        ledger: Ledger {
            sent: count,
            acknowledged: count,
            channels: 1,
            received: count,
            reordered: 12,
            ..Ledger::default()
        },
        resources: Some(Resources {
            cpu_s: behaviour.cpu_percent * 0.6,
            cpu_us_per_message: Some(behaviour.cpu_percent * 0.6e6 / (2.0 * count as f64)),
            rss_start_bytes: 48_000_000,
            rss_max_bytes: 54_000_000,
            memory_bytes_per_queued: Some(279.0),
            disk_written_bytes: 47_000_000,
            disk_bytes_per_message: Some(47e6 / count as f64),
            switches_voluntary: 240_000,
            switches_involuntary: 2_400,
            ..Resources::default()
        }),
        self_check: SelfCheck {
            thread_cpu_percent: vec![16.0, 15.0],
            sent_share: Some(1.0),
            stolen_percent: Some(0.0),
            ..SelfCheck::default()
        },
        histograms: [
            record(HistogramKind::Publish, &publish),
            record(HistogramKind::Delivery, &delivery),
        ]
        .into_iter()
        .flatten()
        .collect(),
        series,
    }
}

pub(crate) const CALM: Behaviour = Behaviour {
    seed: 1,
    rate: 50_000.0,
    median_us: 180.0,
    stall_us: 0.0,
    cpu_percent: 42.0,
};
pub(crate) const STALLING: Behaviour = Behaviour {
    seed: 2,
    rate: 50_000.0,
    median_us: 320.0,
    stall_us: 150_000.0,
    cpu_percent: 118.0,
};

/// Makes a run in a closed loop that lost messages, whose bottleneck was the generator, and whose
/// texts are markup.
pub(crate) fn bad() -> RunResult {
    let mut run = run(STALLING);
    run.loop_kind = LoopKind::Closed;
    run.ended = Ended::Failed {
        reason: format!("connection refused {HOSTILE}"),
    };
    run.ledger.lost = 12;
    run.ledger.corrupted = 1;
    run.self_check.verdict = Verdict::GeneratorLimited;
    run.self_check.reasons = vec![format!("producer 0 used 99 % of its core {HOSTILE}")];
    run.daemon.kind = HOSTILE.into();
    run.daemon.version = HOSTILE.into();
    run.daemon.command = Some(HOSTILE.into());
    run.scenario.name = HOSTILE.into();
    run.resources = None;
    for row in &mut run.series {
        (row.daemon, row.depth, row.in_flight, row.deferred) = (None, None, None, None);
        row.offered_per_s = None;
    }
    run.totals.offered_per_s = None;
    run
}

pub(crate) fn sweep() -> SweepResult {
    let steps = (1..=8u32).map(|step| {
        let rate = 40_000.0 * f64::from(step);
        let load = rate / 300_000.0;
        let mut run = run(Behaviour {
            seed: u64::from(step),
            rate,
            median_us: 120.0 / (1.02 - load.min(1.0)),
            stall_us: if load > 0.9 { 60_000.0 } else { 0.0 },
            cpu_percent: 190.0 * load.min(1.0),
        });
        if load > 1.0 {
            run.totals.acknowledged_per_s = 300_000.0;
            run.totals.delivered_per_s = 297_000.0;
            run.self_check.verdict = Verdict::GeneratorLimited;
        }
        run
    });
    SweepResult {
        steps: steps.collect(),
        knee_per_s: Some(240_000.0),
    }
}

pub(crate) fn find_max() -> FindMaxResult {
    let step = |stage: &str, offered_per_s: f64, p99_us: f64| SearchStep {
        offered_per_s,
        stage: stage.into(),
        passed: p99_us < 5000.0,
        missed: Vec::from_iter((p99_us >= 5000.0).then(|| "p99<5ms: 7.1ms".into())),
        verdict: Verdict::Trusted,
        acknowledged_per_s: offered_per_s,
        publish_p99_us: Some(p99_us * 0.6),
        delivery_p99_us: Some(p99_us),
    };
    let headroom = |term: &str, measured, left_share| Headroom {
        term: term.into(),
        measured,
        left_share,
    };
    let held = run(Behaviour {
        rate: 212_000.0,
        median_us: 900.0,
        ..CALM
    });
    FindMaxResult {
        slo: "p99<5ms,lost=0".into(),
        found_per_s: Some(212_000.0),
        failed_per_s: Some(219_000.0),
        headroom: vec![
            headroom("p99<5ms", 2900.0, Some(0.42)),
            headroom("lost=0", 0.0, None),
        ],
        steps: vec![
            step("ramp", 50_000.0, 420.0),
            step("ramp", 100_000.0, 610.0),
            step("ramp", 200_000.0, 1900.0),
            step("ramp", 400_000.0, 71_000.0),
            step("bisect", 300_000.0, 24_000.0),
            step("bisect", 250_000.0, 9100.0),
            step("bisect", 212_000.0, 2700.0),
            step("hold", 212_000.0, 2900.0),
        ],
        profile: Some(Profile {
            daemon: held.daemon.clone(),
            machine: machine(),
            slo: "p99<5ms,lost=0".into(),
            messages_per_s: 212_000.0,
            generator_limited: false,
            reached_most: false,
            message_bytes: 400.0,
            channels: 3,
            batch: 100,
            cores: 4,
            daemon_cores_used: Some(0.9),
            cpu_s_per_published: Some(0.8e-6),
            cpu_s_per_delivered: Some(1.1e-6),
            memory_bytes_per_queued: Some(530.0),
            memory_bytes_idle: Some(12_000_000),
            disk_bytes_per_message: Some(462.0),
        }),
        held: Some(held),
        ..FindMaxResult::default()
    }
}

pub(crate) fn compare() -> CompareResult {
    let side = |name: &str, behaviour: Behaviour| {
        let runs = (0..5).map(|seed| run(Behaviour { seed, ..behaviour }));
        let metric = |name: &str, unit: &str, higher_is_better, values: [f64; 5]| {
            let mut sorted = values;
            sorted.sort_by(f64::total_cmp);
            Metric {
                name: name.into(),
                unit: unit.into(),
                higher_is_better,
                values: values.map(Some).to_vec(),
                median: sorted[2],
                min: sorted[0],
                max: sorted[4],
            }
        };
        let x = behaviour.cpu_percent / 42.0;
        let delivered = [660e3, 655e3, 671e3, 640e3, 662e3].map(|v| v / x);
        let cpu = [0.71, 0.74, 0.65, 0.76, 0.70].map(|v| v * x);
        let memory = [279.0, 280.0, 279.0, 278.0, 281.0];
        let p99 = [410.0, 480.0, 402.0, 640.0, 433.0].map(|v| v * x);
        let metrics = vec![
            metric("delivered_per_s", "msg/s", true, delivered),
            metric("cpu_us_per_message", "us", false, cpu),
            metric("memory_bytes_per_queued", "bytes", false, memory),
            metric("delivery_p99_us", "us", false, p99),
        ];
        Side {
            name: name.into(),
            command: format!("{name} --tcp-address={{tcp}}"),
            runs: runs.collect(),
            metrics,
        }
    };
    let ratio = |metric: &str, higher_is_better, median: f64, min, max| Ratio {
        metric: metric.into(),
        higher_is_better,
        median,
        min,
        max,
    };
    CompareResult {
        scenario: "pub-sub".into(),
        rounds: 5,
        a: side("nsqd", STALLING),
        b: side("ringq", CALM),
        ratios: vec![
            ratio("delivered_per_s", true, 2.81, 2.6, 2.93),
            ratio("cpu_us_per_message", false, 0.356, 0.33, 0.38),
            ratio("memory_bytes_per_queued", false, 1.0, 0.99, 1.01),
            ratio("delivery_p99_us", false, 0.35, 0.31, 0.52),
        ],
        thresholds: vec![Threshold {
            metric: "cpu_us_per_message".into(),
            bound: Bound::AtMost,
            limit: 0.5,
            measured: Some(0.356),
            met: true,
        }],
        passed: true,
        failures: Vec::new(),
    }
}
