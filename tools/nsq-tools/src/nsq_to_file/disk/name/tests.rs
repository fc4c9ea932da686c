use std::env;
use std::fs;
use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use test_support::skip::not_tested;

use super::*;
use crate::nsq_to_file::disk::{Disk, OsDisk};

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
