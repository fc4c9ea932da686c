//! The program `nsqd`.

use engine::check::{self, State};
use engine::config::{Check, Config};
use engine::daemon::Daemon;
use program::{log, log_fatal};
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::io::{self, Write};
use std::panic;
use std::process::{self, ExitCode};

fn main() -> ExitCode {
    abort_on_panic();
    let config = match Config::from_args(std::env::args_os().skip(1)) {
        Ok(config) => config,
        Err(exit) => return exit.print(),
    };
    if config.check != Check::No {
        return check(config);
    }
    if let Err(error) = log::init(config.log_level, config.log_style.clone()) {
        log_fatal!("cannot start the log's thread: {error}");
        return ExitCode::from(1);
    }
    if let Err(error) = diskq::install_sigbus_reporter() {
        log_fatal!("cannot install the reporter of SIGBUS: {error}");
        log::flush();
        return ExitCode::from(1);
    }
    // Before any other thread, so that none of them takes the signals.
    let mut signals = match Signals::new([SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2]) {
        Ok(signals) => signals,
        Err(error) => {
            log_fatal!("cannot receive signals: {error}");
            log::flush();
            return ExitCode::from(1);
        }
    };
    match Daemon::start(config) {
        Ok(daemon) => {
            if !is_stop_wanted(&mut signals) {
                return ExitCode::from(2);
            }
            daemon.stop();
            ExitCode::SUCCESS
        }
        Err(error) => {
            log_fatal!("{error}");
            log::flush();
            ExitCode::from(1)
        }
    }
}

/// Makes a panic on any thread end the process, whatever the build's profile: no broker runs on with a thread missing.
fn abort_on_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        report(panic);
        process::abort();
    }));
}

/// Says on standard output whether this machine is ready.
fn check(config: Config) -> ExitCode {
    let form = config.check;
    let report = check::examine(config);
    let text = match form {
        Check::Json => report.json(),
        Check::Text | Check::No => report.text(),
    };
    if let Err(error) = io::stdout().write_all(text.as_bytes()) {
        eprintln!("cannot write the report: {error}");
        return ExitCode::from(1);
    }
    ExitCode::from(u8::from(report.state() == State::Failure))
}

/// Waits for a signal that ends the broker. False: it is to end at once, as if it were killed.
fn is_stop_wanted(signals: &mut Signals) -> bool {
    for signal in signals.forever() {
        match signal {
            SIGINT | SIGTERM => return true,
            SIGQUIT => {
                log_fatal!("SIGQUIT: ending at once");
                log::flush();
                return false;
            }
            // nsqd survives SIGUSR1 and SIGUSR2, and scripts may rely on that.
            _ => {}
        }
    }
    unreachable!("the signals never end")
}
