//! The program `nsqd`.

use nsqd::config::{Check, Config};
use nsqd::daemon::Daemon;
use nsqd::preflight::{self, State};
use program::inherited::InheritedSockets;
use program::stop::{self, StopSignal, StopSignals};
use program::{log, log_fatal, thread_refused};
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    stop::abort_on_panic();
    let inherited = InheritedSockets::from_env();
    let config = match Config::from_args(std::env::args_os().skip(1)) {
        Ok(config) => config,
        Err(exit) => return exit.print(),
    };
    if config.check != Check::No {
        return check(config, inherited);
    }
    if let Err(error) = log::init(config.log_level, config.options.log_style()) {
        log_fatal!("{}", thread_refused("the log's thread", &error));
        return ExitCode::from(1);
    }
    if let Err(error) = diskq::install_sigbus_reporter() {
        log_fatal!("cannot install the reporter of SIGBUS: {error}");
        log::flush();
        return ExitCode::from(1);
    }
    // Before any other thread, so that none of them takes the signals.
    let signals = match StopSignals::catch_with_hangup() {
        Ok(signals) => signals,
        Err(error) => {
            log_fatal!("cannot receive signals: {error}");
            log::flush();
            return ExitCode::from(1);
        }
    };
    let ender = signals.ender();
    match Daemon::start(config, inherited, move || ender.end()) {
        Ok(daemon) => {
            let stops = |signal| signal == StopSignal::Interrupt || !daemon.drains_instead();
            if !signals.wait(|| daemon.reload(), stops) {
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

/// Says on standard output whether this machine is ready.
fn check(config: Config, inherited: InheritedSockets) -> ExitCode {
    let form = config.check;
    let report = preflight::examine(config, inherited);
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
