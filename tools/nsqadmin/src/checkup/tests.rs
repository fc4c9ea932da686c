use serde_json::{Value, json};
use test_support::assert_like;

use super::node::GONE_MAX;
use super::*;

mod flood;
mod servers;
mod unclaimed;

/// Seconds between two rounds.
const STEP: i64 = 5;

/// Returns a node's `/stats` with the topic `t` and its channel `c`.
fn stats(figures: &Value) -> nsq_http::Stats {
    let channel = json!({
        "channel_name": "c", "depth": figures["depth"], "message_count": figures["count"], "in_flight_count": figures["in_flight"],
        "oldest_unfinished_ms": figures["age"], "paused": figures["paused"].as_bool().unwrap_or(false),
        "pause_until_ms": figures["until"], "pause_note": figures["note"].as_str().unwrap_or(""), "paused_by": figures["by"].as_str().unwrap_or(""), "clients": figures["clients"], "requeue_count": figures["requeued"],
        "deferred_count": figures["deferred"], "oldest_failed_attempts": figures["failed"], "dead_letter_topic": figures["dead_to"],
    });
    let stats = json!({
        "health": figures["health"].as_str().unwrap_or("OK"), "start_time": figures["start"],
        "topics": [{"topic_name": "t", "message_count": figures["count"], "shard": 1, "channels": [channel]}],
        "producers": figures["producers"],
    });
    serde_json::from_value(stats).unwrap()
}

fn round(step: i64, nodes: &[(&str, Value)]) -> Round {
    round_at(step * STEP * 1000, nodes)
}

fn round_at(millis: i64, nodes: &[(&str, Value)]) -> Round {
    let mut round = Round {
        now: Now::at(1_000_000 + millis),
        ..Round::default()
    };
    for (address, figures) in nodes {
        round.add_node(address, &stats(figures), None);
    }
    round
}

/// Checks rounds of one node. Returns the last checkup.
fn check(figures: &[Value]) -> Checkup {
    let mut checker = Checker::default();
    let mut last = Checkup::default();
    for (step, figures) in figures.iter().enumerate() {
        let step = i64::try_from(step).unwrap();
        last = checker.check(round(step, &[("n:1", figures.clone())]));
    }
    last
}

/// Checks two rounds in which each node answers with this `/stats`. Returns the second checkup.
fn check_twice(nodes: &[(&str, nsq_http::Stats)]) -> Checkup {
    let mut checker = Checker::default();
    let mut with = |step: i64| {
        let mut round = round(step, &[]);
        for (address, stats) in nodes {
            round.add_node(address, stats, None);
        }
        checker.check(round)
    };
    with(0);
    with(1)
}

/// Returns a round at this time, in which an nsqlookupd knows these nodes, and they have nothing to tell.
fn idle_round(millis: i64, nodes: &[&str]) -> Round {
    let figures: Vec<_> = nodes.iter().map(|node| (*node, json!({}))).collect();
    let mut round = round_at(millis, &figures);
    round.lookupds.insert("l:1".to_owned(), known(nodes));
    round
}

fn known(nodes: &[&str]) -> LookupdRound {
    Ok(nodes.iter().map(ToString::to_string).collect())
}

/// Returns the sentences about the nodes that are gone.
fn gone(checkup: Checkup) -> Vec<String> {
    let gone = checkup.gone.into_iter();
    gone.map(|gone| gone.sentence).collect()
}

/// Returns the metrics of a node with a disk of 1 TB.
fn with_disk(free_bytes: f64) -> NodeMetrics {
    NodeMetrics {
        shards: BTreeMap::from([(1, ShardUse::default())]),
        disk_bytes: 1e12,
        free_bytes,
        is_draining: false,
    }
}

/// Returns a round at this second, in which each node has one topic. `None` is a node that does not answer.
fn topic_round(second: i64, nodes: &[(&str, Option<Value>)]) -> Round {
    let mut round = round_at(second * 1000, &[]);
    for (address, topic) in nodes {
        match topic {
            Some(topic) => {
                let stats = json!({"health": "OK", "topics": [topic]});
                let stats: nsq_http::Stats = serde_json::from_value(stats).unwrap();
                round.add_node(address, &stats, None);
            }
            None => round.add_failure(address, "timeout".to_owned()),
        }
    }
    round
}

/// Returns the concerns about topics.
fn of_topics(checkup: &Checkup) -> Vec<&Concern> {
    let concerns = checkup.concerns.iter();
    concerns
        .filter(|concern| matches!(concern.subject, Subject::Topic(_)))
        .collect()
}

fn sentences(checkup: &Checkup) -> Vec<&str> {
    let concerns = checkup.concerns.iter();
    concerns.map(|concern| concern.sentence.as_str()).collect()
}

fn of_channel(checkup: &Checkup) -> &ChannelCheck {
    &checkup.channels[&("t".to_owned(), "c".to_owned())]
}

#[test]
fn the_first_round_knows_no_rates_and_the_second_has_the_doctor() {
    let alone = json!({"depth": 9, "count": 9, "age": 60_000});
    let first = check(std::slice::from_ref(&alone));
    assert_eq!((first.channels.len(), first.concerns.len()), (0, 0));
    let second = check(&[alone.clone(), alone]);
    let found = of_channel(&second);
    assert_eq!(
        found.sentence,
        "No consumers: 9 messages wait and 0/s arrive; start a consumer"
    );
    assert!(found.is_problem);
    assert_eq!(second.concerns[0].sentence, found.sentence);
    assert_eq!(second.concerns[0].oldest_ms, Some(60_000));
}

#[test]
fn a_channel_that_needs_nothing_is_no_concern() {
    let idle = json!({"clients": [{"ready_count": 1}]});
    let checkup = check(&[idle.clone(), idle]);
    assert_eq!(sentences(&checkup), [""; 0]);
    assert!(of_channel(&checkup).is_idle);
    // Paused without messages, and RDY 0 without messages.
    for figures in [
        json!({"paused": true}),
        json!({"clients": [{"ready_count": 0}]}),
    ] {
        let checkup = check(&[figures.clone(), figures]);
        assert_eq!(sentences(&checkup), [""; 0]);
        assert!(!of_channel(&checkup).is_problem);
    }
}

#[test]
fn paused_and_backing_off_channels_are_concerns() {
    let paused = json!({"depth": 3, "paused": true, "clients": [{"ready_count": 1}]});
    let checkup = check(&[paused.clone(), paused]);
    assert_eq!(
        sentences(&checkup),
        ["Paused with 3 waiting messages: unpause the channel"]
    );
    let backoff = json!({"depth": 3, "clients": [{"ready_count": 0}]});
    let checkup = check(&[backoff.clone(), backoff]);
    assert!(
        sentences(&checkup)[0].starts_with("Backoff: 1 of 1 connections have RDY 0"),
        "{checkup:?}"
    );
}

#[test]
fn a_message_that_gets_older_is_a_concern_whatever_the_doctor_says() {
    let at = |count: i64, age: i64| json!({"count": count, "in_flight": 1, "age": age, "clients": [{"ready_count": 10}]});
    let older = check(&[at(100, 20_000), at(200, 25_000)]);
    let sentence = sentences(&older)[0].to_owned();
    assert!(
        sentence
            == "The oldest message gets older. Consumers take what else arrives, 20/s; look at the messages in flight and deferred",
        "{sentence}"
    );
    assert!(older.concerns[0].is_older);
    // An age that stays is that of the present messages.
    let same = check(&[at(100, 20_000), at(200, 20_100)]);
    assert_eq!(sentences(&same), [""; 0]);
}

/// Checks a round every 2 seconds, each with this depth and age. Returns the times, in milliseconds, at which
/// the oldest message gets older.
fn older_at(figures: &[(i64, i64)]) -> Vec<usize> {
    let mut checker = Checker::default();
    let mut found = Vec::new();
    for (step, (depth, age)) in figures.iter().enumerate() {
        let figures = json!({"depth": depth, "count": 1000, "in_flight": 1, "age": age, "clients": [{"ready_count": 9}]});
        let millis = i64::try_from(step).unwrap() * 2000;
        let checkup = checker.check(round_at(millis, &[("n:1", figures)]));
        if checkup.concerns.iter().any(|concern| concern.is_older) {
            found.push(step * 2000);
        }
    }
    found
}

#[test]
fn a_backlog_that_does_not_shrink_is_named_when_its_oldest_message_is_some_seconds_old() {
    let slow = [(0, 0), (28, 1400), (56, 2800), (84, 4200), (112, 5600)];
    assert_eq!(older_at(&slow), [4000, 6000, 8000]);
    // The consumers take a burst in 10 seconds.
    let burst = [
        (0, 0),
        (100, 1900),
        (75, 3900),
        (50, 5900),
        (25, 7900),
        (0, 9900),
    ];
    assert_eq!(older_at(&burst), [0; 0]);
    // Handlers take 8 seconds for a message, and no message waits.
    let handler = [(0, 0), (0, 2000), (0, 4000), (0, 6000), (0, 8000)];
    assert_eq!(older_at(&handler), [0; 0]);
    let hung = [(0, 4000), (0, 6000), (0, 8000), (0, 10_000)];
    assert_eq!(older_at(&hung), [6000]);
}

/// While nobody looks, rounds come every 10 s. The comparison of two rounds found a backlog of 4 s only 5 s after somebody had
/// opened the page.
#[test]
fn the_first_round_after_a_long_time_knows_what_has_got_older_since_then() {
    let node = |depth: i64, age: i64| json!({"depth": depth, "count": 1000, "in_flight": 1, "age": age, "clients": [{"ready_count": 9}]});
    let older = |ages: &[i64]| {
        let mut checker = Checker::default();
        checker.check(round_at(0, &[("n:1", node(0, 5))]));
        // Nobody finishes a message from the 7th second on.
        for (second, age) in (1..).zip(ages) {
            checker.watch(1_000_000 + second * 1000, [("t", "c", age / 100, *age)]);
        }
        let last = ages[ages.len() - 1] + 1000;
        let checkup = checker.check(round_at(10_000, &[("n:1", node(last / 100, last))]));
        of_channel(&checkup).is_older
    };
    assert!(older(&[5, 5, 5, 5, 5, 5, 5, 900, 1800]));
    assert!(!older(&[5, 5, 5, 5, 5, 5, 5, 5, 900]));
    // The backlog has the same age all the time.
    assert!(!older(&[
        8000, 8100, 7900, 8000, 8100, 7900, 8000, 8100, 7200
    ]));
}

#[test]
fn rates_are_those_of_five_seconds_even_if_rounds_come_more_often() {
    let mut checker = Checker::default();
    let mut rates = Vec::new();
    // 12 messages come every 6 seconds.
    for (step, count) in [0, 12, 12, 12, 24, 24, 24].into_iter().enumerate() {
        let millis = i64::try_from(step).unwrap() * 2000;
        let checkup = checker.check(round_at(millis, &[("n:1", json!({"count": count}))]));
        rates.push(checkup.producers["t"].arrivals);
    }
    assert_eq!(rates[3..], [2.0; 4], "{rates:?}");
}

/// Returns the checkups of 100 seconds, in which a channel has a message that nobody finishes, the disk fills and a node is
/// gone. The system's clock jumps after 80 seconds.
fn with_a_jump(jump: i64) -> Vec<Checkup> {
    let mut checker = Checker::default();
    let mut checkups = Vec::new();
    for step in 0..=20 {
        let metrics = with_disk(1e12 - f64::from(step) * 5e9);
        let step = i64::from(step);
        let mut figures = published(step * 50, step * 75);
        figures["age"] = json!(step * STEP * 1000);
        let nodes: &[&str] = if step < 15 { &["n:1", "n:2"] } else { &["n:1"] };
        let mut round = idle_round(step * STEP * 1000, nodes);
        if step >= 16 {
            round.now.unix_millis += jump;
        }
        round.add_node("n:1", &stats(&figures), Some(metrics));
        let mut checkup = checker.check(round);
        checkup.now.unix_millis = 0;
        checkups.push(checkup);
    }
    checkups
}

/// After a step back, rates, ages and disks began anew. A step ahead made each producer look as if it had stopped, and a node
/// that was gone was forgotten.
#[test]
fn a_clock_that_jumps_changes_no_checkup() {
    let expected = with_a_jump(0);
    let last = expected.last().unwrap();
    assert!(of_channel(last).is_older);
    assert_eq!(last.producers["t"].listed[0].rate, 10.0);
    assert!(last.nodes["n:1"].disk.unwrap().full_in.is_some());
    assert!(last.gone[0].sentence.contains("for 25s"), "{last:?}");
    for hours in [-1, 1] {
        let found = with_a_jump(hours * 3_600_000);
        for (second, (found, expected)) in (0..).step_by(5).zip(found.iter().zip(&expected)) {
            assert_eq!(found, expected, "{hours} h, after {second} s");
        }
    }
}

/// The first page told an operator to unpause a channel that a colleague had paused with a note.
#[test]
fn a_pause_with_terms_is_told_and_nobody_is_asked_to_end_it() {
    let with = |terms: Value| {
        let mut figures = json!({"depth": 1200, "paused": true});
        let terms = terms.as_object().unwrap().clone();
        figures.as_object_mut().unwrap().extend(terms);
        sentences(&check(&[figures.clone(), figures]))[0].to_owned()
    };
    assert_eq!(
        with(json!({"until": 1_005_000 + 540_000, "by": "ann", "note": "bad deploy"})),
        "Paused for another 9.0m by ann (bad deploy); 1.2k messages wait"
    );
    assert_eq!(
        with(json!({"note": "bad deploy"})),
        "Paused (bad deploy); 1.2k messages wait"
    );
    assert_eq!(
        with(json!({"depth": 1, "by": "ann"})),
        "Paused by ann; 1 message waits"
    );
    assert_eq!(
        with(json!({})),
        "Paused with 1.2k waiting messages: unpause the channel"
    );
}

/// One message in twenty deliveries comes again, so the doctor sees no failing handlers.
#[test]
fn an_old_message_that_is_delivered_again_leads_to_the_messages_with_the_most_attempts() {
    let at = |count: i64, age: i64, requeued: i64| json!({"count": count, "in_flight": 1, "age": age, "requeued": requeued, "clients": [{"ready_count": 10}]});
    let checkup = check(&[at(100, 20_000, 5), at(200, 25_000, 10)]);
    assert!(checkup.concerns[0].is_retried && of_channel(&checkup).is_retried);
    let sentence = sentences(&checkup)[0];
    let start = "The oldest message gets older. 1/s are delivered again: look at the messages with the most attempts. Consumers take what else arrives, ";
    assert!(sentence.starts_with(start), "{sentence}");
    let checkup = check(&[at(100, 20_000, 5), at(200, 25_000, 5)]);
    assert!(!checkup.concerns[0].is_retried);
}

/// Three such messages with growing delays sat in `deferred` most of the time, and the sentence was "Keeps up".
#[test]
fn the_oldest_message_that_fails_again_and_again_is_named_at_each_look() {
    let at = |count: i64, age: i64| json!({"count": count, "in_flight": 0, "deferred": 3, "age": age, "failed": 15, "requeued": 45, "clients": [{"ready_count": 10}]});
    for count in [100, 200] {
        let checkup = check(&[at(100, 20_000), at(count, 25_000)]);
        let concern = &checkup.concerns[0];
        assert_eq!(
            concern.sentence,
            "The oldest message has failed 15 times: look at it"
        );
        assert!(concern.is_retried && concern.is_older);
        assert_eq!(of_channel(&checkup).sentence, concern.sentence);
        assert!(of_channel(&checkup).is_retried);
    }
}

/// The advice was to start a consumer.
#[test]
fn dead_letters_wait_for_a_person() {
    let dead = |channels: Value| {
        json!({"topics": [
            {"topic_name": "t", "channels": [{"channel_name": "c", "dead_letter_topic": "t.dead", "clients": [{"ready_count": 1}]}]},
            {"topic_name": "t.dead", "depth": 7, "channels": channels, "oldest_unfinished_ms": 60_000},
        ]})
    };
    let channel = json!([{"channel_name": "all", "depth": 7, "oldest_unfinished_ms": 60_000}]);
    for (channels, sentence) in [
        (
            channel,
            "Dead letters of t/c: 7 messages wait; look at them, then publish them again or empty the channel",
        ),
        (
            json!([]),
            "Dead letters of t/c wait in the topic: look at them, then publish them again or empty the topic",
        ),
    ] {
        let stats = serde_json::from_value(dead(channels)).unwrap();
        assert_eq!(sentences(&check_twice(&[("n:1", stats)])), [sentence]);
    }
}

/// The page showed 0/s before the second answer.
#[test]
fn a_rate_that_is_not_known_is_not_zero() {
    let producers = json!([{"client_id": "p", "pub_counts": [{"topic": "t", "count": 5}]}]);
    let figures = json!({"count": 5, "producers": producers});
    let shown = |checkup: &Checkup| {
        let json = wire::go_json::to_string(&checkup.publishing("t"));
        let publishing: Value = serde_json::from_str(&json).unwrap();
        [
            &publishing["rate"],
            &publishing["others_rate"],
            &publishing["producers"][0]["rate"],
        ]
        .map(Value::clone)
    };
    let first = check(std::slice::from_ref(&figures));
    assert_eq!(shown(&first), [Value::Null, Value::Null, Value::Null]);
    let second = check(&[figures.clone(), figures]);
    assert_eq!(shown(&second), [json!(0), json!(0), json!(0)]);
}

/// A colleague's pause at one node read as a pause of the whole channel.
#[test]
fn a_pause_at_some_nodes_says_at_how_many() {
    let sentence = |first: Value, second: Value| {
        let last = check_twice(&[("n:1", stats(&first)), ("n:2", stats(&second))]);
        of_channel(&last).sentence.clone()
    };
    let works = json!({"clients": [{"ready_count": 1}]});
    let paused = json!({"depth": 30, "paused": true, "clients": [{"ready_count": 1}]});
    let mut by_ann = paused.clone();
    (by_ann["by"], by_ann["note"]) = (json!("ann"), json!("deploying"));
    assert_eq!(
        sentence(works.clone(), by_ann.clone()),
        "Paused at 1 of 2 nodes by ann (deploying); 30 messages wait there"
    );
    assert_eq!(
        sentence(works, paused.clone()),
        "Paused at 1 of 2 nodes with 30 waiting messages there: unpause the channel"
    );
    assert_eq!(
        sentence(by_ann.clone(), by_ann.clone()),
        "Paused by ann (deploying); 60 messages wait"
    );
    // The pause hid what is wrong at the other node.
    let lonely = json!({"depth": 5000, "clients": []});
    assert_eq!(
        sentence(lonely, by_ann),
        "No consumers: 5.0k messages wait and 0/s arrive; start a consumer. \
         Paused at 1 of 2 nodes by ann (deploying); 30 messages wait there"
    );
}

/// Such a pause of a topic was followed by the advice to end it.
#[test]
fn a_pause_of_a_topic_tells_its_terms() {
    let topic = json!({"topic_name": "t", "depth": 1200, "paused": true, "pause_until_ms": 1_005_000 + 540_000,
        "paused_by": "ann", "pause_note": "bad deploy", "channels": [{"channel_name": "c"}]});
    let stats: nsq_http::Stats = serde_json::from_value(json!({"topics": [topic]})).unwrap();
    let last = check_twice(&[("n:1", stats)]);
    assert_eq!(
        sentences(&last),
        ["Topic paused for another 9.0m by ann (bad deploy); 1.2k messages wait"]
    );
    assert_eq!(last.concerns[0].depth, 1200);
}

/// With a pause of the channel at another node, nobody saw that messages waited in the topic.
#[test]
fn a_pause_of_the_topic_at_one_node_and_of_the_channel_at_another_are_both_told() {
    let with = |topic: &Value, channel: &Value| -> nsq_http::Stats {
        let mut topic = topic.clone();
        topic["topic_name"] = json!("t");
        topic["channels"] = json!([channel]);
        serde_json::from_value(json!({"topics": [topic]})).unwrap()
    };
    let paused = with(
        &json!({}),
        &json!({"channel_name": "c", "paused": true, "paused_by": "ann"}),
    );
    let in_topic = with(
        &json!({"paused": true, "depth": 1200}),
        &json!({"channel_name": "c"}),
    );
    let last = check_twice(&[("n:1", paused), ("n:2", in_topic)]);
    assert_eq!(
        sentences(&last),
        ["Paused at 1 of 2 nodes by ann; 0 messages wait there. \
          Topic paused at 1 of 2 nodes with 1.2k waiting messages there: unpause it"]
    );
    assert_eq!(last.concerns[0].depth, 1200);
}

/// An empty looked like consumers who drain the channel: `Drained in 61 ms` beside a channel without consumers.
#[test]
fn an_empty_is_no_draining() {
    let drained_in = |clients: [Value; 2]| {
        let [before, after] = clients;
        let before = json!({"depth": 10_000, "count": 10_000, "clients": before});
        let after = json!({"depth": 100, "count": 10_100, "clients": after});
        of_channel(&check(&[before, after])).drained_in
    };
    let client = |finished: i64| json!([{"remote_address": "10.0.0.1:5", "connect_ts": 1, "ready_count": 1, "finish_count": finished}]);
    assert_eq!(drained_in([json!([]), json!([])]), None);
    assert_eq!(drained_in([client(7), client(7)]), None);
    // 200 messages were finished, and the rest was dropped: 40/s leave, and 20/s arrive.
    assert_eq!(drained_in([client(7), client(207)]), Some(5.0));
    // A consumer that has come since then has finished all its messages since then.
    assert_eq!(drained_in([json!([]), client(200)]), Some(5.0));
}

#[test]
fn a_backlog_that_shrinks_has_an_end() {
    let at = |depth: i64, finished: i64| {
        let client = json!({"ready_count": 1, "finish_count": finished});
        json!({"depth": depth, "count": 1000, "in_flight": 1, "clients": [client]})
    };
    // 100 messages leave in 5 seconds, and 200 wait.
    let checkup = check(&[at(300, 0), at(200, 100)]);
    assert_eq!(of_channel(&checkup).drained_in, Some(10.0));
    let growing = check(&[at(200, 0), at(300, 100)]);
    assert_eq!(of_channel(&growing).drained_in, None);
}

#[test]
fn servers_come_first_and_then_the_oldest_message() {
    let mut checker = Checker::default();
    let with = |step| {
        let mut round = round(step, &[("n:1", json!({"depth": 5, "age": 30_000}))]);
        let old = json!({
            "topics": [
                {"topic_name": "old", "channels": [{"channel_name": "c", "depth": 1, "oldest_unfinished_ms": 90_000}]},
                {"topic_name": "lonely", "depth": 4, "oldest_unfinished_ms": 50_000},
            ],
            "health": "NOK - no space left on device",
        });
        round.add_node("n:2", &serde_json::from_value(old).unwrap(), None);
        round.add_failure("n:3", "connection refused".to_owned());
        round.lookupds = BTreeMap::from([
            ("l:1".to_owned(), known(&["n:1", "n:2", "n:3"])),
            ("l:2".to_owned(), known(&["n:1"])),
            ("l:3".to_owned(), Err("no route".to_owned())),
        ]);
        round
    };
    checker.check(with(0));
    let checkup = checker.check(with(1));
    let subjects: Vec<&Subject> = checkup.concerns.iter().map(|one| &one.subject).collect();
    let channel = |topic: &str, channel: &str| Subject::Channel(topic.into(), channel.into());
    let expected = [
        &Subject::Lookupd("l:2".into()),
        &Subject::Lookupd("l:3".into()),
        &Subject::Node("n:2".into()),
        &Subject::Node("n:3".into()),
        &channel("old", "c"),
        &Subject::Topic("lonely".into()),
        &channel("t", "c"),
    ];
    assert_eq!(subjects, expected, "{checkup:?}");
    let sentences = sentences(&checkup);
    let texts = [
        "does not know n:2 and 1 more",
        "does not answer: no route",
        "The disk is full, and this nsqd refuses messages",
        "connection refused",
    ];
    for (sentence, text) in sentences.iter().zip(texts) {
        assert!(sentence.contains(text), "{sentence}");
    }
    assert!(sentences[2].starts_with(texts[2]), "{sentences:?}");
}

#[test]
fn a_node_that_vanishes_is_named_until_it_is_back_or_half_an_hour_has_passed() {
    let mut checker = Checker::default();
    let mut with = |step: i64, nodes: &[&str]| {
        let checkup = checker.check(idle_round(step * STEP * 1000, nodes));
        sentences(&checkup).join("; ")
    };
    assert_eq!(with(0, &["n:1", "n:2"]), "");
    assert!(with(1, &["n:1"]).starts_with("This nsqd is gone"));
    assert!(with(2, &["n:1"]).contains("for 5.0s"));
    assert_eq!(with(3, &["n:1", "n:2"]), "");
    assert!(with(4, &["n:1"]).starts_with("This nsqd is gone"));
    assert_eq!(with(4 + 30 * 60 / STEP, &["n:1"]), "");
}

/// A round of a cluster: the nodes that are asked, and the nodes that each nsqlookupd knows. `None` is no answer.
type Told<'a> = (&'a [&'a str], [Option<&'a [&'a str]>; 2]);

/// Checks a round of each. Returns the sentences about each node after the last one.
fn after_rounds(rounds: &[Told<'_>]) -> Vec<String> {
    let mut checker = Checker::default();
    let mut last = Checkup::default();
    for (step, (nodes, lookupds)) in (0..).zip(rounds) {
        let mut round = idle_round(step * STEP * 1000, nodes);
        for (name, told) in ["l:1", "l:2"].into_iter().zip(lookupds) {
            let told = told.map_or(Err("no route".to_owned()), known);
            round.lookupds.insert(name.to_owned(), told);
        }
        last = checker.check(round);
    }
    let gone = last.gone.iter();
    gone.map(|gone| format!("{}: {}", gone.address, gone.sentence))
        .collect()
}

/// While an nsqlookupd did not answer, no node counted as gone, and a later round had forgotten the node.
#[test]
fn a_host_that_dies_with_an_nsqd_and_an_nsqlookupd_hides_neither() {
    let (both, one): (&[&str], &[&str]) = (&["n:1", "n:2"], &["n:1"]);
    let before = (both, [Some(both), Some(both)]);
    let host_died = (one, [Some(one), None]);
    let gone = |rounds: &[Told<'_>]| after_rounds(rounds).join("; ");
    assert!(
        gone(&[before, host_died]).starts_with(
            "n:2: This nsqd is gone: no nsqlookupd that answers knows it any more, since just now."
        ),
        "{}",
        gone(&[before, host_died])
    );
    // The nsqlookupd is back, and the node is not.
    let back = (one, [Some(one), Some(one)]);
    let sentence = gone(&[before, host_died, host_died, back]);
    assert_like(
        &sentence,
        "n:2: This nsqd is gone: no nsqlookupd has known it for 10s.…",
    );
    assert_eq!(gone(&[before, host_died, back, before]), "");
}

/// A node that starts again and again without consumers hid that the messages of all other nodes get older.
#[test]
fn a_node_that_has_just_started_hides_no_old_message_of_another() {
    let gets_older = |is_young_stuck: bool| {
        let mut checker = Checker::default();
        let mut last = Checkup::default();
        for step in 0..4 {
            let stuck = 60_000 + step * STEP * 1000;
            let (young, found) = if is_young_stuck {
                (stuck, 0)
            } else {
                (10, stuck)
            };
            let started = 1000 + step * STEP - 1;
            let young = json!({"depth": 1, "count": 1, "age": young, "start": started});
            let found = json!({"depth": 5, "count": 50, "age": found, "start": 1, "clients": [{"ready_count": 1}]});
            last = checker.check(round(step, &[("n:1", found), ("n:2", young)]));
        }
        of_channel(&last).is_older
    };
    assert!(gets_older(false));
    assert!(!gets_older(true), "consumers are about to find the node");
}

/// The operator was told that a node had no messages, although nsqadmin did not know.
#[test]
fn a_node_that_never_answered_is_not_said_to_have_had_no_messages() {
    let mut checker = Checker::default();
    let mut after = |second: i64, nodes: &[(&str, Option<i64>)]| {
        let answers = nodes.iter().filter(|(_, depth)| depth.is_some());
        let figures: Vec<_> = answers
            .map(|(node, depth)| (*node, json!({"count": 9, "depth": depth})))
            .collect();
        let mut round = round_at(second * 1000, &figures);
        for (node, _) in nodes.iter().filter(|(_, depth)| depth.is_none()) {
            round.add_failure(node, "no route".to_owned());
        }
        let names: Vec<&str> = nodes.iter().map(|(node, _)| *node).collect();
        round.lookupds.insert("l:1".to_owned(), known(&names));
        gone(checker.check(round)).join("\n")
    };
    after(0, &[("n:1", Some(0)), ("n:2", None)]);
    let gone = after(1, &[("n:1", Some(0))]);
    assert!(gone.ends_with("wait until it is back"), "{gone}");
    // A node that comes and goes without an answer has what it had.
    after(2, &[("n:1", Some(0)), ("n:2", Some(7))]);
    let gone = after(3, &[("n:1", Some(0))]);
    assert!(gone.contains("about 7 in 1 topic"), "{gone}");
    after(4, &[("n:1", Some(0)), ("n:2", None)]);
    let gone = after(5, &[("n:1", Some(0))]);
    assert!(gone.contains("about 7 in 1 topic"), "{gone}");
}

/// With --max-nodes, a new node took the place of another one, which was called gone.
#[test]
fn a_node_that_is_not_asked_and_that_an_nsqlookupd_knows_is_not_gone() {
    let all: &[&str] = &["n:1", "n:2"];
    let rounds = [
        (all, [Some(all), Some(all)]),
        (&["n:1"][..], [Some(all), None]),
    ];
    assert_eq!(after_rounds(&rounds), [""; 0]);
}

/// Returns the figures of a topic to which `shop` publishes, and others over HTTP.
fn published(of_shop: i64, count: i64) -> Value {
    json!({
        "count": count, "depth": count, "age": 1000,
        "producers": [{"client_id": "shop", "hostname": "host-a", "remote_address": "10.0.0.1:5", "connect_ts": 7,
            "pub_counts": [{"topic": "t", "count": of_shop}]}],
    })
}

#[test]
fn a_producer_that_publishes_more_than_it_used_to_explains_a_backlog() {
    let mut checker = Checker::default();
    let (mut of_shop, mut count) = (0, 0);
    let mut last = Checkup::default();
    for step in 0..20 {
        // 2 messages a second, and 1 over HTTP.
        of_shop += 10;
        count += 15;
        last = checker.check(round(step, &[("n:1", published(of_shop, count))]));
    }
    let producers = &last.producers["t"];
    assert_eq!(
        (producers.arrivals, producers.others, producers.count),
        (3.0, 1.0, 1)
    );
    let shop = &producers.listed[0];
    assert_eq!((shop.rate, shop.count), (2.0, of_shop));
    assert!((shop.usual.unwrap() - 2.0).abs() < 1e-6, "{shop:?}");
    assert!(!sentences(&last)[0].contains("has grown"), "{last:?}");
    // Now 200 a second.
    last = checker.check(round(
        20,
        &[("n:1", published(of_shop + 1000, count + 1005))],
    ));
    let sentence = sentences(&last)[0];
    assert_like(
        sentence,
        "…A producer has grown: shop (host-a): 200/s instead of the usual 2/s",
    );
    // A restarted node counts from 0, and so do its producers.
    last = checker.check(round(21, &[("n:1", published(10, 15))]));
    assert_eq!(last.producers["t"].listed[0].rate, 2.0);
}

/// An answer that came too late made the whole count of a connection the messages of the last seconds.
#[test]
fn a_node_that_did_not_answer_once_has_no_wrong_rates_afterwards() {
    let mut checker = Checker::default();
    let second = |step: i64| 2 * step;
    let silent = |step: i64| (7..=10).contains(&step);
    for step in 0..=14 {
        let count = 1_000_000 + 10 * second(step);
        let mut round = if silent(step) {
            round_at(second(step) * 1000, &[])
        } else {
            round_at(second(step) * 1000, &[("n:1", published(count, count))])
        };
        if silent(step) {
            round.add_failure("n:1", "timeout".to_owned());
        }
        let checkup = checker.check(round);
        let rates = checkup.producers.values().flat_map(|topic| &topic.listed);
        for producer in rates {
            assert!(producer.rate <= 10.0, "at step {step}: {producer:?}");
        }
        for shard in checkup.nodes["n:1"].shards.values() {
            assert!(shard.arrivals <= 10.0, "at step {step}: {shard:?}");
        }
    }
}

/// Publishes at two rates, with consumers that keep up. Returns the concerns after the second one.
fn after_growth(usual: i64, grown: i64) -> Vec<String> {
    let mut checker = Checker::default();
    let mut count = 0;
    let mut last = Checkup::default();
    for step in 0..=20 {
        count += STEP * if step == 20 { grown } else { usual };
        let mut figures = published(count, count);
        figures["depth"] = json!(0);
        figures["age"] = json!(0);
        figures["clients"] = json!([{"ready_count": 9}]);
        last = checker.check(round(step, &[("n:1", figures)]));
    }
    sentences(&last).into_iter().map(str::to_owned).collect()
}

#[test]
fn a_producer_that_has_gone_wild_is_named_even_if_consumers_keep_up() {
    assert_eq!(
        after_growth(10, 200),
        [
            "200/s arrive instead of the usual 10/s, and consumers keep up. \
          A producer has grown: shop (host-a): 200/s instead of the usual 10/s"
        ]
    );
    // Four times, less than 100 more, and a topic without a usual rate.
    assert_eq!(after_growth(50, 200), [""; 0]);
    assert_eq!(after_growth(2, 100), [""; 0]);
    assert_eq!(after_growth(0, 500), [""; 0]);
}

/// A producer that has gone wild may keep its node from answering. The usual rates were forgotten then, and a minute later the
/// wild rate was the usual one.
#[test]
fn a_round_without_answers_does_not_forget_the_usual_rates() {
    let usual_after = |missed: i64| {
        let mut checker = Checker::default();
        for step in 0..=20 {
            let count = step * STEP * 10;
            checker.check(round(step, &[("n:1", published(count, count))]));
        }
        for step in 21..21 + missed {
            checker.check(round(step, &[]));
        }
        let mut last = Checkup::default();
        for step in 0..3 {
            let count = (21 + missed + step) * STEP * 10;
            let figures = published(count, count);
            last = checker.check(round(21 + missed + step, &[("n:1", figures)]));
        }
        last.producers["t"].usual
    };
    let usual = usual_after(4).expect("the topic was watched for a minute");
    assert!((5.0..=10.1).contains(&usual), "{usual}");
    // After ten minutes, they are forgotten.
    assert_eq!(usual_after(600 / STEP + 1), None);
}

#[test]
fn a_client_at_several_nodes_has_a_usual_rate_at_each() {
    let mut checker = Checker::default();
    let mut last = Checkup::default();
    for step in 0..20 {
        let count = step * 10;
        let nodes = ["n:1", "n:2"].map(|node| (node, published(count, count)));
        last = checker.check(round(step, &nodes));
    }
    for producer in &last.producers["t"].listed {
        assert_eq!(producer.rate, 2.0);
        assert!((producer.usual.unwrap() - 2.0).abs() < 0.2, "{producer:?}");
    }
    assert!(!sentences(&last)[0].contains("has grown"), "{last:?}");
    // Twenty times as many at both nodes.
    let nodes = ["n:1", "n:2"].map(|node| (node, published(390, 390)));
    last = checker.check(round(20, &nodes));
    let sentence = sentences(&last)[0];
    assert_like(
        sentence,
        "…A producer has grown: shop (host-a): 80/s instead of the usual…",
    );
}

/// The first advice was to empty a backlog that had a thousandth of the disk.
#[test]
fn a_disk_that_other_things_fill_is_not_blamed_on_the_backlog() {
    let advice_about = |channel: Value, count: i64| {
        let topic = json!({"topic_name": "t", "message_count": count, "message_bytes": count * 1000,
            "channels": [channel, {"channel_name": "d"}]});
        let stats = json!({"health": "OK", "topics": [topic, {"topic_name": "idle"}]});
        let mut round = round(0, &[]);
        let stats = serde_json::from_value(stats).unwrap();
        round.add_node("n:1", &stats, Some(with_disk(5e10)));
        let checkup = Checker::default().check(round);
        sentences(&checkup)[0].to_owned()
    };
    let advice = |depth: i64, count: i64| advice_about(json!({"depth": depth}), count);
    let begin = "The disk has 50GB free, 5 % of its size: ";
    let of_backlog =
        format!("{begin}consume or empty the longest backlog, or find what else uses the disk");
    assert_eq!(
        advice(1_000_000, 2_000_000),
        format!(
            "{begin}find what uses it; the messages that wait or can be brought back have only about 1.0GB"
        )
    );
    assert_eq!(advice(500_000_000, 500_000_000), of_backlog);
    // Messages that are deferred, in flight or emptied with an undo need disk space, too.
    for figure in ["deferred_count", "in_flight_count", "undo_message_count"] {
        let channel = json!({"channel_name": "c", "depth": 1, figure: 500_000_000});
        assert_eq!(advice_about(channel, 500_000_000), of_backlog, "{figure}");
    }
    // The node was started anew, and does not know how long its messages are.
    assert_eq!(advice(1_000, 0), of_backlog);
}

#[test]
fn a_minute_of_a_filling_disk_does_not_tell_about_hours() {
    let mut checker = Checker::default();
    let mut alarms = Vec::new();
    for step in 0..=120 {
        let second = f64::from(i32::try_from(step * STEP).unwrap());
        // The disk is full in about 3 hours.
        let metrics = with_disk(5e11 - second * 4.5e7);
        let mut round = round(step, &[]);
        round.add_node("n:1", &stats(&json!({})), Some(metrics));
        let checkup = checker.check(round);
        if !checkup.concerns.is_empty() {
            alarms.push(second);
        }
    }
    let first = alarms[0];
    assert!(
        (420.0..500.0).contains(&first),
        "the first alarm after {first} s"
    );
}

/// The page said "Disk full in about 57ms", and nowhere how many messages were refused.
#[test]
fn a_full_disk_is_called_full_and_its_refusals_are_counted() {
    let mut checker = Checker::default();
    let mut last = Checkup::default();
    let full = "NOK - cannot allocate /data/t.log/000000000002.segment: no space left on device";
    for (step, health) in [(0, "OK"), (60, "OK"), (100, full)] {
        let free_bytes = 1e9 - f64::from(i32::try_from(step).unwrap()) * 9_999_999.0;
        let metrics = NodeMetrics {
            disk_bytes: 1e9,
            ..with_disk(free_bytes)
        };
        let mut round = round(step, &[]);
        let mut answer = stats(&json!({"health": health}));
        answer.topics[0].refused_count = if health == full { 33_500 } else { 0 };
        round.add_node("n:1", &answer, Some(metrics));
        last = checker.check(round);
    }
    let disk = last.nodes["n:1"].disk.unwrap();
    assert_eq!((disk.is_full, disk.full_in), (true, None));
    let expected = "The disk is full, and this nsqd refuses messages, 34k since its start: ";
    let found = sentences(&last);
    assert!(
        found.len() == 1 && found[0].starts_with(expected),
        "{found:?}"
    );
    let node: Value = serde_json::from_str(&last.node("n:1").unwrap()).unwrap();
    assert_eq!(
        (&node["disk"]["is_full"], &node["disk"]["full_in_s"]),
        (&json!(true), &Value::Null)
    );
}

#[test]
fn metrics_of_a_node_tell_its_shards_and_its_disk() {
    let metrics = |cpu: f64, free: f64| {
        format!(
            "# HELP nsqd_shard_cpu_seconds_total x\nnsqd_shard_cpu_seconds_total{{shard=\"1\"}} {cpu}\n\
             nsqd_shard_connections{{shard=\"1\"}} 7\nnsqd_data_path_size_bytes 1e12\n\
             nsqd_data_path_available_bytes {free}\nnsqd_draining 0\n"
        )
    };
    assert_eq!(
        NodeMetrics::of_metrics("process_cpu_seconds_total 1\n"),
        None
    );
    let odd = NodeMetrics::of_metrics(&metrics(f64::NAN, f64::INFINITY)).unwrap();
    assert_eq!((odd.free_bytes, odd.shards[&1].cpu_seconds), (0.0, 0.0));
    let mut checker = Checker::default();
    let mut last = Checkup::default();
    for step in 0..20 {
        let mut round = Round {
            now: Now::at(step * STEP * 1000),
            ..Round::default()
        };
        // Each second uses 0.95 s of the core, and 1 GB of the disk.
        let second = f64::from(i32::try_from(step * STEP).unwrap());
        let node_metrics = NodeMetrics::of_metrics(&metrics(second * 0.95, 1e12 - 1e9 * second));
        let figures = json!({"count": step * STEP * 100, "clients": [{"ready_count": 1}]});
        round.add_node("n:1", &stats(&figures), node_metrics);
        last = checker.check(round);
        let is_early = second < 60.0;
        let disk = last.nodes["n:1"].disk.unwrap();
        assert_eq!(disk.full_in.is_none(), is_early, "after {second} s");
    }
    let node = &last.nodes["n:1"];
    let shard = &node.shards[&1];
    assert!((shard.load.unwrap() - 0.95).abs() < 1e-9, "{shard:?}");
    assert_eq!((shard.connections, shard.topic_count), (7.0, 1));
    let busiest = shard.busiest.as_ref().unwrap();
    assert_eq!((busiest.topic.as_str(), busiest.rate), ("t", 100.0));
    // After 95 s, 905 GB are free.
    assert!((node.disk.unwrap().full_in.unwrap() - 905.0).abs() < 1e-6);
    let sentences = sentences(&last);
    assert_like(sentences[0], "Disk full in about 15m (905GB free)…");
    assert_like(
        sentences[1],
        "Shard 1 uses 95 % of its core; t has 100 of its 100…",
    );
}

#[test]
fn the_json_has_what_the_page_shows() {
    let alone = json!({"depth": 9, "count": 9, "age": 60_000});
    let checkup = check(&[alone.clone(), alone]);
    let attention: Value =
        serde_json::from_str(&checkup.attention("m", Duration::from_millis(950))).unwrap();
    let concern = &attention["concerns"][0];
    let found = ["topic", "channel", "oldest_ms"].map(|key| concern[key].clone());
    assert_eq!(found, [json!("t"), json!("c"), json!(60_000)]);
    assert_eq!(attention["next_ms"], 950);
    assert_eq!(attention["message"], "m");
    let node: Value = serde_json::from_str(&checkup.node("n:1").unwrap()).unwrap();
    assert_eq!(
        (&node["health"], &node["shards"][0]["shard"]),
        (&json!("OK"), &json!(1))
    );
    assert_eq!(node["concerns"], json!([]));
    assert_eq!(checkup.node("n:2"), None);
    let subject = Subject::Node("n:2".to_owned());
    let gone = Concern::new(subject, "This nsqd is gone".to_owned());
    let checkup = Checkup {
        concerns: vec![gone],
        ..checkup
    };
    let node: Value = serde_json::from_str(&checkup.node("n:2").unwrap()).unwrap();
    assert_eq!(node["concerns"][0]["sentence"], "This nsqd is gone");
}

/// An nsqlookupd that names other nodes each time.
#[test]
fn nodes_that_vanish_again_and_again_take_bounded_memory() {
    let mut checker = Checker::default();
    let mut last = Checkup::default();
    for step in 0..30 {
        let mut round = idle_round(step * 2000, &[]);
        for node in 0..100 {
            round.add_failure(&format!("n{step}-{node}:1"), "timeout".to_owned());
        }
        last = checker.check(round);
    }
    assert_eq!(checker.vanished.gone.len(), GONE_MAX);
    assert!(
        checker.vanished.gone.contains_key("n28-0:1"),
        "the last are kept"
    );
    assert!(!checker.vanished.gone.contains_key("n0-0:1"));
    assert_eq!(last.concerns.len(), GONE_MAX + 100);
}

/// Each connection has another name, as programs that run for a moment may have.
#[test]
fn names_of_producers_that_come_once_take_bounded_memory() {
    let mut checker = Checker::default();
    for step in 0..40 {
        let producers: Vec<Value> = (0..100)
            .map(|number| {
                json!({"client_id": format!("{step}-{number}"), "hostname": "h", "connect_ts": step, "remote_address": format!("10.0.0.1:{number}"),
                    "pub_counts": [{"topic": "t", "count": 1000 * (step + 1)}]})
            })
            .collect();
        let figures = json!({"count": step * 100_000, "producers": producers});
        checker.check(round(step, &[("n:1", figures)]));
    }
    let (count, has) = checker.usual.known("t", "39-5");
    assert!(has, "who is there is never forgotten");
    assert!(count <= 100 + 1 + 1000, "{count}");
    assert!(
        checker.usual.known("t", "11-5").1,
        "that of the first minute"
    );
    assert!(!checker.usual.known("t", "13-5").1);
}
