//! The run of a daemon, its signals, and its end after a panic.

use std::io;
use std::panic;
use std::process::{self, ExitCode};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::log::{self, Level, Style};
use crate::{log_fatal, thread_refused};

/// Makes a panic on any thread end the process, whatever the build's profile: no daemon continues
/// with a thread missing.
pub fn abort_on_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        report(panic);
        process::abort();
    }));
}

/// Starts the log and runs a daemon to its end. Returns the result of `main`. The error of `run` is the text for the FATAL
/// line.
pub fn run_daemon(
    level: Level,
    style: Style,
    run: impl FnOnce() -> Result<ExitCode, String>,
) -> ExitCode {
    let started = log::init(level, style);
    let started = started.map_err(|error| thread_refused("the log's thread", &error));
    started.and_then(|()| run()).unwrap_or_else(|error| {
        log_fatal!("{error}");
        ExitCode::from(1)
    })
}

/// The signals that a daemon handles.
pub struct StopSignals {
    signals: Signals,
}

/// A signal that asks a daemon to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGINT
    Interrupt,
    /// SIGTERM
    Terminate,
}

impl StopSignals {
    /// Takes the signals over. A program calls this before it starts threads, so that no thread
    /// gets the signals. SIGHUP still ends the program.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn catch() -> io::Result<StopSignals> {
        let signals = Signals::new([SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2])?;
        Ok(StopSignals { signals })
    }

    /// Like [`StopSignals::catch`], but takes SIGHUP over, too.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn catch_with_hangup() -> io::Result<StopSignals> {
        let caught = StopSignals::catch()?;
        caught.signals.add_signal(SIGHUP)?;
        Ok(caught)
    }

    /// Returns a function with which another thread ends the wait.
    pub fn ender(&self) -> impl FnOnce() + Send + 'static {
        let handle = self.signals.handle();
        move || handle.close()
    }

    /// Waits for a signal that ends the daemon, or for the function of [`StopSignals::ender`]. Returns false if the
    /// daemon is to end at once, as if it were killed. Calls `reload` at each SIGHUP. Calls `stops` at each SIGINT and
    /// SIGTERM. The daemon goes on if `stops` returns false.
    pub fn wait(mut self, reload: impl Fn(), stops: impl Fn(StopSignal) -> bool) -> bool {
        for signal in self.signals.forever() {
            match signal {
                SIGINT if stops(StopSignal::Interrupt) => return true,
                SIGTERM if stops(StopSignal::Terminate) => return true,
                SIGHUP => reload(),
                SIGQUIT => {
                    log_fatal!("SIGQUIT: ending at once");
                    return false;
                }
                // NSQ's daemons survive SIGUSR1 and SIGUSR2, and scripts may rely on that.
                _ => {}
            }
        }
        // The function of `ender` has ended the signals.
        true
    }
}
