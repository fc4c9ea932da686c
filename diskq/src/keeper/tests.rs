use std::io::ErrorKind;

use super::*;
use crate::sim_files::{Call, Crash, SimFiles};

fn keeper() -> Keeper<SimFiles> {
    Keeper::new(SimFiles::new(), "/data")
}

fn prepare(keeper: &Keeper<SimFiles>, number: u64) -> Result<Memory, Failure> {
    let request = Request::Prepare {
        segment: SegmentNumber(number),
        bytes: 4096,
    };
    match keeper.handle("t", request) {
        Some(Reply::Prepared { result, .. }) => result,
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn the_first_segment_makes_the_directory_and_the_room_for_checkpoints() {
    let keeper = keeper();
    assert_eq!(prepare(&keeper, 1).unwrap().as_ref(), [0; 4096]);
    let names = keeper.files().list(Path::new("/data/t.log")).unwrap();
    assert_eq!(names.len(), 4);
    assert!(names.iter().all(|entry| entry.bytes == 4096));
}

#[test]
fn a_failed_preparation_leaves_no_file() {
    for call in [Call::Allocate, Call::Map] {
        let keeper = keeper();
        prepare(&keeper, 1).unwrap();
        keeper.files().fail_next(call, ErrorKind::StorageFull);
        assert_eq!(
            prepare(&keeper, 2).unwrap_err().kind,
            ErrorKind::StorageFull
        );
        assert!(
            keeper
                .files()
                .length(Path::new("/data/t.log/000000000002.segment"))
                .is_err()
        );
    }
}

#[test]
fn a_deletion_is_complete_or_has_not_happened() {
    for nth in 1.. {
        let keeper = keeper();
        prepare(&keeper, 1).unwrap();
        keeper.files().fail_nth(nth, ErrorKind::Other);
        let result = keeper.delete_log("t");
        let is_hit = keeper.files().fail_count() == 1;
        keeper.files().crash(Crash::Process);
        let topics = crate::recovery::list_logs(keeper.files(), Path::new("/data")).unwrap();
        if result.is_ok() {
            assert_eq!(topics, [""; 0]);
        }
        if !is_hit {
            result.unwrap();
            assert!(nth > 8, "each call of a deletion was failed");
            break;
        }
    }
    keeper().delete_log("never was").unwrap();
}

#[test]
fn file_names_are_numbers() {
    assert_eq!(segment_file(SegmentNumber(7)), "000000000007.segment");
    assert_eq!(
        segment_number("000000000007.segment"),
        Some(SegmentNumber(7))
    );
    assert_eq!(
        segment_number("1000000000007.segment"),
        Some(SegmentNumber(1_000_000_000_007))
    );
    for other in [
        "7.segment",
        "00000000000x.segment",
        "000000000007.segment.damaged",
        "+00000000007.segment",
    ] {
        assert_eq!(segment_number(other), None, "{other}");
    }
}

#[test]
fn many_logs_are_synced_at_once_or_fail_together() {
    let files = SimFiles::new();
    let keeper = Keeper::new(files.clone(), "/data");
    for topic in ["a", "b"] {
        let request = Request::Prepare {
            segment: SegmentNumber(1),
            bytes: 8192,
        };
        keeper.handle(topic, request);
        let path = log_path(Path::new("/data"), topic).join("000000000001.segment");
        files.write_at(&path, 0, topic.as_bytes()).unwrap();
    }
    let results = keeper.sync_together(&(), ["a", "gone", "b"]);
    assert!(results[0].is_ok() && results[2].is_ok());
    assert!(matches!(results[1], Err(SyncFailure::Sync(_))));
    files.crash(Crash::Power { seed: 1 });
    for topic in ["a", "b"] {
        let path = log_path(Path::new("/data"), topic).join("000000000001.segment");
        let mut byte = [0];
        files.read_at(&path, 0, &mut byte).unwrap();
        assert_eq!(byte, topic.as_bytes());
    }
    files.fail_next(Call::Sync, io::ErrorKind::Other);
    let results = keeper.sync_together(&(), ["a", "b"]);
    assert!(
        results
            .iter()
            .all(|result| matches!(result, Err(SyncFailure::Sync(_))))
    );
}
