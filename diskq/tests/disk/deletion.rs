use std::io::ErrorKind;
use std::path::Path;

use diskq::{Files, Keeper, Logs, deleted_topic};
use diskq_log::{Pages, Reply, Request, SegmentNumber, TopicFacts};
use diskq_sim::{Call, Crash, SimFiles};

const DATA_PATH: &str = "/data";

fn keeper() -> Keeper<SimFiles> {
    Keeper::new(SimFiles::new(), DATA_PATH)
}

/// Does the first job of the log of `topic`.
fn prepare(keeper: &Keeper<SimFiles>, topic: &str) -> Result<(), String> {
    let request = Request::Prepare {
        segment: SegmentNumber(1),
        bytes: 4096,
        pages: Pages::Small,
    };
    match keeper.handle(topic, request) {
        Some(Reply::Prepared { result, .. }) => result.map(drop).map_err(|failure| failure.text),
        reply => panic!("{reply:?}"),
    }
}

fn logs(keeper: &Keeper<SimFiles>) -> Logs {
    Logs::list(keeper.files(), Path::new(DATA_PATH)).unwrap()
}

/// The topics that a start finds beside an nsqd.dat that lists `listed`.
fn topics(keeper: &Keeper<SimFiles>, listed: &[&str]) -> Vec<String> {
    let facts = |name: &&str| TopicFacts {
        name: (*name).to_owned(),
        ..TopicFacts::default()
    };
    let listed: Vec<_> = listed.iter().map(facts).collect();
    logs(keeper).topics(&listed).into_keys().collect()
}

/// A log whose directory and name are durable.
fn durable_log(topic: &str) -> Keeper<SimFiles> {
    let keeper = keeper();
    prepare(&keeper, topic).unwrap();
    keeper.files().sync_dir(Path::new(DATA_PATH)).unwrap();
    keeper
}

#[test]
fn a_deletion_is_complete_and_durable_or_has_not_happened() {
    let crashes = (0..20).map(|seed| Crash::Power { seed });
    for crash in crashes.chain([Crash::Process]) {
        for has_log in [true, false] {
            for nth in 1.. {
                let keeper = if has_log { durable_log("t") } else { keeper() };
                keeper.files().fail_nth(nth, ErrorKind::Other);
                let result = keeper.delete_topic("t");
                let is_hit = keeper.files().fail_count() == 1;
                let is_told = result.is_ok();
                if let Ok(tombstone) = result {
                    // The topic counts as deleted, even if some of its files cannot be removed.
                    let _ = keeper.unlink(&tombstone);
                }
                keeper.files().crash(crash);
                let expected: &[&str] = if is_told { &[] } else { &["t"] };
                if crash == Crash::Process {
                    // Not asserted after a power failure: then the rename may be durable, and its reversal not.
                    assert_eq!(topics(&keeper, &["t"]), expected, "call {nth}");
                } else if is_told {
                    assert_eq!(topics(&keeper, &["t"]), [""; 0], "call {nth}");
                }
                if !is_hit {
                    assert!(is_told && nth > 3, "each call of a deletion was failed");
                    break;
                }
            }
        }
    }
}

/// A topic that is made again under its name does not meet the files of the one before.
#[test]
fn while_a_deletion_fails_the_jobs_of_its_name_fail() {
    for (call, kind) in [
        (Call::Rename, ErrorKind::Other),
        (Call::Open, ErrorKind::OutOfMemory),
    ] {
        let keeper = durable_log("t");
        let segment = Path::new("/data/t.log/000000000001.segment");
        keeper.files().write_at(segment, 0, b"old").unwrap();
        keeper.files().fail_next(call, kind);
        keeper.delete_topic("t").unwrap_err();
        let why = prepare(&keeper, "t").unwrap_err();
        assert!(why.contains("could not be deleted: "), "{why}");
        let mut bytes = [0; 3];
        keeper.files().read_at(segment, 0, &mut bytes).unwrap();
        assert_eq!(bytes, *b"old");
        prepare(&keeper, "other").unwrap();
        let tombstone = keeper.delete_topic("t").unwrap();
        prepare(&keeper, "t").unwrap();
        keeper.files().read_at(segment, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 3], "another file");
        keeper.bury(&tombstone).unwrap();
        assert_eq!(topics(&keeper, &[]), ["other", "t"]);
    }
}

/// The kernel reports a lost name to one sync only, and the name may be any topic's.
#[test]
pub(super) fn a_failed_sync_of_the_data_path_is_final() {
    let keeper = durable_log("t");
    keeper.files().fail_next(Call::SyncDir, libc::EIO);
    for topic in ["t", "t", "never was"] {
        keeper.delete_topic(topic).unwrap_err();
    }
    assert_eq!(topics(&keeper, &[]), ["t"]);
    assert!(!keeper.can_delete_topics());
}

#[test]
fn all_threads_refuse_jobs_of_a_topic_that_could_not_be_deleted() {
    let keeper = durable_log("t");
    let urgent = keeper.clone();
    keeper.files().fail_nth(1, ErrorKind::Other);
    keeper.delete_topic("t").unwrap_err();
    let why = prepare(&urgent, "t").unwrap_err();
    assert!(why.contains("could not be deleted: "), "{why}");
    keeper.delete_topic("t").unwrap();
    prepare(&urgent, "t").unwrap();
}

#[test]
fn a_tombstone_is_newer_than_nsqd_dat_and_older_than_a_log() {
    for has_log in [true, false] {
        let keeper = if has_log { durable_log("t") } else { keeper() };
        assert_eq!(topics(&keeper, &["t", "u"]), ["t", "u"]);
        let first = keeper.delete_topic("t").unwrap();
        assert_eq!(topics(&keeper, &["t", "u"]), ["u"]);
        prepare(&keeper, "t").unwrap();
        assert_eq!(topics(&keeper, &["u"]), ["t", "u"]);
        // nsqd.dat describes the deleted topic.
        let facts = TopicFacts {
            name: "t".to_owned(),
            ..TopicFacts::default()
        };
        assert_eq!(logs(&keeper).topics(&[facts])["t"], None);
        // Each deletion has a tombstone of its own.
        let second = keeper.delete_topic("t").unwrap();
        keeper.bury(&first).unwrap();
        assert_eq!(topics(&keeper, &["t"]), [""; 0]);
        keeper.bury(&second).unwrap();
        assert_eq!(topics(&keeper, &["t"]), ["t"]);
        let data_path = Path::new(DATA_PATH);
        assert_eq!(keeper.files().list(data_path).unwrap(), [], "nothing stays");
    }
}

#[test]
fn an_ephemeral_topic_leaves_nothing() {
    let keeper = keeper();
    keeper.delete_ephemeral("never was#ephemeral").unwrap();
    prepare(&keeper, "t#ephemeral").unwrap();
    keeper.delete_ephemeral("t#ephemeral").unwrap();
    assert_eq!(keeper.files().list(Path::new(DATA_PATH)).unwrap(), []);
}

#[test]
fn names_of_tombstones() {
    for (name, topic) in [
        ("t.log.deleted-0", Some("t")),
        ("..log.deleted-17", Some(".")),
        ("a.log.deleted-1.log.deleted-22", Some("a.log.deleted-1")),
        ("t.log", None),
        ("t.log.deleted-", None),
        ("t.log.deleted-1x", None),
        ("t.deleted-1", None),
        (".log.deleted-1", None),
        ("t.log.deleted-1.log", None),
    ] {
        assert_eq!(deleted_topic(name), topic, "{name}");
    }
}
