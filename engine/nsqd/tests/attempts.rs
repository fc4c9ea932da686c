//! The attempts of a message: REQs that do not count, and dead letters.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support::{Broker, Client, Launch, Message, MessageId, TIMEOUT, Tmpfs, wait_until};

/// Connects a consumer of the channel `t/ch`, for one message at a time.
fn consumer(broker: &Broker, identify: &str) -> Client {
    let mut client = broker.client();
    client.identify(identify);
    client.subscribe("t", "ch");
    client.ready(1);
    client
}

fn requeue_uncounted(client: &mut Client, id: &MessageId) {
    let id = std::str::from_utf8(id).expect("digits");
    client.send(format!("REQ {id} 0 uncounted\n").as_bytes());
}

/// Sends the last REQ of a client, which gets no further message. It is REQ number `count` of the channel.
fn give_back(broker: &Broker, mut client: Client, id: &MessageId, count: u64) {
    client.ready(0);
    requeue_uncounted(&mut client, id);
    let is_back = || {
        let stats = broker.channel("t", "ch");
        stats["requeue_count"] == count && stats["depth"] == 1
    };
    assert!(wait_until(TIMEOUT, is_back));
}

fn attempts(message: &Message) -> (u16, &[u8]) {
    (message.attempts, &message.body)
}

/// Requeues the messages of the channel `ch` until none is left.
fn requeue_all(broker: &Broker, client: &mut Client) {
    let is_done = || {
        while let Some(message) = client.message_within(Duration::from_millis(5)) {
            client.requeue(&message.id, 0);
        }
        let stats = broker.channel("t", "ch");
        stats["depth"] == 0 && stats["in_flight_count"] == 0
    };
    let is_done = wait_until(TIMEOUT, is_done);
    assert!(is_done, "{:?}", broker.channel_stats("t", "ch"));
}

#[test]
fn an_uncounted_requeue_takes_its_attempt_back() {
    let mut broker = Broker::start(2, &[]);
    let mut client = broker.client();
    let plain = client.identify(r#"{"feature_negotiation":true}"#);
    let mut client = broker.client();
    let asks = r#"{"feature_negotiation":true,"req_uncounted":true}"#;
    let agreed = client.identify(asks);
    assert_eq!(agreed, plain.replace('}', r#","req_uncounted":true}"#));

    let mut client = consumer(&broker, asks);
    broker.client().publish("t", b"one");
    for expected in [1, 1, 1] {
        let message = client.message();
        assert_eq!(attempts(&message), (expected, &b"one"[..]));
        requeue_uncounted(&mut client, &message.id);
    }
    let message = client.message();
    client.requeue(&message.id, 0);
    let message = client.message();
    assert_eq!(message.attempts, 2);
    requeue_uncounted(&mut client, &message.id);
    let message = client.message();
    assert_eq!(message.attempts, 2);
    give_back(&broker, client, &message.id, 6);

    // A client that did not ask: the third parameter means nothing.
    let mut client = consumer(&broker, r#"{"feature_negotiation":true}"#);
    let message = client.message();
    requeue_uncounted(&mut client, &message.id);
    let message = client.message();
    assert_eq!(message.attempts, 3);
    give_back(&broker, client, &message.id, 8);

    // The attempts that count survive a restart.
    broker.sigterm_and_wait();
    broker.restart();
    let mut client = consumer(&broker, asks);
    let message = client.message();
    assert_eq!(attempts(&message), (4, &b"one"[..]));
    client.finish(&message.id);
}

#[test]
fn an_unknown_option_of_req_is_refused() {
    let broker = Broker::start(1, &[]);
    let asks = r#"{"feature_negotiation":true,"req_uncounted":true}"#;
    let mut client = consumer(&broker, asks);
    broker.client().publish("t", b"one");
    let message = client.message();
    let id = std::str::from_utf8(&message.id).expect("digits");
    client.send(format!("REQ {id} 0 free\n").as_bytes());
    client.expect_error("E_INVALID REQ unknown option free");
    client.expect_close();
}

// --- dead letters

/// The figures of a channel's dead letters: moved, and waiting.
fn dead_letters(broker: &Broker, topic: &str) -> (u64, u64) {
    let stats = broker.channel(topic, "ch");
    let number = |key: &str| stats[key].as_u64().expect("the channel has a rule");
    (
        number("dead_letter_count"),
        number("dead_letter_waiting_count"),
    )
}

/// Consumes messages of `dead/all` until it has each body of `wanted`, some of them perhaps twice.
fn consume_dead(broker: &Broker, wanted: &BTreeSet<Vec<u8>>) {
    let mut client = broker.consumer("dead", "all", 100);
    let mut got = BTreeSet::new();
    while got != *wanted {
        let message = client.take();
        assert!(wanted.contains(&message.body), "{message:?}");
        got.insert(message.body);
    }
}

/// With three shards, the dead-letter topic is on another shard than some of the topics.
#[test]
fn a_message_that_reached_its_attempts_goes_to_the_dead_letter_topic() {
    for sync in ["--sync-timeout=50ms", "--sync-every=1"] {
        let rule = "--dead-letter=t*/*,max-attempts=2,topic=dead";
        let broker = Broker::start(3, &[rule, sync]);
        let mut bodies = BTreeSet::new();
        let mut producer = broker.client();
        for number in 0..8 {
            let topic = format!("t{number}");
            let body = format!("of {topic}").into_bytes();
            let mut client = broker.consumer(&topic, "ch", 1);
            producer.publish(&topic, &body);
            for expected in [1, 2] {
                let message = client.message();
                assert_eq!(attempts(&message), (expected, &body[..]));
                client.requeue(&message.id, 0);
            }
            let has_moved = || dead_letters(&broker, &topic) == (1, 0);
            assert!(wait_until(TIMEOUT, has_moved), "{topic}");
            client.expect_silence(Duration::from_millis(10));
            let stats = broker.channel(&topic, "ch");
            assert_eq!(stats["depth"], 0);
            assert_eq!(stats["dead_letter_topic"], "dead");
            bodies.insert(body);
        }
        consume_dead(&broker, &bodies);
        let stats = broker.channel("dead", "all");
        assert!(stats.get("dead_letter_count").is_none(), "no rule: {stats}");
        broker.wait_for_log(
            "TOPIC(t0) CHANNEL(ch): 1 messages reached 2 attempts and went to topic dead",
        );
    }
}

#[test]
fn kill_9_loses_no_dead_letter() {
    const MESSAGES: usize = 2000;
    let rule = "--dead-letter=t/ch,max-attempts=1,topic=dead";
    let mut broker = Broker::start(3, &[rule, "--sync-timeout=100ms"]);
    let bodies: Vec<String> = (0..MESSAGES)
        .map(|number| format!("message {number}"))
        .collect();
    broker.create("t", "ch");
    broker.client().publish_many("t", &bodies);
    for round in 0..4 {
        let mut client = broker.consumer("t", "ch", 100);
        // The kill comes while some messages move, and others are on their way.
        let end = Instant::now() + Duration::from_millis(40 + 70 * round);
        while Instant::now() < end {
            if let Some(message) = client.message_within(Duration::from_millis(5)) {
                client.requeue(&message.id, 0);
            }
        }
        broker.kill9();
        broker.restart();
    }
    let mut client = broker.consumer("t", "ch", 100);
    requeue_all(&broker, &mut client);
    consume_dead(
        &broker,
        &bodies.into_iter().map(String::into_bytes).collect(),
    );
}

/// Starts a broker on a small disk, with 20 messages of `t/ch` in flight. Returns the broker, the consumer, the ids and
/// the bodies.
fn on_a_small_disk(tmpfs: &Tmpfs) -> (Broker, Client, Vec<MessageId>, BTreeSet<Vec<u8>>) {
    let data_path = tmpfs.path().join("data");
    std::fs::create_dir(&data_path).expect("the disk is empty");
    let flags = [
        "--dead-letter=t/ch,max-attempts=1,topic=dead",
        "--sync-timeout=50ms",
    ];
    let broker = Launch::new(2, &flags).at(data_path).start();
    broker.create("t", "ch");
    let bodies: Vec<String> = (0..20).map(|number| format!("message {number}")).collect();
    broker.client().publish_many("t", &bodies);
    let mut client = broker.consumer("t", "ch", 20);
    let ids = bodies.iter().map(|_| client.message().id).collect();
    let bodies = bodies.into_iter().map(String::into_bytes).collect();
    (broker, client, ids, bodies)
}

const REFUSED: &str = "ERROR: no dead letter can be stored in topic dead, they stay in the channel";

#[test]
fn dead_letters_wait_in_their_channel_while_the_disk_is_full() {
    let Some(tmpfs) = Tmpfs::mount("16m") else {
        return;
    };
    let (broker, mut client, ids, bodies) = on_a_small_disk(&tmpfs);
    let filler = tmpfs.fill("filler");
    for id in &ids {
        client.requeue(id, 0);
    }
    broker.wait_for_log(REFUSED);
    let has_all = || dead_letters(&broker, "t") == (0, 20);
    assert!(
        wait_until(TIMEOUT, has_all),
        "{:?}",
        dead_letters(&broker, "t")
    );
    let stats = broker.channel("t", "ch");
    assert_eq!(stats["depth"], 20, "{stats}");
    client.expect_silence(Duration::from_millis(10));
    std::fs::remove_file(filler).expect("it is ours");
    let have_moved = || dead_letters(&broker, "t") == (20, 0);
    assert!(
        wait_until(TIMEOUT, have_moved),
        "{:?}",
        dead_letters(&broker, "t")
    );
    let stats = broker.channel("t", "ch");
    assert_eq!(stats["depth"], 0, "{stats}");
    consume_dead(&broker, &bodies);
    // No message came twice, because nothing had crashed.
    let stats = broker.channel("dead", "all");
    assert_eq!(stats["message_count"], 20, "{stats}");
}

#[test]
fn kill_9_on_a_full_disk_loses_no_dead_letter() {
    let Some(tmpfs) = Tmpfs::mount("16m") else {
        return;
    };
    let (mut broker, mut client, ids, bodies) = on_a_small_disk(&tmpfs);
    let filler = tmpfs.fill("filler");
    for id in &ids {
        client.requeue(id, 0);
    }
    broker.wait_for_log(REFUSED);
    broker.kill9();
    std::fs::remove_file(filler).expect("it is ours");
    broker.restart();
    // The disk had no room for the attempts, so the messages may be delivered once more.
    let mut client = broker.consumer("t", "ch", 20);
    requeue_all(&broker, &mut client);
    consume_dead(&broker, &bodies);
}
