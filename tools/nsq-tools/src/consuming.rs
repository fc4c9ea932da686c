//! Log lines of consumers and producers, and the signals that end a tool.

use std::future::Future;
use std::io;
use std::time::Duration;

use program::log::Level;
use program::{log_at, log_warn};
use ringq_client::{Event, Level as ClientLevel};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

/// The longest time that a stopping tool waits for the answers to the messages that it has.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(30);

/// Logs an event of a producer or consumer, in the form of NSQ's client.
pub fn log_event(event: &Event) {
    let level = match event.level() {
        ClientLevel::Debug => Level::Debug,
        ClientLevel::Info => Level::Info,
        ClientLevel::Warning => Level::Warn,
        ClientLevel::Error => Level::Error,
    };
    log_at!(level, "{event}");
}

/// The signals that end a tool: SIGINT and SIGTERM.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Takes the signals over. A tool calls this, inside its runtime, before it starts consumers.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn catch() -> io::Result<StopSignals> {
        Ok(StopSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for a signal. The future may be dropped, and no signal is lost.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Waits for the end of work that a stop began, for at most [`STOP_TIME_MAX`].
pub async fn within_stop_time(work: impl Future) {
    if timeout(STOP_TIME_MAX, work).await.is_err() {
        let seconds = STOP_TIME_MAX.as_secs();
        log_warn!("not all messages were answered within {seconds} seconds, ending without them");
    }
}
