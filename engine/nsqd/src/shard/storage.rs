//! The keeper: everything of a shard that may block on the disk, in three threads.
//!
//! ```text
//!   loader    reads cold segments back: a consumer that is behind must not wait until what producers
//!             push out of memory is written. It also writes the topics' files of keys
//!   urgent    jobs that a client may wait for: a new segment, the checkpoint that makes a channel
//!             ([`Request::is_urgent`]), if no earlier job of the same topic is a barrier
//!   keeper    all else, in its order: on a slow disk one spill may take a tenth of a second, a sync longer
//! ```
//!
//! A job of the loader may overtake every other job: its file is whole and changes no more, or is a file of its own. If a
//! later job removes the file, nobody waits for the load any longer.
//!
//! Thousands of topics have thousands of syncs every few seconds, of messages and of checkpoints, of about
//! a millisecond each: those that wait at the same time are done as one, of the file system.

mod job_order;

use crate::shard::mail::{Mail, Post};
use diskq::{DataPath, Keeper, Memory, OsFiles, Reply, Request, SharedSync, Tombstone};
use engine_rules::{DeletedLog, Refusal, ShardId, TopicKey};
use job_order::JobOrder;
use program::{log_error, log_warn};
use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use wire::go_error::system_text;

/// This many waiting syncs are done as one `syncfs`. For fewer, a `syncfs` does not pay: it also writes what others
/// have stored in the same file system.
const SYNCS_TOGETHER: usize = 32;

/// The pause between a failed deletion, or a failed write of nsqd.dat, and the next try.
pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A job for the keeper.
pub(crate) enum KeeperJob {
    /// A request of a topic's log, answered by mail.
    Log(TopicKey, Arc<str>, Request),
    /// Take memory of a deleted topic's log back.
    Free(Memory),
    /// Do the last jobs of a deleted topic's log, then remove it; answered by mail.
    Delete(DeletedLog),
    /// Remove what is left of deleted topics that nsqd.dat does not list any more.
    Bury(Vec<Tombstone>),
    /// End the thread.
    Stop,
}

/// Gives jobs to the keeper of one shard; [`KeeperJob::Stop`] is the last.
pub(crate) struct Storage {
    jobs: Sender<KeeperJob>,
    urgent: Sender<KeeperJob>,
    loads: Sender<KeeperJob>,
    order: Arc<JobOrder>,
}

impl Storage {
    /// Starts the keeper of `shard`.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn start(
        shard: ShardId,
        data_path: &DataPath,
        post: &Post,
    ) -> io::Result<(Storage, [JoinHandle<()>; 3])> {
        let order = Arc::new(JobOrder::default());
        let keeper = Keeper::new(OsFiles, data_path.clone());
        let start = |duty: Duty| {
            let (jobs, queue) = channel();
            let thread = KeeperThread::new(shard, duty, keeper.clone(), post, &order)?;
            let name = format!("{}-{}", duty.name(), shard.0);
            let thread = Builder::new()
                .name(name)
                .spawn(move || thread.run(&queue))?;
            Ok::<_, io::Error>((jobs, thread))
        };
        let (jobs, keeper) = start(Duty::Keeper)?;
        let (urgent, urgent_thread) = start(Duty::Urgent)?;
        let (loads, loader) = start(Duty::Loader)?;
        let storage = Storage {
            jobs,
            urgent,
            loads,
            order,
        };
        Ok((storage, [keeper, urgent_thread, loader]))
    }

    /// Queues a job.
    pub(crate) fn give(&self, job: KeeperJob) {
        // The threads end only after `KeeperJob::Stop`. No result of a later job is needed.
        let send = |thread: &Sender<KeeperJob>, job| drop(thread.send(job));
        match &job {
            KeeperJob::Log(_, _, request) if request.is_independent() => send(&self.loads, job),
            KeeperJob::Log(_, topic, request)
                if request.is_urgent() && self.order.try_add_urgent(topic) =>
            {
                send(&self.urgent, job);
            }
            KeeperJob::Log(..) | KeeperJob::Free(_) | KeeperJob::Delete(_) | KeeperJob::Bury(_) => {
                if let Some(topic) = job.barrier() {
                    self.order.add_barrier(topic);
                }
                send(&self.jobs, job);
            }
            KeeperJob::Stop => {
                for thread in [&self.loads, &self.urgent, &self.jobs] {
                    send(thread, KeeperJob::Stop);
                }
            }
        }
    }
}

/// The duty of one of the threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Duty {
    Keeper,
    Urgent,
    Loader,
}

impl Duty {
    fn name(self) -> &'static str {
        match self {
            Duty::Keeper => "keeper",
            Duty::Urgent => "urgent",
            Duty::Loader => "loader",
        }
    }
}

/// The deletions that failed, and when each is tried again, the earliest first.
#[derive(Default)]
struct FailedDeletions {
    waiting: Vec<(Instant, DeletedLog)>,
}

impl FailedDeletions {
    fn put(&mut self, deletion: DeletedLog) {
        self.waiting.push((Instant::now() + RETRY_PAUSE, deletion));
    }

    /// The time until the next deletion is due.
    fn due_in(&self) -> Option<Duration> {
        let (at, _) = self.waiting.first()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    fn take_due(&mut self) -> impl Iterator<Item = DeletedLog> + use<> {
        let now = Instant::now();
        let due = self.waiting.extract_if(.., |(at, _)| *at <= now);
        let due: Vec<_> = due.map(|(_, deletion)| deletion).collect();
        due.into_iter()
    }

    /// Forgets the deletions of `topic`, whose directory may soon belong to another topic. Returns their
    /// number.
    fn forget(&mut self, topic: &str) -> usize {
        let of_topic = |(_, deletion): &mut (Instant, DeletedLog)| *deletion.topic == *topic;
        self.waiting.extract_if(.., of_topic).count()
    }
}

/// One of the three threads.
struct KeeperThread {
    shard: ShardId,
    duty: Duty,
    keeper: Keeper<OsFiles>,
    shared: SharedSync<OsFiles>,
    post: Post,
    order: Arc<JobOrder>,
    failed_deletions: FailedDeletions,
}

impl KeeperThread {
    fn new(
        shard: ShardId,
        duty: Duty,
        keeper: Keeper<OsFiles>,
        post: &Post,
        order: &Arc<JobOrder>,
    ) -> io::Result<KeeperThread> {
        Ok(KeeperThread {
            shard,
            duty,
            shared: keeper.shared_sync()?,
            keeper,
            post: post.clone(),
            order: Arc::clone(order),
            failed_deletions: FailedDeletions::default(),
        })
    }

    fn run(mut self, queue: &Receiver<KeeperJob>) {
        while let Some(jobs) = self.next_jobs(queue) {
            if self.do_batch(SyncBatch::of(jobs)).is_break() {
                return;
            }
        }
    }

    /// Waits for jobs, and for the deletions that are to be tried again. `None`: there will be none.
    fn next_jobs(&mut self, queue: &Receiver<KeeperJob>) -> Option<Vec<KeeperJob>> {
        let due_in = self.failed_deletions.due_in();
        let first = match due_in {
            None => Some(queue.recv().ok()?),
            Some(time) => match queue.recv_timeout(time) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return None,
            },
        };
        let due = self.failed_deletions.take_due().map(KeeperJob::Delete);
        Some(due.chain(first).chain(queue.try_iter()).collect())
    }

    /// Does jobs that waited at the same time.
    fn do_batch(&mut self, batch: SyncBatch) -> ControlFlow<()> {
        self.do_jobs(batch.before)?;
        self.sync_together(batch.syncs);
        self.do_jobs(batch.after)
    }

    fn do_jobs(&mut self, jobs: Vec<KeeperJob>) -> ControlFlow<()> {
        jobs.into_iter().try_for_each(|job| self.do_job(job))
    }

    fn sync_together(&mut self, syncs: Vec<LogJob>) {
        if syncs.is_empty() {
            return;
        }
        let (mut keys, mut topics, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
        for (key, topic, request) in syncs {
            keys.push(key);
            topics.push(topic);
            jobs.push(request);
        }
        let jobs = topics.iter().map(|topic| &**topic).zip(jobs).collect();
        let replies = self.keeper.handle_together(&mut self.shared, jobs);
        if let Some(failure) = self.shared.take_failure() {
            log_warn!(
                "a sync of the whole file system failed, from now on each topic is synced by itself - {}",
                system_text(&failure)
            );
        }
        for (key, reply) in keys.into_iter().zip(replies) {
            self.reply(key, reply);
        }
    }

    fn reply(&self, key: TopicKey, reply: Option<Reply>) {
        if let Some(reply) = reply {
            self.post.send(self.shard, Mail::Keeper(key, reply));
        }
    }

    fn do_job(&mut self, job: KeeperJob) -> ControlFlow<()> {
        let noted = match self.duty {
            Duty::Keeper => job.barrier().cloned(),
            Duty::Urgent => job.topic().cloned(),
            Duty::Loader => None,
        };
        match job {
            KeeperJob::Log(key, topic, request) => {
                self.reply(key, self.keeper.handle(&topic, request))
            }
            KeeperJob::Free(memory) => self.keeper.free(memory),
            KeeperJob::Stop => return ControlFlow::Break(()),
            KeeperJob::Delete(deletion) => {
                if !self.delete(deletion) {
                    return ControlFlow::Continue(());
                }
            }
            KeeperJob::Bury(tombstones) => {
                for tombstone in &tombstones {
                    if let Err(error) = self.keeper.bury(tombstone) {
                        log_error!("files of a deleted topic stay until the next start - {error}");
                    }
                }
            }
        }
        if let Some(topic) = noted {
            self.order.finish(&topic, self.duty);
        }
        ControlFlow::Continue(())
    }

    /// Does the last jobs of a log and deletes the log. Returns false if the deletion failed. Then the barrier stays
    /// until another try works, or for ever if there is no other try.
    fn delete(&mut self, mut deletion: DeletedLog) -> bool {
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
                if deletion.is_ephemeral || self.keeper.can_delete_topics() {
                    log_error!(
                        "TOPIC({topic}): cannot delete its log, which is tried again; until then nothing is stored under \
                         this name - {error}"
                    );
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

/// A job of a topic's log.
type LogJob = (TopicKey, Arc<str>, Request);

/// Jobs whose syncs are done together, if they are many. The jobs of one log stay in their order, with one exception:
/// the log's checkpoint may be written before its messages are synced. That is harmless, because the checkpoint says
/// what was synced when the log gave it.
#[derive(Default)]
struct SyncBatch {
    before: Vec<KeeperJob>,
    syncs: Vec<LogJob>,
    after: Vec<KeeperJob>,
}

impl SyncBatch {
    fn of(jobs: Vec<KeeperJob>) -> SyncBatch {
        let mut batch = SyncBatch::default();
        if jobs.iter().filter(|job| job.is_sync()).count() < SYNCS_TOGETHER {
            batch.before = jobs;
            return batch;
        }
        let mut synced = HashSet::new();
        let mut behind = HashSet::new();
        for job in jobs {
            let Some(topic) = job.topic().cloned() else {
                batch.after.push(job);
                continue;
            };
            let is_behind = behind.contains(&topic);
            match job {
                KeeperJob::Log(key, name, request) if request.is_sync() && !is_behind => {
                    synced.insert(topic);
                    batch.syncs.push((key, name, request));
                }
                job if is_behind || synced.contains(&topic) => {
                    behind.insert(topic);
                    batch.after.push(job);
                }
                job => batch.before.push(job),
            }
        }
        batch
    }
}

impl KeeperJob {
    fn topic(&self) -> Option<&Arc<str>> {
        match self {
            KeeperJob::Log(_, topic, _) => Some(topic),
            KeeperJob::Delete(deletion) => Some(&deletion.topic),
            KeeperJob::Free(_) | KeeperJob::Bury(_) | KeeperJob::Stop => None,
        }
    }

    fn is_sync(&self) -> bool {
        matches!(self, KeeperJob::Log(_, _, request) if request.is_sync())
    }

    fn is_spill(&self) -> bool {
        matches!(self, KeeperJob::Log(_, _, Request::Spill { .. }))
    }

    /// Returns the topic whose urgent jobs may not overtake this job. A deletion removes the directory that an urgent
    /// job may make. A spill gives back memory that an urgent job would otherwise take anew: a topic that outruns the
    /// disk would get new memory for everything.
    fn barrier(&self) -> Option<&Arc<str>> {
        let is_barrier = matches!(self, KeeperJob::Delete(..)) || self.is_spill();
        self.topic().filter(|_| is_barrier)
    }
}

#[cfg(test)]
mod tests;
