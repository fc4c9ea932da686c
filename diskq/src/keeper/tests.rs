use std::io::ErrorKind;
use std::path::Path;

use super::*;
use crate::checkpoint;
use crate::files::{Memory, Pages};
use crate::sim_files::{Call, Crash, SimFiles, SimWhole};

fn keeper() -> Keeper<SimFiles> {
    Keeper::new(SimFiles::new(), "/data")
}

fn whole(keeper: &Keeper<SimFiles>) -> SimWhole {
    keeper.files().whole(Path::new("/data")).unwrap()
}

fn prepare(keeper: &Keeper<SimFiles>, number: u64) -> Result<Memory, Failure> {
    let request = Request::Prepare {
        segment: SegmentNumber(number),
        bytes: 4096,
        pages: Pages::Small,
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
    let names: Vec<_> = names.iter().map(|e| (e.name.as_str(), e.bytes)).collect();
    let expected = [("000000000001.segment", 4096), ("checkpoint", 3 * 8192)];
    assert_eq!(names, expected);
}

#[test]
fn without_room_for_checkpoints_there_is_no_directory_to_count_on() {
    let keeper = keeper();
    keeper.files().limit(Some(3 * 8192));
    let full = || prepare(&keeper, 1).unwrap_err().kind == ErrorKind::StorageFull;
    // The room is there, but none for the segment; then not even that.
    assert!(full());
    assert!(
        keeper
            .files()
            .length(Path::new("/data/t.log/checkpoint"))
            .is_ok()
    );
    keeper
        .files()
        .remove(Path::new("/data/t.log/checkpoint"))
        .unwrap();
    keeper.files().remove_dir(Path::new("/data/t.log")).unwrap();
    keeper.files().limit(Some(8192));
    assert!(full() && full());
    keeper.files().limit(None);
    prepare(&keeper, 1).unwrap();
    let checkpoint = Path::new("/data/t.log/checkpoint");
    assert_eq!(keeper.files().length(checkpoint).unwrap(), 3 * 8192);
}

fn write_checkpoint(slot: u8, bytes: &[u8], sync: bool) -> Request {
    Request::WriteCheckpoint {
        number: CheckpointNumber(u64::from(slot) + 1),
        slot,
        bytes: bytes.to_vec(),
        sync,
        names: sync,
    }
}

fn slot_contents(keeper: &Keeper<SimFiles>, slot: usize, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    for (piece, at) in checkpoint::pieces(slot, count as u64) {
        let piece = &mut bytes[piece.start as usize..piece.end as usize];
        let path = Path::new("/data/t.log/checkpoint");
        keeper.files().read_at(path, at, piece).unwrap();
    }
    bytes
}

#[test]
fn checkpoints_grow_where_they_are_and_need_no_room_for_one_twice_as_long() {
    let keeper = keeper();
    let mut expected = [const { Vec::new() }; checkpoint::SLOTS];
    for round in 0..21 {
        let slot = round % checkpoint::SLOTS;
        let bytes = vec![round as u8 + 1; 1000 << (round / 3)];
        let write = || {
            let reply = keeper.handle("t", write_checkpoint(slot as u8, &bytes, true));
            assert!(matches!(
                reply,
                Some(Reply::CheckpointWritten { result: Ok(()), .. })
            ));
        };
        if round > 0 {
            // What this one needs has been there since the one before.
            keeper.files().limit(Some(keeper.files().bytes()));
            write();
            keeper.files().limit(None);
        }
        write();
        expected[slot] = bytes;
        for (slot, expected) in expected.iter().enumerate() {
            assert_eq!(&slot_contents(&keeper, slot, expected.len()), expected);
        }
    }
}

#[test]
fn a_checkpoint_whose_sync_is_shared_is_durable_after_it_and_final_without() {
    for fails in [false, true] {
        let keeper = keeper();
        let request = write_checkpoint(1, b"bytes", true);
        assert!(request.is_sync() && !request.is_urgent());
        let reply = keeper.handle_but_sync("t", request).unwrap();
        assert_eq!(keeper.files().failed_syncs(), 0);
        if fails {
            keeper.files().fail_next(Call::Sync, ErrorKind::Other);
        }
        let result = keeper.sync_together(&whole(&keeper), ["t"]).remove(0);
        let Reply::CheckpointWritten { number, result } = reply.unless(result) else {
            panic!("another reply")
        };
        assert_eq!(number, CheckpointNumber(2));
        keeper.files().crash(Crash::Power { seed: 0 });
        if fails {
            assert!(matches!(result, Err(CheckpointFailure::Sync(_))));
        } else {
            result.unwrap();
            assert_eq!(slot_contents(&keeper, 1, 5), b"bytes");
        }
    }
}

/// The failed sync is what counts: its log must know that it is poisoned.
#[test]
fn a_checkpoint_that_fails_twice_tells_of_the_sync() {
    let keeper = keeper();
    keeper
        .files()
        .fail_next(Call::Write, ErrorKind::StorageFull);
    let request = write_checkpoint(0, b"bytes", true);
    let reply = keeper.handle_but_sync("t", request).unwrap();
    keeper.files().fail_next(Call::Sync, ErrorKind::Other);
    let result = keeper.sync_together(&whole(&keeper), ["t"]).remove(0);
    let reply = reply.unless(result);
    let is_final = matches!(
        reply,
        Reply::CheckpointWritten {
            result: Err(CheckpointFailure::Sync(_)),
            ..
        }
    );
    assert!(is_final, "{reply:?}");
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
            pages: Pages::Small,
        };
        keeper.handle(topic, request);
        let path = log_path(Path::new("/data"), topic).join("000000000001.segment");
        files.write_at(&path, 0, topic.as_bytes()).unwrap();
    }
    let results = keeper.sync_together(&whole(&keeper), ["a", "gone", "b"]);
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
    let results = keeper.sync_together(&whole(&keeper), ["a", "b"]);
    assert!(
        results
            .iter()
            .all(|result| matches!(result, Err(SyncFailure::Sync(_))))
    );
}
