//! The keeper: everything of a shard that may block on the disk, in two threads.
//!
//! One does the jobs in order. The other reads cold segments back: a consumer that is behind must not
//! wait until what producers push out of memory is written. That is the only job that may overtake
//! others: the file it reads is whole and changes no more, and if a later job removes it, nobody waits
//! for it any longer.
//!
//! Thousands of topics have thousands of syncs every few seconds, of about a millisecond each: those
//! that wait at the same time are done as one, of the file system.

use crate::log_error;
use crate::shard::mail::{Mail, Post};
use diskq::{Files, Keeper, OsFiles, Reply, Request};
use engine_core::{ShardId, TopicKey};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::iter;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use wire::id::Seq;

/// So many syncs at the same time are done as one. Fewer do not justify writing what others have
/// stored in the same file system.
const SYNCS_TOGETHER: usize = 32;

/// A job for the keeper.
pub(crate) enum Job {
    /// Of a topic's log; answered by mail.
    Log(TopicKey, Arc<str>, Request),
    /// Do the last jobs of a deleted topic's log, then remove it.
    Delete(Arc<str>, Vec<Request>),
    /// End the thread.
    Stop,
}

/// Gives jobs to the keeper of one shard; [`Job::Stop`] is the last.
pub(crate) struct Storage {
    jobs: Sender<Job>,
    loads: Sender<Job>,
}

impl Storage {
    /// Starts the keeper of `shard`.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn start(
        shard: ShardId,
        data_path: &Path,
        post: &Post,
    ) -> io::Result<(Storage, [JoinHandle<()>; 2])> {
        let start = |name: &str| {
            let (jobs, queue) = channel();
            let worker = Worker::new(shard, data_path, post)?;
            let name = format!("{name}-{}", shard.0);
            let thread = Builder::new()
                .name(name)
                .spawn(move || worker.run(&queue))?;
            Ok::<_, io::Error>((jobs, thread))
        };
        let (jobs, keeper) = start("keeper")?;
        let (loads, loader) = start("loader")?;
        Ok((Storage { jobs, loads }, [keeper, loader]))
    }

    /// Queues a job.
    pub(crate) fn give(&self, job: Job) {
        // The threads end only when told so: what comes after that is of no consequence.
        let _ = match &job {
            Job::Log(_, _, Request::Load { .. }) => self.loads.send(job),
            Job::Log(..) | Job::Delete(..) => self.jobs.send(job),
            Job::Stop => self.loads.send(Job::Stop).and(self.jobs.send(Job::Stop)),
        };
    }
}

/// One of the threads.
struct Worker {
    shard: ShardId,
    keeper: Keeper<OsFiles>,
    whole: File,
    post: Post,
}

impl Worker {
    fn new(shard: ShardId, data_path: &Path, post: &Post) -> io::Result<Worker> {
        Ok(Worker {
            shard,
            keeper: Keeper::new(OsFiles, data_path),
            whole: OsFiles.whole(data_path)?,
            post: post.clone(),
        })
    }

    fn run(&self, queue: &Receiver<Job>) {
        while let Ok(first) = queue.recv() {
            let round = iter::once(first).chain(queue.try_iter()).collect();
            if self.do_round(round).is_break() {
                return;
            }
        }
    }

    /// Does what waited at the same time.
    fn do_round(&self, round: Vec<Job>) -> ControlFlow<()> {
        let syncs = round.iter().filter(|job| job.sync().is_some()).count();
        if syncs < SYNCS_TOGETHER {
            return round.into_iter().try_for_each(|job| self.do_job(job));
        }
        let Round {
            before,
            syncs,
            after,
        } = Round::of(round);
        before.into_iter().try_for_each(|job| self.do_job(job))?;
        let topics = syncs.iter().map(|(_, topic, _)| &**topic);
        let results = self.keeper.sync_together(&self.whole, topics);
        for ((key, _, upto), result) in syncs.into_iter().zip(results) {
            let reply = Reply::Synced { upto, result };
            self.post.send(self.shard, Mail::Keeper(key, reply));
        }
        after.into_iter().try_for_each(|job| self.do_job(job))
    }

    fn do_job(&self, job: Job) -> ControlFlow<()> {
        match job {
            Job::Log(key, topic, request) => {
                if let Some(reply) = self.keeper.handle(&topic, request) {
                    self.post.send(self.shard, Mail::Keeper(key, reply));
                }
            }
            Job::Stop => return ControlFlow::Break(()),
            Job::Delete(topic, requests) => {
                for request in requests {
                    // Nobody waits for the answers any more; memory in them is unmapped here.
                    drop(self.keeper.handle(&topic, request));
                }
                if let Err(error) = self.keeper.delete_log(&topic) {
                    log_error!("TOPIC({topic}): cannot remove its files - {error}");
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Jobs whose syncs are done together. Those of one log stay in their order.
#[derive(Default)]
struct Round {
    before: Vec<Job>,
    syncs: Vec<(TopicKey, Arc<str>, Seq)>,
    after: Vec<Job>,
}

impl Round {
    fn of(jobs: Vec<Job>) -> Round {
        let mut round = Round::default();
        let mut synced = HashSet::new();
        for job in jobs {
            let is_behind = job.topic().is_none_or(|topic| synced.contains(topic));
            if is_behind {
                round.after.push(job);
            } else if let Some((key, topic, upto)) = job.sync() {
                synced.insert(Arc::clone(topic));
                round.syncs.push((key, Arc::clone(topic), upto));
            } else {
                round.before.push(job);
            }
        }
        round
    }
}

impl Job {
    fn topic(&self) -> Option<&Arc<str>> {
        match self {
            Job::Log(_, topic, _) | Job::Delete(topic, _) => Some(topic),
            Job::Stop => None,
        }
    }

    /// Which log it syncs, and up to where, if it does only that.
    fn sync(&self) -> Option<(TopicKey, &Arc<str>, Seq)> {
        match self {
            Job::Log(key, topic, Request::Sync { upto, .. }) => Some((*key, topic, *upto)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskq::SegmentNumber;

    fn key(index: u32) -> TopicKey {
        TopicKey {
            index,
            generation: 0,
        }
    }

    fn sync(topic: &str, upto: u64) -> Job {
        let request = Request::Sync {
            segments: Vec::new(),
            names: false,
            upto: Seq(upto),
        };
        Job::Log(key(0), topic.into(), request)
    }

    fn discard(topic: &str, segment: u64) -> Job {
        let request = Request::Discard {
            segment: SegmentNumber(segment),
            memory: None,
        };
        Job::Log(key(0), topic.into(), request)
    }

    fn shown(jobs: &[Job]) -> Vec<String> {
        let show = |job: &Job| match job {
            Job::Log(_, topic, Request::Discard { segment, .. }) => format!("{topic}{}", segment.0),
            Job::Log(_, topic, Request::Sync { upto, .. }) => format!("{topic} to {}", upto.0),
            Job::Log(..) => unreachable!("not in these tests"),
            Job::Delete(topic, _) => format!("delete {topic}"),
            Job::Stop => "stop".to_owned(),
        };
        jobs.iter().map(show).collect()
    }

    #[test]
    fn what_follows_a_sync_of_its_log_follows_the_sync_of_all() {
        let round = Round::of(vec![
            discard("a", 1),
            sync("a", 10),
            discard("b", 1),
            discard("a", 2),
            sync("b", 20),
            // The topic was deleted and made again.
            Job::Delete("a".into(), Vec::new()),
            discard("a", 3),
            sync("a", 30),
            discard("c", 1),
            Job::Stop,
        ]);
        assert_eq!(shown(&round.before), ["a1", "b1", "c1"]);
        let syncs: Vec<u64> = round.syncs.iter().map(|(_, _, upto)| upto.0).collect();
        assert_eq!(syncs, [10, 20]);
        assert_eq!(
            shown(&round.after),
            ["a2", "delete a", "a3", "a to 30", "stop"]
        );
    }

    #[test]
    fn many_syncs_are_done_at_once_and_answered_each() {
        const COUNT: u64 = SYNCS_TOGETHER as u64;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (post, mut inboxes) = Post::new(1);
        let worker = Worker::new(ShardId(0), directory.path(), &post).expect("a directory");
        for index in 1..COUNT {
            let log = directory.path().join(format!("t{index}.log"));
            std::fs::create_dir(log).expect("a new directory");
        }
        let jobs = (0..COUNT).map(|index| sync(&format!("t{index}"), index));
        assert!(
            worker
                .do_round(jobs.chain([Job::Stop]).collect())
                .is_break()
        );
        for index in 0..COUNT {
            let mail = inboxes[0].try_recv().expect("mail");
            let Mail::Keeper(_, Reply::Synced { upto, result }) = mail else {
                panic!("other mail");
            };
            assert_eq!(upto, Seq(index));
            // The log of the first one is not there.
            assert_eq!(result.is_ok(), index > 0, "{result:?}");
        }
    }
}
