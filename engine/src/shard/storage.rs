//! The keeper: everything of a shard that may block on the disk, in two threads.
//!
//! One reads cold segments back: a consumer that is behind must not wait until what producers push out
//! of memory is written. That may overtake everything: the file is whole and changes no more, and if a
//! later job removes it, nobody waits for it any longer. The other does all else.
//!
//! Thousands of topics have thousands of syncs every few seconds, of messages and of checkpoints, of about
//! a millisecond each: those that wait at the same time are done as one, of the file system.
//!
//! What somebody waits for, a new segment or the checkpoint that makes a channel, overtakes what does not
//! concern it ([`Request::is_urgent`]); one such job, or those that came meanwhile, for each of the others.

use crate::log_error;
use crate::shard::mail::{Mail, Post};
use diskq::{Files, Keeper, OsFiles, Reply, Request};
use engine_core::{ShardId, TopicKey};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::mem;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

/// So many syncs at the same time are done as one. Fewer do not justify writing what others have
/// stored in the same file system.
const SYNCS_TOGETHER: usize = 32;

/// How often is looked whether such a sync has ended, while nothing else is to be done. It takes a hundred
/// times as long.
const SYNCER_LOOK: Duration = Duration::from_millis(1);

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
        let mut waiting = Waiting::new(queue);
        while waiting.take_next() {
            if self.do_round(&mut waiting).is_break() {
                return;
            }
        }
    }

    /// Does what waited at the same time.
    fn do_round(&self, waiting: &mut Waiting<'_>) -> ControlFlow<()> {
        self.do_urgent(waiting);
        let Round {
            before,
            syncs,
            after,
        } = Round::of(mem::take(&mut waiting.others));
        self.do_jobs(before, waiting)?;
        self.sync_together(syncs, waiting);
        self.do_jobs(after, waiting)
    }

    fn do_jobs(&self, jobs: Vec<Job>, waiting: &mut Waiting<'_>) -> ControlFlow<()> {
        let mut jobs = jobs.into_iter().peekable();
        while let Some(job) = jobs.next() {
            self.do_urgent(waiting);
            waiting.note_done(&job);
            let beside = if job.is_spill() {
                jobs.next_if(Job::is_spill)
            } else {
                None
            };
            match beside {
                None => self.do_job(job)?,
                Some(other) => {
                    waiting.note_done(&other);
                    self.do_both(job, other)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Two spills at a time: one alone leaves the disk idle while its file is made.
    fn do_both(&self, job: Job, other: Job) -> ControlFlow<()> {
        let other = Mutex::new(Some(other));
        let do_other = || {
            let job = other.lock().unwrap_or_else(PoisonError::into_inner).take();
            job.map_or(ControlFlow::Continue(()), |job| self.do_job(job))
        };
        thread::scope(|scope| {
            let name = format!("spiller-{}", self.shard.0);
            // Without a thread, or if it comes late, this one does both.
            let spiller = Builder::new().name(name).spawn_scoped(scope, do_other);
            self.do_job(job)?;
            do_other()?;
            spiller.map_or(ControlFlow::Continue(()), |spiller| {
                spiller.join().unwrap_or_else(|panic| resume_unwind(panic))
            })
        })
    }

    /// Does what came and somebody waits for; what comes meanwhile is for the next time, so that the
    /// other jobs have their turn, too.
    fn do_urgent(&self, waiting: &mut Waiting<'_>) {
        waiting.take_all();
        for (key, topic, request) in mem::take(&mut waiting.urgent) {
            self.reply(key, self.keeper.handle(&topic, request));
        }
    }

    fn sync_together(&self, syncs: Vec<Task>, waiting: &mut Waiting<'_>) {
        if syncs.is_empty() {
            return;
        }
        let mut promised = Vec::with_capacity(syncs.len());
        for (key, topic, request) in syncs {
            self.do_urgent(waiting);
            if let Some(reply) = self.keeper.handle_but_sync(&topic, request) {
                promised.push((key, topic, reply));
            }
        }
        let (keeper, whole) = (&self.keeper, &self.whole);
        let topics = || promised.iter().map(|(_, topic, _)| &**topic);
        let sync = || keeper.sync_together(whole, topics());
        // It takes long. Whoever waits for a new segment or channel should not wait for it.
        let results = thread::scope(|scope| {
            let name = format!("syncer-{}", self.shard.0);
            let Ok(syncer) = Builder::new().name(name).spawn_scoped(scope, sync) else {
                return sync();
            };
            while !syncer.is_finished() {
                waiting.wait(SYNCER_LOOK);
                self.do_urgent(waiting);
            }
            syncer.join().unwrap_or_else(|panic| resume_unwind(panic))
        });
        for ((key, _, reply), result) in promised.into_iter().zip(results) {
            self.reply(key, Some(reply.unless(result)));
        }
    }

    fn reply(&self, key: TopicKey, reply: Option<Reply>) {
        if let Some(reply) = reply {
            self.post.send(self.shard, Mail::Keeper(key, reply));
        }
    }

    fn do_job(&self, job: Job) -> ControlFlow<()> {
        match job {
            Job::Log(key, topic, request) => self.reply(key, self.keeper.handle(&topic, request)),
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

/// A job of a topic's log.
type Task = (TopicKey, Arc<str>, Request);

/// The jobs that came and are not done.
struct Waiting<'a> {
    queue: &'a Receiver<Job>,
    /// Those that may overtake all others but those that `fences` counts.
    urgent: Vec<Task>,
    others: Vec<Job>,
    /// By topic: how many jobs nothing of its log may overtake. Its log may be that of a topic of
    /// the same name, deleted before.
    fences: HashMap<Arc<str>, u32>,
}

impl<'a> Waiting<'a> {
    fn new(queue: &'a Receiver<Job>) -> Waiting<'a> {
        Waiting {
            queue,
            urgent: Vec::new(),
            others: Vec::new(),
            fences: HashMap::new(),
        }
    }

    /// Waits until there is a job. False: there will be none.
    fn take_next(&mut self) -> bool {
        if self.urgent.is_empty() && self.others.is_empty() {
            match self.queue.recv() {
                Ok(job) => self.push(job),
                Err(_) => return false,
            }
        }
        self.take_all();
        true
    }

    /// Waits for a job, but not for long.
    fn wait(&mut self, time: Duration) {
        // Without one the caller looks for something else.
        if let Ok(job) = self.queue.recv_timeout(time) {
            self.push(job);
        }
    }

    fn take_all(&mut self) {
        self.queue.try_iter().for_each(|job| self.push(job));
    }

    fn push(&mut self, job: Job) {
        if job.is_fence()
            && let Some(topic) = job.topic()
        {
            *self.fences.entry(Arc::clone(topic)).or_default() += 1;
        }
        match job {
            Job::Log(key, topic, request)
                if request.is_urgent() && !self.fences.contains_key(&topic) =>
            {
                self.urgent.push((key, topic, request));
            }
            job => self.others.push(job),
        }
    }

    /// One of the others is about to be done.
    fn note_done(&mut self, job: &Job) {
        if job.is_fence()
            && let Some(topic) = job.topic()
            && let Some(count) = self.fences.get_mut(topic)
        {
            *count -= 1;
            if *count == 0 {
                self.fences.remove(topic);
            }
        }
    }
}

/// Jobs whose syncs are done together, if they are many. Those of one log stay in their order, but
/// that its checkpoint may be written before its messages are synced: it says what was synced when
/// the log gave it.
#[derive(Default)]
struct Round {
    before: Vec<Job>,
    syncs: Vec<Task>,
    after: Vec<Job>,
}

impl Round {
    fn of(jobs: Vec<Job>) -> Round {
        let mut round = Round::default();
        if jobs.iter().filter(|job| job.is_sync()).count() < SYNCS_TOGETHER {
            round.before = jobs;
            return round;
        }
        let mut synced = HashSet::new();
        let mut behind = HashSet::new();
        for job in jobs {
            let Some(topic) = job.topic().cloned() else {
                round.after.push(job);
                continue;
            };
            let is_behind = behind.contains(&topic);
            match job {
                Job::Log(key, name, request) if request.is_sync() && !is_behind => {
                    synced.insert(topic);
                    round.syncs.push((key, name, request));
                }
                job if is_behind || synced.contains(&topic) => {
                    behind.insert(topic);
                    round.after.push(job);
                }
                job => round.before.push(job),
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

    fn is_sync(&self) -> bool {
        matches!(self, Job::Log(_, _, request) if request.is_sync())
    }

    fn is_spill(&self) -> bool {
        matches!(self, Job::Log(_, _, Request::Spill { .. }))
    }

    /// Whether no urgent job of the same topic may overtake it: the directory that it removes may be the
    /// one that is made, and what it spills leaves memory for what is prepared. Without that a topic that
    /// outruns the disk would get new memory for everything.
    fn is_fence(&self) -> bool {
        matches!(self, Job::Delete(..)) || self.is_spill()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskq::{CheckpointNumber, Pages, SegmentNumber};
    use wire::id::Seq;

    fn key(index: u32) -> TopicKey {
        TopicKey {
            index,
            generation: 0,
        }
    }

    fn sync(topic: &str, upto: u64) -> Job {
        let request = Request::Sync {
            segments: vec![SegmentNumber(1)],
            written: Vec::new(),
            names: false,
            upto: Seq(upto),
        };
        Job::Log(key(0), topic.into(), request)
    }

    fn checkpoint(topic: &str, number: u64, sync: bool) -> Job {
        let request = Request::WriteCheckpoint {
            number: CheckpointNumber(number),
            slot: 0,
            bytes: b"bytes".to_vec(),
            sync,
            names: sync,
        };
        Job::Log(key(0), topic.into(), request)
    }

    fn prepare(topic: &str, segment: u64) -> Job {
        let request = Request::Prepare {
            segment: SegmentNumber(segment),
            bytes: 4096,
            pages: Pages::Small,
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
            Job::Log(_, topic, request) => show_task(topic, request),
            Job::Delete(topic, _) => format!("delete {topic}"),
            Job::Stop => "stop".to_owned(),
        };
        jobs.iter().map(show).collect()
    }

    fn show_task(topic: &str, request: &Request) -> String {
        match request {
            Request::Sync { upto, .. } => format!("{topic} to {}", upto.0),
            Request::WriteCheckpoint { number, .. } => format!("{topic}#{}", number.0),
            Request::Prepare { segment, .. } => format!("{topic}+{}", segment.0),
            _ => unreachable!("not in these tests"),
        }
    }

    fn show_tasks(tasks: &[Task]) -> Vec<String> {
        let show = |(_, topic, request): &Task| show_task(topic, request);
        tasks.iter().map(show).collect()
    }

    #[test]
    fn what_follows_a_sync_of_its_log_follows_the_sync_of_all() {
        let mut jobs = vec![
            discard("a", 1),
            sync("a", 10),
            discard("b", 1),
            checkpoint("a", 1, true),
            discard("a", 2),
            sync("b", 20),
            checkpoint("a", 2, true),
            // The topic was deleted and made again.
            Job::Delete("a".into(), Vec::new()),
            discard("a", 3),
            sync("a", 30),
            discard("c", 1),
            Job::Stop,
        ];
        let in_order = shown(&jobs);
        let few = Round::of(mem::take(&mut jobs));
        assert_eq!(shown(&few.before), in_order, "too few to be done as one");
        assert!(few.syncs.is_empty() && few.after.is_empty());

        jobs = few.before;
        jobs.splice(
            0..0,
            (0..SYNCS_TOGETHER).map(|index| sync("x", index as u64)),
        );
        let round = Round::of(jobs);
        assert_eq!(shown(&round.before), ["a1", "b1", "c1"]);
        let syncs = show_tasks(&round.syncs[SYNCS_TOGETHER..]);
        assert_eq!(syncs, ["a to 10", "a#1", "b to 20"]);
        assert_eq!(
            shown(&round.after),
            ["a2", "a#2", "delete a", "a3", "a to 30", "stop"]
        );
    }

    #[test]
    fn what_somebody_waits_for_overtakes_all_but_what_it_depends_on() {
        let (sender, queue) = channel();
        let mut waiting = Waiting::new(&queue);
        let spill = Request::Spill {
            segment: SegmentNumber(1),
            memory: diskq::Memory::Heap(Box::default()),
            copy: SegmentNumber(2),
            sync: false,
        };
        let jobs = [
            sync("a", 10),
            checkpoint("a", 1, true),
            prepare("a", 2),
            Job::Log(key(0), "b".into(), spill),
            prepare("b", 1),
            Job::Delete("c".into(), Vec::new()),
            checkpoint("c", 1, false),
            checkpoint("d", 1, false),
        ];
        for job in jobs {
            sender.send(job).expect("somebody listens");
        }
        assert!(waiting.take_next());
        assert_eq!(show_tasks(&waiting.urgent), ["a+2", "d#1"]);
        let others = mem::take(&mut waiting.others);
        let is_fence: Vec<bool> = others.iter().map(Job::is_fence).collect();
        assert_eq!(is_fence, [false, false, true, false, true, false]);
        // The one that was in the way is done: the next overtakes again.
        others.iter().for_each(|job| waiting.note_done(job));
        waiting.urgent.clear();
        sender.send(prepare("b", 2)).expect("somebody listens");
        drop(sender);
        assert!(waiting.take_next());
        assert_eq!(show_tasks(&waiting.urgent), ["b+2"]);
        waiting.urgent.clear();
        assert!(!waiting.take_next(), "nobody is left to send");
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
        let (sender, queue) = channel();
        for index in 0..COUNT {
            sender
                .send(sync(&format!("t{index}"), index))
                .expect("somebody listens");
        }
        // Makes its directory.
        sender
            .send(checkpoint("new", 7, true))
            .expect("somebody listens");
        sender.send(prepare("new", 1)).expect("somebody listens");
        sender.send(Job::Stop).expect("somebody listens");
        worker.run(&queue);
        let mut next = || {
            let Mail::Keeper(_, reply) = inboxes[0].try_recv().expect("mail") else {
                panic!("other mail");
            };
            reply
        };
        assert!(matches!(next(), Reply::Prepared { result: Ok(_), .. }));
        for index in 0..COUNT {
            let Reply::Synced { upto, result } = next() else {
                panic!("another reply");
            };
            assert_eq!(upto, Seq(index));
            // The log of the first one is not there.
            assert_eq!(result.is_ok(), index > 0, "{result:?}");
        }
        let Reply::CheckpointWritten { number, result } = next() else {
            panic!("another reply");
        };
        assert!(number == CheckpointNumber(7) && result.is_ok());
        let written = std::fs::read(directory.path().join("new.log/checkpoint")).expect("a file");
        assert!(written.starts_with(b"bytes"));
    }
}
