//! The command line: `nsq-bench run | sweep | find-max | compare | sink | plan | report`.

mod series;
mod sink;
mod target;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::result::{Ended, Outcome};
use crate::{plan, print, report, run};
use series::{CompareArgs, FindMaxArgs, SweepArgs};
use sink::SinkArgs;
use target::RunArgs;

/// The exit code when a run failed or was not clean, a bound was missed, or `plan` or `report` failed.
pub const EXIT_FAILED: u8 = 1;
/// The exit code when nothing ran: the command line is wrong, or the daemon cannot be reached.
pub const EXIT_USAGE: u8 = 2;
/// The exit code of figures that are the generator's own and not the daemon's.
pub const EXIT_GENERATOR: u8 = 3;

/// The notation of values: printed below the flags of the subcommands that measure and plan.
const UNITS: &str = "\
Times: 250us, 10ms, 1.5s, 2m, 12h, 7d. Counts and rates: 50000, 50k, 1.5M, 5e9. Sizes: bytes.
Exit codes: 0 all well; 1 failed, not clean, or a bound missed; 2 nothing ran; 3 (find-max) the
generator was the limit.";

/// A load generator for NSQ that tells the truth, and plans capacity.
#[derive(Debug, Parser)]
#[command(name = "nsq-bench", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one scenario against a daemon
    #[command(after_help = UNITS)]
    Run(RunArgs),
    /// Run a scenario at a staircase of rates and show the knee of its latency
    #[command(after_help = UNITS)]
    Sweep(SweepArgs),
    /// Find the highest rate within an objective, and hold it
    #[command(after_help = UNITS)]
    FindMax(FindMaxArgs),
    /// Run a scenario against two daemons in turns and compare
    #[command(after_help = UNITS)]
    Compare(CompareArgs),
    /// Be a null daemon, to measure the generator by
    Sink(SinkArgs),
    /// From a measured profile and a demand: nodes, cores, memory, disk, network
    Plan(plan::Args),
    /// Make an HTML page of saved results
    Report(report::Args),
}

/// Returns the command line for the manual page.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // clap reports help and version in this way, too: they are no errors and go to standard output.
            drop(error.print());
            let code = if error.use_stderr() { EXIT_USAGE } else { 0 };
            return ExitCode::from(code);
        }
    };
    let outcome = match cli.command {
        Command::Run(args) => run(&args),
        Command::Sweep(args) => series::sweep(&args),
        Command::FindMax(args) => series::find_max(&args),
        Command::Compare(args) => series::compare(&args),
        Command::Sink(args) => sink::main(&args),
        Command::Plan(args) => return print_or_fail("plan", plan::run(&args)),
        Command::Report(args) => {
            let page = report::run(&args).map(|()| format!("{}\n", args.out.display()));
            return print_or_fail("report", page);
        }
    };
    ExitCode::from(outcome.unwrap_or_else(|error| {
        eprintln!("nsq-bench: {error}");
        EXIT_USAGE
    }))
}

/// Prints the output of a subcommand that needs no daemon; an error goes to standard error.
fn print_or_fail(name: &str, made: Result<String, String>) -> ExitCode {
    let printed = made.and_then(|text| {
        let printed = std::io::stdout().write_all(text.as_bytes());
        printed.map_err(|error| format!("cannot print the result: {error}"))
    });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nsq-bench {name}: {error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// A flag that Ctrl-C and SIGTERM set; the second time they end the program at once.
fn stop_flag() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let failed = |error: std::io::Error| format!("cannot receive signals: {error}");
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let code = i32::from(EXIT_FAILED);
        signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&stop))
            .map_err(failed)?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(failed)?;
    }
    Ok(stop)
}

/// Runs one scenario. The exit code is 0 when the run ended as it should and every message arrived once and intact.
fn run(args: &RunArgs) -> Result<u8, String> {
    let scenario = args.play.scenario()?;
    let (target, options) = args.prepare(&scenario)?;
    let mut finished = run::run(&target, &scenario, &options)?;
    // The report is printed before the file is written: a failed write must not lose the report.
    print!("{}", print::run(&finished.result));
    let ledger = finished.result.ledger;
    let code = match finished.result.ended {
        Ended::Complete | Ended::Interrupted if ledger.is_clean() && ledger.refused == 0 => 0,
        _ => EXIT_FAILED,
    };
    let name = Some(scenario.name.as_str()).filter(|name| !name.is_empty());
    let name = name.unwrap_or("run");
    args.play.save_logs(name, &mut finished)?;
    let outcome = Outcome::Run(Box::new(finished.result));
    args.play.save(name, finished.started_unix_ms, outcome)?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;

    /// The most characters of a flag's help. docs/reference/nsq-bench.md has what is longer.
    const HELP_MAX: usize = 100;

    #[test]
    fn the_help_of_a_flag_is_one_short_line() {
        for command in Cli::command().get_subcommands() {
            for flag in command.get_arguments() {
                let help = flag.get_help().expect("each flag has a help").to_string();
                let is_short = help.chars().count() <= HELP_MAX && !help.contains('\n');
                assert!(is_short, "{} {}: {help}", command.get_name(), flag.get_id());
            }
        }
    }
}
