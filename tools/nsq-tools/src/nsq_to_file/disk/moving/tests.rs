use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use tempfile::TempDir;
use test_support::skip::not_tested;

use super::*;

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
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
