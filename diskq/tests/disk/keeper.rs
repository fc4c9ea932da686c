use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use diskq::{DataPath, Files, Keeper, SharedSync, log_path};
use diskq_log::checkpoint;
use diskq_log::{
    ChannelDraft, CheckpointDraft, CheckpointNumber, CheckpointRun, Failure, Memory, Pages, Reply,
    Request, SegmentNumber, Seq, SeqRange, SyncFailure, SyncJob, segment_file, segment_number,
};
use diskq_sim::{Call, Crash, SimFiles};

use super::write_checkpoint;

fn keeper() -> Keeper<SimFiles> {
    Keeper::new(SimFiles::new(), "/data")
}

fn sample_draft() -> CheckpointDraft {
    let run = CheckpointRun::fresh(SeqRange::new(Seq(5), Seq(15)), 7);
    let channel = ChannelDraft {
        name: "archive".into(),
        paused: true,
        runs: [run].iter().collect(),
        ..ChannelDraft::default()
    };
    CheckpointDraft::new(true, vec![channel])
}

fn prepare(keeper: &Keeper<SimFiles>, number: u64) -> Result<Memory, Failure> {
    prepare_for("t", keeper, number)
}

fn prepare_for(topic: &str, keeper: &Keeper<SimFiles>, number: u64) -> Result<Memory, Failure> {
    let request = Request::Prepare {
        segment: SegmentNumber(number),
        bytes: 8192,
        pages: Pages::Small,
    };
    match keeper.handle(topic, request) {
        Some(Reply::Prepared { result, .. }) => result,
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn the_first_segment_makes_the_directory_and_the_room_for_checkpoints() {
    let keeper = keeper();
    assert_eq!(prepare(&keeper, 1).unwrap().as_ref(), [0; 8192]);
    let names = keeper.files().list(Path::new("/data/t.log")).unwrap();
    let names: Vec<_> = names.iter().map(|e| (e.name.as_str(), e.bytes)).collect();
    let expected = [("000000000001.segment", 8192), ("checkpoint", 3 * 8192)];
    assert_eq!(names, expected);
}

/// A kill may come between two of the steps, and a power failure may take the file or its length.
#[test]
fn a_directory_without_room_for_checkpoints_gets_it_with_the_first_job() {
    let jobs: [fn(&Keeper<SimFiles>); 2] = [
        |keeper| drop(prepare(keeper, 1).unwrap()),
        |keeper| drop(keeper.handle("t", write_checkpoint(1, &sample_draft(), false))),
    ];
    for job in jobs {
        for left in [None, Some(0), Some(4096)] {
            let keeper = keeper();
            let (files, checkpoint) = (keeper.files(), Path::new("/data/t.log/checkpoint"));
            files.create_dir(Path::new("/data/t.log")).unwrap();
            if let Some(bytes) = left {
                files.allocate(checkpoint, bytes, Pages::Small).unwrap();
            }
            job(&keeper);
            let length = files.length(checkpoint).unwrap();
            assert_eq!(length, 3 * 8192, "{left:?}");
        }
    }
}

#[test]
fn without_room_for_checkpoints_there_is_no_directory_to_count_on() {
    let keeper = keeper();
    let (files, checkpoint) = (keeper.files(), Path::new("/data/t.log/checkpoint"));
    files.limit(Some(3 * 8192));
    let full = || prepare(&keeper, 1).unwrap_err().kind == ErrorKind::StorageFull;
    // There is room for the directory, but not for the segment. Then the directory is not made, either.
    assert!(full());
    assert!(files.length(checkpoint).is_ok());
    files.remove(checkpoint).unwrap();
    files.remove_dir(Path::new("/data/t.log")).unwrap();
    files.limit(Some(8192));
    assert!(full() && full());
    files.limit(None);
    prepare(&keeper, 1).unwrap();
    assert_eq!(files.length(checkpoint).unwrap(), 3 * 8192);
}

fn place_contents(keeper: &Keeper<SimFiles>, place: usize, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    for (piece, at) in checkpoint::pieces(place, count as u64) {
        let piece = &mut bytes[piece.start as usize..piece.end as usize];
        let path = Path::new("/data/t.log/checkpoint");
        keeper.files().read_at(path, at, piece).unwrap();
    }
    bytes
}

#[test]
fn checkpoints_grow_where_they_are_and_need_no_room_for_one_twice_as_long() {
    let keeper = keeper();
    let mut expected = [const { Vec::new() }; checkpoint::PLACES];
    for round in 0..21 {
        let place = round % checkpoint::PLACES;
        let mut draft = CheckpointDraft::new(true, Vec::new());
        draft.paused = true;
        draft.terms.note = "x".repeat(1000 << (round / 3));
        draft.number = round as u64 + 1;
        let bytes = draft.encode(false).unwrap();
        let write = || {
            let reply = keeper.handle("t", write_checkpoint(place as u8, &draft, false));
            let is_written = matches!(reply, Some(Reply::CheckpointWritten { result: Ok(()), .. }));
            assert!(is_written, "{reply:?}");
        };
        if round > 0 {
            // The last checkpoint has reserved the room for this one.
            keeper.files().limit(Some(keeper.files().bytes()));
            write();
            keeper.files().limit(None);
        }
        write();
        expected[place] = bytes;
        for (place, expected) in expected.iter().enumerate() {
            assert_eq!(&place_contents(&keeper, place, expected.len()), expected);
        }
    }
}

#[test]
pub(super) fn a_checkpoint_whose_sync_is_shared_is_durable_after_it_and_final_without() {
    for fails in [false, true] {
        let keeper = keeper();
        let mut shared = keeper.shared_sync().unwrap();
        let draft = sample_draft();
        let request = write_checkpoint(1, &draft, true);
        assert!(request.is_sync() && !request.is_urgent());
        if fails {
            keeper.files().fail_next(Call::Sync, ErrorKind::Other);
        }
        let reply = keeper.handle_together(&mut shared, vec![("t", request)]);
        let [Some(Reply::CheckpointWritten { number, result })] = &reply[..] else {
            panic!("another reply")
        };
        assert_eq!(*number, CheckpointNumber(2));
        keeper.files().crash(Crash::Power { seed: 0 });
        if fails {
            assert!(matches!(result, Err(SyncFailure::Final(_))));
        } else {
            assert!(result.is_ok());
            let bytes = draft.encode(true).unwrap();
            assert_eq!(place_contents(&keeper, 1, bytes.len()), bytes);
        }
    }
}

/// A failed sync poisons the log, even if the checkpoint could not be written at first.
#[test]
fn a_checkpoint_that_fails_twice_tells_of_the_sync() {
    let keeper = keeper();
    let mut shared = keeper.shared_sync().unwrap();
    keeper.handle("t", write_checkpoint(1, &CheckpointDraft::default(), false));
    let (files, checkpoint) = (keeper.files(), Path::new("/data/t.log/checkpoint"));
    files.fail_next(Call::Write, ErrorKind::StorageFull);
    files.fail_write_back_of(checkpoint, 1);
    let request = write_checkpoint(0, &CheckpointDraft::default(), true);
    let reply = keeper.handle_together(&mut shared, vec![("t", request)]);
    let [Some(Reply::CheckpointWritten { result, .. })] = &reply[..] else {
        panic!("{reply:?}")
    };
    assert!(matches!(result, Err(SyncFailure::Final(_))), "{result:?}");
}

#[test]
fn a_failed_preparation_leaves_no_file() {
    for call in [Call::Allocate, Call::Map] {
        let keeper = keeper();
        prepare(&keeper, 1).unwrap();
        keeper.files().fail_next(call, ErrorKind::StorageFull);
        let failure = prepare(&keeper, 2).unwrap_err();
        assert_eq!(failure.kind, ErrorKind::StorageFull);
        let path = Path::new("/data/t.log/000000000002.segment");
        assert!(keeper.files().length(path).is_err());
    }
}

#[test]
fn file_names_are_numbers() {
    assert_eq!(segment_file(SegmentNumber(7)), "000000000007.segment");
    for (name, number) in [
        ("000000000007.segment", Some(7)),
        ("1000000000007.segment", Some(1_000_000_000_007)),
        ("7.segment", None),
        ("00000000000x.segment", None),
        ("000000000007.segment.damaged", None),
        ("+00000000007.segment", None),
    ] {
        assert_eq!(segment_number(name), number.map(SegmentNumber), "{name}");
    }
}

/// A log with one segment that holds its name.
fn with_segment(keeper: &Keeper<SimFiles>, topic: &str) {
    prepare_for(topic, keeper, 1).unwrap();
    let path = segment_path(topic);
    keeper.files().write_at(&path, 0, topic.as_bytes()).unwrap();
}

/// The offset of the byte that [`store`] changes.
const STORED_AT: u64 = 4096;

/// Changes the segment, so that there is something to sync.
fn store(keeper: &Keeper<SimFiles>, topic: &str) {
    let stored = [stored(keeper, topic) + 1];
    let path = segment_path(topic);
    keeper.files().write_at(&path, STORED_AT, &stored).unwrap();
}

/// Returns how many times [`store`] was called.
fn stored(keeper: &Keeper<SimFiles>, topic: &str) -> u8 {
    byte_at(keeper, topic, STORED_AT)
}

fn byte_at(keeper: &Keeper<SimFiles>, topic: &str, at: u64) -> u8 {
    let mut byte = [0];
    let path = segment_path(topic);
    keeper.files().read_at(&path, at, &mut byte).unwrap();
    byte[0]
}

fn segment_path(topic: &str) -> PathBuf {
    log_path(Path::new("/data"), topic).join(segment_file(SegmentNumber(1)))
}

fn sync_of(segments: &[u64], copies: &[u64]) -> Request {
    let numbers = |numbers: &[u64]| numbers.iter().copied().map(SegmentNumber).collect();
    Request::Sync(SyncJob {
        segments: numbers(segments),
        copies: numbers(copies),
        names: true,
        upto: Seq(1),
        ..SyncJob::default()
    })
}

/// A log without a directory was poisoned, as if an operator had removed the directory. In fact its first checkpoint
/// could not make the directory: the disk was full, there was no descriptor, the urgent thread found the disk full and
/// removed the directory again, or a topic of the same name could not be deleted.
#[test]
fn no_shortage_poisons_a_log_that_shares_a_sync() {
    type Cause = fn(&SimFiles, &Keeper<SimFiles>);
    let causes: [Cause; 6] = [
        |files, _| files.limit(Some(0)),
        |files, _| files.fail_next(Call::Allocate, libc::EMFILE),
        |files, _| files.fail_next(Call::Allocate, ErrorKind::NotFound),
        // The file is removed after this thread has found it.
        |files, _| files.fail_next(Call::Write, ErrorKind::NotFound),
        |files, keeper| {
            files.fail_next(Call::CreateDir, ErrorKind::Other);
            keeper.delete_topic("t").unwrap_err();
        },
        // No shortage.
        |files, _| files.fail_next(Call::Allocate, libc::EIO),
    ];
    for (number, cause) in causes.into_iter().enumerate() {
        let keeper = keeper();
        let mut shared = keeper.shared_sync().unwrap();
        cause(keeper.files(), &keeper);
        let request = write_checkpoint(0, &CheckpointDraft::default(), true);
        let reply = keeper.handle_together(&mut shared, vec![("t", request)]);
        let [
            Some(Reply::CheckpointWritten {
                result: Err(failure),
                ..
            }),
        ] = &reply[..]
        else {
            panic!("no failure, {number}")
        };
        let is_retryable = matches!(failure, SyncFailure::Retryable(_));
        assert_eq!(is_retryable, number < 5, "{number}");
    }
}

/// Syncs these logs together. Returns for each log whether it is synced now.
fn sync_together(
    keeper: &Keeper<SimFiles>,
    shared: &mut SharedSync<SimFiles>,
    topics: &[&str],
) -> Vec<bool> {
    let jobs = topics.iter().map(|topic| (*topic, sync_of(&[1], &[])));
    let replies = keeper.handle_together(shared, jobs.collect());
    let is_synced = |reply: Option<Reply>| match reply {
        Some(Reply::Synced { result: Ok(()), .. }) => true,
        Some(Reply::Synced {
            result: Err(SyncFailure::Final(_)),
            ..
        }) => false,
        reply => panic!("{reply:?}"),
    };
    replies.into_iter().map(is_synced).collect()
}

#[test]
fn many_logs_are_synced_at_once() {
    let keeper = keeper();
    let mut shared = keeper.shared_sync().unwrap();
    for topic in ["a", "b"] {
        with_segment(&keeper, topic);
    }
    let synced = sync_together(&keeper, &mut shared, &["a", "gone", "b"]);
    assert_eq!(synced, [true, false, true]);
    assert!(shared.take_failure().is_none());
    keeper.files().crash(Crash::Power { seed: 1 });
    for topic in ["a", "b"] {
        assert_eq!([byte_at(&keeper, topic, 0)], topic.as_bytes());
    }
    for topic in ["a", "b"] {
        store(&keeper, topic);
    }
    keeper.files().fail_next(Call::Sync, ErrorKind::Other);
    let synced = sync_together(&keeper, &mut shared, &["a", "b"]);
    assert!(synced.contains(&false), "pages of one of them were lost");
    keeper.files().crash(Crash::Power { seed: 1 });
    for (topic, is_synced) in ["a", "b"].iter().zip(synced) {
        assert!(!is_synced || stored(&keeper, topic) == 1);
    }
}

/// A name of the data path was lost, which a sync of the directory has reported. A later `syncfs` is not believed.
#[test]
fn no_shared_sync_is_believed_after_a_lost_name() {
    let keeper = keeper();
    let mut shared = keeper.shared_sync().unwrap();
    with_segment(&keeper, "a");
    keeper.files().fail_write_back_of(Path::new("/data"), 1);
    keeper.delete_topic("other").unwrap_err();
    assert_eq!(sync_together(&keeper, &mut shared, &["a"]), [false]);
}

/// A page of `late` was lost, and a shared sync of other logs got the error. The next shared sync, with `late` in it,
/// was believed.
#[test]
fn a_shared_sync_takes_no_error_from_a_log_outside_of_it() {
    let keeper = keeper();
    let mut shards = [(); 2].map(|()| keeper.shared_sync().unwrap());
    let topics = [["a", "b", "late"], ["c", "d", "e"]];
    for topic in topics.iter().flatten() {
        with_segment(&keeper, topic);
    }
    keeper.files().fail_write_back_of(&segment_path("late"), 1);
    for (shared, topics) in shards.iter_mut().zip(topics) {
        // The other logs are synced, and each shard gets the error.
        assert_eq!(sync_together(&keeper, shared, &topics[..2]), [true, true]);
        assert!(shared.take_failure().is_some() && shared.take_failure().is_none());
    }
    for round in 0..2 {
        store(&keeper, "late");
        let synced = sync_together(&keeper, &mut shards[0], &["a", "late"]);
        assert!(synced[0]);
        // The log takes nothing more after its first failed sync.
        assert!(synced[1] == (round > 0), "{synced:?}");
        let others = sync_together(&keeper, &mut shards[1], &["c", "e"]);
        assert_eq!(others, [true, true]);
    }
}

/// Two logs store messages, lose pages, and are synced by two threads, alone and together, in every order of six steps.
/// Names in the data path get lost, too. The first sync of a log after the loss of one of its pages fails. After the
/// loss of a name in the data path every sync fails.
#[test]
fn no_order_of_syncs_loses_a_write_error() {
    const STEPS: u32 = 6;
    const KINDS: u32 = 6;
    for order in 0..KINDS.pow(STEPS) {
        let (files, data_path) = (SimFiles::new(), DataPath::from("/data"));
        let keepers = [(); 2].map(|()| Keeper::new(files.clone(), data_path.clone()));
        let keeper = &keepers[0];
        let mut shared = [0, 1].map(|thread: usize| keepers[thread].shared_sync().unwrap());
        let topics = ["a", "b"];
        topics.iter().for_each(|topic| with_segment(keeper, topic));
        let (mut is_lost, mut is_name_lost) = ([false; 2], false);
        for step in 0..STEPS {
            let synced: &[usize] = match order / KINDS.pow(step) % KINDS {
                log @ 0..2 => {
                    let topic = topics[log as usize];
                    store(keeper, topic);
                    files.fail_write_back_of(&segment_path(topic), 1);
                    is_lost[log as usize] = true;
                    continue;
                }
                2 => {
                    let name = format!("/data/{step}.log");
                    files.create_dir(Path::new(&name)).unwrap();
                    files.fail_write_back_of(Path::new("/data"), 1);
                    is_name_lost = true;
                    continue;
                }
                3 => &[0],
                4 => &[1],
                _ => &[0, 1],
            };
            let names: Vec<_> = synced.iter().map(|&log| topics[log]).collect();
            let thread = synced[0];
            let results = sync_together(&keepers[thread], &mut shared[thread], &names);
            for (&log, is_synced) in synced.iter().zip(results) {
                let is_whole = !is_lost[log] && !is_name_lost;
                assert_eq!(is_synced, is_whole, "order {order}, step {step}");
                is_lost[log] = false;
            }
        }
    }
}

/// A sync fails if the file is gone, unless the file is a copy that was never made.
#[test]
fn what_is_gone_is_not_synced() {
    for (segments, copies, is_synced) in [(&[1][..], &[2][..], true), (&[1, 2], &[], false)] {
        let keeper = keeper();
        with_segment(&keeper, "t");
        let reply = keeper.handle("t", sync_of(segments, copies));
        let Some(Reply::Synced { result, .. }) = reply else {
            panic!("another reply")
        };
        assert_eq!(result.is_ok(), is_synced);
        assert!(!matches!(result, Err(SyncFailure::Retryable(_))));
    }
}
