//! The jobs of the keepers, and the threads that do them: see engine/nsqd/src/shard/storage.rs.
//!
//! Each thread does its jobs in order and does not wait for the other threads. So jobs of the other threads may come
//! between two file calls of a job:
//!
//! ```text
//!   keeper:   copy ──► sync ─────────────────► rename ──► sync the names
//!   urgent:                 allocate ──► map
//! ```

use super::at_risk::Pass;
use super::{DATA_PATH, Mail, ShardWorld, World, place_of};
use diskq::{DiskError, Keeper, Reply, Request, Tombstone};
use diskq_sim::SimFiles;
use engine_rules::{DeletedLog, TopicKey};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// The number of places within a job at which another thread may begin a job of its own. If the job has fewer, the
/// other one may come behind it.
const PLACES: u64 = 5;

/// A job of a keeper.
pub(super) struct Job {
    pub(super) topic: Arc<str>,
    pub(super) work: Work,
    pub(super) thread: Thread,
    pub(super) pass: Pass,
}

pub(super) enum Work {
    Log(TopicKey, Request),
    /// A deletion, and the number of its failures.
    Delete(DeletedLog, u32),
}

/// A job that is done.
pub(super) struct Done {
    topic: Arc<str>,
    pass: Pass,
    result: Finished,
}

enum Finished {
    Log {
        key: TopicKey,
        /// For a checkpoint that was written: whether it is synced.
        checkpoint: Option<bool>,
        reply: Option<Reply>,
    },
    Delete {
        log: DeletedLog,
        failed_count: u32,
        deleted: Result<Option<Tombstone>, DiskError>,
    },
}

/// The jobs that other threads do beside a job.
#[derive(Clone, Default)]
pub(super) struct Beside {
    done: Arc<Mutex<Vec<Done>>>,
}

impl Beside {
    fn add(&self, done: Done) {
        self.done.lock().push(done);
    }

    fn take(&self) -> Vec<Done> {
        std::mem::take(&mut self.done.lock())
    }
}

impl Job {
    fn is_urgent(&self) -> bool {
        self.thread == Thread::Urgent
    }

    /// Returns true if no urgent job of the topic may overtake this job.
    pub(super) fn is_fence(&self) -> bool {
        matches!(
            self.work,
            Work::Log(_, Request::Spill { .. }) | Work::Delete(..)
        )
    }

    /// The requests of the job.
    fn requests(&self) -> &[Request] {
        match &self.work {
            Work::Log(_, request) => std::slice::from_ref(request),
            Work::Delete(log, _) => &log.requests,
        }
    }

    /// Does the job.
    fn run(self, keeper: &Keeper<SimFiles>) -> Done {
        let Job {
            topic, work, pass, ..
        } = self;
        let result = match work {
            Work::Log(key, request) => {
                let sync = match &request {
                    Request::WriteCheckpoint(job) => Some(job.sync),
                    _ => None,
                };
                let reply = keeper.handle(&topic, request);
                let is_written = match &reply {
                    Some(Reply::CheckpointWritten { result, .. }) => result.is_ok(),
                    _ => false,
                };
                let checkpoint = sync.filter(|_| is_written);
                Finished::Log {
                    key,
                    checkpoint,
                    reply,
                }
            }
            Work::Delete(mut log, failed_count) => {
                for request in log.requests.drain(..) {
                    keeper.handle(&topic, request);
                }
                let deleted = if log.is_ephemeral {
                    keeper.delete_ephemeral(&topic).map(|()| None)
                } else {
                    keeper.delete_topic(&topic).map(Some)
                };
                if let Ok(Some(tombstone)) = &deleted {
                    // The removal of a leftover file is retried when the tombstone is buried.
                    let _ = keeper.unlink(tombstone);
                }
                Finished::Delete {
                    log,
                    failed_count,
                    deleted,
                }
            }
        };
        Done {
            topic,
            pass,
            result,
        }
    }
}

/// A thread of a keeper.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Thread {
    Keeper,
    Urgent,
    Loader,
}

impl Thread {
    const ALL: [Thread; 3] = [Thread::Keeper, Thread::Urgent, Thread::Loader];

    /// Returns the thread by the rule of engine/nsqd/src/shard/storage.rs: only a load overtakes a spill or a deletion of
    /// its log.
    pub(super) fn of(topic: &str, request: &Request, earlier: &VecDeque<Job>) -> Thread {
        let is_fence = |job: &Job| *job.topic == *topic && job.is_fence();
        match request {
            _ if request.is_independent() => Thread::Loader,
            _ if request.is_urgent() && !earlier.iter().any(is_fence) => Thread::Urgent,
            _ => Thread::Keeper,
        }
    }
}

impl World {
    pub(super) fn work_keepers(&mut self, jobs_max: u64) {
        for shard in 0..self.shards.len() {
            if self.shares_syncs && self.random.below(4) == 0 {
                self.sync_together(shard);
            }
            for _ in 0..self.random.below(jobs_max + 1) {
                self.work_keeper(shard);
            }
        }
    }

    /// Does one job of a keeper, and perhaps jobs of its other threads meanwhile. Sends the answers by mail.
    pub(super) fn work_keeper(&mut self, shard: usize) {
        if self.mid_turn.is_killed {
            return;
        }
        let Some(job) = self.next_job(shard) else {
            return;
        };
        self.observe_topic(shard, &job.topic);
        self.observe_jobs(&self.shards[shard].jobs);
        let beside = self.begin_beside(shard, job.thread);
        let done = job.run(&self.shards[shard].keeper);
        self.end_beside(shard, &beside, Some(done));
    }

    /// Takes the next job of any thread.
    fn next_job(&mut self, shard: usize) -> Option<Job> {
        let thread = Thread::ALL[self.random.below(3) as usize];
        let jobs = &mut self.shards[shard].jobs;
        let at = jobs.iter().position(|job| job.thread == thread);
        let job = jobs.remove(at.unwrap_or(0))?;
        let is_in_the_way = |other: &Job| other.is_urgent() && other.topic == job.topic;
        let job = match jobs.iter().position(is_in_the_way) {
            // A deletion waits for the urgent jobs of its topic, all of which came before it.
            Some(urgent) if matches!(job.work, Work::Delete(..)) => {
                // The deletion goes back to its place, so that later jobs stay behind it.
                jobs.insert(at.unwrap_or(0), job);
                jobs.remove(urgent).expect("just found")
            }
            _ => job,
        };
        match job.thread {
            Thread::Loader if at > Some(0) => self.reached.note("loaded before earlier jobs"),
            Thread::Urgent if at > Some(0) => self.reached.note("urgent before earlier jobs"),
            Thread::Keeper if jobs.iter().take(at.unwrap_or(0)).any(Job::is_urgent) => {
                self.reached.note("done before earlier urgent jobs");
            }
            _ => {}
        }
        self.report_job(&job);
        Some(job)
    }

    fn report_job(&mut self, job: &Job) {
        match &job.work {
            Work::Log(_, Request::Spill { .. }) => self.reached.note("spilled"),
            Work::Log(_, Request::Peek { .. }) => self.reached.note("peeked"),
            Work::Log(_, Request::Load { .. }) => self.reached.note("loaded"),
            _ => {}
        }
    }

    /// Lets the other threads of a keeper do jobs between the next file calls of `thread`.
    pub(super) fn begin_beside(&mut self, shard: usize, thread: Thread) -> Beside {
        let beside = Beside::default();
        for other in Thread::ALL {
            let jobs = &self.shards[shard].jobs;
            let next = jobs.iter().position(|job| job.thread == other);
            let Some(at) = next.filter(|_| other != thread) else {
                continue;
            };
            let is_urgent = |job: &Job| job.is_urgent() && job.topic == jobs[at].topic;
            let has_urgent = thread == Thread::Urgent || jobs.iter().any(is_urgent);
            if matches!(jobs[at].work, Work::Delete(..)) && has_urgent {
                continue;
            }
            let job = self.shards[shard].jobs.remove(at).expect("just found");
            self.observe_topic(shard, &job.topic);
            self.report_job(&job);
            let (keeper, beside) = (self.shards[shard].keeper.clone(), beside.clone());
            let nth = 2 + self.random.below(PLACES);
            self.files
                .interrupt_at(nth, move || beside.add(job.run(&keeper)));
        }
        beside
    }

    /// Takes the results of the jobs that were done beside each other. `last` is the one that ended last.
    pub(super) fn end_beside(&mut self, shard: usize, beside: &Beside, last: Option<Done>) {
        let mut all = beside.take();
        if !all.is_empty() {
            self.reached.note("a job within a job");
        }
        all.extend(last);
        // The other threads do after the job what they did not begin within it.
        self.files.end_interruptions();
        all.extend(beside.take());
        for done in all {
            self.finish_job(shard, done);
        }
    }

    fn finish_job(&mut self, shard: usize, done: Done) {
        let Done {
            topic,
            pass,
            result,
        } = done;
        match result {
            Finished::Log {
                key,
                checkpoint,
                reply,
            } => {
                if let Some(is_synced) = checkpoint.filter(|_| !pass.is_deleted) {
                    self.model.graces.written(place_of(&topic), is_synced);
                }
                let mail = reply.map(|reply| Mail::Keeper(key, reply, pass));
                self.shards[shard].inbox.extend(mail);
            }
            Finished::Delete {
                log,
                failed_count,
                deleted,
            } => self.finish_deletion(shard, log, failed_count, pass, deleted),
        }
    }

    /// Ends a deletion by the rule of engine/nsqd/src/shard/storage/deletions.rs. After a failure, the
    /// deletion is retried behind the waiting jobs, unless no deletion can succeed any more.
    fn finish_deletion(
        &mut self,
        shard: usize,
        mut log: DeletedLog,
        failed_count: u32,
        pass: Pass,
        deleted: Result<Option<Tombstone>, DiskError>,
    ) {
        let ShardWorld {
            keeper,
            jobs,
            inbox,
            tombstones,
            is_metadata_old,
            ..
        } = &mut self.shards[shard];
        let answer = deleted.as_ref().map(drop).map_err(ToString::to_string);
        inbox.extend(log.task.take().map(|task| Mail::Deleted(task, answer)));
        match deleted {
            Ok(tombstone) => {
                if failed_count > 0 {
                    self.reached.note("deletion worked at last");
                }
                jobs.retain(|job| {
                    let is_failed = matches!(job.work, Work::Delete(_, failed) if failed > 0);
                    !(is_failed && job.topic == log.topic)
                });
                if let Some(tombstone) = tombstone {
                    tombstones.push(tombstone);
                    *is_metadata_old = true;
                }
            }
            Err(_) if !log.is_ephemeral && !keeper.can_delete_topics() => {
                self.reached.note("deletion failed for good");
            }
            Err(_) => {
                self.reached.note("deletion failed");
                jobs.push_back(Job {
                    topic: log.topic.clone(),
                    work: Work::Delete(log, failed_count + 1),
                    thread: Thread::Keeper,
                    pass,
                });
            }
        }
    }

    /// Copies the mapped memory of a topic's log to the page cache.
    fn observe_topic(&self, shard: usize, topic: &str) {
        for (name, log) in self.shards[shard].broker.logs() {
            if *name == *topic {
                self.files.observe(Path::new(DATA_PATH), name, log);
            }
        }
    }

    /// Copies the mapped memory of the waiting jobs to the page cache, because the kernel has these
    /// bytes even if the job is never done.
    pub(super) fn observe_jobs(&self, jobs: &VecDeque<Job>) {
        for job in jobs {
            let path = Path::new(DATA_PATH);
            for request in job.requests() {
                self.files.observe_request(path, &job.topic, request);
            }
        }
    }
}
