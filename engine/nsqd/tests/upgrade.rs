//! Moves from the original nsqd to ringq and back: data directories of the original are taken over, and `diskq export`
//! writes them back. If NSQD_ORIGINAL is the path of an nsqd 1.3.0, that program reads the export.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use diskq::{DataPathLock, OsFiles};
use diskq_import::{ExportOptions, Metadata};

use crate::support::{Broker, Launch, TIMEOUT, Tmpfs, contents, wait_until, without_privileges};

/// A queue: the number and the attempts of each message.
type Queue = Vec<(u32, u16)>;

/// A directory of `diskq/import/tests/data/nsqd` and its contents.
struct Fixture {
    name: &'static str,
    paused: bool,
    /// The undistributed messages of the topic.
    waiting: Queue,
    /// The name of each channel, whether the channel is paused, and its messages.
    channels: Vec<(&'static str, bool, Queue)>,
}

fn fixtures() -> Vec<Fixture> {
    let fresh = |numbers: std::ops::Range<u32>| numbers.map(|n| (n, 0)).collect::<Queue>();
    let fixture = |name, billing: Queue, audit: Queue| Fixture {
        name,
        paused: false,
        waiting: Vec::new(),
        channels: vec![("billing", false, billing), ("audit", false, audit)],
    };
    let requeued = [(0, 2), (1, 1), (2, 1), (3, 0), (4, 0), (5, 0), (6, 0)];
    let billing_only = |name, billing| Fixture {
        channels: vec![("billing", false, billing)],
        ..fixture(name, Vec::new(), Vec::new())
    };
    vec![
        Fixture {
            waiting: fresh(0..3),
            channels: Vec::new(),
            ..fixture("topic-only", Vec::new(), Vec::new())
        },
        fixture("two-channels", fresh(25..40), fresh(10..40)),
        fixture("requeued", requeued.to_vec(), fresh(0..7)),
        Fixture {
            paused: true,
            waiting: fresh(3..5),
            channels: vec![
                ("billing", true, fresh(0..3)),
                ("audit", false, fresh(0..3)),
            ],
            ..fixture("paused", Vec::new(), Vec::new())
        },
        fixture("rolled", fresh(13..30), fresh(0..30)),
        fixture("killed", fresh(0..14), fresh(0..14)),
        billing_only("bad", fresh(5..9)),
        billing_only("leftovers", fresh(0..2)),
    ]
}

fn fixture_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../diskq/import/tests/data/nsqd")
        .join(name)
}

/// Copies a fixture's files into `to`.
fn copy(name: &str, to: &Path) {
    for (path, bytes) in contents(&fixture_path(name)) {
        let file = path.file_name().expect("a file has a name");
        std::fs::write(to.join(file), bytes).expect("the copy can be written");
    }
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory can be made")
}

fn start(data_path: &Path, program: Option<PathBuf>) -> Broker {
    let launch = Launch {
        data_path: Some(data_path.to_path_buf()),
        program,
        ..Launch::new(2, &[])
    };
    launch.start()
}

/// Checks that the depths and pauses are those of the original.
fn check_stats(broker: &Broker, fixture: &Fixture) {
    let name = fixture.name;
    let topic = broker.topic("orders");
    assert_eq!(topic["depth"], fixture.waiting.len(), "{name}");
    assert_eq!(topic["paused"], fixture.paused, "{name}");
    let channels = topic["channels"].as_array().expect("a list");
    assert_eq!(channels.len(), fixture.channels.len(), "{name}");
    for (channel, paused, queue) in &fixture.channels {
        let stats = broker.channel_stats("orders", channel);
        let stats = stats.expect("the channel is there");
        assert_eq!(stats["depth"], queue.len(), "{name} {channel}");
        assert_eq!(stats["paused"], *paused, "{name} {channel}");
    }
}

/// Checks that every channel delivers each of its messages once, with one more attempt than before.
fn check_deliveries(broker: &Broker, fixture: &Fixture) {
    broker.admin("/topic/unpause?topic=orders");
    let mut channels = fixture.channels.clone();
    if channels.is_empty() {
        channels.push(("first", false, Vec::new()));
    }
    for (channel, paused, queue) in &channels {
        if *paused {
            broker.admin(&format!("/channel/unpause?topic=orders&channel={channel}"));
        }
        let mut expected: BTreeMap<Vec<u8>, u16> = BTreeMap::new();
        for (n, attempts) in queue.iter().chain(&fixture.waiting) {
            expected.insert(format!("message {n:04}").into_bytes(), attempts + 1);
        }
        let mut client = broker.consumer("orders", channel, 100);
        let mut delivered = BTreeMap::new();
        while delivered.len() < expected.len() {
            let message = client.take();
            let again = delivered.insert(message.body, message.attempts);
            assert_eq!(
                again, None,
                "{} {channel}: a message came twice",
                fixture.name
            );
        }
        assert_eq!(delivered, expected, "{} {channel}", fixture.name);
        let is_drained = || {
            let stats = broker.channel_stats("orders", channel);
            let stats = stats.expect("the channel is there");
            stats["depth"] == 0 && stats["in_flight_count"] == 0
        };
        let name = fixture.name;
        assert!(
            wait_until(TIMEOUT, is_drained),
            "{name} {channel}: messages are left"
        );
    }
}

#[test]
fn a_data_directory_of_nsqd_is_taken_over() {
    for fixture in fixtures() {
        let directory = directory();
        copy(fixture.name, directory.path());
        let mut broker = start(directory.path(), None);
        test_support::assert_like(broker.log(), "…TAKEOVER: topic orders…");
        check_stats(&broker, &fixture);
        assert!(broker.sigterm_and_wait().success());
        // The takeover happens once, and a crash loses nothing of it.
        broker.restart();
        assert!(
            !broker.log().contains("TAKEOVER: topic"),
            "{}",
            broker.log()
        );
        check_stats(&broker, &fixture);
        broker.kill9();
        broker.restart();
        check_stats(&broker, &fixture);
        check_deliveries(&broker, &fixture);
    }
}

/// Returns the records of a queue in nsqd's files, sorted: number in the body, attempts, time.
fn records(directory: &Path, queue: &str) -> Vec<(String, u16, i64)> {
    let mut names: Vec<PathBuf> = contents(directory)
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    names.retain(|path| {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        name.starts_with(&format!("{queue}.diskqueue.0")) && name.ends_with(".dat")
    });
    names.sort();
    let mut records = Vec::new();
    for name in names {
        let bytes = std::fs::read(&name).expect("a file");
        let mut rest = &bytes[..];
        while let Some((size, behind)) = rest.split_first_chunk() {
            let (record, behind) = behind.split_at(u32::from_be_bytes(*size) as usize);
            let time = i64::from_be_bytes(record[..8].try_into().expect("eight bytes"));
            let attempts = u16::from_be_bytes([record[8], record[9]]);
            let body = String::from_utf8_lossy(&record[26..]).into_owned();
            records.push((body, attempts, time));
            rest = behind;
        }
    }
    records.sort();
    records
}

#[test]
fn going_back_loses_nothing() {
    let original = std::env::var_os("NSQD_ORIGINAL").map(PathBuf::from);
    if original.is_none() {
        // The original is not on every machine. The checks above have covered every byte of the
        // export.
        eprintln!("skipped: NSQD_ORIGINAL names no nsqd 1.3.0 that could read the export");
    }
    for fixture in fixtures() {
        let (directory, output) = (directory(), directory());
        copy(fixture.name, directory.path());
        let mut broker = start(directory.path(), None);
        assert!(broker.sigterm_and_wait().success());
        let data_path = directory.path();
        let lock = DataPathLock::acquire(data_path).expect("nobody has it");
        let metadata = Metadata::load(data_path).expect("nsqd.dat is there");
        let options = ExportOptions {
            file_bytes_max: 500,
        };
        let before = contents(data_path);
        diskq_import::export(&OsFiles, data_path, output.path(), &metadata, &options)
            .expect("exported");
        drop(lock);
        assert!(before == contents(data_path), "the data path was changed");
        for (channel, _, queue) in &fixture.channels {
            let queue_name = format!("orders:{channel}");
            let written = records(output.path(), &queue_name);
            assert_eq!(written.len(), queue.len(), "{} {channel}", fixture.name);
            // The fixture's files begin with messages that were finished.
            let all = records(&fixture_path(fixture.name), &queue_name);
            assert!(
                written.iter().all(|record| all.contains(record)),
                "{} {channel}",
                fixture.name
            );
            let mut numbers: Vec<(String, u16)> = queue
                .iter()
                .map(|(n, attempts)| (format!("message {n:04}"), *attempts))
                .collect();
            numbers.sort();
            let found: Vec<(String, u16)> = written
                .into_iter()
                .map(|(body, attempts, _)| (body, attempts))
                .collect();
            assert_eq!(found, numbers, "{} {channel}", fixture.name);
        }
        assert_eq!(
            records(output.path(), "orders").len(),
            fixture.waiting.len()
        );
        if let Some(original) = &original {
            let broker = start(output.path(), Some(original.clone()));
            check_stats(&broker, &fixture);
            check_deliveries(&broker, &fixture);
        }
        // ringq takes over the export.
        let broker = start(output.path(), None);
        if original.is_none() {
            check_stats(&broker, &fixture);
            check_deliveries(&broker, &fixture);
        }
    }
}

/// One queue cannot be read, or one log to which a queue would be appended.
#[test]
fn one_unreadable_file_refuses_the_takeover() {
    for closed in ["orders:audit.diskqueue.000000.dat", "orders.log"] {
        let data = directory();
        let launch = || {
            Launch::new(2, &[])
                .via(without_privileges())
                .at(data.path())
        };
        let mut broker = launch().start();
        let created = broker.post("/topic/create?topic=orders", b"");
        created.expect_status(200);
        assert!(broker.sigterm_and_wait().success());
        copy("two-channels", data.path());
        let allow = |mode| {
            let permissions = Permissions::from_mode(mode);
            std::fs::set_permissions(data.path().join(closed), permissions).expect("it is ours");
        };
        let before = contents(data.path());
        allow(0o000);
        let Err(exit) = launch().try_start() else {
            panic!("the broker started without {closed}");
        };
        assert_eq!(exit.code(), 1, "{exit}");
        let line = exit.stderr.lines().find(|line| line.contains("FATAL"));
        let line = line.expect("it says why");
        for part in [
            closed,
            "ermission denied",
            "wholly or not at all",
            "move the",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        allow(0o700);
        assert!(before == contents(data.path()), "something was changed");
        check_stats(&launch().start(), &fixtures()[1]);
    }
}

/// Regression: the broker gave the advice to move the original's files away even after the commit,
/// when these files no longer count.
#[test]
fn a_committed_takeover_that_cannot_be_completed_is_not_to_be_undone() {
    let data = directory();
    copy("two-channels", data.path());
    let done = data.path().join("import.done");
    std::fs::create_dir(&done).expect("the name is free");
    std::fs::write(done.join("manifest"), "damaged").expect("the directory is ours");
    let launch = Launch::new(1, &[]).at(data.path());
    let Err(exit) = launch.try_start() else {
        panic!("the broker started without a manifest");
    };
    assert_eq!(exit.code(), 1, "{exit}");
    let line = exit.stderr.lines().find(|line| line.contains("FATAL"));
    let line = line.expect("it says why");
    assert!(line.contains("manifest is damaged"), "{line}");
    assert!(line.contains("the takeover counts already"), "{line}");
    assert!(!line.contains("*.diskqueue.*"), "{line}");
}

#[test]
fn without_room_nothing_changes() {
    let Some(disk) = Tmpfs::mount("256k") else {
        return;
    };
    copy("two-channels", &disk.path());
    let filler = disk.fill("filler");
    let before = contents(&disk.path());
    let launch = Launch::new(1, &[]).at(disk.path());
    let Err(exit) = launch.try_start() else {
        panic!("the broker started without room");
    };
    let why = "failed to take over the data files of nsqd - …no space left on device";
    exit.expect(1, &format!("…FATAL: {why}…"));
    assert!(
        before == contents(&disk.path()),
        "a refused start changed the data path: {exit}"
    );
    std::fs::remove_file(filler).expect("the filler can go");
    let broker = start(&disk.path(), None);
    check_stats(&broker, &fixtures()[1]);
}
