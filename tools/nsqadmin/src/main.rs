//! The program `nsqadmin`.

use std::process::ExitCode;

use nsqadmin::config::Config;
use nsqadmin::server::Server;
use program::check::Check;
use program::inherited::InheritedSockets;
use program::log;
use program::stop::{self, StopSignals};
use tokio::runtime::Runtime;
use tokio_daemon::open_files;

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
    let (level, style) = (config.log_level, config.options.log_style());
    stop::run_daemon(level, style, || run(config, inherited))
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
