//! [`run`]: from the consumers to stdout.

use std::io;
use std::time::Duration;

use futures_util::stream::{SelectAll, select_all};
use futures_util::{FutureExt, StreamExt};
use program::log_info;
use ringq_client::{Acker, Consumer, Control, Message, Requeue};

use super::config::Config;
use super::printer::Printer;
use crate::consuming::{Consuming, StopSignals, shut_down};

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
    while !tail.printer.is_done() {
        tokio::select! {
            biased;
            () = stop.wait() => break,
            message = tail.messages.next() => match message {
                Some(message) => tail.take_group(message)?,
                None => return Ok(()),
            },
        }
    }
    tail.stop().await
}

impl Tail {
    /// Connects the consumers of all topics.
    async fn start(config: &Config) -> Result<Tail, String> {
        let consuming = Consuming::new(&config.sources, config.client.clone())?;
        let mut consumers = Vec::new();
        for topic in &config.topics {
            log_info!("Adding consumer for topic: {topic}");
            let builder = consuming.builder(topic, &config.channel);
            let consumer = builder.retry_first_connection(false).connect().await;
            consumers.push(consumer.map_err(|error| error.to_string())?);
        }
        let controls = consumers.iter().map(Consumer::control).collect();
        Ok(Tail {
            messages: select_all(consumers),
            controls,
            printer: Printer::new(io::stdout(), config.prints_topic, config.message_count),
        })
    }

    /// Prints a message and those that have come with it. Messages beyond `-n` go back to nsqd.
    fn take_group(&mut self, first: Message) -> Result<(), String> {
        let mut message = first;
        loop {
            if self.printer.is_done() {
                give_back(&message);
                break;
            }
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

    /// Stops all consumers. The messages that they still have are printed, or go back to nsqd if `-n`
    /// is reached.
    async fn stop(mut self) -> Result<(), String> {
        let stopped = shut_down(std::mem::take(&mut self.controls));
        let drained = async {
            while let Some(message) = self.messages.next().await {
                if self.printer.is_done() {
                    give_back(&message);
                } else {
                    self.take_group(message)?;
                }
            }
            Ok(())
        };
        let (drained, ()) = tokio::join!(drained, stopped);
        drained
    }
}

/// Gives a message back to nsqd, which can deliver it again at once.
fn give_back(message: &Message) {
    // If the connection is lost, nsqd has the message back in any case.
    drop(message.requeue_without_backoff(Requeue::After(Duration::ZERO)));
}
