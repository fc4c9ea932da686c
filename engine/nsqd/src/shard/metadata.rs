//! nsqd.dat, which has one writer: each shard tells its topics, and the writer writes the topics of all shards. The
//! tombstones of deleted topics stay until nsqd.dat no longer lists them.
//!
//! Writes coalesce: the next write serves all shards that ask while a write is under way.

use crate::reactor;
use crate::shard::Shard;
use crate::shard::storage::{KeeperJob, RETRY_PAUSE};
use diskq::{DataPath, Tombstone, TopicFacts};
use diskq_import::Metadata;
use engine_rules::{Refusal, ShardId, TaskId, Wakeup};
use futures_channel::oneshot;
use program::{log_error, log_info};
use std::io;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

impl Shard {
    /// Tells the task that waits that a log is deleted, or that its deletion failed. Keeps the tombstone until nsqd.dat
    /// no longer lists the topic.
    pub(super) fn handle_deleted(
        &self,
        task: Option<TaskId>,
        result: Result<Option<Tombstone>, Refusal>,
    ) {
        let result = result.map(|tombstone| {
            if let Some(tombstone) = tombstone {
                self.tombstones.borrow_mut().push(tombstone);
                self.metadata_changed.set();
            }
        });
        if let Some(task) = task {
            self.tasks.wake(task, Wakeup::Done(result));
        }
    }

    /// Writes the durable topics and channels of this shard to nsqd.dat, and waits until they are on disk. Then the
    /// tombstones of the topics that were deleted before are no longer needed.
    ///
    /// Returns false if it could not be written, which is logged, and is tried again.
    pub(crate) async fn persist_metadata(&self) -> bool {
        let tombstones = self.tombstones.take();
        let facts = self.broker.borrow().durable_topics();
        let is_written = self.shared.metadata.store(self.id, facts).await;
        if !is_written {
            self.tombstones.borrow_mut().extend(tombstones);
            self.metadata_changed.set();
        } else if !tombstones.is_empty() {
            self.storage.give(KeeperJob::Bury(tombstones));
        }
        is_written
    }

    pub(super) async fn run_metadata(self: Rc<Self>) {
        loop {
            self.metadata_changed.wait().await;
            if !self.persist_metadata().await {
                reactor::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

enum Message {
    /// The topics of a shard, and the way to tell it that they are written.
    Report(ShardId, Vec<TopicFacts>, oneshot::Sender<bool>),
    Stop,
}

/// Sends reports to the writer.
#[derive(Clone)]
pub(crate) struct MetadataWriter {
    messages: Sender<Message>,
}

impl MetadataWriter {
    /// Starts the writer. Nothing is written before each of `shards` shards has reported once.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn start(
        shards: u32,
        data_path: DataPath,
    ) -> io::Result<(MetadataWriter, JoinHandle<()>)> {
        let (messages, queue) = channel();
        let thread = Builder::new()
            .name("metadata".to_owned())
            .spawn(move || run(shards as usize, &data_path, &queue))?;
        Ok((MetadataWriter { messages }, thread))
    }

    /// Hands in what a shard holds now and waits until a file that says so is on disk. Returns false if the write has
    /// failed, once: the file is as it was, and the writer has logged why.
    async fn store(&self, shard: ShardId, topics: Vec<TopicFacts>) -> bool {
        let (written, done) = oneshot::channel();
        let report = Message::Report(shard, topics, written);
        // Without a receiver the writer has ended.
        let _ = self.messages.send(report);
        done.await.unwrap_or(false)
    }

    /// Ends the writer's thread, after what was asked for before.
    pub(crate) fn stop(&self) {
        // It may have ended already: then there is nothing to end.
        let _ = self.messages.send(Message::Stop);
    }
}

fn run(shards: usize, data_path: &DataPath, messages: &Receiver<Message>) {
    let mut held: Vec<Option<Vec<TopicFacts>>> = vec![None; shards];
    let mut waiting = Vec::new();
    let mut is_stopping = false;
    while !is_stopping && let Ok(first) = messages.recv() {
        for message in std::iter::once(first).chain(messages.try_iter()) {
            match message {
                Message::Report(shard, topics, written) => {
                    held[shard.0 as usize] = Some(topics);
                    waiting.push(written);
                }
                Message::Stop => is_stopping = true,
            }
        }
        if waiting.is_empty() || held.iter().any(Option::is_none) {
            continue;
        }
        let metadata = Metadata {
            topics: held.iter().flatten().flatten().cloned().collect(),
        };
        let path = Metadata::path(data_path);
        log_info!(
            "NSQ: persisting topic/channel metadata to {}",
            path.display()
        );
        let result = metadata.store(data_path);
        if let Err(error) = &result {
            log_error!("failed to persist metadata - {error}; it is tried again");
        }
        for written in waiting.drain(..) {
            // The shard's task that asked may be gone.
            let _ = written.send(result.is_ok());
        }
    }
}
