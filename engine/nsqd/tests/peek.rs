//! Peeks of a real broker: what they show, and that they change nothing.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::peeks::{all, bodies, cold_segments, peek, state, with_cold_messages};
use crate::support::{Broker, Client, TIMEOUT, number_from_env, wait_until};
use serde_json::Value;

const HOUR_MS: u64 = 3_600_000;

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.expect("after 1970").as_nanos()).expect("before 2554")
}

#[test]
fn a_peek_shows_every_state_and_changes_nothing() {
    let broker = Broker::start(2, &[]);
    broker.create("t", "c");
    let mut producer = broker.client();
    let began = now_ns();
    producer.publish_many("t", &["one", "two", "three", "four", "five"]);
    producer.publish_deferred("t", HOUR_MS, b"later");
    let mut consumer = broker.client();
    consumer.identify(r#"{"client_id":"worker \"7\"","msg_timeout":600000}"#);
    consumer.subscribe("t", "c");
    consumer.ready(2);
    let taken = [consumer.message(), consumer.message()];
    consumer.ready(0);
    consumer.requeue(&taken[0].id, 0);
    let is_requeued = || {
        broker
            .channel_stats("t", "c")
            .is_some_and(|it| it["requeue_count"] == 1)
    };
    assert!(wait_until(TIMEOUT, is_requeued));

    let before = state(&broker);
    let of = |rest: &str| peek(&broker, &format!("/channel/peek?topic=t&channel=c&{rest}"));
    let oldest = of("from=oldest");
    assert_eq!(bodies(&oldest), ["three", "four", "five"]);
    assert_eq!(all(&oldest, "attempts"), [0, 0, 0]);
    assert!(
        all(&oldest, "state")
            .iter()
            .all(|state| **state == "waiting")
    );
    assert_eq!(
        (&oldest["ended_by"], oldest.get("next")),
        (&"end".into(), None)
    );
    for timestamp in all(&oldest, "timestamp") {
        let at = timestamp.as_u64().expect("a time");
        assert!((began..=now_ns()).contains(&at));
    }
    assert_eq!(bodies(&of("from=newest")), ["five", "four", "three"]);
    let in_flight = of("from=in_flight");
    assert_eq!(bodies(&in_flight), ["two"]);
    let message = &in_flight["messages"][0];
    assert_eq!(message["client"], consumer.local_addr().to_string());
    assert_eq!(
        (&message["client_id"], &message["attempts"]),
        (&"worker \"7\"".into(), &1.into())
    );
    let (since, until) = (
        message["delivered_at"].as_u64(),
        message["times_out_at"].as_u64(),
    );
    let (since, until) = (since.expect("a time"), until.expect("a time"));
    assert!((began..=now_ns()).contains(&since), "{message}");
    let seconds = (until - since) / 1_000_000_000;
    assert!((599..=601).contains(&seconds), "{message}");
    let requeued = of("from=requeued");
    assert_eq!(
        (bodies(&requeued), all(&requeued, "attempts")),
        (vec!["one"], vec![&1.into()])
    );
    let deferred = of("from=deferred");
    assert_eq!(bodies(&deferred), ["later"]);
    let due = deferred["messages"][0]["deferred_until"]
        .as_u64()
        .expect("a time");
    assert!(due > now_ns() && due < now_ns() + (HOUR_MS + 1000) * 1_000_000);
    assert_eq!(
        peek(&broker, "/topic/peek?topic=t")["messages"],
        Value::Array(Vec::new())
    );
    assert_eq!(state(&broker), before);

    // The same messages come with the same ids and times, in the same order.
    // One message is in flight still.
    consumer.ready(2);
    let mut shown: Vec<Value> = requeued["messages"].as_array().expect("messages").clone();
    shown.extend(oldest["messages"].as_array().expect("messages").clone());
    let mut left: BTreeSet<_> = shown
        .iter()
        .map(|it| it["body"].as_str().expect("a text"))
        .collect();
    let mut waiting = Vec::new();
    while !left.is_empty() {
        let message = consumer.message();
        let body = message.text();
        let peeked = shown
            .iter()
            .find(|it| it["body"] == body)
            .expect("a peek showed it");
        assert_eq!(peeked["id"], &*String::from_utf8_lossy(&message.id));
        assert_eq!(peeked["timestamp"], message.timestamp);
        assert_eq!(peeked["attempts"], message.attempts - 1);
        if message.attempts == 1 {
            waiting.push(body.clone());
        }
        left.remove(body.as_str());
        consumer.finish(&message.id);
    }
    assert_eq!(waiting, ["three", "four", "five"]);
}

#[test]
fn a_topic_shows_what_no_channel_has() {
    let broker = Broker::start(1, &[]);
    let mut producer = broker.client();
    producer.publish_many("t", &["a", "b"]);
    producer.publish_deferred("t", 60_000, b"later");
    producer.publish("t", b"c");
    let oldest = peek(&broker, "/topic/peek?topic=t");
    assert_eq!(bodies(&oldest), ["a", "b", "later", "c"]);
    assert_eq!(
        all(&oldest, "state"),
        ["waiting", "waiting", "deferred", "waiting"]
    );
    assert_eq!(oldest["messages"][2]["defer_ms"], 60_000);
    assert_eq!(
        bodies(&peek(&broker, "/topic/peek?topic=t&from=deferred")),
        ["later"]
    );
    let first = peek(&broker, "/topic/peek?topic=t&from=newest&limit=3");
    assert_eq!(
        (bodies(&first), &first["ended_by"]),
        (vec!["c", "later", "b"], &"limit".into())
    );
    let next = first["next"].as_str().expect("there is more");
    let second = peek(
        &broker,
        &format!("/topic/peek?topic=t&from=newest&cursor={next}"),
    );
    assert_eq!(bodies(&second), ["a"]);
    broker
        .get("/topic/peek?topic=none")
        .expect_error(404, "TOPIC_NOT_FOUND");
    let answer = broker.get("/channel/peek?topic=t&channel=none");
    answer.expect_error(404, "CHANNEL_NOT_FOUND");
}

#[test]
fn bodies_are_text_or_base64_and_cut_between_characters() {
    let broker = Broker::start(1, &["--max-msg-size=2000000"]);
    let mut producer = broker.client();
    producer.publish("t", "aé<".as_bytes());
    producer.publish("t", b"\x00\xff");
    producer.publish("t", &[b'x'; 1_500_000]);
    let answer = peek(&broker, "/topic/peek?topic=t");
    assert_eq!(all(&answer, "encoding"), ["text", "base64", "text"]);
    assert_eq!(bodies(&answer)[..2], ["aé<", "AP8="]);
    assert_eq!(all(&answer, "body_bytes"), [4, 2, 1_500_000]);
    assert_eq!(all(&answer, "is_cut"), [false, false, true]);
    assert_eq!(bodies(&answer)[2].len(), 4096);
    let answer = peek(&broker, "/topic/peek?topic=t&max_body=2&limit=1");
    assert_eq!(
        (bodies(&answer), all(&answer, "is_cut")),
        (vec!["a"], vec![&true.into()])
    );
    let answer = peek(&broker, "/topic/peek?topic=t&max_body=0");
    assert_eq!(bodies(&answer), ["", "", ""]);
}

#[test]
fn filters_search_within_a_budget_and_say_where_to_go_on() {
    let broker = Broker::start(1, &[]);
    let mut producer = broker.client();
    let bodies_of = |numbers: std::ops::Range<u32>| -> Vec<String> {
        let text = |n| format!(r#"{{"order":{{"id":{n},"name":"n {n}"}}}}"#);
        numbers.map(text).collect()
    };
    for thousand in 0..45 {
        let bodies = bodies_of(thousand * 1000..(thousand + 1) * 1000);
        producer.publish_many("t", &bodies);
    }
    let answer = peek(&broker, "/topic/peek?topic=t&json=/order/id&equals=17");
    assert_eq!(bodies(&answer), bodies_of(17..18));
    // 20,000 messages are gone through at once.
    let target = "/topic/peek?topic=t&contains=n%2044999";
    let mut answer = peek(&broker, target);
    let mut requests = 1;
    while answer["ended_by"] == "budget" {
        let scanned = answer["scanned_messages"].as_u64().expect("a number");
        assert!(scanned > 0 && scanned <= 20_000, "{answer}");
        let next = answer["next"].as_str().expect("there is more");
        answer = peek(&broker, &format!("{target}&cursor={next}"));
        requests += 1;
    }
    assert!(requests >= 3, "{requests}");
    assert_eq!(
        (bodies(&answer), &answer["ended_by"]),
        (
            bodies_of(44_999..45_000)
                .iter()
                .map(String::as_str)
                .collect(),
            &"end".into(),
        )
    );
    let newest = peek(
        &broker,
        "/topic/peek?topic=t&contains=n%2044999&from=newest&limit=1",
    );
    assert_eq!(
        (bodies(&newest).len(), &newest["scanned_messages"]),
        (1, &1.into())
    );
}

fn page_through(broker: &Broker, from: &str, limit: u32) -> Vec<Value> {
    let target = format!("/channel/peek?topic=t&channel=c&from={from}&limit={limit}&max_body=4");
    let mut messages = Vec::new();
    let mut answer = peek(broker, &target);
    loop {
        messages.extend(answer["messages"].as_array().expect("messages").clone());
        let Some(next) = answer["next"].as_str() else {
            return messages;
        };
        answer = peek(broker, &format!("{target}&cursor={next}"));
    }
}

#[test]
fn cold_messages_are_read_from_disk_and_stay_there() {
    let broker = Broker::start(1, &["--mem-queue-size=1"]);
    with_cold_messages(&broker, 90);
    let expected: Vec<String> = (0..90).map(|number| format!("{number:04}")).collect();
    let before = (state(&broker), cold_segments(&broker));
    let shown = |messages: &[Value]| -> Vec<String> {
        let bodies = messages.iter().map(|message| message["body"].as_str());
        bodies
            .map(|body| body.expect("a text").to_owned())
            .collect()
    };
    assert_eq!(shown(&page_through(&broker, "oldest", 7)), expected);
    let mut newest = shown(&page_through(&broker, "newest", 100));
    newest.reverse();
    assert_eq!(newest, expected);
    assert_eq!(state(&broker), before.0);
    // Segments may still be on their way out of memory, but none comes back.
    assert!(cold_segments(&broker) >= before.1, "a peek loads nothing");
}

#[test]
fn a_damaged_message_is_shown_as_such_and_not_counted() {
    let broker = Broker::start(1, &["--mem-queue-size=1"]);
    with_cold_messages(&broker, 90);
    // The bodies are long, so one byte in the middle of the oldest segment's file is in a body.
    let directory = fs::read_dir(broker.data_path()).expect("the data path");
    let log = directory.map(|entry| entry.expect("readable").path());
    let log = log
        .into_iter()
        .find(|path| path.is_dir())
        .expect("the log of the topic");
    let shown = page_through(&broker, "oldest", 50);
    let mut spoiled = 0;
    for entry in fs::read_dir(log).expect("the log") {
        let path = entry.expect("readable").path();
        // The broker renames and removes files meanwhile.
        let Ok(content) = fs::read(&path) else {
            continue;
        };
        // A file that was copied and is to be used again still has the message, too.
        if let Some(at) = content.windows(6).position(|window| window == b"0002 x") {
            let Ok(file) = fs::OpenOptions::new().write(true).open(&path) else {
                continue;
            };
            let written = file.write_at(b"!", at as u64 + 1000);
            spoiled += written.expect("written");
        }
    }
    assert!(spoiled > 0, "no file has the message");
    let after = page_through(&broker, "oldest", 50);
    assert_eq!(after.len(), shown.len());
    assert_eq!(after[2]["damaged"], true, "{}", after[2]);
    assert_eq!(after[2]["id"], shown[2]["id"]);
    assert_eq!((&after[1], &after[3]), (&shown[1], &shown[3]));
    // A filter does not find it, and a peek is no reason to report damage.
    let found = peek(
        &broker,
        "/channel/peek?topic=t&channel=c&contains=0002%20x&max_body=4",
    );
    assert!(
        found["messages"].as_array().expect("messages").is_empty(),
        "{found}"
    );
    let metrics = broker.get("/metrics?topic=t").text();
    assert!(metrics.contains("nsqd_topic_damaged_messages_total{topic=\"t\"} 0\n"));
}

#[test]
fn peeks_under_load_while_segments_are_recycled() {
    let broker = Broker::start(1, &[]);
    broker.create("t", "c");
    let is_over = AtomicBool::new(false);
    let (tcp, count) = (broker.tcp_addr(), 3000_u32);
    let filling = "y".repeat(50_000);
    let peeks = thread::scope(|scope| {
        scope.spawn(|| {
            let mut producer = Client::connect(tcp);
            for number in 0..count {
                producer.publish("t", format!("{number:08} {filling}").as_bytes());
            }
        });
        scope.spawn(|| {
            let mut consumer = Client::connect(tcp);
            consumer.subscribe("t", "c");
            consumer.ready(20);
            for number in 0..count {
                let message = consumer.message();
                // Nothing is lost, nothing comes twice, and the order stays.
                assert_eq!(message.body[..8], *format!("{number:08}").as_bytes());
                assert_eq!(message.attempts, 1);
                consumer.finish(&message.id);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mut peeks = 0;
        while !is_over.load(Ordering::Relaxed) {
            let lists = ["oldest", "newest", "in_flight", "requeued", "attempts"];
            let lists = lists.map(|from| format!("/channel/peek?topic=t&channel=c&from={from}"));
            let published = "/topic/peek?topic=t&from=published".to_owned();
            for list in lists.into_iter().chain([published]) {
                let answer = peek(&broker, &format!("{list}&limit=20&max_body=60000"));
                for message in answer["messages"].as_array().expect("messages") {
                    let body = message["body"]
                        .as_str()
                        .unwrap_or_else(|| panic!("{message}"));
                    let number: u32 = body[..8].parse().expect("a number");
                    assert!(
                        number < count && body[9..] == filling,
                        "another message's bytes"
                    );
                    peeks += 1;
                }
            }
        }
        peeks
    });
    assert!(peeks > 0);
}

/// Bodies of 250 kB: the bytes end a look long before 20,000 messages do.
#[test]
fn a_look_goes_through_32_mib_at_most_and_the_next_one_goes_on_there() {
    const COUNT: u64 = 200;
    let broker = Broker::start(1, &[]);
    let mut producer = broker.client();
    broker.create("t", "c");
    let body = "x".repeat(250_000);
    for _ in 0..COUNT {
        producer.publish("t", body.as_bytes());
    }
    let target = "/channel/peek?topic=t&channel=c&contains=nothing";
    let number = |answer: &Value, key: &str| answer[key].as_u64().expect("a number");
    let began = Instant::now();
    let mut answer = peek(&broker, target);
    let took = began.elapsed();
    assert_eq!(answer["ended_by"], "budget", "{answer}");
    let bytes = number(&answer, "scanned_bytes");
    assert!(bytes < (32 << 20) + 256 * 1024, "{answer}");
    // On a busy machine, the time ends the look before the bytes do.
    assert!(
        bytes >= 32 << 20 || took >= Duration::from_secs(2),
        "{answer}"
    );
    let mut scanned = number(&answer, "scanned_messages");
    while let Some(next) = answer["next"].as_str() {
        answer = peek(&broker, &format!("{target}&cursor={next}"));
        scanned += number(&answer, "scanned_messages");
    }
    assert_eq!((scanned, &answer["ended_by"]), (COUNT, &"end".into()));
}

/// A look at messages of 900 kB on disk counted the 256 KiB of each that it shows, and read all of them: up to 128 messages
/// at once, whatever their bytes.
#[test]
fn a_look_reads_32_mib_at_most_from_disk() {
    let broker = Broker::start(1, &["--mem-queue-size=1"]);
    with_cold_messages(&broker, 90);
    for from in ["oldest", "newest"] {
        let target = format!("/channel/peek?topic=t&channel=c&contains=nothing&from={from}");
        let before = read_bytes(&broker);
        let answer = peek(&broker, &target);
        let read = read_bytes(&broker) - before;
        let scanned = answer["scanned_messages"].as_u64().expect("a number");
        println!("{from}: {scanned} messages, {read} bytes read");
        assert_eq!(answer["ended_by"], "budget", "{answer}");
        // One message may exceed the budget. A slice from the newest message on reads up to 4 MiB that it does not use, and
        // takes 3 of 4 messages in exchange.
        let most = if from == "oldest" { 34 << 20 } else { 46 << 20 };
        assert!(read < most, "{read} bytes for {answer}");
        let all = page_through(&broker, &format!("{from}&contains=0"), 100);
        assert_eq!(all.len(), 90);
    }
}

/// Returns the bytes that the broker has read from files and sockets.
fn read_bytes(broker: &Broker) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", broker.pid())).expect("task accounting");
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.and_then(|number| number.parse().ok())
        .expect("a number")
}

/// The threads that read for peeks also made the text of `/metrics`, and refused it while too many peeks waited.
#[test]
fn metrics_are_answered_while_very_many_peek() {
    let broker = Broker::start(1, &["--mem-queue-size=1"]);
    with_cold_messages(&broker, 60);
    let is_over = AtomicBool::new(false);
    let refused = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..150 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let target = "/channel/peek?topic=t&channel=c&contains=nothing";
                    if broker.get(target).status == 503 {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut answers = Vec::new();
        while refused.load(Ordering::Relaxed) < 100 {
            answers.push(broker.get("/metrics?topic=t").status);
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(
            answers.iter().all(|status| *status == 200),
            "{} of {} were refused",
            answers.iter().filter(|status| **status == 503).count(),
            answers.len()
        );
    });
}

/// `RINGQ_PEEK_BACKLOG=10_000_000` makes a longer backlog.
#[test]
fn a_long_backlog_is_answered_within_the_budget() {
    let count = number_from_env("RINGQ_PEEK_BACKLOG", 200_000);
    let broker = Broker::start(1, &["--max-body-size=20000000"]);
    let mut producer = broker.client();
    broker.create("t", "c");
    let batch = vec!["0123456789"; 20_000];
    for _ in 0..count / 20_000 {
        producer.publish_many("t", &batch);
    }
    for rest in [
        "from=oldest",
        "from=newest",
        "contains=nothing",
        "contains=nothing&from=newest",
    ] {
        let began = Instant::now();
        let answer = peek(&broker, &format!("/channel/peek?topic=t&channel=c&{rest}"));
        let took = began.elapsed();
        println!(
            "{rest}: {took:?} for {} messages",
            answer["scanned_messages"]
        );
        let scanned = if rest.contains("nothing") { 20_000 } else { 10 };
        let is_late = answer["scanned_messages"].as_u64() < Some(scanned);
        // The time budget ends a search, too: on a busy machine after fewer messages.
        assert!(!is_late || took >= Duration::from_secs(2), "{answer}");
        assert!(answer["next"].is_string() && took < TIMEOUT, "{took:?}");
    }
}
