//! The program `nsqd`.

use nsqd::config::Config;
use nsqd::daemon::Daemon;
use nsqd::preflight;
use program::check::Check;
use program::inherited::InheritedSockets;
use program::stop::{self, StopSignal, StopSignals};
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
    let (level, style) = (config.log_level, config.options.log_style());
    stop::run_daemon(level, style, || run(config, inherited))
}

/// Serves until a signal comes, or a drain is over. The error is the text for the FATAL line.
fn run(config: Config, inherited: InheritedSockets) -> Result<ExitCode, String> {
    diskq::install_sigbus_reporter()
        .map_err(|error| format!("cannot install the reporter of SIGBUS: {error}"))?;
    // Before any other thread, so that none of them takes the signals.
    let signals = StopSignals::catch_with_hangup()
        .map_err(|error| format!("cannot receive signals: {error}"))?;
    let daemon = Daemon::start(config, inherited, signals.ender())?;
    let stops = |signal| signal == StopSignal::Interrupt || !daemon.drains_instead();
    if !signals.wait(|| daemon.reload(), stops) {
        return Ok(ExitCode::from(2));
    }
    daemon.stop();
    Ok(ExitCode::SUCCESS)
}
