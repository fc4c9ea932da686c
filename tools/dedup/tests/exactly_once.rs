//! A consumer that is killed at random handles each message once and in order, because it rebuilds its filter from its
//! own record.
//!
//! The test is the broker: it delivers each message at least once, and again after a kill if no FIN came. The consumer
//! is this test binary, started with another environment. Its result is a file with a line per message.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use ringq_dedup::{Begin, Deduplicator, Filter, MessageNumber, RoaringPair, UnixTime};

/// The variable with the path of the result. Only the consumer has it.
const RESULT: &str = "RINGQ_DEDUP_RESULT";

const MESSAGES: u64 = 4000;
/// The messages that the broker delivers without a FIN.
const IN_FLIGHT: u64 = 50;
const KILLS: u32 = 40;
/// The filter knows at least this many numbers: more than are in flight.
const CAPACITY: u64 = 200;
const NOW: UnixTime = Duration::ZERO;

fn key(number: u64) -> MessageNumber {
    MessageNumber { source: 1, number }
}

/// Opens the record, without a last line that a kill has cut. Returns the file and the last numbers.
fn open_record(path: &Path) -> (File, Vec<u64>) {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .expect("writable");
    file.set_len(whole as u64).expect("it can be cut");
    let numbers = text[..whole]
        .lines()
        .map(|line| line.parse().expect("a number"));
    let numbers: Vec<u64> = numbers.collect();
    let first = numbers.len().saturating_sub(CAPACITY as usize);
    (file, numbers[first..].to_vec())
}

/// Handles the messages from the standard input, and writes a FIN for each.
fn consume(path: &Path) {
    let (mut record, last) = open_record(path);
    let mut memory = RoaringPair::new(CAPACITY, 1).expect("valid bounds");
    for number in last {
        memory.remember(key(number), NOW);
    }
    let all = Deduplicator::new(memory);
    let mut finishes = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("the broker writes text");
        let number = line.parse().expect("a number");
        match all.begin(key(number), NOW) {
            Begin::Fresh(guard) => {
                // The result and the number are one write. Two writes, so that a kill can come between them.
                let text = format!("{number}\n");
                let (first, rest) = text.split_at(text.len() / 2);
                record.write_all(first.as_bytes()).expect("room");
                record.write_all(rest.as_bytes()).expect("room");
                guard.commit(NOW);
            }
            Begin::Done => {}
            Begin::InProgress => unreachable!("there is one task"),
        }
        if writeln!(finishes, "FIN {number}").is_err() {
            return;
        }
    }
}

fn start(path: &Path) -> (Child, ChildStdin, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(env::current_exe().expect("this program"))
        .args([
            "--exact",
            "exactly_once::each_message_counts_once_and_in_order",
            "--nocapture",
        ])
        .env(RESULT, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the consumer starts");
    let input = child.stdin.take().expect("a pipe");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    (child, input, output)
}

#[test]
fn each_message_counts_once_and_in_order() {
    if let Some(path) = env::var_os(RESULT) {
        return consume(Path::new(&path));
    }
    let seed = env::var("RINGQ_SEED").map_or(7, |seed| seed.parse().expect("a number"));
    println!("RINGQ_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("result");
    let mut finished = 0;
    let mut redelivered = 0;
    for kill in 0..=KILLS {
        let (mut child, mut input, output) = start(&path);
        let last = kill == KILLS;
        let until = if last {
            MESSAGES
        } else {
            (finished + random.u64(1..150)).min(MESSAGES)
        };
        let mut sent = finished;
        let mut lines = output.lines();
        while finished < until {
            while sent < MESSAGES && sent < finished + IN_FLIGHT {
                // A message that was written before the consumer was killed may have no FIN yet.
                writeln!(input, "{sent}").expect("the consumer reads");
                sent += 1;
            }
            let line = lines.next().expect("the consumer runs").expect("text");
            if let Some((_, number)) = line.split_once("FIN ") {
                assert_eq!(number.parse(), Ok(finished));
                finished += 1;
            }
        }
        // A FIN can be lost on its way: the broker delivers the message again, although it was handled.
        if !last {
            let lost = random.u64(0..5).min(finished);
            finished -= lost;
            redelivered += lost;
            child.kill().expect("it runs");
        }
        drop(input);
        child.wait().expect("it ends");
    }
    let (_, _) = open_record(&path);
    let record = fs::read_to_string(&path).expect("the result");
    let numbers: Vec<u64> = record
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(numbers, (0..MESSAGES).collect::<Vec<_>>());
    assert!(redelivered > 0, "the test delivers messages again");
}
