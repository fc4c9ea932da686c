//! `find-max`: the highest rate within an objective, held to confirm it, and the profile of it.

use std::sync::atomic::AtomicBool;

use crate::generator::control::Control;
use crate::machine::fingerprint;
use crate::many_runs::search::{Search, Stage};
use crate::many_runs::slo::Slo;
use crate::result::{FindMaxResult, HistogramKind, Profile, RunResult, SearchStep, Verdict};
use crate::run::{self, Finished, Options};
use crate::scenario::Scenario;
use crate::scenario::rate::parse_count;
use crate::scenario::span::Span;
use crate::target::Target;

/// The number of tries of a rate that fails by the generator's own fault: other programs may have used the machine
/// for a moment.
const TRIES_LIMITED_MAX: usize = 3;
/// The number of tries of a rate before the confirming run. One bad moment of the machine must not end the ramp far
/// below the daemon's limit.
const TRIES_MAX: usize = 2;

/// The settings of a search: flags of `find-max`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Search")]
pub struct SearchSettings {
    /// The objective: terms such as p99<5ms, publish-p99.9<20ms, lost=0, duplicated<=10
    #[arg(long, value_name = "TERMS", default_value = "p99<5ms,lost=0")]
    pub slo: Slo,
    /// The first rate to try, in messages per second
    #[arg(long, value_name = "MESSAGES/S", default_value = "10k", value_parser = parse_count)]
    pub start: f64,
    /// No rate beyond it, in messages per second
    #[arg(long, value_name = "MESSAGES/S", default_value = "10M", value_parser = parse_count)]
    pub most: f64,
    /// Precision of the result, as a share of the rate
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    pub precision: f64,
    /// Measured time of each step; the confirming run takes --duration
    #[arg(long, value_name = "TIME", default_value = "3s")]
    pub step: Span,
}

/// A finished search, with the confirming run's intervals.
#[derive(Default)]
pub struct Found {
    /// The result that is saved.
    pub result: FindMaxResult,
    /// The confirming run; `None` when no rate was confirmed.
    pub held: Option<Finished>,
    /// The reason why a run could not begin, which ended the search.
    pub failure: Option<String>,
}

/// Searches for the highest rate within the objective. `say` is called with each step.
pub fn find_max(
    target: &Target,
    scenario: &Scenario,
    settings: &SearchSettings,
    options: &Options,
    mut say: impl FnMut(&SearchStep),
) -> Found {
    let mut search = Search::new(settings.start, settings.most, settings.precision);
    let mut found = Found::default();
    found.result.slo = settings.slo.to_string();
    let step_at = |rate: f64| Scenario {
        duration: settings.step,
        ..scenario.at_rate(rate)
    };
    while let Some((stage, rate)) = search.next() {
        let scenario = match stage {
            Stage::Hold => scenario.at_rate(rate),
            Stage::Ramp | Stage::Bisect => step_at(rate),
        };
        let run = || run::run(target, &scenario, options);
        let judge = |run: &RunResult| step(stage, rate, &settings.slo, run);
        let Some((step, finished)) =
            try_rate(run, judge, stage, &options.stop, &mut found, &mut say)
        else {
            break;
        };
        // The generator may be what failed: higher rates would say nothing about the daemon.
        found.result.generator_limited |= !step.passed && step.verdict == Verdict::GeneratorLimited;
        search.tried(step.passed);
        if stage == Stage::Hold && step.passed {
            found.result.found_per_s = Some(rate);
            found.held = Some(finished);
        }
    }
    found.result.reached_most = found.result.found_per_s == Some(settings.most);
    found.result.failed_per_s = search.failed;
    if let (Some(rate), Some(held)) = (found.result.found_per_s, &found.held) {
        found.result.headroom = settings.slo.headroom(&held.result);
        // The same rate without consumers says what publishing and queueing cost by themselves. The channels are there,
        // so that messages stay queued for them; without HTTP they stay in the topic.
        let mut alone = step_at(rate);
        alone.consumers = 0;
        alone.channels = target.http.map_or(0, |_| scenario.channels);
        match run::run(target, &alone, options) {
            Ok(alone) => {
                let profile = profile(target, &found.result, rate, &held.result, &alone.result);
                found.result.profile = Some(profile);
            }
            Err(error) => found.failure = Some(error),
        }
    }
    found
}

/// Runs a rate, again if it fails, and returns the last step with its run; `None` if that ends the search.
fn try_rate(
    run: impl Fn() -> Result<Finished, String>,
    judge: impl Fn(&RunResult) -> SearchStep,
    stage: Stage,
    stop: &AtomicBool,
    found: &mut Found,
    say: &mut impl FnMut(&SearchStep),
) -> Option<(SearchStep, Finished)> {
    loop {
        let finished = run().map_err(|error| found.failure = Some(error)).ok()?;
        let step = judge(&finished.result);
        say(&step);
        let at_rate = |earlier: &&SearchStep| earlier.offered_per_s == step.offered_per_s;
        let earlier = found.result.steps.iter().rev().take_while(at_rate);
        let tries = 1 + earlier.count();
        found.result.steps.push(step.clone());
        let tries_max = match (step.verdict, stage) {
            _ if step.passed => 1,
            (Verdict::GeneratorLimited, _) => TRIES_LIMITED_MAX,
            (_, Stage::Hold) => 1,
            (_, Stage::Ramp | Stage::Bisect) => TRIES_MAX,
        };
        if Control::is_set(stop) || finished.result.is_failed() {
            return None;
        }
        if tries >= tries_max {
            return Some((step, finished));
        }
    }
}

fn step(stage: Stage, rate: f64, slo: &Slo, run: &RunResult) -> SearchStep {
    let missed = slo.missed(run);
    let p99 = |kind| run.histogram(kind).map(|record| record.p99_us);
    SearchStep {
        offered_per_s: rate,
        stage: stage.as_str().into(),
        passed: missed.is_empty(),
        missed,
        verdict: run.self_check.verdict,
        acknowledged_per_s: run.totals.acknowledged_per_s,
        publish_p99_us: p99(HistogramKind::Publish),
        delivery_p99_us: p99(HistogramKind::Delivery),
    }
}

fn profile(
    target: &Target,
    result: &FindMaxResult,
    rate: f64,
    held: &RunResult,
    alone: &RunResult,
) -> Profile {
    let machine = fingerprint();
    let (with, without) = (held.resources, alone.resources);
    // A time of 0 says that the figure is below what the runs can tell.
    let per =
        |cpu_s: f64, messages: u64| (messages > 0 && cpu_s > 0.0).then(|| cpu_s / messages as f64);
    let published = without.and_then(|used| per(used.cpu_s, alone.totals.acknowledged));
    let delivered = with.zip(published).and_then(|(used, published)| {
        let rest = used.cpu_s - published * held.totals.acknowledged as f64;
        per(rest, held.totals.delivered)
    });
    Profile {
        daemon: target.daemon.clone(),
        slo: result.slo.clone(),
        messages_per_s: rate,
        generator_limited: result.generator_limited,
        reached_most: result.reached_most,
        message_bytes: held.totals.message_bytes_mean,
        channels: held.scenario.channels,
        batch: held.scenario.messages_per_command(),
        cores: machine.cores,
        daemon_cores_used: held.cores_used().filter(|cores| *cores > 0.0),
        cpu_s_per_published: published,
        cpu_s_per_delivered: delivered,
        memory_bytes_per_queued: without.and_then(|used| used.memory_bytes_per_queued),
        memory_bytes_idle: with.map(|used| used.rss_start_bytes),
        disk_bytes_per_message: without.and_then(|used| used.disk_bytes_per_message),
        machine,
    }
}
