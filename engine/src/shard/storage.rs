//! The keeper: everything of a shard that may block on the disk, in three threads.
//!
//! ```text
//!   loader    reads cold segments back: a consumer that is behind must not wait until what producers
//!             push out of memory is written
//!   urgent    what somebody waits for: a new segment, the checkpoint that makes a channel
//!             ([`Request::is_urgent`]), if it is not fenced off by an earlier job of the same topic
//!   keeper    all else, in its order: on a slow disk one spill may take a tenth of a second, a sync longer
//! ```
//!
//! What the loader does may overtake everything: the file is whole and changes no more, and if a later
//! job removes it, nobody waits for it any longer.
//!
//! Thousands of topics have thousands of syncs every few seconds, of messages and of checkpoints, of about
//! a millisecond each: those that wait at the same time are done as one, of the file system.

use crate::log_error;
use crate::shard::mail::{Mail, Post};
use diskq::{Files, Keeper, OsFiles, Reply, Request};
use engine_core::{ShardId, TopicKey};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};

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
    urgent: Sender<Job>,
    loads: Sender<Job>,
    fences: Arc<Fences>,
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
    ) -> io::Result<(Storage, [JoinHandle<()>; 3])> {
        let fences = Arc::new(Fences::default());
        let start = |duty: Duty| {
            let (jobs, queue) = channel();
            let worker = Worker::new(shard, duty, data_path, post, &fences)?;
            let name = format!("{}-{}", duty.name(), shard.0);
            let thread = Builder::new()
                .name(name)
                .spawn(move || worker.run(&queue))?;
            Ok::<_, io::Error>((jobs, thread))
        };
        let (jobs, keeper) = start(Duty::Keeper)?;
        let (urgent, hurrier) = start(Duty::Urgent)?;
        let (loads, loader) = start(Duty::Loader)?;
        let storage = Storage {
            jobs,
            urgent,
            loads,
            fences,
        };
        Ok((storage, [keeper, hurrier, loader]))
    }

    /// Queues a job.
    pub(crate) fn give(&self, job: Job) {
        // The threads end only when told so: what comes after that is of no consequence.
        let _ = match &job {
            Job::Log(_, _, Request::Load { .. }) => self.loads.send(job),
            Job::Log(_, topic, request) if request.is_urgent() && self.fences.admit(topic) => {
                self.urgent.send(job)
            }
            Job::Log(..) | Job::Delete(..) => {
                if let Some(topic) = job.fence() {
                    self.fences.put(topic);
                }
                self.jobs.send(job)
            }
            Job::Stop => [&self.loads, &self.urgent, &self.jobs]
                .into_iter()
                .try_for_each(|thread| thread.send(Job::Stop)),
        };
    }
}

/// Which jobs of a topic are not done yet, as far as those of the other thread must wait for them. By
/// name: its log may be that of a topic of the same name, deleted before. Looked at a few times for each
/// segment, not for each message.
#[derive(Default)]
struct Fences {
    topics: Mutex<HashMap<Arc<str>, Undone>>,
    /// A job is done.
    done: Condvar,
}

/// Of a topic.
#[derive(Default)]
struct Undone {
    /// Jobs that no urgent one may overtake.
    fences: u32,
    urgent: u32,
}

impl Fences {
    /// An urgent job of `topic` is to be done. False: something is in its way.
    fn admit(&self, topic: &Arc<str>) -> bool {
        let mut topics = self.topics();
        let undone = topics.entry(Arc::clone(topic)).or_default();
        let may_overtake = undone.fences == 0;
        undone.urgent += u32::from(may_overtake);
        may_overtake
    }

    fn put(&self, topic: &Arc<str>) {
        let mut topics = self.topics();
        topics.entry(Arc::clone(topic)).or_default().fences += 1;
    }

    /// A job that was admitted or put is done by its thread.
    fn note_done(&self, topic: &Arc<str>, duty: Duty) {
        let mut topics = self.topics();
        if let Entry::Occupied(mut entry) = topics.entry(Arc::clone(topic)) {
            let undone = entry.get_mut();
            undone.urgent -= u32::from(duty == Duty::Urgent);
            undone.fences -= u32::from(duty == Duty::Keeper);
            if undone.urgent + undone.fences == 0 {
                entry.remove();
            }
        }
        self.done.notify_all();
    }

    /// Waits until no urgent job of `topic` is left. The topic must have a fence: no new one comes.
    fn wait_for_urgent(&self, topic: &Arc<str>) {
        let has_urgent = |topics: &mut HashMap<Arc<str>, Undone>| {
            topics.get(topic).is_some_and(|undone| undone.urgent > 0)
        };
        let waited = self.done.wait_while(self.topics(), has_urgent);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn topics(&self) -> MutexGuard<'_, HashMap<Arc<str>, Undone>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a thread is for.
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

/// One of the threads.
struct Worker {
    shard: ShardId,
    duty: Duty,
    keeper: Keeper<OsFiles>,
    whole: File,
    post: Post,
    fences: Arc<Fences>,
}

impl Worker {
    fn new(
        shard: ShardId,
        duty: Duty,
        data_path: &Path,
        post: &Post,
        fences: &Arc<Fences>,
    ) -> io::Result<Worker> {
        Ok(Worker {
            shard,
            duty,
            keeper: Keeper::new(OsFiles, data_path),
            whole: OsFiles.whole(data_path)?,
            post: post.clone(),
            fences: Arc::clone(fences),
        })
    }

    fn run(&self, queue: &Receiver<Job>) {
        while let Ok(first) = queue.recv() {
            let jobs = [first].into_iter().chain(queue.try_iter()).collect();
            if self.do_round(Round::of(jobs)).is_break() {
                return;
            }
        }
    }

    /// Does what waited at the same time.
    fn do_round(&self, round: Round) -> ControlFlow<()> {
        self.do_jobs(round.before)?;
        self.sync_together(round.syncs);
        self.do_jobs(round.after)
    }

    fn do_jobs(&self, jobs: Vec<Job>) -> ControlFlow<()> {
        let mut jobs = jobs.into_iter().peekable();
        while let Some(job) = jobs.next() {
            let beside = if job.is_spill() {
                jobs.next_if(Job::is_spill)
            } else {
                None
            };
            match beside {
                None => self.do_job(job)?,
                Some(other) => self.do_both(job, other)?,
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

    fn sync_together(&self, syncs: Vec<Task>) {
        if syncs.is_empty() {
            return;
        }
        let mut promised = Vec::with_capacity(syncs.len());
        for (key, topic, request) in syncs {
            if let Some(reply) = self.keeper.handle_but_sync(&topic, request) {
                promised.push((key, topic, reply));
            }
        }
        let topics = promised.iter().map(|(_, topic, _)| &**topic);
        let results = self.keeper.sync_together(&self.whole, topics);
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
        let noted = match self.duty {
            Duty::Keeper => job.fence().cloned(),
            Duty::Urgent => job.topic().cloned(),
            Duty::Loader => None,
        };
        match job {
            Job::Log(key, topic, request) => self.reply(key, self.keeper.handle(&topic, request)),
            Job::Stop => return ControlFlow::Break(()),
            Job::Delete(topic, requests) => {
                self.fences.wait_for_urgent(&topic);
                for request in requests {
                    // Nobody waits for the answers any more; memory in them is unmapped here.
                    drop(self.keeper.handle(&topic, request));
                }
                if let Err(error) = self.keeper.delete_log(&topic) {
                    log_error!("TOPIC({topic}): cannot remove its files - {error}");
                }
            }
        }
        if let Some(topic) = noted {
            self.fences.note_done(&topic, self.duty);
        }
        ControlFlow::Continue(())
    }
}

/// A job of a topic's log.
type Task = (TopicKey, Arc<str>, Request);

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

    /// The topic whose urgent jobs may not overtake this one: the directory that it removes may be the
    /// one that is made, and what it spills leaves memory for what is prepared. Without that a topic that
    /// outruns the disk would get new memory for everything.
    fn fence(&self) -> Option<&Arc<str>> {
        let is_fence = matches!(self, Job::Delete(..)) || self.is_spill();
        self.topic().filter(|_| is_fence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskq::{CheckpointNumber, Pages, SegmentNumber};
    use futures_lite::StreamExt;
    use futures_lite::future::block_on;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::path::PathBuf;
    use std::time::Duration;
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
            Request::Spill { .. } => format!("{topic} spilled"),
            _ => unreachable!("not in these tests"),
        }
    }

    #[test]
    fn what_follows_a_sync_of_its_log_follows_the_sync_of_all() {
        let jobs = vec![
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
        let few = Round::of(jobs);
        assert_eq!(shown(&few.before), in_order, "too few to be done as one");
        assert!(few.syncs.is_empty() && few.after.is_empty());

        let others = (0..SYNCS_TOGETHER).map(|index| sync("x", index as u64));
        let round = Round::of(others.chain(few.before).collect());
        assert_eq!(shown(&round.before), ["a1", "b1", "c1"]);
        let syncs = round.syncs[SYNCS_TOGETHER..].iter();
        let syncs: Vec<String> = syncs.map(|(_, topic, job)| show_task(topic, job)).collect();
        assert_eq!(syncs, ["a to 10", "a#1", "b to 20"]);
        assert_eq!(
            shown(&round.after),
            ["a2", "a#2", "delete a", "a3", "a to 30", "stop"]
        );
    }

    /// What waits in a queue.
    fn queued(queue: &Receiver<Job>) -> Vec<String> {
        shown(&queue.try_iter().collect::<Vec<Job>>())
    }

    fn spill(topic: &str) -> Job {
        let request = Request::Spill {
            segment: SegmentNumber(1),
            memory: diskq::Memory::Heap(Box::default()),
            copy: SegmentNumber(2),
            sync: false,
        };
        Job::Log(key(0), topic.into(), request)
    }

    #[test]
    fn what_somebody_waits_for_overtakes_all_but_what_it_depends_on() {
        let (jobs, keeper) = channel();
        let (urgent, hurrier) = channel();
        let (loads, _loader) = channel();
        let fences = Arc::new(Fences::default());
        let storage = Storage {
            jobs,
            urgent,
            loads,
            fences: Arc::clone(&fences),
        };
        let given = [
            sync("a", 10),
            checkpoint("a", 1, true),
            prepare("a", 2),
            spill("b"),
            spill("b"),
            prepare("b", 1),
            Job::Delete("c".into(), Vec::new()),
            checkpoint("c", 1, false),
            checkpoint("d", 1, false),
        ];
        given.into_iter().for_each(|job| storage.give(job));
        assert_eq!(queued(&hurrier), ["a+2", "d#1"]);
        let in_order = [
            "a to 10",
            "a#1",
            "b spilled",
            "b spilled",
            "b+1",
            "delete c",
            "c#1",
        ];
        assert_eq!(queued(&keeper), in_order);

        fences.note_done(&"b".into(), Duty::Keeper);
        fences.note_done(&"c".into(), Duty::Keeper);
        storage.give(prepare("b", 2));
        storage.give(prepare("c", 1));
        assert_eq!(queued(&keeper), ["b+2"], "its other spill is not done");
        assert_eq!(queued(&hurrier), ["c+1"]);
        fences.note_done(&"b".into(), Duty::Keeper);
        storage.give(prepare("b", 3));
        assert_eq!(queued(&hurrier), ["b+3"]);
        for topic in ["a", "b", "c", "d"] {
            fences.note_done(&topic.into(), Duty::Urgent);
        }
        assert!(fences.topics().is_empty(), "nothing is kept of idle topics");
    }

    /// A keeper of its own for a test, and what it answers.
    struct Tried {
        storage: Storage,
        threads: [JoinHandle<()>; 3],
        inbox: crate::shard::mail::Inbox,
    }

    impl Tried {
        fn start(data_path: &Path) -> Tried {
            let (post, mut inboxes) = Post::new(1);
            let started = Storage::start(ShardId(0), data_path, &post);
            let (storage, threads) = started.expect("a directory and threads");
            Tried {
                storage,
                threads,
                inbox: inboxes.remove(0),
            }
        }

        fn answer(&mut self) -> Reply {
            match block_on(self.inbox.next()) {
                Some(Mail::Keeper(_, reply)) => reply,
                _ => panic!("other mail, or none"),
            }
        }

        fn stop(self) {
            self.storage.give(Job::Stop);
            for thread in self.threads {
                thread.join().expect("a thread that ends");
            }
        }
    }

    /// A file of a log that nobody can open for writing until somebody reads it.
    fn stuck_file(data_path: &Path, topic: &str, name: &str) -> PathBuf {
        let log = data_path.join(format!("{topic}.log"));
        std::fs::create_dir(&log).expect("a new directory");
        let path = log.join(name);
        let made = mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0);
        made.expect("a pipe");
        path
    }

    #[test]
    fn what_somebody_waits_for_waits_for_no_slow_disk() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let stuck = stuck_file(directory.path(), "slow", "000000000001.segment");
        let mut tried = Tried::start(directory.path());
        tried.storage.give(sync("slow", 10));
        tried.storage.give(prepare("other", 1));
        let answer = tried.answer();
        assert!(matches!(answer, Reply::Prepared { result: Ok(_), .. }));
        let reader = File::open(stuck).expect("the other end");
        let answer = tried.answer();
        let is_refused = matches!(answer, Reply::Synced { result: Err(_), .. });
        assert!(is_refused, "a pipe cannot be made durable");
        drop(reader);
        tried.stop();
    }

    #[test]
    fn a_deletion_waits_for_what_is_under_way_in_its_log() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let stuck = stuck_file(directory.path(), "a", "checkpoint");
        let mut tried = Tried::start(directory.path());
        tried.storage.give(checkpoint("a", 1, false));
        tried.storage.give(Job::Delete("a".into(), Vec::new()));
        // Time to do it wrong.
        thread::sleep(Duration::from_millis(50));
        let reader = File::open(stuck).expect("it is there still");
        let answer = tried.answer();
        let is_refused = matches!(answer, Reply::CheckpointWritten { result: Err(_), .. });
        assert!(is_refused, "a pipe has no room to reserve");
        drop(reader);
        tried.storage.give(prepare("b", 1));
        tried.storage.give(Job::Delete("b".into(), Vec::new()));
        assert!(matches!(
            tried.answer(),
            Reply::Prepared { result: Ok(_), .. }
        ));
        tried.stop();
        let left = std::fs::read_dir(directory.path()).expect("a directory");
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn many_syncs_are_done_at_once_and_answered_each() {
        const COUNT: u64 = SYNCS_TOGETHER as u64;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (post, mut inboxes) = Post::new(1);
        let fences = Arc::new(Fences::default());
        let worker = Worker::new(ShardId(0), Duty::Keeper, directory.path(), &post, &fences);
        let worker = worker.expect("a directory");
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
        sender.send(Job::Stop).expect("somebody listens");
        worker.run(&queue);
        let mut next = || {
            let Mail::Keeper(_, reply) = inboxes[0].try_recv().expect("mail") else {
                panic!("other mail");
            };
            reply
        };
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
