//! `nsq_to_file` is killed again and again while messages flow. Afterwards, each message that nsqd
//! accepted is in a file.
//!
//! `RINGQ_TEST_KILLS` is the number of kills for each form of files, 20 by default.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::tool::Tool;
use crate::tool::files::{self, Content};
use test_support::daemon::Daemon;

const KILLS_DEFAULT: u64 = 20;

/// The messages of one publish.
const BATCH_LEN: usize = 50;

fn kills() -> u64 {
    match std::env::var("RINGQ_TEST_KILLS") {
        Err(_) => KILLS_DEFAULT,
        Ok(text) => match text.parse() {
            Ok(kills) => kills,
            Err(_) => panic!("RINGQ_TEST_KILLS={text} is not a number"),
        },
    }
}

/// Publishes numbered messages of this size until `is_over`. Returns their number.
fn publish(nsqd: &Daemon, bytes: usize, is_over: &AtomicBool) -> usize {
    let mut count = 0;
    let rest = "x".repeat(bytes);
    while !is_over.load(Ordering::Relaxed) {
        let numbers = count..count + BATCH_LEN;
        let body = |number| format!("message {number} {rest}");
        let bodies: Vec<String> = numbers.map(body).collect();
        let bodies = bodies.join("\n");
        nsqd.post("/mpub?topic=t", bodies.as_bytes())
            .expect_status(200);
        count += BATCH_LEN;
        thread::sleep(Duration::from_millis(5));
    }
    count
}

/// Returns the numbers of the messages in all files below a directory. If the files must be whole, each has a last line
/// and a readable end.
fn numbers(directory: &Path, must_be_whole: bool) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for path in files::paths(directory) {
        let Content { bytes, is_whole } = files::read(&path);
        if must_be_whole {
            assert!(is_whole, "the end of {} is torn", path.display());
            let has_end = bytes.is_empty() || bytes.ends_with(b"\n");
            assert!(has_end, "the last line of {} is torn", path.display());
        }
        // The end of a file may be torn: the lines before it count.
        let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        lines.pop();
        found.extend(lines.into_iter().filter_map(|line| {
            let line = str::from_utf8(line).ok()?;
            let (number, _) = line.strip_prefix("message ")?.split_once(' ')?;
            number.parse::<usize>().ok()
        }));
    }
    found
}

fn check(flags: &str) {
    check_messages_of(10, kills(), flags);
}

/// Kills the tool while messages of this size flow.
fn check_messages_of(bytes: usize, kills: u64, flags: &str) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    // nsqd gives the messages of a dead consumer to another one when they time out.
    let nsqd = Arc::new(Daemon::nsqd(&["--msg-timeout=500ms"]));
    nsqd.create_channel("t", "c");
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let path = directory.path().display().to_string();
    let flags = format!(
        "-topic=t -channel=c -sync-interval=20ms -filename-format=<TOPIC><REV> -nsqd-tcp-address={} \
         -output-dir=DIR/out {flags}",
        nsqd.tcp
    );
    let flags = flags.replace("DIR", &path);
    let start = || Tool::start("nsq_to_file", &flags);

    let is_over = Arc::new(AtomicBool::new(false));
    let producer = thread::spawn({
        let (nsqd, is_over) = (Arc::clone(&nsqd), Arc::clone(&is_over));
        move || publish(&nsqd, bytes, &is_over)
    });
    for _ in 0..kills {
        let mut tool = start();
        tool.wait_for_log("syncing");
        thread::sleep(Duration::from_millis(rng.u64(0..100)));
        tool.signal("KILL");
        assert_eq!(
            tool.wait().code(),
            None,
            "a signal ends the tool: {}",
            tool.log()
        );
    }
    is_over.store(true, Ordering::Relaxed);
    let published = producer.join().expect("nsqd accepts the messages");
    let mut tool = start();
    nsqd.wait_for_answers("t", "c");
    tool.stop();
    let work = directory.path().join("work");
    let found = numbers(directory.path(), work.exists());
    if work.exists() {
        let left = fs::read_dir(work).expect("the directory is there").count();
        assert_eq!(left, 0, "seed {seed}: files are left: {}", tool.log());
    }
    let lost: Vec<usize> = (0..published)
        .filter(|number| !found.contains(number))
        .collect();
    assert!(
        lost.is_empty(),
        "seed {seed}: {} of {published} are lost: {lost:?}",
        lost.len()
    );
}

#[test]
fn plain_files_lose_nothing() {
    check("");
}

#[test]
fn rotated_files_lose_nothing() {
    check("-rotate-size=20000 -work-dir=DIR/work");
}

#[test]
fn gzip_files_lose_nothing() {
    check("-gzip -rotate-interval=50ms -work-dir=DIR/work");
}

#[test]
fn gzip_files_of_one_hour_lose_nothing() {
    check("-gzip -work-dir=DIR/work");
}

#[test]
fn zstd_files_in_a_work_directory_lose_nothing() {
    check("-zstd -work-dir=DIR/work -max-in-flight=1000");
}

#[test]
fn zstd_files_lose_nothing() {
    check("-zstd -max-in-flight=1000");
}

/// Large messages are synced beside those that come meanwhile.
#[test]
fn files_of_large_messages_lose_nothing() {
    check_messages_of(100_000, kills() / 4, "-sync-interval=1h");
}
