//! [`run`]: one topic, from its consumer to its files.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use jiff::Zoned;
use parking_lot::Mutex;
use program::log_error;
use ringq_client::{Acker, Consumer, Control, Message};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{self, MissedTickBehavior, interval_at};

use super::archive::{Archive, Now};
use super::config::Config;
use super::disk::{DiskError, OsDisk, OsSync, Stop};
use super::leftovers::Leftovers;
use crate::consuming::Consuming;
use crate::process::{self, give_back, give_one_back};

/// The most messages that are taken before other events have their turn.
const GROUP_LEN_MAX: usize = 4096;

/// The reason why a topic ended.
#[derive(Debug)]
pub(super) enum TopicError {
    /// The topic cannot be set up.
    Start(String),
    /// An operation on a file failed.
    Disk(DiskError),
}

impl From<DiskError> for TopicError {
    fn from(error: DiskError) -> TopicError {
        TopicError::Disk(error)
    }
}

/// A message that waits for its sync.
struct Unfinished {
    acker: Acker,
    bytes: u64,
}

/// A topic at work.
struct Topic<'a> {
    archive: Archive<OsDisk, Unfinished>,
    figures: &'a Figures,
    consumer: Consumer,
    /// The time at which the batch is synced in any case, so that its messages do not time out.
    sync_by: Option<Instant>,
    /// The files of earlier runs. `None` during a look, or when there is nothing more to do.
    leftovers: Option<Leftovers>,
    /// A look at these files, on a thread that may block: messages do not wait for a large file that is mended.
    looking: Option<JoinHandle<Leftovers>>,
    /// The order to end this look.
    stop: Stop,
}

/// Archives a topic until `orders` end it. Files are written on the calling thread, which may block.
pub(super) async fn run(
    shared: &Shared,
    topic: &str,
    orders: watch::Receiver<Orders>,
) -> Result<(), TopicError> {
    let config = &shared.config;
    let settings = Arc::new(config.archive.clone());
    let label = format!("[{topic}/{}]", config.flags.channel);
    let stop = Stop::default();
    let leftovers = Leftovers::new(Arc::clone(&settings), topic, &label, stop.clone());
    let Some(leftovers) = take_up(leftovers, &stop, orders.clone()).await? else {
        return Ok(());
    };
    let archive = Archive::new(OsDisk, settings, topic, &config.flags.channel);
    let archive = archive.map_err(|error: io::Error| TopicError::Start(error.to_string()))?;
    let consumer = shared
        .consuming
        .builder(topic, &config.flags.channel)
        .connect()
        .await;
    let consumer = consumer.map_err(|error| TopicError::Start(error.to_string()))?;
    let control = consumer.control();
    shared.controls.lock().insert(topic.to_owned(), control);
    let mut topic = Topic {
        archive,
        figures: &shared.figures,
        consumer,
        sync_by: None,
        leftovers: Some(leftovers),
        looking: None,
        stop,
    };
    let result = topic.work(config.flags.sync_interval, orders).await;
    topic.stop.set();
    let looking = topic.looking.take();
    if result.is_err() {
        topic.give_back().await;
    }
    if let Some(thread) = looking {
        // The end of the process would leave the file that is being copied at both places. A panic has ended the copy.
        let _ = thread.await;
    }
    Ok(result?)
}

/// Takes up the files of earlier runs. Returns `None` if the topic is to end before the consumer is connected.
async fn take_up(
    mut leftovers: Leftovers,
    stop: &Stop,
    mut orders: watch::Receiver<Orders>,
) -> Result<Option<Leftovers>, TopicError> {
    let mut looking = spawn_blocking(move || leftovers.take_up().map(|()| leftovers));
    let taken = tokio::select! {
        taken = &mut looking => taken,
        // Without a sender, the process is ending, too.
        _ = orders.wait_for(|orders| orders.stop) => {
            stop.set();
            looking.await
        }
    };
    let leftovers = taken.map_err(|error| TopicError::Start(error.to_string()))??;
    Ok((!stop.is_set()).then_some(leftovers))
}

impl Topic<'_> {
    /// Handles events until `orders` end the topic and all its messages are finished.
    async fn work(
        &mut self,
        sync_interval: Duration,
        mut orders: watch::Receiver<Orders>,
    ) -> Result<(), DiskError> {
        let first_tick = time::Instant::now() + sync_interval;
        let mut ticks = interval_at(first_tick, sync_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = *orders.borrow_and_update();
        let mut is_stopping = false;
        loop {
            if seen.stop && !is_stopping {
                is_stopping = true;
                self.stop.set();
                self.archive.writer.sync()?;
                let control = self.consumer.control();
                tokio::spawn(async move { control.shutdown().await });
            }
            self.answer();
            let sync_by = self.sync_by.map(time::Instant::from_std);
            tokio::select! {
                biased;
                Ok(()) = orders.changed() => {
                    let last = std::mem::replace(&mut seen, *orders.borrow_and_update());
                    if seen.hangup_count != last.hangup_count {
                        self.archive.close()?;
                    }
                }
                _ = ticks.tick() => {
                    self.archive.tick(&now())?;
                    if !is_stopping {
                        self.look_for_leftovers();
                    }
                }
                leftovers = look_ended(&mut self.looking) => {
                    self.looking = None;
                    self.leftovers = leftovers;
                }
                () = sync_ended(self.archive.writer.first_sync()) => {
                    self.archive.writer.end_sync()?;
                    self.answer();
                    self.end_group(is_stopping)?;
                }
                () = time::sleep_until(sync_by.unwrap_or(first_tick)), if sync_by.is_some() => {
                    self.archive.writer.sync()?;
                }
                message = self.consumer.next() => match message {
                    Some(message) => self.take_group(message, is_stopping)?,
                    None => break,
                },
            }
        }
        self.archive.close()?;
        self.answer();
        Ok(())
    }

    /// Begins to look at the files of earlier runs that other processes had locked, if there are any.
    fn look_for_leftovers(&mut self) {
        let left = self.leftovers.take_if(|leftovers| leftovers.are_left());
        if let Some(mut leftovers) = left {
            self.looking = Some(spawn_blocking(move || {
                leftovers.look_again();
                leftovers
            }));
        }
    }

    /// Gives all messages that are not synced back to nsqd.
    async fn give_back(mut self) {
        // The syncs before the failure may still finish their messages.
        if let Err(error) = self.archive.writer.end_syncs() {
            log_error!("{error}");
        }
        self.answer();
        if let Err(error) = self.archive.end_after_failure() {
            log_error!("{error}");
        }
        let unfinished = self.archive.writer.into_unfinished();
        give_back([self.consumer], unfinished.map(|message| message.acker)).await;
    }

    /// Takes a message and those that have come with it, up to the next sync: what is synced is
    /// finished before more is taken.
    fn take_group(&mut self, first: Message, is_stopping: bool) -> Result<(), DiskError> {
        let now = now();
        let mut message = first;
        for _ in 1..GROUP_LEN_MAX {
            self.take(&now, message)?;
            if self.archive.writer.has_answers() && !is_stopping {
                return Ok(());
            }
            match self.consumer.next().now_or_never().flatten() {
                Some(next) => message = next,
                None => return self.end_group(is_stopping),
            }
        }
        self.take(&now, message)?;
        self.end_group(is_stopping)
    }

    fn take(&mut self, now: &Now, message: Message) -> Result<(), DiskError> {
        self.sync_before_timeout(now.monotonic, message.timeout_at());
        let (body, acker) = message.split();
        let bytes = body.len() as u64;
        self.archive.take(now, &body, Unfinished { acker, bytes })
    }

    /// Ends a group. A consumer that is stopping gets the answers at once, because it waits for them.
    fn end_group(&mut self, is_stopping: bool) -> Result<(), DiskError> {
        let is_starved = self.consumer.control().is_starved();
        self.archive.end_group(is_starved || is_stopping)
    }

    /// Lets the batch be synced when three quarters of a message's timeout are over.
    fn sync_before_timeout(&mut self, now: Instant, timeout_at: Instant) {
        let time = timeout_at.saturating_duration_since(now);
        let sync_by = now + time * 3 / 4;
        self.sync_by = Some(self.sync_by.map_or(sync_by, |earlier| earlier.min(sync_by)));
    }

    /// Finishes the messages that are synced, and gives those back whose file somebody has removed.
    fn answer(&mut self) {
        let (mut message_count, mut bytes) = (0, 0);
        for message in self.archive.writer.take_finished() {
            message_count += 1;
            bytes += message.bytes;
            // If the connection is lost, the message comes again.
            drop(message.acker.finish());
        }
        for message in self.archive.writer.take_returned() {
            give_one_back(&message.acker);
        }
        self.figures
            .message_count
            .fetch_add(message_count, Ordering::Relaxed);
        self.figures.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.archive.writer.batch_len() == 0 {
            self.sync_by = None;
        }
    }
}

/// Waits for the end of a sync. Without a sync, waits for ever.
async fn sync_ended(running: Option<&OsSync>) {
    match running {
        Some(sync) => sync.ended().await,
        None => pending().await,
    }
}

/// Waits for the end of a look. Without a look, waits for ever. Returns `None` if the thread has panicked.
async fn look_ended(looking: &mut Option<JoinHandle<Leftovers>>) -> Option<Leftovers> {
    match looking {
        Some(thread) => thread.await.ok(),
        None => pending().await,
    }
}

fn now() -> Now {
    Now {
        wall: Zoned::now(),
        monotonic: Instant::now(),
    }
}

/// The orders to all topics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Orders {
    /// True when the topics must come to an end.
    pub(super) stop: bool,
    /// The number of SIGHUPs so far. Each closes the files.
    pub(super) hangup_count: u64,
}

/// The figures of all topics.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// The messages that are synced.
    pub(super) message_count: AtomicU64,
    /// The bytes of these messages, before compression.
    pub(super) bytes: AtomicU64,
}

impl Figures {
    /// Returns the figures for the line at a terminal.
    pub(super) fn shown(&self) -> process::Figures {
        let mib = self.bytes.load(Ordering::Relaxed) >> 20;
        process::Figures {
            count: self.message_count.load(Ordering::Relaxed),
            name: "messages synced",
            others: format!("{mib} MiB"),
        }
    }
}

/// The parts that all topics share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) consuming: Consuming,
    pub(super) figures: Figures,
    /// The consumers of the topics, by their topics.
    pub(super) controls: Mutex<BTreeMap<String, Control>>,
}

#[cfg(test)]
mod tests;
