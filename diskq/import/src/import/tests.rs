use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use diskq::{
    ChannelFacts, CheckpointRun, Durable, Keeper, Log, LogOptions, LogReader, Logs, Recovered,
    SeqRange, existing, open_log, undistributed,
};
use diskq_sim::{Crash, SimFiles};
use wire::id::{MessageId, Seq};

use super::*;
use crate::metadata::{FILE_NAME, Metadata};
use crate::nsqd_files::{QueueWriter, Record};

const WALL_NS: u64 = 1_760_000_000_000_000_000;
const LABEL: &str = "today";

fn data_path() -> PathBuf {
    PathBuf::from("/data")
}

/// Returns the topic orders with the channels billing and audit.
fn topics() -> Vec<TopicFacts> {
    let channel = |name: &str| ChannelFacts {
        name: name.to_owned(),
        paused: name == "audit",
    };
    vec![TopicFacts {
        name: "orders".to_owned(),
        paused: false,
        channels: vec![channel("billing"), channel("audit")],
    }]
}

fn sync_file_system(files: &SimFiles) {
    let whole = files.open_file_system(&data_path()).unwrap();
    files.sync_file_system(&whole).unwrap();
}

/// Adds a queue that holds messages with these numbers and attempts.
fn put(files: &SimFiles, queue: &str, records: &[(u64, u16)]) {
    let data_path = data_path();
    let mut writer = QueueWriter::new(files, &data_path, queue, 150);
    for &(n, attempts) in records {
        let body = format!("body {n:03}");
        let record = Record {
            timestamp_ns: n as i64,
            attempts,
            id: MessageId::new(Seq(n), 1).0,
            body: body.as_bytes(),
        };
        writer.append(&record).unwrap();
    }
    writer.finish().unwrap();
}

/// Returns a disk with the files that nsqd left.
fn original() -> SimFiles {
    let files = SimFiles::new();
    let billing = [(3, 0), (4, 0), (5, 0), (1, 2), (7, 0)];
    let audit = [(1, 0), (2, 0), (3, 0), (4, 1), (5, 0), (7, 0)];
    put(&files, "orders:billing", &billing);
    put(&files, "orders:audit", &audit);
    // A crash of nsqd left 7 in the topic's queue too.
    put(&files, "orders", &[(7, 0), (8, 0), (9, 0)]);
    let metadata = Metadata { topics: topics() }.encode();
    let write =
        |name: &str, bytes: &[u8]| files.write_at(&data_path().join(name), 0, bytes).unwrap();
    write(FILE_NAME, metadata.as_bytes());
    write("orders:audit.diskqueue.000009.dat.bad", b"bad");
    write("unlisted.diskqueue.000000.dat", b"records");
    sync_file_system(&files);
    files
}

fn expected() -> Owed {
    owed_of(&[
        ("", &[(8, 0), (9, 0)]),
        ("audit", &[(1, 0), (2, 0), (3, 0), (4, 1), (5, 0), (7, 0)]),
        ("billing", &[(1, 2), (3, 0), (4, 0), (5, 0), (7, 0)]),
    ])
}

/// Sorted bodies and attempts by channel. `None` is the topic itself.
type Owed = BTreeMap<String, Vec<(String, u16)>>;

fn owed_of(all: &[(&str, &[(u64, u16)])]) -> Owed {
    let owed = all.iter().map(|(channel, records)| {
        let bodies = records.iter().map(|&(n, attempts)| message(n, attempts));
        ((*channel).to_owned(), bodies.collect())
    });
    owed.collect()
}

fn message(n: u64, attempts: u16) -> (String, u16) {
    (format!("body {n:03}"), attempts)
}

/// What is owed of [`original`], and these messages.
fn expected_and(more: &[(&str, &[(u64, u16)])]) -> Owed {
    let mut expected = expected();
    for (channel, more) in owed_of(more) {
        let owed = expected.get_mut(&channel).expect("a queue");
        owed.extend(more);
        owed.sort();
    }
    expected
}

fn names(files: &SimFiles) -> Vec<String> {
    let entries = files.list(&data_path()).unwrap().into_iter();
    entries.map(|entry| entry.name).collect()
}

fn options() -> TakeoverOptions {
    TakeoverOptions {
        log: LogOptions {
            node: 5,
            segment_bytes_max: 4096,
            ..LogOptions::default()
        },
        message_bytes_max: 1 << 20,
        label: LABEL.to_owned(),
        wall_ns: WALL_NS,
    }
}

fn take(files: &SimFiles) -> Result<Takeover, DiskError> {
    take_over(files, &data_path(), &topics(), &options())
}

fn open(files: &SimFiles) -> Recovered {
    open_log(files, &data_path(), "orders", options().log, WALL_NS).unwrap()
}

/// Returns the messages that the log of orders owes.
fn owed(files: &SimFiles) -> Owed {
    let recovered = open(files);
    assert_eq!(recovered.damage, []);
    let checkpoint = recovered.checkpoint.clone().unwrap_or_default();
    let mut owed = Owed::new();
    let mut highest = Seq(0);
    for channel in &checkpoint.channels {
        let runs = existing(&recovered, &channel.runs);
        let ends = runs.iter().map(|run| run.range().end);
        highest = ends.fold(highest, Seq::max);
        owed.insert(channel.name.clone(), bodies(files, &recovered, &runs));
    }
    let waiting = undistributed(&recovered);
    if let Some(first) = waiting.first() {
        assert!(first.start >= highest, "what comes next must come behind");
    }
    owed.insert(String::new(), bodies(files, &recovered, &waiting));
    owed
}

fn bodies(files: &SimFiles, recovered: &Recovered, runs: &[CheckpointRun]) -> Vec<(String, u16)> {
    let data_path = data_path();
    let mut reader = LogReader::new(files, &data_path, "orders", recovered);
    let mut bodies = Vec::new();
    for run in runs {
        for seq in run.start.0..run.range().end.0 {
            let message = reader.read(Seq(seq)).unwrap().unwrap();
            let body = String::from_utf8(message.body.to_vec()).unwrap();
            assert_eq!(message.attempts, 1, "a first delivery sends it as it is");
            assert_eq!(message.id, MessageId::new(Seq(seq), 5));
            let time = message.timestamp_ns.to_string();
            assert!(body.ends_with(&time), "another time");
            bodies.push((body, run.attempts));
        }
    }
    bodies.sort();
    bodies
}

fn stored_count(files: &SimFiles) -> u64 {
    open(files).found.iter().map(SeqRange::len).sum()
}

/// Returns every file with its content, except the logs.
fn old_files(files: &SimFiles, directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = files.list(directory).unwrap();
    let old = entries.into_iter().filter(|entry| !entry.is_dir);
    old.map(|entry| {
        let mut bytes = vec![0; entry.bytes as usize];
        let path = directory.join(&entry.name);
        files.read_at(&path, 0, &mut bytes).unwrap();
        (entry.name, bytes)
    })
    .collect()
}

/// Checks that the takeover is complete and that a second one does nothing.
fn check_complete(files: &SimFiles, before: &BTreeMap<String, Vec<u8>>, expected: &Owed) {
    assert_eq!(owed(files), *expected);
    let nothing = Takeover {
        unlisted: vec!["unlisted".to_owned()],
        ..Takeover::default()
    };
    assert_eq!(take(files).unwrap(), nothing, "a second time");
    assert_eq!(owed(files), *expected);
    let mut kept = old_files(files, &data_path().join(format!("nsqd-original-{LABEL}")));
    let left = old_files(files, &data_path());
    let names: Vec<&str> = left.keys().map(String::as_str).collect();
    assert_eq!(names, [FILE_NAME, "unlisted.diskqueue.000000.dat"]);
    kept.extend(left);
    assert_eq!(kept, *before, "nsqd's files are kept");
    let is_over = |name: &String| name != commit::NEW && name != commit::DONE;
    assert!(self::names(files).iter().all(is_over));
}

#[test]
fn a_message_in_several_queues_is_stored_once() {
    let files = original();
    let before = old_files(&files, &data_path());
    let done = take(&files).unwrap();
    let expected_topic = TopicTakeover {
        name: "orders".to_owned(),
        message_count: 8,
        undistributed_count: 2,
        channels: vec![("billing".to_owned(), 5), ("audit".to_owned(), 6)],
        is_appended: false,
    };
    assert_eq!(done.topics, [expected_topic]);
    assert_eq!(done.notes.len(), 1, "{:?}", done.notes);
    assert!(done.notes[0].contains("000009.dat.bad"));
    assert_eq!(stored_count(&files), 8);
    let channels = open(&files).checkpoint.unwrap().channels;
    assert!(channels.iter().map(|it| it.paused).eq([false, true]));
    check_complete(&files, &before, &expected());
}

/// Every second crash also cuts the power.
fn crash(seed: u64) -> Crash {
    if seed.is_multiple_of(2) {
        Crash::Process
    } else {
        Crash::Power { seed }
    }
}

#[test]
fn each_file_call_may_be_the_last() {
    let mut points = 0;
    for nth in 1.. {
        let files = original();
        let before = old_files(&files, &data_path());
        files.die_at(nth);
        let result = take(&files);
        if files.fail_count() == 0 {
            result.unwrap();
            break;
        }
        points += 1;
        // Some crashes hit the recovery too.
        files.crash(crash(nth));
        if nth % 3 == 0 {
            files.die_at(nth / 2 + 1);
            let _ = take(&files);
            files.crash(crash(nth + 1));
        }
        take(&files).unwrap_or_else(|error| panic!("cut off at call {nth}: {error}"));
        check_complete(&files, &before, &expected());
    }
    assert!(points > 40, "the calls were not hit: {points}");
}

/// A takeover that a crash had cut off was not looked for: its files counted as due, whether or not they were in the new
/// logs.
#[test]
fn what_is_due_is_what_the_next_start_does() {
    let mut seen = BTreeSet::new();
    for nth in 1.. {
        let files = original();
        files.die_at(nth);
        let result = take(&files);
        let is_through = files.fail_count() == 0;
        files.crash(Crash::Process);
        if !is_through {
            result.unwrap_err();
        }
        let due = due_takeover(&files, &data_path(), &topics()).unwrap();
        let read =
            |goes_on| read_due(&files, &data_path(), &topics(), u64::MAX, || goes_on).unwrap();
        let content = read(true);
        assert!(
            content.is_complete && (read(false).message_count == 0),
            "call {nth}"
        );
        let done = take(&files).unwrap();
        assert!(
            content.notes.iter().all(|note| done.notes.contains(note)),
            "call {nth}"
        );
        let stored: u64 = done.topics.iter().map(|topic| topic.message_count).sum();
        assert!(content.message_count >= stored, "call {nth}");
        assert_eq!(due.completes_earlier, done.completed_earlier, "call {nth}");
        assert_eq!(due.queue_count > 0, done.original.is_some(), "call {nth}");
        assert_eq!(due.unlisted, done.unlisted, "call {nth}");
        seen.insert((due.completes_earlier, due.begins_anew, due.queue_count));
        let nothing = DueTakeover {
            completes_earlier: false,
            begins_anew: false,
            queue_count: 0,
            bytes: 0,
            unlisted: vec!["unlisted".to_owned()],
        };
        let left = due_takeover(&files, &data_path(), &topics()).unwrap();
        assert_eq!(left, nothing, "call {nth}");
        if is_through {
            break;
        }
    }
    let expected = [
        (false, false, 0),
        (false, false, 3),
        (false, true, 3),
        (true, false, 0),
    ];
    assert!(seen.iter().eq(&expected), "{seen:?}");
}

/// `nsqd --check` found nothing wrong with a takeover that no start can complete.
#[test]
fn a_takeover_that_cannot_be_completed_is_an_error_before_the_start() {
    let files = original();
    let manifest = data_path().join(commit::DONE).join("manifest");
    files.create_dir(&data_path().join(commit::DONE)).unwrap();
    files.write_at(&manifest, 0, b"damaged").unwrap();
    let text = due_takeover(&files, &data_path(), &topics()).unwrap_err();
    assert_eq!(text.to_string(), take(&files).unwrap_err().to_string());
    assert!(text.to_string().contains("manifest is damaged"), "{text}");
}

#[test]
fn each_file_call_may_fail() {
    for nth in 1.. {
        let files = original();
        let before = old_files(&files, &data_path());
        files.fail_nth(nth, ErrorKind::StorageFull);
        let result = take(&files);
        if files.fail_count() == 0 {
            break;
        }
        if result.is_err() && !names(&files).iter().any(|name| name == commit::DONE) {
            let is_as_before = old_files(&files, &data_path()) == before;
            let is_whole = is_as_before || owed(&files) == expected();
            assert!(is_whole, "neither happened nor not");
        }
        take(&files).unwrap_or_else(|error| panic!("failed at call {nth}: {error}"));
        check_complete(&files, &before, &expected());
    }
}

#[test]
fn a_full_disk_changes_nothing() {
    let files = original();
    let before = old_files(&files, &data_path());
    files.limit(Some(files.bytes() + 4096));
    let error = take(&files).unwrap_err().to_string();
    assert!(error.contains("disk full"), "{error}");
    assert_eq!(old_files(&files, &data_path()), before);
    assert_eq!(names(&files).len(), before.len(), "something is left");
    files.limit(None);
    take(&files).unwrap();
    check_complete(&files, &before, &expected());
}

/// Returns a log of ours whose grace is over: see [`with_log_in_grace`].
fn with_log() -> SimFiles {
    with_log_in_grace(1)
}

/// Returns a log of ours with messages: billing is owed 20 and 21, which the grace has, too, and 22 and 23 are undistributed.
/// 23 is deferred. `until_ns` is the end of the grace.
fn with_log_in_grace(until_ns: u64) -> SimFiles {
    let files = original();
    let keeper = Keeper::new(files.clone(), data_path());
    let mut log = Log::new(options().log);
    let mono = Duration::from_secs(1);
    let serve = |log: &mut Log| {
        while let Some(request) = log.next_request() {
            files.observe(&data_path(), "orders", log);
            if let Some(reply) = keeper.handle("orders", request) {
                log.handle_reply(mono, reply, &mut Vec::new());
            }
        }
    };
    for n in 20..24u64 {
        let body = format!("body {n:03}");
        let defer_ms = if n == 23 { 60_000 } else { 0 };
        let seq = loop {
            match log.append(mono, n, body.as_bytes(), defer_ms) {
                Ok(seq) => break seq,
                Err(_) => serve(&mut log),
            }
        };
        log.retain(SeqRange::one(seq), 1);
        if n == 21 {
            let run = CheckpointRun::fresh(SeqRange::new(Seq(seq.0 - 1), seq.offset(1)), 0);
            let channel = diskq::ChannelCheckpoint {
                name: "billing".to_owned(),
                runs: vec![CheckpointRun { attempts: 4, ..run }],
                ..diskq::ChannelCheckpoint::default()
            };
            let grace = diskq::GraceCheckpoint {
                until_ns,
                runs: vec![run],
            };
            let checkpoint = diskq::Checkpoint {
                channels: vec![channel],
                grace: Some(grace),
                ..diskq::Checkpoint::default()
            };
            log.sync_now();
            serve(&mut log);
            log.write_checkpoint(mono, &checkpoint, Durable::Yes);
            serve(&mut log);
        }
    }
    log.sync_now();
    serve(&mut log);
    files.observe(&data_path(), "orders", &log);
    sync_file_system(&files);
    files
}

/// Regression: a channel that nsqd made while the topic was in grace got none of the messages of the grace.
#[test]
fn a_channel_that_is_taken_over_in_grace_gets_the_messages_of_the_grace() {
    let files = with_log_in_grace(WALL_NS + 1);
    take(&files).unwrap();
    let expected = expected_and(&[
        ("", &[(22, 0), (23, 0)]),
        ("billing", &[(20, 4), (21, 4)]),
        ("audit", &[(20, 0), (21, 0)]),
    ]);
    assert_eq!(owed(&files), expected);
}

#[test]
fn a_log_of_ours_is_appended_to() {
    let old: [(&str, &[(u64, u16)]); 2] =
        [("", &[(22, 0), (23, 0)]), ("billing", &[(20, 4), (21, 4)])];
    let expected = expected_and(&old);
    let files = with_log();
    let before = old_files(&files, &data_path());
    let grace = open(&files).checkpoint.unwrap().grace;
    assert!(grace.is_some());
    let done = take(&files).unwrap();
    assert!(done.topics[0].is_appended);
    let recovered = open(&files);
    let checkpoint = recovered.checkpoint.as_ref().unwrap();
    assert_eq!(checkpoint.grace, grace, "later channels get it, too");
    let runs = undistributed(&recovered);
    assert!(runs.iter().any(|run| run.due_ns > 0), "{runs:?}");
    check_complete(&files, &before, &expected);

    for nth in 1.. {
        let files = with_log();
        files.die_at(nth);
        let _ = take(&files);
        if files.fail_count() == 0 {
            break;
        }
        files.crash(crash(nth));
        take(&files).unwrap_or_else(|error| panic!("cut off at call {nth}: {error}"));
        check_complete(&files, &before, &expected);
    }
}

#[test]
fn another_nsqd_in_between_is_noticed() {
    let files = original();
    let manifest = data_path().join(commit::DONE).join("manifest");
    for nth in 1.. {
        files.die_at(nth);
        let _ = take(&files);
        files.crash(Crash::Process);
        if files.length(&manifest).is_ok() {
            break;
        }
    }
    let grown = data_path().join("orders.diskqueue.000000.dat");
    let length = files.length(&grown).unwrap();
    files.write_at(&grown, length, b"more").unwrap();
    let error = take(&files).unwrap_err().to_string();
    assert!(error.contains("another nsqd ran here meanwhile"), "{error}");
    // This is the remedy that the error names.
    commit::remove_tree(&files, &data_path().join(commit::DONE)).unwrap();
    take(&files).unwrap();
    assert_eq!(owed(&files), expected());
}

#[test]
fn queues_in_any_order_are_matched() {
    let files = SimFiles::new();
    let up: Vec<(u64, u16)> = (1..200).map(|n| (n, 0)).collect();
    let down: Vec<(u64, u16)> = up.iter().rev().copied().collect();
    put(&files, "orders:billing", &up);
    put(&files, "orders:audit", &down);
    take(&files).unwrap();
    assert_eq!(stored_count(&files), 199);
    let all = owed_of(&[("", &[]), ("audit", &up), ("billing", &up)]);
    assert_eq!(owed(&files), all);
}

#[test]
fn a_message_twice_in_one_queue_comes_twice() {
    let files = SimFiles::new();
    put(&files, "orders:billing", &[(1, 0), (2, 0), (1, 1)]);
    put(&files, "orders:audit", &[(1, 0)]);
    take(&files).unwrap();
    let twice = owed_of(&[
        ("", &[]),
        ("audit", &[(1, 0)]),
        ("billing", &[(1, 0), (1, 1), (2, 0)]),
    ]);
    assert_eq!(owed(&files), twice);
}

#[test]
fn files_of_an_unlisted_queue_come_with_its_topic() {
    let files = SimFiles::new();
    put(&files, "orders:billing", &[(1, 0)]);
    let none = take_over(&files, &data_path(), &[], &options()).unwrap();
    assert_eq!(none.unlisted, ["orders:billing"]);
    assert_eq!(none.original, None);
    let later = take(&files).unwrap();
    assert_eq!(later.topics[0].message_count, 1);
    assert_eq!(later.unlisted, Vec::<String>::new());
}

#[test]
fn files_of_a_deleted_topic_are_left_alone() {
    let files = SimFiles::new();
    put(&files, "orders:billing", &[(1, 0)]);
    let keeper = Keeper::new(files.clone(), data_path());
    let tombstone = keeper.delete_topic("orders").unwrap();
    // nsqd.dat lists the topic because the deletion is newer.
    let done = take(&files).unwrap();
    assert_eq!(done.unlisted, ["orders:billing"]);
    assert_eq!(done.topics, []);
    let logs = Logs::list(&files, &data_path()).unwrap();
    assert_eq!(logs.topics, Vec::<String>::new());
    keeper.bury(&tombstone).unwrap();
    assert_eq!(take(&files).unwrap().topics[0].message_count, 1);
}

#[test]
fn empty_queues_make_no_log() {
    let files = SimFiles::new();
    let positions = data_path().join("orders.diskqueue.meta.dat");
    files.write_at(&positions, 0, b"0\n0,0\n0,0\n").unwrap();
    let done = take(&files).unwrap();
    assert_eq!(done.topics, []);
    assert!(done.original.is_some());
    assert_eq!(take(&files).unwrap(), Takeover::default());
    assert_eq!(names(&files), ["nsqd-original-today"]);
}

#[test]
fn messages_above_a_segment_get_one_of_their_own() {
    let files = SimFiles::new();
    let data_path = data_path();
    let mut writer = QueueWriter::new(&files, &data_path, "orders", 1 << 20);
    for n in 1..30u64 {
        let record = Record {
            timestamp_ns: n as i64,
            attempts: 0,
            id: MessageId::new(Seq(n), 1).0,
            body: &vec![n as u8; n as usize * 700],
        };
        writer.append(&record).unwrap();
    }
    writer.finish().unwrap();
    take(&files).unwrap();
    let recovered = open(&files);
    assert_eq!(recovered.damage, []);
    let mut reader = LogReader::new(&files, &data_path, "orders", &recovered);
    let first = recovered.found[0].start;
    for n in 1..30u64 {
        let message = reader.read(first.offset(n - 1)).unwrap().unwrap();
        assert_eq!(message.body, vec![n as u8; n as usize * 700]);
    }
}
