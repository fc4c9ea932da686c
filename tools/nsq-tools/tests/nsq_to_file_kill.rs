//! `nsq_to_file` is killed again and again while messages flow. Afterwards, each message that nsqd
//! accepted is in a file.
//!
//! `RINGQ_TEST_KILLS` is the number of kills for each form of files, 20 by default.

mod tool;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use test_support::daemon::Daemon;
use test_support::{TIMEOUT, wait_until};
use tool::Tool;

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

/// Publishes numbered messages until `is_over`. Returns their number.
fn publish(nsqd: &Daemon, is_over: &AtomicBool) -> usize {
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let numbers = count..count + BATCH_LEN;
        let bodies: Vec<String> = numbers.map(|number| format!("message {number}")).collect();
        let bodies = bodies.join("\n");
        nsqd.post("/mpub?topic=t", bodies.as_bytes())
            .expect_status(200);
        count += BATCH_LEN;
        thread::sleep(Duration::from_millis(5));
    }
    count
}

/// Adds the numbers of the messages in all files below a directory.
fn collect(directory: &Path, found: &mut BTreeSet<usize>) {
    for entry in fs::read_dir(directory).expect("the directory is there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            collect(&path, found);
            continue;
        }
        let file = BufReader::new(File::open(&path).expect("the file is readable"));
        let reader: Box<dyn Read> = match path.extension().and_then(|end| end.to_str()) {
            Some("gz") => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
            Some("zst") => Box::new(zstd::Decoder::with_buffer(file).expect("zstd has memory")),
            _ => Box::new(file),
        };
        // The end of a file may be torn: the lines before it count.
        let lines = BufReader::new(reader).lines().map_while(io::Result::ok);
        let numbers = lines.filter_map(|line| line.strip_prefix("message ")?.parse::<usize>().ok());
        found.extend(numbers);
    }
}

fn check(flags: &[&str]) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    // nsqd gives the messages of a dead consumer to another one when they time out.
    let nsqd = Arc::new(Daemon::nsqd(&["--msg-timeout=500ms"]));
    nsqd.create_channel("t", "c");
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let path = directory.path().display().to_string();
    let mut all = vec![
        "-topic=t".to_owned(),
        "-channel=c".to_owned(),
        "-sync-interval=20ms".to_owned(),
        "-filename-format=<TOPIC><REV>".to_owned(),
        format!("-nsqd-tcp-address={}", nsqd.tcp),
        format!("-output-dir={path}/out"),
    ];
    all.extend(flags.iter().map(|flag| flag.replace("DIR", &path)));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let start = || Tool::start(env!("CARGO_BIN_EXE_nsq_to_file"), &all, &[]);

    let is_over = Arc::new(AtomicBool::new(false));
    let producer = thread::spawn({
        let (nsqd, is_over) = (Arc::clone(&nsqd), Arc::clone(&is_over));
        move || publish(&nsqd, &is_over)
    });
    for _ in 0..kills() {
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
    let is_done = || {
        let channel = nsqd.channel("t", "c").expect("the channel is there");
        let figures = ["depth", "in_flight_count", "deferred_count"];
        figures.iter().all(|figure| channel[figure] == 0)
    };
    assert!(wait_until(TIMEOUT, is_done), "{:?}", nsqd.channel("t", "c"));
    tool.stop();
    let mut found = BTreeSet::new();
    collect(directory.path(), &mut found);
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
    check(&[]);
}

#[test]
fn rotated_files_lose_nothing() {
    check(&["-rotate-size=20000", "-work-dir=DIR/work"]);
}

#[test]
fn gzip_files_lose_nothing() {
    check(&["-gzip", "-rotate-interval=50ms", "-work-dir=DIR/work"]);
}

#[test]
fn zstd_files_lose_nothing() {
    check(&["-zstd", "-max-in-flight=1000"]);
}
