//! `nsq-bench sweep`, `find-max` and `compare`: many runs.

use std::path::PathBuf;

use clap::Args;

use super::target::{PlayArgs, RunArgs};
use super::{EXIT_FAILED, EXIT_GENERATOR, stop_flag};
use crate::clock::Clock;
use crate::daemon::DaemonCommand;
use crate::generator::control::Control;
use crate::judgement::{CPU_NOT_TOLD_APART, SEARCH_LIMITED, SEARCH_REACHED_MOST};
use crate::many_runs::compare::{self, Contender};
use crate::many_runs::find_max::{self, SearchSettings};
use crate::many_runs::sweep;
use crate::print;
use crate::result::{Outcome, RunResult, SearchStep, Threshold};
use crate::run::Finished;
use crate::save::Files;
use crate::scenario::rate::{Rate, parse_count};
use crate::scenario::{Client, Scenario};

/// The flags of `sweep`.
#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    #[command(flatten)]
    run: RunArgs,
    /// The lowest rate, in messages per second
    #[arg(long, value_name = "MESSAGES/S", default_value = "1000", help_heading = "Sweep",
          value_parser = parse_count)]
    from: f64,
    /// The highest rate, in messages per second
    #[arg(long, value_name = "MESSAGES/S", default_value = "1M", help_heading = "Sweep",
          value_parser = parse_count)]
    to: f64,
    /// Rates to try, at even ratios
    #[arg(long, value_name = "COUNT", default_value_t = 10, help_heading = "Sweep",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    steps: u32,
}

/// The flags of `find-max`.
#[derive(Debug, Args)]
pub(super) struct FindMaxArgs {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    search: SearchSettings,
}

/// The flags of `compare`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Comparison")]
pub(super) struct CompareArgs {
    /// The baseline's command, with {tcp}, {http} and {data} for addresses and data directory
    #[arg(long, value_name = "COMMAND")]
    a: String,
    /// The command of what is judged
    #[arg(long, value_name = "COMMAND")]
    b: String,
    /// The name of A in the report
    #[arg(long, value_name = "NAME", default_value = "A")]
    name_a: String,
    /// The name of B in the report
    #[arg(long, value_name = "NAME", default_value = "B")]
    name_b: String,
    /// Rounds, each of which runs A and then B
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Where data directories are made [the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    data_base: Option<PathBuf>,
    /// A bound on a median ratio B/A, such as cpu_us_per_message<=0.5 (may be given several times)
    #[arg(long, value_name = "BOUND")]
    require: Vec<Threshold>,
    #[command(flatten)]
    play: PlayArgs,
}

/// Makes the scenario an open loop whose rate the caller sets. A closed loop has no rate to vary.
fn rated(play: &PlayArgs) -> Result<Scenario, String> {
    // Each step sets its own rate, so the scenario's rate does not matter.
    let mut scenario = play.scenario()?;
    if scenario.producers == 0 {
        return Err("rates need producers: give --producers".into());
    }
    if scenario.client == Client::Blocking {
        return Err("a blocking client has no rate to vary: leave --client out".into());
    }
    scenario.rate = Rate::PerSecond(1.0);
    scenario.messages = 0;
    Ok(scenario)
}

pub(super) fn sweep(args: &SweepArgs) -> Result<u8, String> {
    if args.from > args.to {
        return Err("--from is more than --to".into());
    }
    let scenario = rated(&args.run.play)?;
    let (target, options) = args.run.prepare(&scenario)?;
    let started_ms = unix_ms();
    let rates = sweep::rates(args.from, args.to, args.steps);
    let say = |run: &RunResult| {
        println!(
            "{:>11} msg/s offered: {:>11} acknowledged, p99 {:.3} ms",
            print::count(run.totals.offered_per_s.unwrap_or(0.0)),
            print::count(run.totals.acknowledged_per_s),
            sweep::p99_us(run).unwrap_or(0.0) / 1000.0
        );
    };
    let (result, failure) = sweep::sweep(&target, &scenario, &rates, &options, say);
    print!("{}", sweep::picture(&result));
    if Control::is_set(&options.stop) {
        println!("ENDED      interrupted: the last step is not complete");
    }
    let flawed = |run: &RunResult| run.is_failed() || !run.ledger.is_clean();
    let failed = failure.is_some() || result.steps.iter().any(flawed);
    print_failure(failure);
    args.run
        .play
        .save("sweep", started_ms, Outcome::Sweep(result))?;
    Ok(if failed { EXIT_FAILED } else { 0 })
}

pub(super) fn find_max(args: &FindMaxArgs) -> Result<u8, String> {
    let precision = args.search.precision;
    if !(0.001..=0.5).contains(&precision) {
        return Err(format!(
            "--precision {precision} is not between 0.001 and 0.5"
        ));
    }
    let play = &args.run.play;
    let scenario = rated(play)?;
    let (target, options) = args.run.prepare(&scenario)?;
    let started_ms = unix_ms();
    let say = |step: &SearchStep| {
        let missed = step.missed.join("; ");
        println!(
            "{:7} {:>11} msg/s: {}",
            step.stage,
            print::count(step.offered_per_s),
            if step.passed { "met" } else { &missed }
        );
    };
    let mut found = find_max::find_max(&target, &scenario, &args.search, &options, say);
    let mut code = EXIT_FAILED;
    print_failure(found.failure.take());
    if let Some(held) = &found.held {
        print!("{}", print::run(&held.result));
    }
    match found.result.found_per_s {
        Some(rate) => {
            let rate = print::count(rate);
            println!("found      {rate} msg/s within {}", found.result.slo);
            for term in &found.result.headroom {
                if let Some(left) = term.left_share {
                    println!("headroom   {:.0} % of {}", 100.0 * left, term.term);
                }
            }
            code = 0;
            if found.result.reached_most {
                println!("limit      {SEARCH_REACHED_MOST}");
            }
            if found.result.generator_limited {
                println!("WARNING    {SEARCH_LIMITED}");
                code = EXIT_GENERATOR;
            }
            if let Some(profile) = &found.result.profile
                && !profile.tells_cpu_apart()
            {
                println!("profile    {CPU_NOT_TOLD_APART}");
            }
        }
        None if Control::is_set(&options.stop) => {
            println!("found      nothing yet: interrupted before a rate was confirmed");
        }
        None => println!("found      no rate within {}", found.result.slo),
    }
    if let Some(mut held) = found.held {
        play.save_logs("find-max", &mut held)?;
        found.result.held = Some(held.result);
    }
    let outcome = Outcome::FindMax(Box::new(found.result));
    play.save("find-max", started_ms, outcome)?;
    Ok(code)
}

pub(super) fn compare(args: &CompareArgs) -> Result<u8, String> {
    let scenario = args.play.scenario()?;
    let contender = |name: &String, command: &str| -> Result<Contender, String> {
        let (name, command) = (name.clone(), DaemonCommand::new(command)?);
        Ok(Contender { name, command })
    };
    let contenders = [
        contender(&args.name_a, &args.a)?,
        contender(&args.name_b, &args.b)?,
    ];
    let options = args.play.options(stop_flag()?)?;
    let started_ms = unix_ms();
    let base = args.data_base.clone().unwrap_or_else(std::env::temp_dir);
    let out = args.play.out.as_ref();
    let files = out.map(|path| Files::at(path, "compare")).transpose()?;
    let each = |round: u32, name: &str, finished: &mut Finished| {
        let (round, totals) = (round + 1, &finished.result.totals);
        let published = print::count(totals.acknowledged_per_s);
        let delivered = print::count(totals.delivered_per_s);
        println!("round {round} {name}: published {published}/s, delivered {delivered}/s");
        let save = |files: &Files| files.logs(finished, &format!(".{round}.{name}"));
        files.as_ref().map_or(Ok(()), save)
    };
    let runs = compare::compare(&contenders, &scenario, args.rounds, &base, &options, each);
    let result = compare::judge(&contenders, &scenario, runs, &args.require);
    print!("{}", compare::table(&result));
    let code = if result.passed { 0 } else { EXIT_FAILED };
    args.play
        .save("compare", started_ms, Outcome::Compare(result))?;
    Ok(code)
}

/// Prints the reason why a measurement ended early. The runs before that are reported all the same.
fn print_failure(failure: Option<String>) {
    if let Some(failure) = failure {
        eprintln!("nsq-bench: {failure}");
    }
}

/// The time now, in milliseconds of Unix time.
fn unix_ms() -> u64 {
    Clock::start().now_ns() / 1_000_000
}
