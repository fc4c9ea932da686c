//! The end of a tool: [`StopSignals`], and the waits for consumers and producers that end.

use std::future::Future;
use std::io;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use program::log_warn;
use ringq_client::{Acker, Consumer, Control, Producer, Requeue};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

/// The longest time that a stopping tool waits for the answers to the messages that it has.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(30);

/// The longest time that the end after a failure waits for nsqd.
const GIVE_BACK_TIME_MAX: Duration = Duration::from_secs(5);

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

/// Stops consumers. Returns when each message has its answer, but after [`STOP_TIME_MAX`] at the
/// latest: messages without an answer then come again from nsqd. Somebody must go on to take the
/// consumers' messages meanwhile.
pub async fn shut_down(controls: impl IntoIterator<Item = Control>) {
    let stops = controls
        .into_iter()
        .map(|control| async move { control.shutdown().await });
    within_stop_time(join_all(stops)).await;
}

/// Closes a producer. Publishes that may be stored without a confirmation get a line in the log.
pub async fn close(producer: &Producer) {
    if let Err(unanswered) = producer.close().await {
        log_warn!("{unanswered}");
    }
}

/// Waits for the end of work that a stop began, for at most [`STOP_TIME_MAX`].
pub async fn within_stop_time(work: impl Future) {
    if timeout(STOP_TIME_MAX, work).await.is_err() {
        let seconds = STOP_TIME_MAX.as_secs();
        log_warn!("not all messages were answered within {seconds} seconds, ending without them");
    }
}

/// Ends a consumer after a failure: these messages, and those that nobody has taken, go back to nsqd,
/// which can deliver them at once.
pub async fn give_back(consumer: Consumer, messages: impl IntoIterator<Item = Acker>) {
    let control = consumer.control();
    begin_shutdown(&control);
    messages.into_iter().for_each(requeue);
    // The consumer gives back the messages that nobody has taken.
    drop(consumer);
    if timeout(GIVE_BACK_TIME_MAX, control.shutdown())
        .await
        .is_err()
    {
        log_warn!("nsqd gets some messages back only when they time out");
    }
}

/// Gives a message back to nsqd, which can deliver the message again at once.
pub fn requeue(message: Acker) {
    // If the connection is lost, nsqd has the message back in any case.
    drop(message.requeue_without_backoff(Requeue::After(Duration::ZERO)));
}

/// Sends CLS, so that nsqd does not deliver messages here again that come back from here.
fn begin_shutdown(control: &Control) {
    // The first poll begins the end. Its result does not matter here.
    let _ = control.shutdown().now_or_never();
}
