//! The program `nsqd`.

use nsqd::config::Config;
use nsqd::daemon::Daemon;
use nsqd::preflight;
use program::check::Check;
use program::inherited::InheritedSockets;
use program::stop::{self, StopSignal, StopSignals};
use program::{log, log_fatal, thread_refused};
use std::process::ExitCode;

fn main() -> ExitCode {
    stop::abort_on_panic();
    let inherited = InheritedSockets::from_env();
    let config = match Config::from_args(std::env::args_os().skip(1)) {
        Ok(config) => config,
        Err(exit) => return exit.print(),
    };
    if config.check != Check::No {
        let form = config.check;
        return preflight::examine(config, inherited).print(form);
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
