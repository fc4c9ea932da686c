use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use super::*;
use test_support::tmpfs::Tmpfs;

const ID: MessageId = MessageId(*b"0d1c2b3a49586776");

fn file(name: &str, body: &'static str) -> MessageFile {
    MessageFile {
        name: name.to_owned(),
        body: Bytes::from_static(body.as_bytes()),
    }
}

/// Returns the files of a directory, with those whose names are hidden.
fn texts(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory).unwrap();
    let texts = entries.map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read_to_string(entry.path()).unwrap())
    });
    texts.collect()
}

fn expect(directory: &Path, expected: &[(&str, &str)]) {
    let found = texts(directory);
    let found: Vec<_> = found
        .iter()
        .map(|(name, text)| (&**name, &**text))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn names_sort_by_time_and_are_safe() {
    let at = |ns| UNIX_EPOCH + Duration::from_nanos(ns);
    let named = |topic, ns| name(topic, at(ns), ID);
    let usual = named("clicks", 1_795_253_285_000_000_001);
    assert_eq!(usual, "clicks-1795253285000000001-0d1c2b3a49586776");
    assert!(named("t", 999_999_999) < named("t", 1_000_000_000));
    // The longest name is far below the 255 bytes of file systems.
    let longest = format!("{}#ephemeral", "t".repeat(54));
    assert!(named(&longest, u64::MAX).len() < 128);
    for (topic, start) in [(".", "_.-0"), ("..", "_..-0"), ("-rf", "_-rf-0")] {
        assert!(named(topic, 1).starts_with(start), "{}", named(topic, 1));
    }
    let hostile = name("t", at(1), MessageId(*b"/../../etc/\0pass"));
    assert!(
        hostile.ends_with("-%2F%2E%2E%2F%2E%2E%2Fetc%2F%00pass"),
        "{hostile}"
    );
    // A clock before 1970.
    let early = name("t", UNIX_EPOCH - Duration::from_secs(1), ID);
    assert_eq!(early, "t-0000000000000000000-0d1c2b3a49586776");
}

#[test]
fn each_file_has_its_body_and_no_other_file_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    check(directory).unwrap();
    expect(directory, &[]);
    let (count, result) = save(directory, &[file("a", "one\ntwo"), file("b", "")]);
    assert!(count == 2 && result.is_ok());
    expect(directory, &[("a", "one\ntwo"), ("b", "")]);
}

#[test]
fn a_message_that_comes_again_has_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    for body in ["one", "one", "two", "six", "two"] {
        let (count, result) = save(directory, &[file("a", body)]);
        assert!(count == 1 && result.is_ok());
    }
    // The same name from other nsqds, which is very improbable.
    expect(directory, &[("a", "one"), ("a-1", "two"), ("a-2", "six")]);
}

#[test]
fn the_files_before_a_failure_count() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let files = [file("a", "1"), file("missing/b", "2"), file("c", "3")];
    let (count, result) = save(directory, &files);
    let text = result.unwrap_err().to_string();
    let expected = format!(
        "ERROR: cannot write {}/missing/b: no such file or directory; make the directory, or choose another directory \
         (--output-dir). Messages without a file are not finished, and come again",
        directory.display()
    );
    assert_eq!((count, text), (1, expected));
    expect(directory, &[("a", "1")]);
}

#[test]
fn a_directory_that_takes_no_files_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "x").unwrap();
    let text = |path: &Path| check(path).unwrap_err().to_string();
    let found = text(&path);
    assert!(
        found.contains(": not a directory; move the file that is in the way, or "),
        "{found}"
    );
    let found = text(&directory.path().join("none"));
    assert!(
        found.contains(": no such file or directory; make the directory, or "),
        "{found}"
    );
    let (count, result) = save(&directory.path().join("none"), &[]);
    assert_eq!(count, 0);
    assert!(
        result
            .unwrap_err()
            .to_string()
            .starts_with("ERROR: cannot open ")
    );
}

#[test]
fn a_message_that_has_its_file_needs_no_room() {
    let Some(small) = Tmpfs::mount("64k") else {
        return;
    };
    let files = [file("a", "one")];
    assert_eq!(save(&small.path(), &files).0, 1);
    let filler = small.fill("filler");
    let (count, result) = save(&small.path(), &files);
    assert!(count == 1 && result.is_ok(), "{result:?}");
    fs::remove_file(filler).unwrap();
    expect(&small.path(), &[("a", "one")]);
}

#[test]
fn whatever_has_the_name_of_a_message_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    fs::create_dir(&path).unwrap();
    // A body of the same length as the directory.
    let body = "x".repeat(fs::metadata(&path).unwrap().len() as usize);
    let files = [MessageFile {
        name: "a".to_owned(),
        body: Bytes::from(body.clone()),
    }];
    let (count, result) = save(directory.path(), &files);
    assert!(count == 1 && result.is_ok(), "{result:?}");
    assert!(path.is_dir());
    let saved = fs::read_to_string(directory.path().join("a-1")).unwrap();
    assert_eq!(saved, body);
}
