//! [`run`]: from the consumers to stdout or to files.

use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{SelectAll, select_all};
use futures_util::{FutureExt, StreamExt};
use program::{log_info, log_warn};
use ringq_client::{Acker, AutoTouch, Consumer, Control, Message};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::config::Config;
use super::message_file::{self, Received};
use super::output::Output;
use super::printer::Printer;
use crate::consuming::Consuming;
use crate::stopping::{STOP_TIME_MAX, StopSignals, TOUCH_TIME_MAX, give_back, shut_down};

/// The longest time that a stop waits for a reader of stdout that does not read.
const STALL_TIME_MAX: Duration = Duration::from_secs(2);

/// All consumers, and the lines of their messages.
struct Tail {
    signals: StopSignals,
    is_stopping: bool,
    messages: SelectAll<Consumer>,
    controls: Vec<Control>,
    /// The longest time that a write may take while the tool stops.
    stall_time_max: Duration,
    printer: Printer<Acker>,
}

/// The reason why messages are not written.
enum Failure {
    /// A write failed. The text is for the user.
    Write(String),
    /// A stop began, and nobody reads stdout, or the disk does not answer.
    Stalled,
}

/// Prints messages until a signal comes or `-n` is reached. The error is the text for the user.
pub(super) async fn run(config: Config, mut signals: StopSignals) -> Result<(), String> {
    if let Some(directory) = &config.output_dir {
        message_file::check(directory)?;
    }
    let connecting = connect(&config);
    let consumers = tokio::select! {
        consumers = connecting => consumers?,
        () = signals.wait() => return Ok(()),
    };
    let mut tail = Tail::new(&config, signals, consumers);
    let mut result = tail.print_all().await;
    if result.is_ok() {
        result = tail.stop().await;
    }
    match result {
        Ok(()) => Ok(()),
        Err(Failure::Write(why)) => {
            tail.give_back().await;
            Err(why)
        }
        Err(Failure::Stalled) => {
            let why = match config.output_dir {
                None => "nobody reads standard output",
                Some(_) => "the disk does not answer",
            };
            log_warn!("{why}, so messages that were not written go back to nsqd");
            tail.give_back().await;
            Ok(())
        }
    }
}

/// Connects the consumers of all topics.
async fn connect(config: &Config) -> Result<Vec<Consumer>, String> {
    let client = config.client.clone();
    let consuming = Consuming::start(&config.sources, client, config.dedup.as_ref()).await?;
    // A slow disk takes long for many files.
    let touch = AutoTouch {
        limit: TOUCH_TIME_MAX,
    };
    let touch = config.output_dir.is_some().then_some(touch);
    for topic in &config.topics {
        log_info!("Adding consumer for topic: {topic}");
    }
    consuming
        .connect(&config.topics, &config.channel, |builder| {
            let builder = builder.auto_touch(touch);
            // With -n, messages beyond this number must not be printed.
            builder.give_back_at_shutdown(config.message_count.is_some())
        })
        .await
}

impl Tail {
    fn new(config: &Config, signals: StopSignals, consumers: Vec<Consumer>) -> Tail {
        let (output, stall_time_max) = match &config.output_dir {
            None => (Output::lines(config.prints_topic), STALL_TIME_MAX),
            Some(directory) => (Output::files(&**directory), STOP_TIME_MAX),
        };
        Tail {
            signals,
            is_stopping: false,
            controls: consumers.iter().map(Consumer::control).collect(),
            messages: select_all(consumers),
            stall_time_max,
            printer: Printer::new(output, config.message_count),
        }
    }

    /// Prints messages until a signal comes or `-n` is reached.
    async fn print_all(&mut self) -> Result<(), Failure> {
        while !self.printer.is_done() && !self.is_stopping {
            tokio::select! {
                biased;
                () = self.signals.wait() => self.is_stopping = true,
                Some(message) = self.messages.next() => self.take_group(message).await?,
            }
        }
        Ok(())
    }

    /// Prints a message and those that have come with it, up to `-n`.
    async fn take_group(&mut self, first: Message) -> Result<(), Failure> {
        let mut message = first;
        loop {
            // The split takes the message, so the rest is copied before.
            let (published, id) = (message.timestamp(), message.id());
            let topic = message.topic().to_owned();
            let (body, acker) = message.split();
            let received = Received {
                topic: &topic,
                body: &body,
                published,
                id,
            };
            self.printer.add(&received, acker);
            if self.printer.is_full() || self.printer.is_done() {
                break;
            }
            match self.messages.next().now_or_never().flatten() {
                Some(next) => message = next,
                None => break,
            }
        }
        self.write().await
    }

    /// Writes the collected messages, and finishes them. The write has a thread of its own, because it waits for the reader
    /// of stdout, or for the disk.
    async fn write(&mut self) -> Result<(), Failure> {
        let (output, count) = self.printer.take();
        let mut write = spawn_blocking(move || output.write(count));
        let mut ends_at = Instant::now() + self.stall_time_max;
        let written = loop {
            tokio::select! {
                biased;
                written = &mut write => break written,
                () = self.signals.wait(), if !self.is_stopping => {
                    self.is_stopping = true;
                    ends_at = Instant::now() + self.stall_time_max;
                }
                () = sleep_until(ends_at), if self.is_stopping => return Err(Failure::Stalled),
            }
        };
        let (count, result) = written.map_err(|error| Failure::Write(format!("ERROR: {error}")))?;
        for acker in self.printer.written(count) {
            // If the connection is lost, the message comes again.
            drop(acker.finish());
        }
        result.map_err(Failure::Write)
    }

    /// Stops all consumers. Without `-n`, the messages that they still have are printed.
    async fn stop(&mut self) -> Result<(), Failure> {
        self.is_stopping = true;
        let mut stopped = pin!(shut_down(self.controls.clone()));
        loop {
            tokio::select! {
                biased;
                () = &mut stopped => return Ok(()),
                Some(message) = self.messages.next() => self.take_group(message).await?,
            }
        }
    }

    /// Gives everything that was not written back to nsqd.
    async fn give_back(self) {
        give_back(self.messages, self.printer.into_unfinished()).await;
    }
}
