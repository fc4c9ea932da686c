//! The end of a tool: [`StopSignals`], and the waits for consumers and producers that end.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use program::log_warn;
use ringq_client::{Acker, Consumer, Control, Message, Producer};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

/// The longest time that a stopping tool waits for the answers to the messages that it has.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(30);

/// The further time in which consumers save the filter of `--dedup`, after they have ended.
const SAVE_TIME_MAX: Duration = Duration::from_secs(1);

/// The line of a tool whose filter cannot be saved in time.
const NOT_SAVED: &str = "ending although the filter of --dedup is not saved";

/// The line of a tool whose consumers do not end, for one of two reasons that look the same from outside.
const NOT_ENDED: &str = "ending although messages are not answered, or the filter of --dedup is not saved, after 30 seconds";

/// The longest time that messages are touched while they wait for a slow disk or client, from their delivery. nsqd has the
/// same limit by default.
pub const TOUCH_TIME_MAX: Duration = Duration::from_secs(15 * 60);

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

/// Stops consumers. Returns when each message has its answer. After [`STOP_TIME_MAX`], which is also the limit of a
/// consumer, the consumers say in the log which messages have none: these come again from nsqd. Somebody must go on to
/// take the consumers' messages meanwhile.
pub async fn shut_down(controls: impl IntoIterator<Item = Control>) {
    if !have_ended(controls, STOP_TIME_MAX + SAVE_TIME_MAX).await {
        log_warn!("{NOT_SAVED}");
    }
}

/// Stops consumers, and waits until all have ended and their filter is saved. Returns false if that takes longer than
/// `limit`.
async fn have_ended(controls: impl IntoIterator<Item = Control>, limit: Duration) -> bool {
    let stops = controls
        .into_iter()
        .map(|control| async move { control.shutdown().await });
    timeout(limit, join_all(stops)).await.is_ok()
}

/// Waits for the end of the work of consumers, which are stopping, as [`within_stop_time`] does. `controls` are those of the
/// consumers that are running then.
pub async fn consumers_within_stop_time<C: IntoIterator<Item = Control>>(
    work: impl Future,
    controls: impl FnOnce() -> C,
) {
    if timeout(STOP_TIME_MAX, work).await.is_ok() {
        return;
    }
    // A consumer that has given up its messages by now ends at once, unless its filter is being saved.
    if have_ended(controls(), SAVE_TIME_MAX).await {
        warn_of_unanswered()
    } else {
        log_warn!("{NOT_ENDED}")
    }
}

/// Stops a consumer as [`shut_down`] does, and passes the messages that it still has to `take`. The stream of a consumer
/// ends when its filter is saved, so nobody may wait for the end of the stream without a limit.
pub async fn drain(consumer: &mut Consumer, mut take: impl FnMut(Message)) {
    let mut stopped = pin!(shut_down([consumer.control()]));
    loop {
        tokio::select! {
            biased;
            () = &mut stopped => return,
            Some(message) = consumer.next() => take(message),
        }
    }
}

/// Closes a producer. Publishes without a confirmation get a line in the log.
pub async fn close(producer: &Producer) {
    if let Err(unanswered) = producer.close().await {
        log_warn!("since the start: {unanswered}");
    }
}

/// Waits for the end of work that a stop began, for at most [`STOP_TIME_MAX`].
pub async fn within_stop_time(work: impl Future) {
    if timeout(STOP_TIME_MAX, work).await.is_err() {
        warn_of_unanswered();
    }
}

fn warn_of_unanswered() {
    let seconds = STOP_TIME_MAX.as_secs();
    log_warn!("not all messages were answered within {seconds} seconds, ending without them");
}

/// Ends consumers after a failure: these messages, and those that nobody has taken, go back to nsqd, which can deliver
/// them at once.
pub async fn give_back(
    consumers: impl IntoIterator<Item = Consumer>,
    messages: impl IntoIterator<Item = Acker>,
) {
    let consumers: Vec<Consumer> = consumers.into_iter().collect();
    let controls: Vec<Control> = consumers.iter().map(Consumer::control).collect();
    controls.iter().for_each(begin_shutdown);
    messages
        .into_iter()
        .for_each(|message| give_one_back(&message));
    // The consumers give back the messages that nobody has taken.
    drop(consumers);
    let ends = controls.iter().map(Control::shutdown);
    if timeout(GIVE_BACK_TIME_MAX, join_all(ends)).await.is_err() {
        log_warn!("nsqd gets some messages back only when they time out");
    }
}

/// Gives a message that the tool has not handled back to nsqd. If the connection is lost, nsqd has it back in any case.
pub fn give_one_back(message: &Acker) {
    drop(message.give_back());
}

/// Sends CLS, so that nsqd does not deliver messages here again that come back from here.
fn begin_shutdown(control: &Control) {
    // The first poll begins the end. Its result does not matter here.
    let _ = control.shutdown().now_or_never();
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use program::log::capture;
    use ringq_client::testing::{MockConnection, MockNetwork, MockServer};
    use tokio::time::Instant;

    use super::*;

    /// Accepts the connection of a consumer.
    async fn accept(server: &mut MockServer, topic: &str) -> MockConnection {
        let mut nsqd = server.accept().await;
        nsqd.handshake().await;
        nsqd.expect(&format!("SUB {topic} c")).await;
        nsqd.respond("OK").await;
        nsqd.expect("RDY 1").await;
        nsqd
    }

    /// A filter that is being saved on a disk that hangs holds up the end of the stream, too.
    #[tokio::test(start_paused = true)]
    async fn a_stream_that_does_not_end_does_not_hold_up_the_tool() {
        let network = MockNetwork::new();
        let mut server = network.server("n1:4150");
        let builder = Consumer::builder("t", "c").node(server.address());
        let builder = builder.drain_limit(Duration::from_secs(3600));
        let consumer = builder.connector(network.clone()).connect().await;
        let mut consumer = consumer.expect("complete");
        let mut nsqd = accept(&mut server, "t").await;
        let began = Instant::now();
        drain(&mut consumer, drop).await;
        let seconds = (STOP_TIME_MAX + SAVE_TIME_MAX).as_secs();
        assert_eq!(began.elapsed().as_secs(), seconds);
        nsqd.expect("CLS").await;
    }

    /// nsq_to_file said that messages were not answered, when only the save of the filter hung. Then it blamed the filter
    /// when a disk held up the messages.
    #[tokio::test(start_paused = true)]
    async fn consumers_that_do_not_end_are_told_from_those_that_gave_up() {
        for (is_running, seconds, line) in [
            (
                true,
                31,
                "WARNING: ending although messages are not answered, or the filter of --dedup is not saved, \
                 after 30 seconds",
            ),
            (
                false,
                30,
                "WARNING: not all messages were answered within 30 seconds, ending without them",
            ),
        ] {
            let network = MockNetwork::new();
            let mut server = network.server("n1:4150");
            let builder = Consumer::builder("t", "c").node(server.address());
            // A consumer whose filter is being saved does not end, as one that waits for its messages does not.
            let builder = builder.drain_limit(if is_running {
                Duration::from_secs(3600)
            } else {
                Duration::from_secs(1)
            });
            let consumer = builder.connector(network.clone()).connect().await;
            let consumer = consumer.expect("complete");
            let _nsqd = accept(&mut server, "t").await;
            let control = consumer.control();
            begin_shutdown(&control);
            let began = Instant::now();
            capture::start();
            consumers_within_stop_time(pending::<()>(), || [control]).await;
            assert_eq!(capture::stop(), [line]);
            assert_eq!(began.elapsed().as_secs(), seconds);
        }
    }

    /// The topics waited one after the other, each for 5 s.
    #[tokio::test(start_paused = true)]
    async fn consumers_that_give_back_wait_together() {
        let network = MockNetwork::new();
        let mut server = network.server("n1:4150");
        let mut consumers = Vec::new();
        let mut connections: Vec<MockConnection> = Vec::new();
        for topic in ["a", "b", "c"] {
            let builder = Consumer::builder(topic, "c").node(server.address());
            let consumer = builder.connector(network.clone()).connect().await;
            consumers.push(consumer.expect("complete"));
            connections.push(accept(&mut server, topic).await);
        }
        let began = Instant::now();
        // No nsqd answers CLS.
        give_back(consumers, []).await;
        assert_eq!(began.elapsed().as_secs(), GIVE_BACK_TIME_MAX.as_secs());
        for nsqd in &mut connections {
            nsqd.expect("CLS").await;
        }
    }
}
