//! If a log's checkpoint does not fit into memory, the log is not opened, and the process goes on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use diskq::{
    ChannelDraft, CheckpointDraft, CheckpointRun, DiskError, Durable, Keeper, Log, LogOptions,
    OsFiles, Recovered, Runs, open_log,
};
use wire::id::Seq;

const TOPIC: &str = "orders";
const WALL_NS: u64 = 1_760_000_000_000_000_000;
/// The number of runs in each list of the checkpoint, so that the checkpoint has megabytes.
const RUNS: u64 = 100_000;
/// An allocation of this size or more is *large* and may be refused. A smaller allocation always succeeds.
const LARGE_BYTES: usize = 64 * 1024;

thread_local! {
    /// The number of large allocations of this thread until one is refused.
    static UNTIL_REFUSED: Cell<Option<u32>> = const { Cell::new(None) };
}

/// An allocator that refuses one large allocation.
struct Small;

fn is_refused(bytes: usize) -> bool {
    let Some(left) = UNTIL_REFUSED.get().filter(|_| bytes >= LARGE_BYTES) else {
        return false;
    };
    UNTIL_REFUSED.set(left.checked_sub(1));
    left == 0
}

// SAFETY: each call either goes to the system's allocator unchanged, or returns a null pointer, which is allowed.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Small {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if is_refused(bytes) {
            return ptr::null_mut();
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Small = Small;

fn open(data_path: &Path) -> Result<Recovered, DiskError> {
    open_log(&OsFiles, data_path, TOPIC, LogOptions::default(), WALL_NS)
}

/// Writes a log with a long checkpoint: a channel owes every second message, and so does the topic
/// itself.
fn write_long_checkpoint(data_path: &Path) {
    let mut log = Log::new(LogOptions::default());
    let keeper = Keeper::new(OsFiles, data_path);
    let serve = |log: &mut Log| {
        while let Some(request) = log.next_request() {
            if let Some(reply) = keeper.handle(TOPIC, request) {
                log.handle_reply(Duration::ZERO, reply, &mut Vec::new());
            }
        }
    };
    while log.append(Duration::ZERO, WALL_NS, b"body", 0).is_err() {
        serve(&mut log);
    }
    log.begin_checkpoint(Duration::ZERO, Durable::No);
    let first = log.next_seq().0 - 2 * RUNS;
    let mut list = |from: u64| {
        let mut runs = Runs::default();
        for number in from..from + RUNS {
            let run = CheckpointRun {
                start: Seq(first + number),
                count: 1,
                attempts: 0,
                // Neighbours have different due times, so that they do not merge into one run.
                due_ns: WALL_NS + number,
            };
            log.name_run(&mut runs, run);
        }
        runs
    };
    let channel = ChannelDraft {
        name: "channel".to_owned(),
        paused: false,
        runs: list(0),
        ..ChannelDraft::default()
    };
    let mut draft = CheckpointDraft::new(false, vec![channel]);
    draft.undistributed = list(RUNS);
    log.finish_checkpoint(draft);
    serve(&mut log);
}

#[test]
fn a_checkpoint_without_memory_for_it_is_an_error_and_not_the_end() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    write_long_checkpoint(directory.path());
    let mut refused = 0;
    let recovered = loop {
        UNTIL_REFUSED.set(Some(refused));
        let opened = open(directory.path());
        let was_refused = UNTIL_REFUSED.take().is_none();
        match opened {
            Err(DiskError::Io { source, .. }) => {
                assert_eq!(source.kind(), io::ErrorKind::OutOfMemory);
            }
            Err(error) => panic!("{error}"),
            Ok(recovered) if !was_refused => break recovered,
            Ok(_) => panic!("the log was opened without the memory for it"),
        }
        refused += 1;
    };
    // One allocation is for the bytes of the checkpoint, two for the lists of runs, two for the
    // checks of the lists, and one for the list of what is owed.
    assert!(refused >= 6, "{refused} allocations were refused");
    let checkpoint = recovered.checkpoint.expect("the checkpoint is readable");
    let counts = [
        checkpoint.channels[0].runs.len(),
        checkpoint.undistributed.len(),
    ];
    assert_eq!(counts, [RUNS as usize; 2]);
}
