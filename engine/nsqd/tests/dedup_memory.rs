//! The memory of `--dedup`: what the start predicts, and a system that refuses it.
#![cfg(target_os = "linux")]

use crate::support::Broker;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Returns a line of the process's status in the kernel, in bytes.
fn status(broker: &Broker, name: &str) -> u64 {
    let path = format!("/proc/{}/status", broker.pid());
    let status = fs::read_to_string(path).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.strip_prefix(':')?.trim().strip_suffix(" kB"));
    let kib: u64 = kib.expect("the line is there").parse().expect("a number");
    kib * 1024
}

fn number(broker: &Broker, key: &str) -> u64 {
    let stats = broker.topic("t");
    let number = stats[key].as_u64();
    number.unwrap_or_else(|| panic!("{key} in {stats}"))
}

/// The segments of the log are mapped files, so the anonymous memory is the keys and what every nsqd has.
#[test]
fn keys_take_the_memory_that_the_start_predicts() {
    let broker = Broker::start(1, &["--dedup=t=body,window=1000000"]);
    let predicted = 22_857_344;
    broker.wait_for_log(&format!(
        "takes at most {predicted} bytes of memory for the rule"
    ));
    let mut producer = broker.client();
    producer.publish("t", b"first");
    let before = status(&broker, "RssAnon");
    for batch in 0..240_u64 {
        let bodies: Vec<[u8; 8]> = (0..5000)
            .map(|it| (batch * 5000 + it).to_le_bytes())
            .collect();
        producer.publish_many("t", &bodies);
    }
    assert_eq!(number(&broker, "dedup_memory_bytes_max"), predicted);
    assert_eq!(number(&broker, "dedup_memory_bytes"), predicted);
    assert!(number(&broker, "dedup_key_count") >= 1_000_000);
    let taken = status(&broker, "RssAnon") - before;
    // A save copies an eighth of the keys, and buffers and batches take some 2 MiB.
    let most = predicted + predicted / 8 + (4 << 20);
    assert!(
        (predicted * 9 / 10..=most).contains(&taken),
        "{taken} bytes, and {predicted} were predicted"
    );
}

/// Publishes a message of each of these publishers, in one write.
fn publish_as(http: &mut TcpStream, publishers: std::ops::Range<u64>) {
    let request = |id: u64| {
        let target = format!("/pub?topic=t&publisher={id:x}&number=0");
        format!("POST {target} HTTP/1.1\r\nHost: nsqd\r\nContent-Length: 1\r\n\r\nx")
    };
    let count = publishers.clone().count();
    let requests: String = publishers.map(request).collect();
    http.write_all(requests.as_bytes()).expect("nsqd reads");
    let mut answers = Vec::new();
    while String::from_utf8_lossy(&answers)
        .matches("\r\n\r\nOK")
        .count()
        < count
    {
        let mut piece = [0; 16 << 10];
        let read = http.read(&mut piece).expect("nsqd answers");
        assert!(read > 0, "{}", String::from_utf8_lossy(&answers));
        answers.extend_from_slice(&piece[..read]);
    }
}

/// Without a save, which takes more memory for its time.
#[test]
fn publishers_take_the_memory_that_the_start_predicts() {
    let predicted = 16 << 20;
    let rule = format!("--dedup=t=publisher,memory={predicted}");
    let broker = Broker::start(1, &[&rule, "--sync-timeout=1h"]);
    broker.wait_for_log(&format!(
        "takes at most {predicted} bytes of memory for the rule"
    ));
    let mut http = TcpStream::connect(broker.http_addr()).expect("nsqd listens");
    publish_as(&mut http, 1..101);
    let before = status(&broker, "RssAnon");
    let most = number(&broker, "dedup_publisher_count_max");
    assert_eq!(most, predicted / 352);
    for first in (101..most + 201).step_by(100) {
        publish_as(&mut http, first..first + 100);
    }
    assert_eq!(number(&broker, "dedup_publisher_count"), most);
    assert!(number(&broker, "dedup_publisher_evicted_count") > 0);
    let taken = status(&broker, "RssAnon") - before;
    // Buffers take some MiB. A part of the slots of the index stays empty.
    assert!(
        (predicted * 8 / 10..=predicted + (4 << 20)).contains(&taken),
        "{taken} bytes, and {predicted} were predicted"
    );
}

/// Regression: when the system gave no memory for a further table of keys, the process ended.
#[test]
fn a_system_without_memory_for_a_further_table_costs_keys_and_nothing_else() {
    // Eight tables of 256 MiB of addresses each. The kernel gives pages as they are written.
    let broker = Broker::start(1, &["--dedup=t=body,window=7s,memory=2147483648"]);
    let mut producer = broker.client();
    producer.publish("t", b"0");
    let pid = Pid::from_raw(broker.pid() as i32);
    let limit = |bytes: Option<u64>| {
        let new = Rlimit {
            current: bytes,
            maximum: None,
        };
        prlimit(pid, Resource::As, new).expect("the process runs");
    };
    limit(Some(status(&broker, "VmSize") + (100 << 20)));
    for body in ["1", "2", "3"] {
        // A table lasts one second.
        std::thread::sleep(Duration::from_millis(1100));
        producer.publish("t", body.as_bytes());
        producer.publish("t", body.as_bytes());
    }
    assert_eq!(number(&broker, "message_count"), 4);
    assert_eq!(number(&broker, "dedup_duplicate_count"), 3);
    assert_eq!(number(&broker, "dedup_memory_bytes"), 256 << 20);
    assert!(number(&broker, "dedup_memory_refused_count") >= 3);
    broker.wait_for_log("TOPIC(t): the system refuses memory for the keys of --dedup");
    limit(None);
    producer.publish("t", b"4");
    std::thread::sleep(Duration::from_millis(1100));
    producer.publish("t", b"5");
    assert!(number(&broker, "dedup_memory_bytes") >= 512 << 20);
}
