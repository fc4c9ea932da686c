use super::*;
use diskq::{CheckpointDraft, CheckpointJob, CheckpointNumber, Pages, SegmentNumber, SyncJob};
use engine_rules::{DeletedLog, TaskId};
use futures_lite::StreamExt;
use futures_lite::future::block_on;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use slotmap::KeyData;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use wire::id::Seq;

fn key(index: u32) -> TopicKey {
    KeyData::from_ffi(u64::from(index)).into()
}

fn sync(topic: &str, upto: u64) -> KeeperJob {
    let request = Request::Sync(SyncJob {
        segments: vec![SegmentNumber(1)],
        upto: Seq(upto),
        ..SyncJob::default()
    });
    KeeperJob::Log(key(0), topic.into(), request)
}

fn checkpoint(topic: &str, number: u64, sync: bool) -> KeeperJob {
    let request = Request::WriteCheckpoint(CheckpointJob {
        number: CheckpointNumber(number),
        place: 0,
        draft: CheckpointDraft::default(),
        sync_first: false,
        sync,
        names: sync,
    });
    KeeperJob::Log(key(0), topic.into(), request)
}

fn prepare(topic: &str, segment: u64) -> KeeperJob {
    let request = Request::Prepare {
        segment: SegmentNumber(segment),
        bytes: 4096,
        pages: Pages::Small,
    };
    KeeperJob::Log(key(0), topic.into(), request)
}

fn discard(topic: &str, segment: u64) -> KeeperJob {
    let request = Request::Discard {
        segment: SegmentNumber(segment),
        memory: None,
    };
    KeeperJob::Log(key(0), topic.into(), request)
}

fn delete(topic: &str) -> KeeperJob {
    let log = DeletedLog {
        topic: topic.into(),
        is_ephemeral: false,
        requests: Vec::new(),
        task: Some(TaskId(7)),
    };
    KeeperJob::Delete(log)
}

fn shown(jobs: &[KeeperJob]) -> Vec<String> {
    let show = |job: &KeeperJob| match job {
        KeeperJob::Log(_, topic, Request::Discard { segment, .. }) => {
            format!("{topic}{}", segment.0)
        }
        KeeperJob::Log(_, topic, request) => show_task(topic, request),
        KeeperJob::Free(_) => "free".to_owned(),
        KeeperJob::Delete(deletion) => format!("delete {}", deletion.topic),
        KeeperJob::Bury(_) => "bury".to_owned(),
        KeeperJob::Stop => "stop".to_owned(),
    };
    jobs.iter().map(show).collect()
}

fn show_task(topic: &str, request: &Request) -> String {
    match request {
        Request::Sync(SyncJob { upto, .. }) => format!("{topic} to {}", upto.0),
        Request::WriteCheckpoint(CheckpointJob { number, .. }) => format!("{topic}#{}", number.0),
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
        delete("a"),
        discard("a", 3),
        sync("a", 30),
        discard("c", 1),
        KeeperJob::Stop,
    ];
    let in_order = shown(&jobs);
    let few = SyncBatch::of(jobs);
    assert_eq!(shown(&few.before), in_order, "too few to be done as one");
    assert!(few.syncs.is_empty() && few.after.is_empty());

    let others = (0..SYNCS_TOGETHER).map(|index| sync("x", index as u64));
    let batch = SyncBatch::of(others.chain(few.before).collect());
    assert_eq!(shown(&batch.before), ["a1", "b1", "c1"]);
    let syncs = batch.syncs[SYNCS_TOGETHER..].iter();
    let syncs: Vec<String> = syncs.map(|(_, topic, job)| show_task(topic, job)).collect();
    assert_eq!(syncs, ["a to 10", "a#1", "b to 20"]);
    assert_eq!(
        shown(&batch.after),
        ["a2", "a#2", "delete a", "a3", "a to 30", "stop"]
    );
}

/// Returns the jobs that wait in a queue.
fn queued(queue: &Receiver<KeeperJob>) -> Vec<String> {
    shown(&queue.try_iter().collect::<Vec<KeeperJob>>())
}

fn spill(topic: &str) -> KeeperJob {
    let request = Request::Spill {
        segment: SegmentNumber(1),
        memory: diskq::Memory::Heap(Box::default()),
        copy: SegmentNumber(2),
        sync: false,
    };
    KeeperJob::Log(key(0), topic.into(), request)
}

#[test]
fn what_somebody_waits_for_overtakes_all_but_what_it_depends_on() {
    let (jobs, keeper) = channel();
    let (urgent, urgent_queue) = channel();
    let (loads, _loader) = channel();
    let order = Arc::new(JobOrder::default());
    let storage = Storage {
        jobs,
        urgent,
        loads,
        order: Arc::clone(&order),
    };
    let given = [
        sync("a", 10),
        checkpoint("a", 1, true),
        prepare("a", 2),
        spill("b"),
        spill("b"),
        prepare("b", 1),
        delete("c"),
        checkpoint("c", 1, false),
        checkpoint("d", 1, false),
    ];
    given.into_iter().for_each(|job| storage.give(job));
    assert_eq!(queued(&urgent_queue), ["a+2", "d#1"]);
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

    order.finish(&"b".into(), Duty::Keeper);
    order.finish(&"c".into(), Duty::Keeper);
    storage.give(prepare("b", 2));
    storage.give(prepare("c", 1));
    assert_eq!(queued(&keeper), ["b+2"], "its other spill is not done");
    assert_eq!(queued(&urgent_queue), ["c+1"]);
    order.finish(&"b".into(), Duty::Keeper);
    storage.give(prepare("b", 3));
    assert_eq!(queued(&urgent_queue), ["b+3"]);
    for topic in ["a", "b", "c", "d"] {
        order.finish(&topic.into(), Duty::Urgent);
    }
    assert!(
        order.topics.lock().is_empty(),
        "nothing is kept of idle topics"
    );
}

/// The storage of one shard, and its answers.
struct Tried {
    storage: Storage,
    threads: [JoinHandle<()>; 3],
    inbox: crate::shard::mail::Inbox,
}

impl Tried {
    fn start(data_path: &Path) -> Tried {
        let (post, mut inboxes) = Post::new(1);
        let started = Storage::start(ShardId(0), &data_path.into(), &post);
        let (storage, threads) = started.expect("a directory and threads");
        Tried {
            storage,
            threads,
            inbox: inboxes.remove(0),
        }
    }

    fn answer(&mut self) -> Reply {
        match block_on(self.inbox.0.next()) {
            Some(Mail::Keeper(_, reply)) => reply,
            _ => panic!("other mail, or none"),
        }
    }

    /// The tombstone of a deletion that worked.
    fn deleted(&mut self) -> Tombstone {
        match block_on(self.inbox.0.next()) {
            Some(Mail::Deleted(Some(TaskId(7)), Ok(Some(tombstone)))) => tombstone,
            _ => panic!("other mail, or none"),
        }
    }

    fn stop(self) {
        self.storage.give(KeeperJob::Stop);
        for thread in self.threads {
            thread.join().expect("a thread that ends");
        }
    }
}

/// Makes a file of a log that blocks every thread that opens it for writing, until the test reads it.
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
    tried.storage.give(delete("a"));
    // Time to do it wrong.
    thread::sleep(Duration::from_millis(50));
    let reader = File::open(stuck).expect("it is there still");
    let answer = tried.answer();
    let is_refused = matches!(answer, Reply::CheckpointWritten { result: Err(_), .. });
    assert!(is_refused, "a pipe has no room to reserve");
    drop(reader);
    let first = tried.deleted();
    tried.storage.give(prepare("b", 1));
    tried.storage.give(delete("b"));
    assert!(matches!(
        tried.answer(),
        Reply::Prepared { result: Ok(_), .. }
    ));
    let second = tried.deleted();
    tried.storage.give(KeeperJob::Bury(vec![first, second]));
    tried.stop();
    let left = std::fs::read_dir(directory.path()).expect("a directory");
    assert_eq!(left.count(), 0);
}

#[test]
fn many_syncs_are_done_at_once_and_answered_each() {
    const COUNT: u64 = SYNCS_TOGETHER as u64;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (post, mut inboxes) = Post::new(1);
    let order = Arc::new(JobOrder::default());
    let keeper = Keeper::new(OsFiles, directory.path());
    let thread = KeeperThread::new(ShardId(0), Duty::Keeper, keeper, &post, &order);
    let thread = thread.expect("a directory");
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
    sender.send(KeeperJob::Stop).expect("somebody listens");
    thread.run(&queue);
    let mut next = || {
        let Mail::Keeper(_, reply) = inboxes[0].0.try_recv().expect("mail") else {
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
    assert!(matches!(next(), Reply::Prepared { result: Ok(_), .. }));
    let written = std::fs::read(directory.path().join("new.log/checkpoint")).expect("a file");
    assert!(written.starts_with(b"RQCP"));
}

/// The answers of the last jobs of a deleted log reach nobody, and their memory stayed mapped until the process ended.
#[test]
fn a_deleted_log_leaves_no_mapping() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir(directory.path().join("t.log")).expect("a new directory");
    let (post, _inboxes) = Post::new(1);
    let order = Arc::new(JobOrder::default());
    let keeper = Keeper::new(OsFiles, directory.path());
    let thread = KeeperThread::new(ShardId(0), Duty::Keeper, keeper, &post, &order);
    let mut thread = thread.expect("a directory");
    let prepare = || Request::Prepare {
        segment: SegmentNumber(1),
        bytes: 1 << 16,
        pages: Pages::Small,
    };
    let is_mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux has it");
        maps.contains(&*directory.path().to_string_lossy())
    };
    let reply = thread.keeper.handle("t", prepare());
    assert!(is_mapped(), "a prepared segment is mapped");
    let memory = reply.and_then(diskq::Reply::into_memory);
    thread.keeper.free(memory.expect("the segment's memory"));
    assert!(!is_mapped(), "the keeper has taken it back");

    let log = DeletedLog {
        topic: "t".into(),
        is_ephemeral: false,
        requests: vec![prepare()],
        task: None,
    };
    assert!(thread.delete(log));
    assert!(!is_mapped());
}
