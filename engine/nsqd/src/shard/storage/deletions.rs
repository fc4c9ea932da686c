//! Deletions of logs. Each deletion is tried until it works, or until no deletion can work any more.

use crate::shard::mail::Mail;
use diskq::{DiskError, Reply, Request};
use engine_rules::{DeletedLog, Refusal, TaskId};
use program::log_error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::KeeperThread;

/// The pause between a failed deletion and the next try. It doubles each time, up to the maximum.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(8);

/// The log of a deleted topic, as the keeper knows it.
pub(crate) struct Deletion {
    pub(super) topic: Arc<str>,
    is_ephemeral: bool,
    requests: Vec<Request>,
    /// The task that waits for the result of the first try.
    task: Option<TaskId>,
    failed_count: u32,
}

impl From<DeletedLog> for Deletion {
    fn from(log: DeletedLog) -> Deletion {
        Deletion {
            topic: log.topic,
            is_ephemeral: log.is_ephemeral,
            requests: log.requests,
            task: log.task,
            failed_count: 0,
        }
    }
}

/// The deletions that failed, and when each is tried again.
#[derive(Default)]
pub(super) struct FailedDeletions {
    waiting: Vec<(Instant, Deletion)>,
}

impl FailedDeletions {
    fn put(&mut self, deletion: Deletion) {
        let doublings = (deletion.failed_count - 1).min(16);
        let pause = (RETRY_MIN * (1 << doublings)).min(RETRY_MAX);
        self.waiting.push((Instant::now() + pause, deletion));
    }

    /// The time until the next deletion is due.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let at = self.waiting.iter().map(|(at, _)| *at).min()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    pub(super) fn take_due(&mut self) -> impl Iterator<Item = Deletion> + use<> {
        let now = Instant::now();
        let due = self.waiting.extract_if(.., |(at, _)| *at <= now);
        let due: Vec<_> = due.map(|(_, deletion)| deletion).collect();
        due.into_iter()
    }

    /// Forgets the deletions of `topic`, whose directory may soon belong to another topic. Returns their
    /// number.
    fn forget(&mut self, topic: &str) -> usize {
        let of_topic = |(_, deletion): &mut (Instant, Deletion)| *deletion.topic == *topic;
        self.waiting.extract_if(.., of_topic).count()
    }
}

impl KeeperThread {
    /// Does the last jobs of a log and deletes the log. Returns false if the deletion failed. Then the barrier stays
    /// until another try works, or for ever if there is no other try.
    pub(super) fn delete(&mut self, mut deletion: Deletion) -> bool {
        let topic = deletion.topic.clone();
        self.order.wait_for_urgent(&topic);
        for request in deletion.requests.drain(..) {
            // The log that would take the reply is gone, so the keeper takes the reply's memory back.
            let reply = self.keeper.handle(&topic, request);
            if let Some(memory) = reply.and_then(Reply::into_memory) {
                self.keeper.free(memory);
            }
        }
        let deleted = if deletion.is_ephemeral {
            self.keeper.delete_ephemeral(&topic).map(|()| None)
        } else {
            self.keeper.delete_topic(&topic).map(Some)
        };
        let answer = deleted.as_ref();
        let answer = answer.map_err(|error| Refusal::Disk(error.to_string().into()));
        let answer = Mail::Deleted(deletion.task.take(), answer.cloned());
        self.post.send(self.shard, answer);
        match deleted {
            Ok(tombstone) => {
                for _ in 0..self.failed_deletions.forget(&topic) {
                    self.order.finish(&topic, self.duty);
                }
                // The tombstone is buried a moment later. A file that still cannot be removed then is reported.
                let _ = tombstone.map(|tombstone| self.keeper.unlink(&tombstone));
                true
            }
            Err(error) => {
                deletion.failed_count += 1;
                if deletion.is_ephemeral || self.keeper.can_delete_topics() {
                    tell(&deletion, &error);
                    self.failed_deletions.put(deletion);
                } else {
                    log_error!(
                        "TOPIC({topic}): cannot delete its log: the topic is back after the next start; until then \
                         nothing is stored under this name - {error}"
                    );
                }
                false
            }
        }
    }
}

/// The log has a line for the first failure, and for each failure once the pause has reached its maximum.
fn tell(deletion: &Deletion, error: &DiskError) {
    let is_told =
        deletion.failed_count == 1 || RETRY_MIN * (1 << deletion.failed_count.min(16)) > RETRY_MAX;
    if is_told {
        let topic = &deletion.topic;
        log_error!(
            "TOPIC({topic}): cannot delete its log, which is tried again; until then nothing is stored under this \
             name - {error}"
        );
    }
}
