//! `nsq_to_file` that ends while it moves a file of an earlier run to another file system.

mod tool;

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};

use test_support::daemon::Daemon;
use test_support::tmpfs::Tmpfs;
use test_support::{TIMEOUT, wait_until};
use tool::{Tool, files};

/// The size of the file. It takes far longer to copy than the tool takes to end.
const BYTES: u64 = 512 << 20;

/// SIGTERM ended the tool in the middle of the copy. A part of the file stayed under a temporary name; a moment later, the
/// file would have been at both places, and the next run would have archived it again.
#[test]
fn a_stop_in_the_middle_of_a_copy_leaves_the_file_at_one_place() {
    let Some(other) = Tmpfs::mount("1g") else {
        return;
    };
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let work = directory.path().join("work");
    fs::create_dir(&work).expect("the directory is new");
    let mut leftover = File::create_new(work.join("t-000007")).expect("the directory is empty");
    leftover.seek(SeekFrom::Start(BYTES - 1)).expect("a file");
    leftover.write_all(b"\n").expect("a hole takes no space");
    leftover.lock().expect("nobody else has the file");
    let flags = [
        "-topic=t",
        "-channel=c",
        "-sync-interval=50ms",
        "-skip-empty-files",
        "-filename-format=<TOPIC><REV>",
        &format!("-nsqd-tcp-address={}", nsqd.tcp),
        &format!("-output-dir={}", other.path().display()),
        &format!("-work-dir={}", work.display()),
    ];
    let mut tool = Tool::start(env!("CARGO_BIN_EXE_nsq_to_file"), &flags, &[]);
    tool.wait_for_log(" another process writes ");
    nsqd.wait_for_figure("t", "c", "client_count", 1);
    leftover.unlock().expect("it is locked");
    let has_begun = || !files::paths(&other.path()).is_empty();
    assert!(wait_until(TIMEOUT, has_begun), "{}", tool.log());
    tool.stop();
    let mut found = files::paths(&work);
    found.extend(files::paths(&other.path()));
    let [path] = &found[..] else {
        panic!("the file is at one place: {found:?}\n{}", tool.log());
    };
    assert_eq!(path.file_name().expect("a file"), "t-000007");
    let size = fs::metadata(path).expect("the file is there").len();
    assert_eq!(size, BYTES);
}
