//! Consumers as the flags of a tool describe them, and the signals that end them.

use std::future::Future;
use std::io;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use program::log::Level;
use program::{log_at, log_warn};
use ringq_client::dedup::Dedup;
use ringq_client::{
    Acker, Address, Config, Consumer, ConsumerBuilder, Control, Event, Level as ClientLevel,
    Producer, Requeue,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use crate::flags::{self, Sources};

/// The longest time that a stopping tool waits for the answers to the messages that it has.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(30);

/// The longest time that the end after a failure waits for nsqd.
const GIVE_BACK_TIME_MAX: Duration = Duration::from_secs(5);

/// The part of a consumer's settings that is the same for all topics of a tool.
#[derive(Clone, Debug)]
pub struct Consuming {
    nodes: Nodes,
    config: Config,
    dedup: Option<Dedup>,
}

#[derive(Clone, Debug)]
enum Nodes {
    Fixed(Vec<Address>),
    Discovered(Vec<String>),
}

impl Consuming {
    /// Returns the settings of consumers of these sources.
    ///
    /// # Errors
    /// The address of an nsqd is neither `host:port` nor a path. The error is the text for the user.
    pub fn new(sources: &Sources, config: Config) -> Result<Consuming, String> {
        let nodes = match sources {
            Sources::Nsqds(addresses) => {
                let parsed = addresses.iter().map(|address| address.parse::<Address>());
                let parsed: Result<_, _> = parsed.collect();
                Nodes::Fixed(parsed.map_err(|error| error.to_string())?)
            }
            Sources::Lookupds(addresses) => Nodes::Discovered(addresses.clone()),
        };
        Ok(Consuming {
            nodes,
            config,
            dedup: None,
        })
    }

    /// Returns the settings of consumers of these sources. Makes the filter of `--dedup`, if there is one, and logs what the
    /// filter is. All consumers share the filter.
    ///
    /// # Errors
    /// The filter cannot be made, or the address of an nsqd is wrong. The error is the text for the user.
    pub fn start(
        sources: &Sources,
        config: Config,
        dedup: Option<&flags::Dedup>,
    ) -> Result<Consuming, String> {
        let dedup = dedup.map(flags::Dedup::start).transpose()?;
        Ok(Consuming::new(sources, config)?.recognising(dedup))
    }

    /// Lets the consumers recognise messages that were handled before. All of them share one filter.
    #[must_use]
    pub fn recognising(mut self, dedup: Option<Dedup>) -> Consuming {
        self.dedup = dedup;
        self
    }

    /// Returns the builder of a consumer, whose events are lines of the log.
    pub fn builder(&self, topic: &str, channel: &str) -> ConsumerBuilder {
        let builder = Consumer::builder(topic, channel).config(self.config.clone());
        let builder = match &self.nodes {
            Nodes::Fixed(addresses) => builder.nodes(addresses.iter().cloned()),
            Nodes::Discovered(addresses) => builder.lookupds(addresses.iter().cloned()),
        };
        let builder = match &self.dedup {
            Some(dedup) => builder.dedup(dedup.clone()),
            None => builder,
        };
        builder
            .events(|event| log_event(&event))
            .give_back_at_shutdown(false)
    }
}

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

/// Ends a consumer after a failure: these messages, and those that nobody has taken, go back to nsqd,
/// which can deliver them at once.
pub async fn give_back(consumer: Consumer, messages: impl IntoIterator<Item = Acker>) {
    let control = consumer.control();
    begin_shutdown(&control);
    for message in messages {
        // If the connection is lost, nsqd has the message back in any case.
        drop(message.requeue_without_backoff(Requeue::After(Duration::ZERO)));
    }
    // The consumer gives back the messages that nobody has taken.
    drop(consumer);
    if timeout(GIVE_BACK_TIME_MAX, control.shutdown())
        .await
        .is_err()
    {
        log_warn!("nsqd gets some messages back only when they time out");
    }
}

/// Sends CLS, so that nsqd does not deliver messages here again that come back from here.
fn begin_shutdown(control: &Control) {
    // The first poll begins the end. Its result does not matter here.
    let _ = control.shutdown().now_or_never();
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
