use std::fs;
use std::os::fd::OwnedFd;

use futures_util::FutureExt;
use program::log::capture;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;

use super::os_file::{FUSE, SYNCS_MAX};
use super::*;

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_new_file_never_replaces_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/file");
    OsDisk.make_directories(path.parent().unwrap()).unwrap();
    OsDisk.make_directories(path.parent().unwrap()).unwrap();
    assert!(!OsDisk.exists(&path).unwrap());
    let mut opened = OsDisk.open(&path, true).unwrap();
    assert_eq!((opened.size, opened.has_torn_line), (0, false));
    OsDisk.write(&mut opened.file, b"one\n").unwrap();
    OsDisk.sync(&mut opened.file).unwrap();
    let error = OsDisk.open(&path, true).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);

    let mut opened = OsDisk.open(&path, false).unwrap();
    assert_eq!((opened.size, opened.has_torn_line), (4, false));
    OsDisk.write(&mut opened.file, b"tw").unwrap();
    let opened = OsDisk.open(&path, false).unwrap();
    assert_eq!((opened.size, opened.has_torn_line), (6, true));
    assert_eq!(text(&path), "one\ntw");
}

/// The tool opened the file again and again, without an end. With names that must be new, each try left an empty file.
#[test]
fn a_file_system_whose_inode_numbers_change_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    for (name, must_be_new) in [("plain", false), ("new", true)] {
        let path = directory.path().join(name);
        let error = open(&path, must_be_new, |_, _| Ok(false)).unwrap_err();
        assert!(
            error.to_string().contains("does not tell files apart"),
            "{error}"
        );
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn a_file_that_another_process_moves_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    for must_be_new in [false, true] {
        let path = directory.path().join(format!("file-{must_be_new}"));
        let moved = directory.path().join(format!("moved-{must_be_new}"));
        let opened = open(&path, must_be_new, |file, path| {
            if !moved.exists() {
                fs::rename(path, &moved).unwrap();
            }
            has_name(file, path)
        });
        assert!(has_name(&opened.unwrap().file.file, &path).unwrap());
    }
}

#[test]
fn syncs_go_on_beside_the_next_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let mut file = OsDisk.open(&path, true).unwrap().file;
    assert_eq!(OsDisk.syncs_max(&file), 1);
    for _ in 0..3 {
        let mut syncs = vec![OsDisk.begin_sync(&mut file).unwrap()];
        OsDisk.write(&mut file, b"one\n").unwrap();
        // The file stays the same, also if it is renamed.
        fs::rename(&path, directory.path().join("other")).unwrap();
        fs::rename(directory.path().join("other"), &path).unwrap();
        assert_eq!(OsDisk.syncs_max(&file), SYNCS_MAX);
        for _ in 1..SYNCS_MAX {
            syncs.push(OsDisk.begin_sync(&mut file).unwrap());
        }
        let error = OsDisk.begin_sync(&mut file).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        for sync in syncs {
            OsDisk.end_sync(&mut file, sync).unwrap();
        }
    }
    assert_eq!(text(&path), "one\n".repeat(3));
    // The system refuses to sync a pipe.
    let (_, writer) = std::io::pipe().unwrap();
    let mut pipe = OsFile::new(File::from(OwnedFd::from(writer)));
    let sync = OsDisk.begin_sync(&mut pipe).unwrap();
    let error = OsDisk.end_sync(&mut pipe, sync).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

/// With one handle for all syncs, the second sync of a failed write succeeds.
#[test]
fn each_sync_has_a_handle_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = OsDisk
        .open(&directory.path().join("file"), true)
        .unwrap()
        .file;
    file.open_handles().unwrap();
    // A position belongs to a handle, and copies of the handle share it.
    file.file.write_all(b"four").unwrap();
    let positions = file
        .handles
        .iter()
        .map(|handle| (&**handle).stream_position());
    let positions: Vec<u64> = positions.map(Result::unwrap).collect();
    assert_eq!(positions, [0, 0, 4]);
}

/// SMB refuses a sync through a handle that is open for reading only (before Linux 5.16), and JuiceFS does nothing.
#[test]
fn the_handles_of_syncs_are_open_for_writing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let mut file = OsDisk.open(&path, true).unwrap().file;
    file.open_handles().unwrap();
    assert_eq!(file.handles.len(), SYNCS_MAX);
    for handle in &file.handles {
        let access = fcntl_getfl(handle).unwrap() & OFlags::ACCMODE;
        assert!([OFlags::WRONLY, OFlags::RDWR].contains(&access));
    }
}

/// In FUSE, the sync of one handle may say nothing about what was written through another one: sshfs reports a write that
/// failed on a full disk only to the handle that wrote. The messages were finished and lost.
#[test]
fn in_fuse_all_syncs_go_through_the_handle_that_writes() {
    let directory = tempfile::tempdir().unwrap();
    for file_system in [Some(FUSE), None] {
        let path = directory.path().join(format!("{file_system:?}"));
        let mut file = OsDisk.open(&path, true).unwrap().file;
        file.file_system = file_system;
        for round in 1..4 {
            OsDisk.write(&mut file, b"four").unwrap();
            let sync = OsDisk.begin_sync(&mut file).unwrap();
            assert_eq!(OsDisk.syncs_max(&file), 1);
            let error = OsDisk.begin_sync(&mut file).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "one at a time");
            OsDisk.end_sync(&mut file, sync).unwrap();
            // A position belongs to a handle, and only copies of the handle share it.
            let [handle] = &file.handles[..] else {
                panic!("one handle: {:?}", file.handles);
            };
            assert_eq!((&**handle).stream_position().unwrap(), 4 * round);
        }
    }
}

/// The file system of each file counts: two directories of the tool may be on different ones.
#[test]
fn the_type_of_the_file_system_is_that_of_the_file() {
    // `PROC_SUPER_MAGIC` of the kernel.
    const PROC: rustix::fs::FsWord = 0x9fa0;
    let process = OsFile::new(File::open("/proc/self/status").unwrap());
    assert_eq!(process.file_system, Some(PROC));
    let directory = tempfile::tempdir().unwrap();
    let file = OsDisk.open(&directory.path().join("file"), true).unwrap();
    let found = rustix::fs::statfs(directory.path()).unwrap();
    assert_eq!(file.file.file_system, Some(found.f_type));
}

/// The tool ended with "resource temporarily unavailable".
#[test]
fn a_sync_that_gets_no_thread_is_made_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let mut file = OsDisk.open(&path, true).unwrap().file;
    let beside = OsDisk.begin_sync(&mut file).unwrap();
    capture::start();
    for _ in 0..=SYNCS_MAX {
        let sync = file.begin_sync(|_| Err(Errno::AGAIN.into())).unwrap();
        assert!(sync.ended().now_or_never().is_some());
        OsDisk.end_sync(&mut file, sync).unwrap();
    }
    let log = capture::stop();
    let line = "WARNING: a sync holds up the next messages, because it gets no thread or file handle: resource \
                temporarily unavailable";
    assert_eq!(log, [line; SYNCS_MAX + 1]);
    OsDisk.end_sync(&mut file, beside).unwrap();
    assert_eq!(file.handles.len(), SYNCS_MAX, "each handle is free again");
    // The result of the sync counts.
    let (_, writer) = std::io::pipe().unwrap();
    let mut pipe = OsFile::new(File::from(OwnedFd::from(writer)));
    capture::start();
    let sync = pipe.begin_sync(|_| Err(Errno::AGAIN.into())).unwrap();
    capture::stop();
    OsDisk.end_sync(&mut pipe, sync).unwrap_err();
}

#[test]
fn an_error_says_what_to_do() {
    let check = |errno: Errno, expected: &str| {
        let error = DiskError {
            verb: "write to",
            path: PathBuf::from("/logs/a.log"),
            source: errno.into(),
        };
        assert_eq!(error.to_string(), expected);
    };
    let again = "Messages that were not synced are not finished, and come again";
    check(
        Errno::NOSPC,
        &format!(
            "cannot write to /logs/a.log: no space left on device; free some space, or choose another directory (--output-dir, --work-dir). {again}"
        ),
    );
    check(
        Errno::ACCESS,
        &format!(
            "cannot write to /logs/a.log: permission denied; let this user write there, or choose another directory (--output-dir, --work-dir). {again}"
        ),
    );
    check(Errno::IO, "cannot write to /logs/a.log: input/output error");
}
