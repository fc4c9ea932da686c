//! Consumers that recognise messages that were handled before.

use std::path::Path;

use super::*;
use crate::dedup::filters::{InverseBloom, MessageNumber, RoaringPair};
use crate::dedup::{Dedup, DedupStats, Key, SetupError};

fn filter() -> InverseBloom {
    InverseBloom::new(10_000).expect("slots")
}

fn by_body() -> Dedup {
    Dedup::builder(Key::body(), filter())
        .build()
        .expect("complete")
}

fn by_id() -> Dedup {
    let key = Key::json("/id").expect("a pointer");
    Dedup::builder(key, filter()).build().expect("complete")
}

/// An exact filter of bodies that are numbers.
fn by_number() -> Dedup {
    let number = |body: &[u8]| {
        let number = std::str::from_utf8(body).ok()?.parse().ok()?;
        Some(MessageNumber { source: 0, number })
    };
    let filter = RoaringPair::new(10_000, 1).expect("sizes");
    let dedup = Dedup::builder(Key::number_by(number), filter).build();
    dedup.expect("complete")
}

fn stats(control: &Control) -> DedupStats {
    control.stats().dedup.expect("a filter")
}

/// Returns the number with which the test delivered the message.
fn number(message: &Message) -> u64 {
    let digits = String::from_utf8_lossy(message.id().as_bytes()).into_owned();
    u64::from_str_radix(&digits, 16).expect("16 digits")
}

/// A consumer of two nodes, each with RDY 5.
type Pair = (MockConnection, MockConnection, Consumer, [MockServer; 2]);

async fn pair(change: impl FnOnce(ConsumerBuilder) -> ConsumerBuilder) -> Pair {
    let network = MockNetwork::new();
    let mut servers = [network.server("n1:4150"), network.server("n2:4150")];
    let builder = builder(&network, 10).nodes(servers.iter().map(MockServer::address));
    let consumer = connected(change(builder)).await;
    let (mut one, mut two) = (accept(&mut servers[0]).await, accept(&mut servers[1]).await);
    // The first connection may have had RDY 10 for a moment.
    for nsqd in [&mut one, &mut two] {
        loop {
            match nsqd.command().await.expect("open").to_string().as_str() {
                "RDY 5" => break,
                "RDY 10" => {}
                other => panic!("RDY is expected: {other}"),
            }
        }
    }
    (one, two, consumer, servers)
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_handled_is_finished_without_the_application() {
    let (mut one, mut two, mut consumer, _) = pair(|builder| builder.dedup(by_id())).await;
    one.deliver(1, 1, r#"{"id":"a"}"#).await;
    next(&mut consumer).await.finish();
    one.expect(&fin(1)).await;
    two.deliver(2, 1, r#"{"copy":true,"id":"\u0061"}"#).await;
    two.expect(&fin(2)).await;
    two.deliver(3, 1, r#"{"id":"b"}"#).await;
    let message = next(&mut consumer).await;
    assert_eq!(&message.body()[..], br#"{"id":"b"}"#);
    let stats = stats(&consumer.control());
    assert_eq!((stats.fresh, stats.done, stats.waiting), (2, 1, 0));
    assert_eq!(stats.bytes, 160_000);
}

#[tokio::test(start_paused = true)]
async fn a_copy_waits_with_touch_until_the_first_one_is_done() {
    let (mut one, mut two, mut consumer, _) = pair(|builder| builder.dedup(by_body())).await;
    one.deliver(1, 1, "a").await;
    let message = next(&mut consumer).await;
    two.deliver(2, 1, "a").await;
    // Half of the timeout of 60 s.
    expect_silence(&mut two, MS(29_000)).await;
    two.expect("TOUCH 0000000000000002").await;
    message.touch();
    one.expect("TOUCH 0000000000000001").await;
    two.expect("TOUCH 0000000000000002").await;
    assert_eq!(stats(&consumer.control()).waiting, 1);
    let began = Instant::now();
    message.finish();
    two.expect(&fin(2)).await;
    assert!(began.elapsed() < MS(50), "the answer wakes the copy");
    one.expect(&fin(1)).await;
    let stats = stats(&consumer.control());
    assert_eq!((stats.waited, stats.done, stats.waiting), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_handled_when_the_first_one_fails() {
    for failure in 0..4 {
        let (mut one, mut two, mut consumer, _servers) =
            pair(|builder| builder.dedup(by_body())).await;
        one.deliver(1, 1, "a").await;
        let message = next(&mut consumer).await;
        two.deliver(2, 1, "a").await;
        two.deliver(3, 1, "a").await;
        tokio::time::sleep(MS(500)).await;
        match failure {
            0 => drop(message),
            1 => drop(message.requeue_without_backoff(Requeue::After(MS(5)))),
            2 => {
                // The connection is lost, and the application gives up after that.
                drop(one);
                tokio::time::sleep(MS(500)).await;
                drop(message);
            }
            _ => {
                let (_, acker) = message.split();
                drop(acker);
            }
        }
        let message = next(&mut consumer).await;
        assert_eq!(number(&message), 2, "failure {failure}");
        assert_eq!(stats(&consumer.control()).waiting, 1);
        message.finish();
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let command = two.command().await.expect("open").to_string();
            if command.starts_with("FIN") {
                seen.push(command);
            }
        }
        assert_eq!(seen, [fin(2), fin(3)], "failure {failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_that_fail_or_panic_give_their_message_up() {
    let (mut one, mut two, consumer, _) = pair(|builder| {
        let config = Config {
            max_backoff_duration: MS(0),
            ..config(10)
        };
        builder.config(config).dedup(by_body())
    })
    .await;
    let calls = Arc::new(Mutex::new(0));
    let running = {
        let calls = Arc::clone(&calls);
        consumer.run(4, move |_message: Message| {
            let calls = Arc::clone(&calls);
            async move {
                tokio::time::sleep(MS(100)).await;
                let call = {
                    let mut calls = calls.lock();
                    *calls += 1;
                    *calls
                };
                match call {
                    1 => Err("it fails".to_owned()),
                    2 => panic!("it panics"),
                    _ => Ok(()),
                }
            }
        })
    };
    let test = async {
        one.deliver(1, 1, "a").await;
        tokio::time::sleep(MS(10)).await;
        two.deliver(2, 1, "a").await;
        two.deliver(3, 1, "a").await;
        one.expect(&req(1, 90_000)).await;
        expect(&mut two, &[&req(2, 90_000), &fin(3)]).await;
        two.deliver(2, 2, "a").await;
        two.expect(&fin(2)).await;
    };
    tokio::select! {
        () = running => panic!("the consumer runs"),
        () = test => {}
    }
    assert_eq!(*calls.lock(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_copy_goes_back_when_the_limit_of_nsqd_is_near() {
    let network = MockNetwork::new();
    let mut server = network.server("n1:4150");
    let builder = builder(&network, 10).node(server.address());
    let mut consumer = connected(builder.dedup(by_body())).await;
    let answer = r#"{"max_rdy_count":2500,"msg_timeout":1000,"max_msg_timeout":3000}"#;
    let mut nsqd = accept_with(&mut server, answer).await;
    nsqd.expect("RDY 10").await;
    nsqd.deliver(1, 1, "a").await;
    let message = next(&mut consumer).await;
    nsqd.deliver(2, 1, "a").await;
    let began = Instant::now();
    for _ in 0..5 {
        nsqd.expect("TOUCH 0000000000000002").await;
    }
    nsqd.expect(&req(2, 90_000)).await;
    assert!((2700..2800).contains(&began.elapsed().as_millis()));
    assert_eq!(stats(&consumer.control()).requeued, 1);
    // No backoff, because the application has not failed.
    assert_eq!(consumer.control().stats().backoff_level, 0);
    drop(message);
}

/// Two consumers share a filter. All that the second one may have in flight is a copy that waits for the first one.
#[tokio::test(start_paused = true)]
async fn copies_that_wait_do_not_keep_other_messages_away() {
    let network = MockNetwork::new();
    let mut servers = [network.server("n1:4150"), network.server("n2:4150")];
    let dedup = by_body();
    let mut consumers = Vec::new();
    let mut connections = Vec::new();
    for server in &mut servers {
        let builder = builder(&network, 1).node(server.address());
        let consumer = builder.dedup(dedup.clone()).connect().await;
        consumers.push(consumer.expect("complete"));
        let mut nsqd = accept(server).await;
        nsqd.expect("RDY 1").await;
        connections.push(nsqd);
    }
    connections[0].deliver(1, 1, "a").await;
    let message = next(&mut consumers[0]).await;
    connections[1].deliver(2, 1, "a").await;
    connections[1].expect(&req(2, 6000)).await;
    connections[1].deliver(3, 1, "b").await;
    next(&mut consumers[1]).await.finish();
    connections[1].expect(&fin(3)).await;
    // The copy comes again, and waits until the other consumer is ready.
    connections[1].deliver(2, 2, "a").await;
    tokio::time::sleep(MS(300)).await;
    message.finish();
    connections[1].expect(&fin(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_gives_the_messages_of_the_inbox_up() {
    let (one, mut two, mut consumer, _) = pair(|builder| builder.dedup(by_body())).await;
    let mut one = one;
    one.deliver(1, 1, "a").await;
    tokio::time::sleep(MS(100)).await;
    drop(one);
    tokio::time::sleep(MS(100)).await;
    two.deliver(2, 1, "a").await;
    // The message of the lost connection is dropped when the application looks, and its copy comes instead.
    let message = next(&mut consumer).await;
    assert_eq!(number(&message), 2);
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_connection_is_lost_leaves_the_room() {
    let (mut one, mut two, mut consumer, _) = pair(|builder| builder.dedup(by_body())).await;
    one.deliver(1, 1, "a").await;
    let message = next(&mut consumer).await;
    two.deliver(2, 1, "a").await;
    tokio::time::sleep(MS(100)).await;
    let control = consumer.control();
    assert_eq!(stats(&control).waiting, 1);
    drop(two);
    tokio::time::sleep(MS(1000)).await;
    assert_eq!(stats(&control).waiting, 0);
    message.finish();
    // RDY may have changed in the meantime.
    while one.command().await.expect("open").to_string() != fin(1) {}
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_given_up_leaves_its_copy_fresh() {
    let (mut one, mut two, mut consumer, _) = pair(|builder| builder.dedup(by_body())).await;
    one.deliver(1, 6, "a").await;
    two.deliver(2, 1, "a").await;
    let message = next(&mut consumer).await;
    assert_eq!(number(&message), 2);
    one.expect(&fin(1)).await;
    message.finish();
    two.expect(&fin(2)).await;
    // A message that is done is not given up, whatever its attempts.
    one.deliver(3, 99, "a").await;
    one.expect(&fin(3)).await;
    assert_eq!(stats(&consumer.control()).done, 1);
}

#[tokio::test(start_paused = true)]
async fn messages_without_a_key_are_handled_and_counted() {
    let log = Log::default();
    let (mut one, _two, mut consumer, _) =
        pair(|builder| builder.dedup(by_id()).events(log.callback())).await;
    for number in 1..=12 {
        let body = ["no JSON", "{", r#"{"id":null}"#, ""][number as usize % 4];
        one.deliver(number, 1, body).await;
        next(&mut consumer).await.finish();
        one.expect(&fin(number)).await;
    }
    assert_eq!(stats(&consumer.control()).without_key, 12);
    assert_eq!(log.count("messages without a key so far"), 2);
    assert_eq!(log.count("WRN"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_first_copies() {
    let (mut one, mut two, mut consumer, _) = pair(|builder| builder.dedup(by_body())).await;
    one.deliver(1, 1, "a").await;
    let message = next(&mut consumer).await;
    two.deliver(2, 1, "a").await;
    two.deliver(3, 1, "b").await;
    two.deliver(4, 1, "b").await;
    tokio::time::sleep(MS(100)).await;
    let control = consumer.control();
    let stopping = tokio::spawn(async move { control.shutdown().await });
    one.expect("CLS").await;
    // The application has not taken message 3, so it goes back, and its copy follows.
    expect(&mut two, &["CLS", &req(3, 0), &req(4, 0)]).await;
    one.respond("CLOSE_WAIT").await;
    two.respond("CLOSE_WAIT").await;
    expect_silence(&mut two, MS(5000)).await;
    message.finish();
    one.expect(&fin(1)).await;
    two.expect(&fin(2)).await;
    assert_eq!((one.command().await, two.command().await), (None, None));
    drop((one, two));
    stopping.await.expect("no panic");
    assert!(consumer.next().await.is_none());
}

fn with_file(path: &Path, slots: u64) -> Result<Dedup, SetupError> {
    let filter = InverseBloom::new(slots).expect("slots");
    Dedup::builder(Key::body(), filter).state_file(path).build()
}

#[tokio::test(start_paused = true)]
async fn the_state_lives_in_a_file_from_a_stop_to_the_next_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state");
    let log = Log::default();
    for start in 0..3 {
        let dedup = with_file(&path, 100).expect("a state");
        assert_eq!(dedup.is_restored(), start > 0);
        let (mut one, mut two, mut consumer, _) =
            pair(|builder| builder.dedup(dedup).events(log.callback())).await;
        one.deliver(1, 1, "a").await;
        if start == 0 {
            next(&mut consumer).await.finish();
        }
        one.expect(&fin(1)).await;
        let control = consumer.control();
        let stopping = tokio::spawn(async move { control.shutdown().await });
        close(&mut one).await;
        close(&mut two).await;
        drop((one, two));
        match start {
            // Both ends wait for the file.
            0 => stopping.await.expect("no panic"),
            _ => assert!(consumer.next().await.is_none()),
        }
        assert!(path.exists());
        assert_eq!(log.count("the filter is saved in"), start + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_state_is_saved_in_intervals() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state");
    let dedup = Dedup::builder(Key::body(), filter())
        .state_file(&path)
        .save_interval(Duration::from_secs(60))
        .build()
        .expect("complete");
    let (mut one, _two, mut consumer, _) = pair(|builder| builder.dedup(dedup)).await;
    one.deliver(1, 1, "a").await;
    next(&mut consumer).await.finish();
    one.expect(&fin(1)).await;
    assert!(!path.exists());
    tokio::time::sleep(MS(61_000)).await;
    // The thread that writes the file has real time.
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while !path.exists() {
        assert!(std::time::Instant::now() < end);
        tokio::time::sleep(MS(1)).await;
    }
}

#[test]
fn settings_that_cannot_work_are_refused_with_advice() {
    let check = |made: Result<Dedup, SetupError>, advice: &str| {
        let error = made.expect_err("it cannot work").to_string();
        assert!(error.contains(advice), "{error}");
    };
    let pair = RoaringPair::new(100, 10).expect("sizes");
    check(
        Dedup::builder(Key::body(), pair).build(),
        "use another filter",
    );
    let interval = Dedup::builder(Key::body(), filter()).save_interval(MS(1000));
    check(interval.build(), "needs a state file");

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state");
    check(
        with_file(&directory.path().join("no/state"), 100),
        "No such file or directory",
    );
    with_file(&path, 100)
        .expect("a state")
        .save()
        .expect("a directory");
    check(
        with_file(&path, 200),
        "100 slots, and a filter with 200 slots is wanted",
    );
    let numbers = RoaringPair::new(100, 10).expect("sizes");
    let key = Key::json_number(None, "/n").expect("a pointer");
    check(
        Dedup::builder(key, numbers).state_file(&path).build(),
        "choose another file",
    );
    let mut bytes = std::fs::read(&path).expect("it is saved");
    bytes[40] ^= 1;
    std::fs::write(&path, bytes).expect("writable");
    check(
        with_file(&path, 100),
        "remove it to begin with an empty filter",
    );
}

/// Two processes overwrote each other's filter in silence.
#[test]
fn a_state_file_belongs_to_one_process_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state");
    let first = with_file(&path, 100).expect("a state");
    assert_eq!(first.state_warning(), None);
    first.save().expect("a directory");
    match with_file(&path, 100) {
        Err(SetupError::InUse {
            path: used,
            process,
        }) => {
            assert_eq!((used, process), (path.clone(), Some(std::process::id())));
        }
        other => panic!("a save keeps the lock: {other:?}"),
    }
    drop(first);
    assert!(
        with_file(&path, 100)
            .expect("the file is free")
            .is_restored()
    );
}

#[test]
fn a_lock_that_cannot_be_taken_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let lock = directory.path().join("state.lock");
    std::fs::create_dir(&lock).expect("a directory");
    let error = with_file(&directory.path().join("state"), 100).expect_err("no file");
    let expected = format!("cannot lock {}: Is a directory", lock.display());
    assert!(error.to_string().starts_with(&expected), "{error}");
}

/// The filter was restored, and knew no message by the other key.
#[test]
fn the_state_of_another_key_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state");
    let with_key = |key: Key| Dedup::builder(key, filter()).state_file(&path).build();
    let json = |pointer: &str| Key::json(pointer).expect("a pointer");
    with_key(json("/id"))
        .expect("a state")
        .save()
        .expect("a directory");
    for (key, name) in [
        (Key::body(), "body"),
        (json("/key"), "json:/key"),
        (Key::by(|_| None), "function"),
        (
            Key::json_number(Some("/from"), "/id").expect("pointers"),
            "number json:/id of source json:/from",
        ),
    ] {
        let error = with_key(key).expect_err("another key").to_string();
        let expected = format!(
            "{} has a filter of the keys json:/id, and a filter of the keys {name} is wanted; remove the file to begin with \
             an empty filter, or choose the key of the saved one",
            path.display()
        );
        assert_eq!(error, expected);
    }
    assert!(with_key(json("/id")).expect("the same key").is_restored());
}

/// Copies on two nodes, random answers, lost connections: each key is handled with success exactly once.
#[tokio::test(start_paused = true)]
async fn each_key_is_handled_once_in_random_histories() {
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let network = MockNetwork::new();
        let brokers = [network.broker("n1:4150"), network.broker("n2:4150")];
        for broker in &brokers {
            broker.cut_next(crate::testing::Cut {
                received: rng.u64(500..3000),
                ..Default::default()
            });
        }
        let config = Config {
            max_attempts: 0,
            max_backoff_duration: MS(0),
            default_requeue_delay: MS(20),
            ..config(rng.u32(1..20))
        };
        let mut consumer = builder(&network, 1)
            .config(config)
            .nodes(brokers.iter().map(|broker| broker.address()))
            .dedup(by_number())
            .connect()
            .await
            .expect("complete");
        const KEYS: usize = 100;
        for key in 0..KEYS {
            for broker in &brokers {
                broker.publish("t", key.to_string());
            }
        }
        let mut done = vec![0; KEYS];
        let mut held: Vec<Message> = Vec::new();
        let depth = || -> usize {
            brokers
                .iter()
                .map(|b| b.depth("t", "c").0 + b.depth("t", "c").1)
                .sum()
        };
        while depth() > 0 || done.contains(&0) {
            match timeout(MS(rng.u64(1..50)), consumer.next()).await {
                Ok(message) => held.push(message.expect("the consumer runs")),
                Err(_) if held.is_empty() => tokio::time::sleep(MS(10)).await,
                Err(_) => {}
            }
            while held.len() > rng.usize(0..5) {
                let message = held.swap_remove(rng.usize(..held.len()));
                if rng.u8(0..4) == 0 {
                    drop(message);
                    continue;
                }
                let key: usize = std::str::from_utf8(message.body())
                    .expect("digits")
                    .parse()
                    .expect("a number");
                done[key] += 1;
                message.finish();
            }
        }
        assert!(
            done.iter().all(|count| *count == 1),
            "seed {seed}: {done:?}"
        );
    }
}
