//! The signals of a daemon, and its end after a panic.

use std::io;
use std::{panic, process};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::{log, log_fatal};

/// Makes a panic on any thread end the process, whatever the build's profile: no daemon continues
/// with a thread missing.
pub fn abort_on_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        report(panic);
        process::abort();
    }));
}

/// The signals that a daemon handles.
pub struct StopSignals {
    signals: Signals,
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

    /// Waits for a signal that ends the daemon. Returns false if the daemon is to end at once, as
    /// if it were killed. Calls `reload` at each SIGHUP.
    pub fn wait(mut self, reload: impl Fn()) -> bool {
        for signal in self.signals.forever() {
            match signal {
                SIGINT | SIGTERM => return true,
                SIGHUP => reload(),
                SIGQUIT => {
                    log_fatal!("SIGQUIT: ending at once");
                    log::flush();
                    return false;
                }
                // NSQ's daemons survive SIGUSR1 and SIGUSR2, and scripts may rely on that.
                _ => {}
            }
        }
        unreachable!("the signals never end")
    }
}
