//! The program `nsqadmin`.

use std::process::ExitCode;

use nsqadmin::config::Config;
use nsqadmin::server::Server;
use program::check::Check;
use program::inherited::InheritedSockets;
use program::stop::{self, StopSignals};
use program::{log, log_fatal, open_files, thread_refused};
use tokio::runtime::Runtime;

fn main() -> ExitCode {
    stop::abort_on_panic();
    let inherited = InheritedSockets::from_env();
    let config = match Config::from_args(std::env::args_os().skip(1)) {
        Ok(config) => config,
        Err(exit) => return exit.print(),
    };
    if config.check != Check::No {
        return config.examine(inherited).print(config.check);
    }
    if let Err(error) = log::init(config.log_level, config.options.log_style()) {
        log_fatal!("{}", thread_refused("the log's thread", &error));
        return ExitCode::from(1);
    }
    match run(config, inherited) {
        Ok(code) => code,
        Err(why) => {
            log_fatal!("{why}");
            log::flush();
            ExitCode::from(1)
        }
    }
}

/// Serves until a signal comes. The error is the text for the FATAL line.
fn run(config: Config, inherited: InheritedSockets) -> Result<ExitCode, String> {
    // Before any other thread, so that no thread takes the signals.
    let signals =
        StopSignals::catch().map_err(|error| format!("cannot receive signals: {error}"))?;
    open_files::raise_limit();
    let instantiate = |why| format!("failed to instantiate nsqadmin - {why}");
    let checked = config.check().map_err(instantiate)?;
    let runtime = Runtime::new().map_err(|error| format!("cannot start threads: {error}"))?;
    let server = runtime
        .block_on(Server::start(config, checked, inherited))
        .map_err(instantiate)?;
    if !signals.wait(|| {}, |_| true) {
        return Ok(ExitCode::from(2));
    }
    server.stop();
    log::flush();
    // Requests that are under way may wait for other servers, and do not delay the end.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}
