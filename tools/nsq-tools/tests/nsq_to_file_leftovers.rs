//! `nsq_to_file` that ends while it moves a file of an earlier run to another file system.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};

use crate::tool::{Tool, files};
use test_support::daemon::Daemon;
use test_support::tmpfs::Tmpfs;
use test_support::{TIMEOUT, wait_until};

/// The size of the file. It takes far longer to copy than the tool takes to end.
const BYTES: u64 = 512 << 20;

/// A tool in the middle of such a move: its work and output directories, and its nsqd.
struct Moving {
    tool: Tool,
    nsqd: Daemon,
    work: tempfile::TempDir,
    output: Tmpfs,
}

impl Moving {
    /// Starts the tool for the topics `t`, which has the file, and `u`. `None` if no other file system can be mounted.
    fn begin() -> Option<Moving> {
        let output = Tmpfs::mount("1g")?;
        let nsqd = Daemon::nsqd(&[]);
        nsqd.create_channel("t", "c");
        nsqd.create_channel("u", "c");
        let work = tempfile::tempdir().expect("a temporary directory can be made");
        fs::create_dir(work.path().join("t")).expect("the directory is new");
        let mut leftover =
            File::create_new(work.path().join("t/7-000007")).expect("the directory is empty");
        leftover.seek(SeekFrom::Start(BYTES - 1)).expect("a file");
        leftover.write_all(b"\n").expect("a hole takes no space");
        leftover.lock().expect("nobody else has the file");
        let flags = format!(
            "-topic=t -topic=u -channel=c -sync-interval=50ms -skip-empty-files -filename-format=<TOPIC>/7<REV> -nsqd-tcp-address={} -output-dir={} -work-dir={}",
            nsqd.tcp,
            output.path().display(),
            work.path().display()
        );
        let tool = Tool::start("nsq_to_file", &flags);
        tool.wait_for_log(" another process writes ");
        for topic in ["t", "u"] {
            nsqd.wait_for_figure(topic, "c", "client_count", 1);
        }
        leftover.unlock().expect("it is locked");
        let has_begun = || !files::paths(&output.path()).is_empty();
        assert!(wait_until(TIMEOUT, has_begun), "{}", tool.log());
        Some(Moving {
            tool,
            nsqd,
            work,
            output,
        })
    }

    fn expect_one_place(&self) {
        let mut found = files::paths(self.work.path());
        found.extend(files::paths(&self.output.path()));
        found.retain(|path| !path.ends_with("u"));
        let [path] = &found[..] else {
            panic!("the file is at one place: {found:?}\n{}", self.tool.log());
        };
        assert_eq!(path.file_name().expect("a file"), "7-000007");
        let size = fs::metadata(path).expect("the file is there").len();
        assert_eq!(size, BYTES);
    }
}

/// SIGTERM ended the tool in the middle of the copy. A part of the file stayed under a temporary name; a moment later, the
/// file would have been at both places, and the next run would have archived it again.
#[test]
fn a_stop_in_the_middle_of_a_copy_leaves_the_file_at_one_place() {
    let Some(mut moving) = Moving::begin() else {
        return;
    };
    moving.tool.stop();
    moving.expect_one_place();
}

/// An error of one topic ended the tool in the middle of what the other topics did.
#[test]
fn the_error_of_a_topic_leaves_the_file_of_another_at_one_place() {
    let Some(mut moving) = Moving::begin() else {
        return;
    };
    // The topic u needs a directory of this name.
    File::create_new(moving.work.path().join("u")).expect("there is no such file");
    moving.nsqd.publish("u", &["one"]);
    moving
        .tool
        .wait_for_log("the topic's archive has ended, and is tried again after ");
    moving.tool.stop();
    moving.expect_one_place();
}
