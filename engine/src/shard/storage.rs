//! The keeper's thread: everything of a shard that may block on the disk.

use crate::log_error;
use crate::shard::mail::{Mail, Post};
use diskq::{Keeper, OsFiles, Request};
use engine_core::{ShardId, TopicKey};
use std::io;
use std::path::PathBuf;
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

/// Gives jobs to the keeper of one shard. Jobs are done in order; [`Job::Stop`] is the last.
pub(crate) struct Storage {
    jobs: Sender<Job>,
}

impl Storage {
    /// Starts the keeper of `shard`.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn start(
        shard: ShardId,
        data_path: PathBuf,
        post: Post,
    ) -> io::Result<(Storage, JoinHandle<()>)> {
        let (jobs, queue) = channel();
        let name = format!("keeper-{}", shard.0);
        let thread = Builder::new().name(name).spawn(move || {
            run(&Keeper::new(OsFiles, data_path), shard, &post, &queue);
        })?;
        Ok((Storage { jobs }, thread))
    }

    /// Queues a job.
    pub(crate) fn give(&self, job: Job) {
        // The thread ends only when told so: what comes after that is of no consequence.
        let _ = self.jobs.send(job);
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
