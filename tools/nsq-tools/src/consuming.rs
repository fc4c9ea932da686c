//! [`Consuming`]: consumers as the flags of a tool describe them. [`log_event`]: what happens to them, as lines of the log.

use futures_util::future::try_join_all;
use program::log::Level;
use program::{Options, log_at, log_repeated};
use ringq_client::dedup::{Dedup, DedupReport};
use ringq_client::{
    Address, Config, Consumer, ConsumerBuilder, Event, Level as ClientLevel, Message,
};
use tokio::task::JoinSet;
use wire::name::is_ephemeral;

use crate::flags::{self, NSQD_TCP_ADDRESS, Sources};
use crate::process::{self, Figures, StopSignals, shut_down};

/// The values of the flags of a consuming tool that its consumers need.
#[derive(Clone, Debug)]
pub struct ConsumerFlags {
    /// The places of the nsqds.
    pub sources: Sources,
    /// The settings of each consumer.
    pub client: Config,
    /// The recognition of messages that were handled before.
    pub dedup: Option<flags::Dedup>,
}

impl ConsumerFlags {
    /// Checks the settings of the consumers, and reads `--dedup`.
    ///
    /// # Errors
    /// A value is wrong. The error is the text for the user.
    pub fn new(
        options: &Options,
        sources: Sources,
        client: Config,
    ) -> Result<ConsumerFlags, String> {
        client.validate().map_err(|error| error.to_string())?;
        Ok(ConsumerFlags {
            sources,
            client,
            dedup: flags::Dedup::from_options(options)?,
        })
    }

    /// Connects one consumer for each topic. `describe` sets what a tool wants beside the common settings. An nsqd that
    /// cannot be reached is an error.
    ///
    /// No nsqd sends a message before all consumers are connected. If one of them cannot be connected, the tool ends, and
    /// somebody starts the tool again and again. So each start would cost the messages of the other nsqds and topics an
    /// attempt, until they are given up. Ephemeral topics and channels are an exception: they end with the tool, and drop
    /// messages that nobody takes.
    ///
    /// # Errors
    /// The filter of `--dedup` cannot be made, or the first consumer that cannot be connected. The error is the text for
    /// the user.
    pub async fn connect<T: AsRef<str>>(
        &self,
        topics: &[T],
        channel: &str,
        describe: impl Fn(ConsumerBuilder) -> ConsumerBuilder,
    ) -> Result<Vec<Consumer>, String> {
        let consuming = Consuming::start(self).await?;
        let connecting = topics.iter().map(|topic| {
            let topic = topic.as_ref();
            let is_ephemeral = [topic, channel].map(str::as_bytes).map(is_ephemeral);
            let mut config = self.client.clone();
            if !is_ephemeral.contains(&true) {
                config.max_in_flight = 0;
            }
            let builder = consuming.builder(topic, channel).config(config);
            describe(builder.retry_first_connection(false)).connect()
        });
        let consumers = try_join_all(connecting).await;
        let consumers = consumers.map_err(|error| error.to_string())?;
        for consumer in &consumers {
            let control = consumer.control();
            control.set_max_in_flight(self.client.max_in_flight);
        }
        Ok(consumers)
    }
}

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
    /// Returns the settings of consumers, without the filter of `--dedup`.
    ///
    /// # Errors
    /// An address is wrong. The error is the text for the user.
    pub fn new(flags: &ConsumerFlags) -> Result<Consuming, String> {
        let nodes = match &flags.sources {
            Sources::Nsqds(addresses) => {
                Nodes::Fixed(flags::parse_nsqds(NSQD_TCP_ADDRESS.name(), addresses)?)
            }
            Sources::Lookupds(addresses) => {
                flags::check_lookupds(addresses)?;
                Nodes::Discovered(addresses.clone())
            }
        };
        Ok(Consuming {
            nodes,
            config: flags.client.clone(),
            dedup: None,
        })
    }

    /// Makes the filter of `--dedup`, if there is one, and logs what the filter is. All consumers share the filter.
    ///
    /// # Errors
    /// The filter cannot be made. The error is the text for the user.
    pub async fn with_filter(mut self, flags: &ConsumerFlags) -> Result<Consuming, String> {
        if let Some(dedup) = &flags.dedup {
            self.dedup = Some(dedup.start().await?);
        }
        Ok(self)
    }

    /// Returns the settings of consumers, with the filter of `--dedup`.
    ///
    /// # Errors
    /// The filter cannot be made, or an address is wrong. The error is the text for the user.
    pub async fn start(flags: &ConsumerFlags) -> Result<Consuming, String> {
        Consuming::new(flags)?.with_filter(flags).await
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

/// Lets `handle` take the messages of consumers, at most `concurrency` of each consumer at a time. After a signal, waits until
/// all messages have their answers, and does `end`. Shows the progress meanwhile.
pub async fn relay<F>(
    consumers: Vec<Consumer>,
    concurrency: usize,
    handle: impl Fn(Message) -> F + Clone + Send + Sync + 'static,
    signals: &mut StopSignals,
    end: impl Future<Output = ()>,
) where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let controls: Vec<_> = consumers.iter().map(Consumer::control).collect();
    let mut topics = JoinSet::new();
    for consumer in consumers {
        topics.spawn(consumer.run(concurrency, handle.clone()));
    }
    let until_stop = async {
        signals.wait().await;
        // The topics end with their consumers, unless a message takes longer than the stop may take.
        tokio::select! {
            _ = topics.join_all() => {}
            () = shut_down(controls.clone()) => {}
        }
        end.await;
    };
    process::beside(until_stop, || Figures::of_consumers(&controls)).await;
}

/// Logs an event of a producer or consumer, in the form of NSQ's client. Events that may come with each message have one line
/// a second for each cause.
pub fn log_event(event: &Event) {
    let level = match event.level() {
        ClientLevel::Debug => Level::Debug,
        ClientLevel::Info => Level::Info,
        ClientLevel::Warning => Level::Warn,
        ClientLevel::Error => Level::Error,
    };
    match repeated_cause(event) {
        Some(cause) => log_repeated!(level, cause, "{event}"),
        None => log_at!(level, "{event}"),
    }
}

/// Returns the cause of an event that may come with each message. Each topic has causes of its own. A failure and the
/// recovery from it have the same cause, so the last line about them says how it is now.
fn repeated_cause(event: &Event) -> Option<String> {
    let what = match event {
        Event::HandlerFailed { error, .. } => format!("handler: {error}"),
        Event::BackoffEntered { .. } | Event::BackoffLeft { .. } => "backoff".to_owned(),
        Event::Dedup {
            report: DedupReport::StoreUnavailable { .. } | DedupReport::StoreAvailable,
            ..
        } => "store".to_owned(),
        _ => return None,
    };
    let subscription = event.client().subscription().unwrap_or_default();
    Some(format!("[{subscription}] {what}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use ringq_client::testing::MockNetwork;

    use super::*;

    /// Lines of several topics were counted together, and the line with their number named none of them. The backoff and its
    /// end were counted apart, so the older of the two could be the last line.
    #[tokio::test(start_paused = true)]
    async fn each_topic_has_its_own_causes_and_a_backoff_and_its_end_have_one() {
        let network = MockNetwork::new();
        let nsqd = network.broker("n1:4150");
        let causes: Arc<Mutex<Vec<String>>> = Arc::default();
        let (mut controls, mut handlers) = (Vec::new(), Vec::new());
        for topic in ["a", "b"] {
            nsqd.publish(topic, "x");
            let causes = Arc::clone(&causes);
            let builder = Consumer::builder(topic, "c").node(nsqd.address());
            let consumer = builder
                .connector(network.clone())
                .events(move |event| causes.lock().extend(repeated_cause(&event)))
                .connect()
                .await
                .unwrap();
            controls.push(consumer.control());
            let handle = |message: Message| async move {
                match message.attempts() {
                    1 => Err("odd"),
                    _ => Ok(()),
                }
            };
            handlers.push(tokio::spawn(consumer.run(1, handle)));
        }
        tokio::time::sleep(Duration::from_secs(600)).await;
        for (control, handler) in controls.iter().zip(handlers) {
            control.shutdown().await;
            handler.await.unwrap();
        }
        let mut causes = causes.lock().clone();
        causes.sort();
        let expected = ["a", "b"].map(|topic| {
            ["backoff", "backoff", "handler: odd"].map(|what| format!("[{topic}/c] {what}"))
        });
        assert_eq!(causes, expected.concat());
    }
}
