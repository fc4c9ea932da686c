use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use diskq_log::{AppendError, Checkpoint, Durable, Log, LogOptions, Notice, SeqRange, Taken};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use test_support::ext4::Ext4;
use test_support::skip::kernel_lacks;
use test_support::tmpfs::Tmpfs;
use wire::id::Seq;

use super::*;
use crate::keeper::{Keeper, Logs, log_path};
use crate::recovery::open_log;

const TOPIC: &str = "orders";
const MONO: Duration = Duration::from_secs(1);
const WALL_NS: u64 = 1_760_000_000_000_000_000;

fn serve(log: &mut Log, keeper: &Keeper<OsFiles>, notices: &mut Vec<Notice>) {
    while let Some(request) = log.next_request() {
        if let Some(reply) = keeper.handle(TOPIC, request) {
            log.handle_reply(MONO, reply, notices);
        }
    }
}

/// Appends `count` messages, each held once; stops at the first refusal.
fn fill(log: &mut Log, keeper: &Keeper<OsFiles>, count: u64) -> Result<u64, AppendError> {
    let mut notices = Vec::new();
    let mut done = 0;
    while done < count {
        let body = format!("message {done} {}", "x".repeat(900));
        match log.append(MONO, WALL_NS, body.as_bytes(), 0) {
            Ok(seq) => {
                log.retain(SeqRange::one(seq), 1);
                done += 1;
            }
            Err(AppendError::WouldBlock) => serve(log, keeper, &mut notices),
            Err(error) if done == 0 => return Err(error),
            Err(_) => return Ok(done),
        }
        serve(log, keeper, &mut notices);
    }
    Ok(done)
}

/// Reads everything that was found back, and counts it.
fn read_back(data_path: &Path, keeper: &Keeper<OsFiles>) -> u64 {
    let options = LogOptions::default();
    let recovered = open_log(&OsFiles, data_path, TOPIC, options, WALL_NS + 1).unwrap();
    assert_eq!(recovered.damage, []);
    let mut log = recovered.log;
    let found = recovered.found.iter();
    found.for_each(|range| log.retain(*range, 1));
    log.release_unheld();
    let mut count = 0;
    for range in recovered.found {
        let mut start = range.start;
        while start < range.end {
            match log.take_run(SeqRange::new(start, range.end), 100, 1 << 20) {
                Taken::Run(run) => {
                    let bytes = log.bytes(&run);
                    let head = format!("message {count} xx");
                    assert_eq!(&bytes[34..34 + head.len()], head.as_bytes());
                    start = Seq(start.0 + u64::from(run.count));
                    count += u64::from(run.count);
                }
                Taken::Loading => serve(&mut log, keeper, &mut Vec::new()),
                Taken::Damaged(range) => panic!("damage in {range:?}"),
            }
        }
    }
    count
}

fn allocate(path: &Path, bytes: u64) {
    OsFiles.allocate(path, bytes, Pages::Small).unwrap();
}

fn topics(data_path: &Path) -> Vec<String> {
    Logs::list(&OsFiles, data_path).unwrap().topics
}

#[test]
fn what_was_taken_is_there_after_the_process_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = Keeper::new(OsFiles, directory.path());
    let mut log = Log::new(LogOptions::default());
    assert_eq!(fill(&mut log, &keeper, 5000).unwrap(), 5000);
    log.check();
    // The log is left like after kill -9: no close, no sync, no unmapping.
    std::mem::forget(log);
    assert_eq!(topics(directory.path()), [TOPIC]);
    assert_eq!(read_back(directory.path(), &keeper), 5000);
    let tombstone = keeper.delete_topic(TOPIC).unwrap();
    keeper.bury(&tombstone).unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_sync_and_a_close_leave_everything_behind() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = Keeper::new(OsFiles, directory.path());
    let mut log = Log::new(LogOptions::default());
    fill(&mut log, &keeper, 100).unwrap();
    let mut notices = Vec::new();
    log.sync_now();
    serve(&mut log, &keeper, &mut notices);
    assert!(log.is_synced(), "{notices:?}");
    for job in log.close() {
        assert!(keeper.handle(TOPIC, job).is_none());
    }
    assert_eq!(read_back(directory.path(), &keeper), 100);
}

#[test]
fn allocating_takes_room_and_never_gives_it_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    allocate(&path, 8192);
    allocate(&path, 4096);
    assert_eq!(OsFiles.length(&path).unwrap(), 8192);
    let bytes = fs::metadata(&path).unwrap().blocks() * 512;
    assert!(bytes >= 8192, "a hole is no room");
    let below_nothing = directory.path().join("missing/file");
    let refused = OsFiles.allocate(&below_nothing, 1, Pages::Small);
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn large_pages_are_zeros_and_only_those_of_a_new_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    // The last folio is a part of one.
    let bytes = (1 << 20) + 4096;
    OsFiles.allocate(&path, bytes, Pages::Large).unwrap();
    assert_eq!(fs::read(&path).unwrap(), vec![0; bytes as usize]);
    // Room that was only reserved counts as a hole, where the file system tells holes from data.
    let first_data = |path: &Path| {
        let file = File::open(path).unwrap();
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0))
    };
    let reserved = directory.path().join("reserved");
    allocate(&reserved, bytes);
    if first_data(&reserved).is_err() {
        assert_eq!(first_data(&path), Ok(0), "the pages are there");
    }
    fs::write(&path, "messages").unwrap();
    OsFiles.allocate(&path, bytes, Pages::Large).unwrap();
    let content = fs::read(&path).unwrap();
    assert_eq!(content.len() as u64, bytes);
    assert_eq!(&content[..8], b"messages", "what is there stays");
    assert!(content[8..].iter().all(|&byte| byte == 0));
}

/// Copies a mapped file, as a spill does, and reads it back, as a load does.
fn copy_and_load(directory: &Path, size: u32, pages: Pages) {
    let (from, to) = (directory.join("from"), directory.join("to"));
    OsFiles.allocate(&from, u64::from(size), pages).unwrap();
    let mut memory = OsFiles.map(&from, size).unwrap();
    for (at, byte) in memory.as_mut().iter_mut().enumerate() {
        *byte = (at % 251) as u8;
    }
    OsFiles.copy(&from, &memory, &to).unwrap();
    let error = OsFiles.copy(&from, &memory, &to).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    let loaded = OsFiles.load(&to, size, None).unwrap();
    assert_eq!(loaded.as_ref(), memory.as_ref());
    let at = loaded.as_ref().as_ptr();
    memory.as_mut().fill(7);
    // Mapped memory is in the page cache, and direct reads see it all the same.
    let again = OsFiles.load(&from, size, Some(loaded)).unwrap();
    assert_eq!(again.as_ref(), memory.as_ref());
    assert_eq!(again.as_ref().as_ptr(), at, "the buffer is used again");
    let smaller = OsFiles.load(&to, 8192, Some(again)).unwrap();
    assert_eq!(smaller.as_ref().len(), 8192);
    let error = OsFiles.load(&to, 2 * size, Some(smaller)).unwrap_err();
    // A buffer that is too small is replaced.
    OsFiles.allocate(&from, 8 << 20, pages).unwrap();
    let small = OsFiles.load(&to, 8192, None).ok();
    let large = OsFiles.load(&from, 8 << 20, small).unwrap();
    assert_eq!(&large.as_ref()[..size as usize], memory.as_ref());
    assert_eq!(large.as_ref().len(), 8 << 20);
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

fn copies_are_copies_in(directory: &TempDir) {
    for (name, size, pages) in [
        ("small", 16_384, Pages::Small),
        ("large", 4 << 20, Pages::Large),
    ] {
        let directory = directory.path().join(name);
        OsFiles.create_dir(&directory).unwrap();
        copy_and_load(&directory, size, pages);
    }
}

#[test]
fn copies_are_copies_with_direct_io() {
    copies_are_copies_in(&tempfile::tempdir().unwrap());
}

#[test]
fn copies_are_copies_in_memory_file_systems() {
    // It has no direct I/O, or says so and refuses, or has it: by the kernel's version.
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        println!("NOT TESTED: no /dev/shm");
        return;
    };
    copies_are_copies_in(&directory);
}

/// A copy counted as written around the page cache, and was not synced. If its write-back failed before the next sync, the
/// kernel could forget that.
#[test]
fn a_file_system_that_journals_data_has_no_direct_io() {
    for (options, expected) in [("loop", true), ("loop,data=journal", false)] {
        let Some(ext4) = Ext4::mount(16 << 20, "has_journal", options) else {
            return;
        };
        let file = File::create(ext4.path().join("file")).unwrap();
        assert!(direct(&file, |_| Ok(())).unwrap(), "ext4 takes the flag");
        let says = platform::says_direct(&file);
        if expected && !says {
            kernel_lacks("the kernel does not say what direct I/O is (Linux 6.1 does)");
            return;
        }
        assert_eq!(says, expected, "{options}");
    }
}

/// Another user of the machine read the bodies of messages out of a segment.
#[test]
fn no_other_user_can_read_files_or_enter_directories() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("orders.log");
    let [allocated, copied, written] = ["a", "b", "c"].map(|name| directory.join(name));
    OsFiles.create_dir(&directory).unwrap();
    allocate(&allocated, 4096);
    let memory = OsFiles.map(&allocated, 4096).unwrap();
    OsFiles.copy(&allocated, &memory, &copied).unwrap();
    OsFiles.unmap(&allocated, memory);
    OsFiles.write_at(&written, 0, b"text").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for path in [allocated, copied, written] {
        assert_eq!(mode(&path), 0o600, "{path:?}");
    }
}

/// The attempt at a large segment took the whole room for a moment, and the small segment of another topic found none.
#[test]
fn an_attempt_without_room_takes_none_from_others() {
    let Some(tmpfs) = Tmpfs::mount("24m") else {
        return;
    };
    let path = |name| tmpfs.path().join(name);
    allocate(&path("filler"), 8 << 20);
    let is_over = AtomicBool::new(false);
    let attempts = thread::scope(|scope| {
        let large = scope.spawn(|| {
            let mut attempts = 0;
            loop {
                let refused = OsFiles.allocate(&path("large"), 20 << 20, Pages::Large);
                assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::StorageFull);
                attempts += 1;
                if is_over.load(Ordering::Relaxed) {
                    return attempts;
                }
            }
        });
        let small = (0..5000).try_for_each(|_| {
            OsFiles.allocate(&path("small"), 32 << 10, Pages::Small)?;
            OsFiles.remove(&path("small"))
        });
        is_over.store(true, Ordering::Relaxed);
        small.expect("there is room for it");
        large.join().expect("it is refused")
    });
    assert!(attempts > 0);
    assert!(!path("large").exists());
}

/// A checkpoint file of 4 MiB did not grow to 6 with 3 MiB free, because all 6 were looked for.
#[test]
fn a_file_grows_into_the_room_that_it_lacks() {
    let Some(tmpfs) = Tmpfs::mount("7m") else {
        return;
    };
    let path = tmpfs.path().join("checkpoint");
    allocate(&path, 4 << 20);
    allocate(&path, 6 << 20);
    assert_eq!(OsFiles.length(&path).unwrap(), 6 << 20);
    let refused = OsFiles.allocate(&path, 8 << 20, Pages::Small);
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::StorageFull);
}

/// ext4 kept what it had reserved before it found no more room. So a checkpoint file that could not grow took the last room,
/// and had a length that no checkpoint file has.
#[test]
fn a_file_that_cannot_grow_keeps_its_length() {
    let Some(ext4) = Ext4::mount(4 << 20, "^has_journal", "loop") else {
        return;
    };
    let free = || {
        let room = fstatvfs(File::open(ext4.path()).unwrap()).unwrap();
        room.f_bfree * room.f_frsize
    };
    let path = |name| ext4.path().join(name);
    let checkpoint = path("checkpoint");
    allocate(&checkpoint, 24 << 10);
    let filler = free() - (600 << 10);
    allocate(&path("filler"), filler);
    let before = free();
    let refused = OsFiles.allocate(&checkpoint, 768 << 10, Pages::Small);
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(OsFiles.length(&checkpoint).unwrap(), 24 << 10);
    // A block of the extent tree may stay.
    assert!(before - free() <= 4096, "{} of {before}", free());
}

/// Another thread had just made the file when the reservation began, and wrote its checkpoint before the reservation
/// failed. The checkpoint was cut off.
#[test]
fn a_file_that_was_being_made_is_not_cut() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    let file = File::create(&path).unwrap();
    let length_before = Some(file.metadata().unwrap().len());
    OsFiles.write_at(&path, 0, b"a checkpoint").unwrap();
    undo(&file, &path, length_before).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"a checkpoint");
}

/// ext4 keeps a twentieth of the disk for root. A broker that runs as root was refused what it could have.
#[test]
fn the_room_that_is_kept_for_root_is_room_for_root() {
    let directory = tempfile::tempdir().unwrap();
    let mut room = fstatvfs(File::open(directory.path()).unwrap()).unwrap();
    (room.f_frsize, room.f_blocks) = (4096, 1_000_000);
    (room.f_bfree, room.f_bavail) = (50_000, 0);
    let missing = 16 << 20;
    assert!(!lacks_room(&room, missing, true));
    assert!(lacks_room(&room, missing, false));
    assert!(!lacks_room(&room, (1 << 20) - 1, false));
    assert!(lacks_room(&room, 50_001 * 4096, true));
    room.f_blocks = 0;
    assert!(!lacks_room(&room, missing, false));
}

#[test]
fn a_full_file_system_is_an_error_not_a_signal() {
    let Some(tmpfs) = Tmpfs::mount("8m") else {
        return;
    };
    let keeper = Keeper::new(OsFiles, tmpfs.path());
    let mut log = Log::new(LogOptions::default());
    let taken = fill(&mut log, &keeper, 100_000).unwrap();
    assert!(taken > 6000, "only {taken} messages in 8 MiB");
    let refused = log.append(MONO, WALL_NS, &[1; 1000], 0);
    assert!(matches!(refused, Err(AppendError::Full(_))), "{refused:?}");
    // Room for one more segment, and a quarter of a second: service is back.
    let first = log.next_seq().0 - taken;
    log.release_range(SeqRange::new(Seq(first), Seq(first + 3000)));
    log.check();
    let mut notices = Vec::new();
    serve(&mut log, &keeper, &mut notices);
    log.handle_timeout(MONO + Duration::from_millis(300));
    serve(&mut log, &keeper, &mut notices);
    assert_eq!(log.health(), None);
    log.append(MONO, WALL_NS, &[1; 1000], 0).unwrap();
}

#[test]
fn a_deletion_that_was_cut_off_is_finished() {
    let directory = tempfile::tempdir().unwrap();
    let left = directory.path().join("orders.log.deleted-0");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("000000000001.segment"), "x").unwrap();
    fs::create_dir(log_path(directory.path(), ".")).unwrap();
    fs::write(directory.path().join("nsqd.dat"), "{}").unwrap();
    let logs = Logs::list(&OsFiles, directory.path()).unwrap();
    assert_eq!(logs.topics, ["."]);
    let keeper = Keeper::new(OsFiles, directory.path());
    for (topic, tombstone) in logs.deleted {
        assert_eq!(topic, "orders");
        keeper.bury(&tombstone).unwrap();
    }
    assert!(!left.exists());
}

/// The child of the test below: a process of its own, for the limit is the process's.
#[test]
#[ignore = "run by another test, in a process without descriptors"]
fn without_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = Keeper::new(OsFiles, directory.path());
    let mut log = Log::new(LogOptions::default());
    fill(&mut log, &keeper, 10).unwrap();
    let limit = |descriptors: u64| {
        let limit = Rlimit {
            current: Some(descriptors),
            ..getrlimit(Resource::Nofile)
        };
        setrlimit(Resource::Nofile, limit).unwrap();
    };
    limit(3);
    let mut notices = Vec::new();
    log.sync_now();
    serve(&mut log, &keeper, &mut notices);
    let number = log.write_checkpoint(MONO, &Checkpoint::default(), Durable::Yes);
    serve(&mut log, &keeper, &mut notices);
    let is_shortage = |text: &str| text.ends_with("too many open files");
    let is_expected = match &notices[..] {
        [
            Notice::SyncDelayed(sync),
            Notice::CheckpointFailed {
                number: failed,
                cause,
            },
        ] => *failed == number && is_shortage(sync) && is_shortage(cause),
        _ => false,
    };
    assert!(is_expected, "{notices:?}");
    limit(64);
    log.handle_timeout(MONO + Duration::from_millis(250));
    log.write_checkpoint(MONO, &Checkpoint::default(), Durable::Yes);
    serve(&mut log, &keeper, &mut notices);
    assert!(log.is_synced() && log.health().is_none(), "{notices:?}");
    let last = notices.last();
    assert!(matches!(
        last,
        Some(Notice::Checkpointed { synced: true, .. })
    ));
}

#[test]
fn running_out_of_descriptors_poisons_nothing() {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "--ignored", "--nocapture"]);
    child.arg("os_files::tests::without_descriptors");
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn a_listing_has_the_time_at_which_a_file_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let file = File::create(directory.path().join("checkpoint")).unwrap();
    let written = UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000);
    file.set_modified(written).unwrap();
    let listed = OsFiles.list(directory.path()).unwrap();
    assert_eq!(listed[0].modified_ns, 1_800_000_000 * 1_000_000_000);
}
