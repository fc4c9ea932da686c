use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, SystemTime};
use std::{env, fs};

use futures_util::FutureExt;
use program::log::capture;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use tempfile::TempDir;
use test_support::skip::not_tested;

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
        test_support::assert_like(error.to_string(), "…does not tell files apart…");
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

/// A file system that reports 0 links for every file let each sync count its file as removed, without an end.
#[test]
fn a_file_is_removed_only_if_its_name_does_not_lead_to_it() {
    let check = |links, present_path: &str, has_name, expected| {
        let found = is_nameless(links, Path::new(present_path), || Ok(has_name)).unwrap();
        assert_eq!(found, expected, "{links} {present_path} {has_name}");
    };
    check(0, "/logs/a", true, false);
    check(0, "/logs/a (deleted)", false, true);
    check(1, "/logs/a", true, false);
    // Renamed, or removed under one of two names.
    check(1, "/logs/b", false, false);
    check(0, "", false, true);
    // Removed in NFS.
    check(1, "/logs/.nfs0000000000b6a2f300000001", false, true);
    check(1, "/logs/.nfs-shares.log", true, false);
    // Removed in FUSE, which renames the file for its own use and reports a link of the new name.
    check(1, "/logs/a (deleted)", false, true);
    check(1, "/logs/.fuse_hidden0000000100000002", false, true);
    check(1, "/logs/a (deleted)", true, false);
}

#[test]
fn a_removed_file_is_told_from_a_renamed_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let file = OsDisk.open(&path, true).unwrap().file;
    let check = |is_removed, has_name| {
        let found = (
            OsDisk.is_removed(&file, &path).unwrap(),
            OsDisk.has_name(&file, &path).unwrap(),
        );
        assert_eq!(found, (is_removed, has_name));
    };
    check(false, true);
    let other = directory.path().join("other");
    fs::rename(&path, &other).unwrap();
    check(false, false);
    fs::write(&path, "of another program").unwrap();
    check(false, false);
    let in_nfs = directory.path().join(".nfs00000001");
    fs::rename(&other, &in_nfs).unwrap();
    check(true, false);
    fs::remove_file(&in_nfs).unwrap();
    check(true, false);
    fs::remove_file(&path).unwrap();
    check(true, false);
}

/// On a file system whose inode numbers change, only the path of the open file proves that it has its name.
#[test]
fn the_present_path_of_a_file_follows_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let [path, link, other] = ["file", "link", "other"].map(|name| directory.path().join(name));
    let file = File::create(&path).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let check = |path, expected| assert_eq!(is_present_path(&file, path), expected, "{path:?}");
    check(&path, true);
    check(&link, true);
    check(&other, false);
    fs::rename(&path, &other).unwrap();
    check(&path, false);
    check(&other, true);
    fs::write(&path, "of another program").unwrap();
    check(&path, false);
    fs::remove_file(&other).unwrap();
    fs::write(&other, "of another program").unwrap();
    check(&other, false);
}

/// In a FUSE file system whose inode numbers change, the system forgot the name of an open file when it looked the name up
/// again, and each sync counted the file as removed.
#[test]
fn a_file_whose_path_has_another_number_keeps_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let changed = SystemTime::UNIX_EPOCH + Duration::new(1_795_253_285, 7);
    // These two stand for the open file and for what the path leads to.
    let [file, named] = ["open", "named"].map(|name| File::create_new(path(name)).unwrap());
    let write = |mut file: &File, bytes: &[u8]| {
        file.write_all(bytes).unwrap();
        file.set_modified(changed).unwrap();
    };
    let check = |present: &str, expected| {
        let found = is_renumbered(&file, &path(present), &path("named")).unwrap();
        assert_eq!(found, expected, "{present}");
    };
    write(&file, b"a\n");
    write(&named, b"a\n");
    check("named (deleted)", true);
    // The system knows another path, or one of another file.
    check("named", false);
    check("other (deleted)", false);
    // Another file has the path: its size, its time or its links differ.
    write(&named, b"b\n");
    check("named (deleted)", false);
    write(&file, b"b\n");
    check("named (deleted)", true);
    named
        .set_modified(changed + Duration::from_nanos(1))
        .unwrap();
    check("named (deleted)", false);
    named.set_modified(changed).unwrap();
    fs::remove_file(path("open")).unwrap();
    check("named (deleted)", false);
    // Nothing has the path.
    fs::remove_file(path("named")).unwrap();
    check("named (deleted)", false);
}

/// A file system that lies over the directory has the same path, and often the same inode numbers.
#[test]
fn a_file_of_another_file_system_at_the_path_is_another_file() {
    const DIRECTORY: &str = "RINGQ_TEST_DIRECTORY";
    let run = |program: &str, args: &[&str]| Command::new(program).args(args).output();
    let Some(directory) = env::var_os(DIRECTORY) else {
        // The test runs again, with mounts that no other process sees.
        if !run("unshare", &["-m", "true"]).is_ok_and(|output| output.status.success()) {
            not_tested("no mount namespace (root is needed, and unshare of util-linux)");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let this = thread::current();
        let output = Command::new("unshare")
            .arg("-m")
            .arg(env::current_exe().unwrap())
            .args(["--exact", this.name().unwrap(), "--nocapture"])
            .env(DIRECTORY, directory.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(text.contains("1 passed"), "{text}");
        return;
    };
    let mount = || {
        let directory = directory.to_str().unwrap();
        let output = run("mount", &["-t", "tmpfs", "none", directory]).unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let path = Path::new(&directory).join("file");
    mount();
    let file = OsDisk.open(&path, true).unwrap().file.file;
    assert!(has_name(&file, &path).unwrap());
    mount();
    fs::write(&path, "of another program").unwrap();
    assert!(
        is_present_path(&file, &path),
        "the path alone tells nothing"
    );
    assert!(!has_name(&file, &path).unwrap());
}

/// A file with the text `new` in a directory, and a name in an empty directory of another file system. `None` without
/// another file system.
fn on_two_file_systems() -> Option<(TempDir, TempDir, PathBuf, PathBuf)> {
    let directory = tempfile::tempdir().unwrap();
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else {
        not_tested("/dev/shm is not there");
        return None;
    };
    let (from, to) = (directory.path().join("from"), other.path().join("to"));
    fs::write(&from, "new").unwrap();
    Some((directory, other, from, to))
}

/// Moves a file, which has the text `new`. Another file of the new name is there at first.
fn expect_move_without_replacement(from: &Path, to: &Path) {
    fs::write(to, "old").unwrap();
    let error = move_file(from, to, &Stop::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!((text(from), text(to)), ("new".into(), "old".into()));
    fs::remove_file(to).unwrap();
    move_file(from, to, &Stop::default()).unwrap();
    assert_eq!(text(to), "new");
    assert!(!from.exists());
}

#[test]
fn a_moved_file_never_replaces_another() {
    let directory = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| directory.path().join(name));
    fs::write(&from, "new").unwrap();
    expect_move_without_replacement(&from, &to);
}

#[test]
fn a_file_moves_to_another_file_system() {
    let Some((_directory, other, from, to)) = on_two_file_systems() else {
        return;
    };
    expect_move_without_replacement(&from, &to);
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1);
}

/// A copy used a temporary name that a second copy, or a link of somebody else, could have: the copy wrote through the
/// link, and two copies mixed their bytes.
#[test]
fn a_copy_writes_only_to_a_file_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let [from, to, other] = ["from", "to", "other"].map(|name| directory.path().join(name));
    fs::write(&from, "new").unwrap();
    fs::write(&other, "other").unwrap();
    let known = format!(".to.{}.tmp", std::process::id());
    std::os::unix::fs::symlink(&other, directory.path().join(known)).unwrap();
    copy(&from, &to, &Stop::default()).unwrap();
    assert_eq!((text(&to), text(&other)), ("new".into(), "other".into()));
    assert!(fs::symlink_metadata(&to).unwrap().is_file());
    assert!(!from.exists());
}

#[test]
fn of_two_copies_to_the_same_name_one_arrives_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for round in 0..20 {
        let to = path(&format!("to{round}"));
        let results = ["a", "b"].map(|name| {
            let (from, to) = (path(name), to.clone());
            fs::write(&from, name.repeat(300_000)).unwrap();
            std::thread::spawn(move || copy(&from, &to, &Stop::default()))
        });
        let results = results.map(|result| result.join().unwrap());
        let [is_a, is_b] = results.each_ref().map(Result::is_ok);
        assert!(is_a != is_b, "{results:?}");
        let (moved, kept) = if is_a { ("a", "b") } else { ("b", "a") };
        assert!(text(&to) == moved.repeat(300_000), "round {round}");
        assert!(text(&path(kept)) == kept.repeat(300_000), "round {round}");
        assert!(!path(moved).exists());
    }
}

/// A stop in the middle of a copy left a part of the file under a temporary name, or the file at both places.
#[test]
fn a_stop_ends_a_copy_and_leaves_the_file_where_it_was() {
    let Some((_directory, other, from, to)) = on_two_file_systems() else {
        return;
    };
    let stop = Stop::default();
    stop.set();
    let error = move_file(&from, &to, &stop).unwrap_err();
    assert!(stop.has_ended(&error), "{error}");
    assert_eq!(text(&from), "new");
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
    // A rename takes no time.
    move_file(&from, &from.with_extension("2"), &stop).unwrap();
}

/// The copy stayed, so each start left one more.
#[test]
fn a_file_that_cannot_be_removed_has_no_copy() {
    let Some((directory, other, from, to)) = on_two_file_systems() else {
        return;
    };
    // If this thread runs as root, it obeys the permissions of files from now on.
    let mut sets = capabilities(None).unwrap();
    sets.effective -= CapabilitySet::DAC_OVERRIDE;
    set_capabilities(None, sets).unwrap();
    let set_mode = |mode| {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(0o500);
    let error = move_file(&from, &to, &Stop::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(text(&from), "new");
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
    set_mode(0o700);
    move_file(&from, &to, &Stop::default()).unwrap();
    assert_eq!(text(&to), "new");
}
