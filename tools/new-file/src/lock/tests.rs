use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use tempfile::TempDir;

use super::*;

/// A directory, the path of a state, and the path of the state's lock.
fn paths() -> (TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let [state, lock] = ["state", "state.lock"].map(|name| directory.path().join(name));
    (directory, state, lock)
}

fn own_id() -> String {
    format!("{}\n", std::process::id())
}

/// Two processes overwrote each other's filter in silence.
#[test]
fn a_file_belongs_to_one_process_at_a_time() {
    let (directory, state, lock) = paths();
    let first = FileLock::take(&state).unwrap();
    assert_eq!(first.warning(), None);
    assert_eq!(fs::read_to_string(&lock).unwrap(), own_id());
    let error = FileLock::take(&state).unwrap_err();
    let expected = format!(
        "{} is used by process {}, and two processes would overwrite each other's state; if that process is being stopped, \
         start again when it has ended, and otherwise choose another file for one of the two",
        state.display(),
        std::process::id()
    );
    assert_eq!(error.to_string(), expected);
    // A process that was killed takes a moment to disappear.
    let dying = std::thread::spawn(move || {
        sleep(Duration::from_millis(200));
        drop(first);
    });
    let _next = FileLock::take(&state).unwrap();
    dying.join().unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// The process id replaced the content of any file that had the name of the lock.
#[test]
fn a_foreign_file_keeps_its_content() {
    let (_directory, state, lock) = paths();
    let notes = "10 notes about locks\n".repeat(100);
    for (before, after) in [
        (notes.as_str(), notes.as_str()),
        ("notes\n", "notes\n"),
        ("4294967295\n", &own_id()),
        ("", &own_id()),
    ] {
        fs::write(&lock, before).unwrap();
        let _held = FileLock::take(&state).unwrap();
        assert_eq!(fs::read_to_string(&lock).unwrap(), after);
    }
}

/// A file system without locks left the file unprotected in silence, and so did each failure of the lock.
#[test]
fn only_a_file_system_without_locks_is_no_error() {
    let (_directory, state, lock) = paths();
    let take_after = |errno: Errno| take(&state, |_| Err(TryLockError::Error(errno.into())));
    for errno in [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK] {
        let taken = take_after(errno).unwrap();
        let warning = taken.warning().unwrap();
        let expected = format!(
            "the file system of {} has no locks ({}), so nothing keeps a second process from this file: start only one with \
             it, because two would overwrite each other's state",
            state.display(),
            io::Error::from(errno)
        );
        assert_eq!(warning, expected);
        // Without a lock, the id would promise too much.
        assert_eq!(fs::read_to_string(&lock).unwrap(), "");
    }
    for errno in [Errno::IO, Errno::NOMEM, Errno::BADF] {
        let error = take_after(errno).unwrap_err();
        let expected = format!("cannot lock {}: {}", lock.display(), io::Error::from(errno));
        assert_eq!(error.to_string(), expected);
    }
    let mut is_interrupted = true;
    let taken = take(&state, |file| {
        if std::mem::take(&mut is_interrupted) {
            Err(TryLockError::Error(Errno::INTR.into()))
        } else {
            file.try_lock()
        }
    });
    assert_eq!(taken.unwrap().warning(), None);
    assert_eq!(fs::read_to_string(&lock).unwrap(), own_id());
}

/// Lets this thread obey the permissions of files, if it runs as root.
fn obey_permissions() {
    let mut sets = capabilities(None).unwrap();
    sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    set_capabilities(None, sets).unwrap();
}

/// A lock that root's run had left kept all other users from the start.
#[test]
fn a_file_that_cannot_be_written_is_locked_too() {
    obey_permissions();
    let (directory, state, lock) = paths();
    // The id of no process: those of Linux end before.
    fs::write(&lock, "4294967295\n").unwrap();
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o444)).unwrap();
    fs::write(&lock, "").unwrap_err();
    let held = FileLock::take(&state).unwrap();
    let LockError::InUse(in_use) = FileLock::take(&state).unwrap_err() else {
        panic!("the file is in use");
    };
    assert_eq!(in_use.process, None, "the id is that of an earlier process");
    assert!(in_use.to_string().contains(" is used by another process, "));
    drop(held);
    // On NFS, a lock needs a file that is open for writing. The reason is that this user cannot write the file.
    let error = take(&state, |_| Err(TryLockError::Error(Errno::BADF.into()))).unwrap_err();
    let denied = format!("cannot lock {}: Permission denied", lock.display());
    assert!(error.to_string().starts_with(&denied), "{error}");
    // Neither a file that cannot be read nor a directory that takes no file has a lock.
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o000)).unwrap();
    let error = FileLock::take(&state).unwrap_err();
    assert!(error.to_string().starts_with(&denied), "{error}");
    fs::remove_file(&lock).unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let error = FileLock::take(&state).unwrap_err();
    assert!(error.to_string().starts_with(&denied), "{error}");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_missing_directory_is_missing_for_the_file() {
    let (_directory, state, _) = paths();
    let state = state.join("deeper");
    let LockError::Io { path, source } = FileLock::take(&state).unwrap_err() else {
        panic!("nobody uses the file");
    };
    assert_eq!((path, source.kind()), (state, io::ErrorKind::NotFound));
}

/// The start waited for a writer of the pipe.
#[test]
fn a_pipe_is_no_lock() {
    obey_permissions();
    let (_directory, state, lock) = paths();
    for mode in ["600", "400"] {
        let made = std::process::Command::new("mkfifo")
            .args(["-m", mode])
            .arg(&lock)
            .status();
        assert!(made.unwrap().success());
        let error = FileLock::take(&state).unwrap_err();
        let expected = format!("cannot lock {}: it is no regular file", lock.display());
        assert_eq!(error.to_string(), expected);
        fs::remove_file(&lock).unwrap();
    }
}
