//! [`run`]: from the consumers to stdout.

use std::io;
use std::pin::pin;

use futures_util::stream::{SelectAll, select_all};
use futures_util::{FutureExt, StreamExt};
use program::log_info;
use ringq_client::{Acker, Consumer, Control, Message};

use super::config::Config;
use super::printer::Printer;
use crate::consuming::{Consuming, StopSignals, give_back, shut_down};

/// All consumers, and the lines of their messages.
struct Tail {
    messages: SelectAll<Consumer>,
    controls: Vec<Control>,
    printer: Printer<io::Stdout, Acker>,
}

/// Prints messages until a signal comes or `-n` is reached. The error is the text for the user.
pub(super) async fn run(config: &Config) -> Result<(), String> {
    let stop = StopSignals::catch();
    let mut stop = stop.map_err(|error| format!("cannot receive signals: {error}"))?;
    let mut tail = Tail::start(config).await?;
    let mut result = Ok(());
    while !tail.printer.is_done() && result.is_ok() {
        tokio::select! {
            biased;
            () = stop.wait() => break,
            Some(message) = tail.messages.next() => result = tail.take_group(message),
        }
    }
    if result.is_ok() {
        result = tail.stop().await;
    }
    if result.is_err() {
        tail.give_back().await;
    }
    result
}

impl Tail {
    /// Connects the consumers of all topics.
    async fn start(config: &Config) -> Result<Tail, String> {
        let consuming = Consuming::new(&config.sources, config.client.clone())?;
        let mut consumers = Vec::new();
        for topic in &config.topics {
            log_info!("Adding consumer for topic: {topic}");
            let builder = consuming
                .builder(topic, &config.channel)
                .retry_first_connection(false)
                // With -n, messages beyond this number must not be printed.
                .give_back_at_shutdown(config.message_count.is_some());
            let consumer = builder.connect().await;
            consumers.push(consumer.map_err(|error| error.to_string())?);
        }
        let controls = consumers.iter().map(Consumer::control).collect();
        Ok(Tail {
            messages: select_all(consumers),
            controls,
            printer: Printer::new(io::stdout(), config.prints_topic, config.message_count),
        })
    }

    /// Prints a message and those that have come with it, up to `-n`.
    fn take_group(&mut self, first: Message) -> Result<(), String> {
        let mut message = first;
        loop {
            let topic = message.topic().to_owned();
            let (body, acker) = message.split();
            self.printer.add(&topic, &body, acker);
            if self.printer.is_full() || self.printer.is_done() {
                break;
            }
            match self.messages.next().now_or_never().flatten() {
                Some(next) => message = next,
                None => break,
            }
        }
        self.write()
    }

    fn write(&mut self) -> Result<(), String> {
        let written = self.printer.write();
        let written = written.map_err(|error| {
            let why = wire::go_error::system_text(&error);
            format!("ERROR: failed to write to os.Stdout - {why}")
        })?;
        for acker in written {
            // If the connection is lost, the message comes again.
            drop(acker.finish());
        }
        Ok(())
    }

    /// Stops all consumers. Without `-n`, the messages that they still have are printed.
    async fn stop(&mut self) -> Result<(), String> {
        let mut stopped = pin!(shut_down(self.controls.clone()));
        loop {
            tokio::select! {
                biased;
                () = &mut stopped => return Ok(()),
                Some(message) = self.messages.next() => self.take_group(message)?,
            }
        }
    }

    /// Gives everything that was not printed back to nsqd.
    async fn give_back(self) {
        let mut messages = self.printer.into_unfinished();
        for consumer in self.messages {
            give_back(consumer, std::mem::take(&mut messages)).await;
        }
    }
}
