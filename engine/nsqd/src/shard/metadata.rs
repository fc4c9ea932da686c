//! A shard's part of nsqd.dat, and the tombstones of deleted topics, which stay until nsqd.dat no longer lists them.

use crate::metadata_writer::NotPersisted;
use crate::reactor;
use crate::shard::Shard;
use crate::shard::storage::KeeperJob;
use diskq::Tombstone;
use engine_rules::{Refusal, TaskId, Wakeup};
use std::rc::Rc;
use std::time::Duration;

/// The pause between a failed write of nsqd.dat and the next try. It doubles each time, up to the maximum.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(8);

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
    /// # Errors
    /// It could not be written, which is logged, and is tried again.
    pub(crate) async fn persist_metadata(&self) -> Result<(), NotPersisted> {
        let tombstones = self.tombstones.take();
        let facts = self.broker.borrow().durable_topics();
        let written = self.shared.metadata.store(self.id, facts).await;
        match written {
            Ok(()) if tombstones.is_empty() => {}
            Ok(()) => self.storage.give(KeeperJob::Bury(tombstones)),
            Err(_) => {
                self.tombstones.borrow_mut().extend(tombstones);
                self.metadata_changed.set();
            }
        }
        written
    }

    pub(super) async fn run_metadata(self: Rc<Self>) {
        let mut pause = RETRY_MIN;
        loop {
            self.metadata_changed.wait().await;
            if self.persist_metadata().await.is_ok() {
                pause = RETRY_MIN;
            } else {
                reactor::sleep(pause).await;
                pause = (pause * 2).min(RETRY_MAX);
            }
        }
    }
}
