//! The keeper: everything of a shard that may block on the disk, in two threads.
//!
//! One does the jobs in order. The other reads cold segments back: a consumer that is behind must not
//! wait until what producers push out of memory is written. That is the only job that may overtake
//! others: the file it reads is whole and changes no more, and if a later job removes it, nobody waits
//! for it any longer.

use crate::log_error;
use crate::shard::mail::{Mail, Post};
use diskq::{Keeper, OsFiles, Request};
use engine_core::{ShardId, TopicKey};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

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
            let keeper = Keeper::new(OsFiles, data_path);
            let post = post.clone();
            let name = format!("{name}-{}", shard.0);
            let thread = Builder::new()
                .name(name)
                .spawn(move || run(&keeper, shard, &post, &queue))?;
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

fn run(keeper: &Keeper<OsFiles>, shard: ShardId, post: &Post, jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Log(key, topic, request) => {
                if let Some(reply) = keeper.handle(&topic, request) {
                    post.send(shard, Mail::Keeper(key, reply));
                }
            }
            Job::Stop => return,
            Job::Delete(topic, requests) => {
                for request in requests {
                    // Nobody waits for the answers any more; memory in them is unmapped here.
                    drop(keeper.handle(&topic, request));
                }
                if let Err(error) = keeper.delete_log(&topic) {
                    log_error!("TOPIC({topic}): cannot remove its files - {error}");
                }
            }
        }
    }
}
