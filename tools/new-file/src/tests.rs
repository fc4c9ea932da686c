use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn put(path: &Path, content: &str) -> io::Result<()> {
    replace(path, |mut file| file.write_all(content.as_bytes()))
}

#[test]
fn a_file_is_made_and_replaced_and_no_other_file_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    // Files that a user may have.
    let others = ["state.new", "state.tmp", ".state.tmp", "state~"];
    for other in others {
        fs::write(directory.path().join(other), other).unwrap();
    }
    for content in ["one", "two"] {
        check_replaceable(&path).unwrap();
        put(&path, content).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
    for other in others {
        let text = fs::read_to_string(directory.path().join(other)).unwrap();
        assert_eq!(text, other);
    }
    assert_eq!(names(directory.path()).len(), 1 + others.len());
}

/// Every user of the machine could read the keys of messages in a state.
#[test]
fn only_its_user_can_read_a_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    // A file of an earlier version is replaced, and not its mode kept.
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    put(&path, "new").unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, STATE_MODE, "{mode:o}");
}

/// The part that was written stayed, so the disk stayed full.
#[test]
fn a_failure_keeps_the_old_file_and_leaves_no_part_of_the_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    put(&path, "old").unwrap();
    let failed = replace(&path, |mut file| {
        file.write_all(b"ne")?;
        assert_eq!(names(directory.path()).len(), 2);
        Err(io::ErrorKind::StorageFull.into())
    });
    assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
    // A directory is never replaced.
    fs::create_dir(directory.path().join("directory")).unwrap();
    let failed = put(&directory.path().join("directory"), "new");
    assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::IsADirectory);
    assert_eq!(names(directory.path()), ["directory", "state"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
}

#[test]
fn a_directory_that_takes_no_files_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for (path, kind) in [
        (
            directory.path().join("missing/state"),
            io::ErrorKind::NotFound,
        ),
        (file.join("state"), io::ErrorKind::NotADirectory),
        (PathBuf::from("/"), io::ErrorKind::IsADirectory),
        (PathBuf::from(".."), io::ErrorKind::IsADirectory),
    ] {
        let checked = check_replaceable(&path).unwrap_err();
        let replaced = put(&path, "x").unwrap_err();
        assert_eq!((checked.kind(), replaced.kind()), (kind, kind), "{path:?}");
    }
    assert_eq!(names(directory.path()), ["file"]);
}

#[test]
fn a_temporary_name_begins_with_a_dot_and_has_the_name_of_the_file() {
    let name = temporary_name(OsStr::new("a.log")).into_string().unwrap();
    let random = name.strip_prefix(".a.log.").unwrap();
    let random = random.strip_suffix(".tmp").unwrap();
    assert!(
        random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{name}"
    );
}

#[test]
fn a_directory_stays_the_same_when_another_one_gets_its_path() {
    let parent = tempfile::tempdir().unwrap();
    let [path, moved] = ["here", "moved"].map(|name| parent.path().join(name));
    fs::create_dir(&path).unwrap();
    let directory = Directory::open(&path).unwrap();
    fs::rename(&path, &moved).unwrap();
    fs::create_dir(&path).unwrap();
    let [a, b] = ["a", "b"].map(OsStr::new);
    let (temporary, mut file) = directory.temporary_file(a, FILE_MODE).unwrap();
    file.write_all(b"text").unwrap();
    directory.rename_new(&temporary, a).unwrap();
    directory.sync().unwrap();
    assert_eq!(names(&moved), ["a"]);
    assert_eq!(names(&path), [""; 0]);
    fs::write(moved.join("b"), "other").unwrap();
    let error = directory.rename_new(a, b).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    let content = directory
        .open_regular_file(a)
        .unwrap()
        .map(io::read_to_string);
    assert_eq!(content.unwrap().unwrap(), "text");
    std::os::unix::fs::symlink("a", moved.join("link")).unwrap();
    assert!(
        directory
            .open_regular_file(OsStr::new("link"))
            .unwrap()
            .is_none()
    );
    directory.rename(a, b).unwrap();
    assert_eq!(names(&moved), ["b", "link"]);
    directory.remove_file(b).unwrap();
    assert_eq!(names(&moved), ["link"]);
}
