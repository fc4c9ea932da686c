//! Topics that forget early what they have stored.

use super::*;

/// Returns the topic `t` of a node, with its channel `c` and these figures.
fn topic(figures: &Value) -> Value {
    let mut topic = json!({"topic_name": "t", "channels": [{"channel_name": "c"}]});
    let given = figures.as_object().unwrap().clone();
    topic.as_object_mut().unwrap().extend(given);
    topic
}

/// Checks a round of one node at each of these seconds. Returns the sentences of the last round.
fn check(rounds: &[(i64, Option<Value>)]) -> Vec<String> {
    let mut checker = Checker::default();
    let mut last = Checkup::default();
    for (second, figures) in rounds {
        let topic = figures.as_ref().map(topic);
        last = checker.check(topic_round(*second, &[("n:1", topic)]));
    }
    of_topics(&last)
        .iter()
        .map(|concern| concern.sentence.clone())
        .collect()
}

fn keys(refused: i64) -> Option<Value> {
    Some(json!({"dedup_duplicate_count": 5, "dedup_memory_refused_count": refused}))
}

fn publishers(evicted: i64) -> Option<Value> {
    Some(
        json!({"dedup_duplicate_count": 5, "dedup_publisher_evicted_count": evicted, "dedup_publisher_count_max": 2978}),
    )
}

/// Only nsqd's log and its `/stats` told that copies were stored.
#[test]
fn memory_that_the_system_has_refused_is_a_concern_for_ten_minutes() {
    assert_eq!(check(&[(0, keys(7))]), [""; 0]);
    assert_eq!(
        check(&[(0, keys(7)), (10, keys(8))]),
        [
            "In the last 10m, the system refused memory for keys of --dedup once at n:1, so the topic forgets keys early, and \
             copies may be stored. Raise the limit of the address space of nsqd (ulimit -v, LimitAS), set vm.overcommit_memory \
             to 0, or give the topic's rule a smaller memory="
        ]
    );
    let mut later: Vec<_> = (0..=10).map(|minute| (minute * 60, keys(8))).collect();
    later[0].1 = keys(7);
    assert_eq!(check(&later).len(), 1);
    later.push((661, keys(8)));
    assert_eq!(check(&later), [""; 0]);
    // The node has started anew, and counts from 0.
    assert_eq!(
        check(&[(0, keys(7)), (10, keys(0)), (20, keys(0))]),
        [""; 0]
    );
    // A round without an answer begins nothing anew.
    let silent = check(&[(0, keys(7)), (10, None), (20, keys(9))]);
    assert!(
        silent[0].contains("refused memory for keys of --dedup 2 times"),
        "{silent:?}"
    );
    // The refusals of hours without an answer were told as those of the last ten minutes.
    assert_eq!(check(&[(0, keys(7)), (10, None), (7200, keys(9))]), [""; 0]);
    // Topics without a rule, and nodes of NSQ.
    let none = Some(json!({}));
    assert_eq!(check(&[(0, none.clone()), (60, none)]), [""; 0]);
}

#[test]
fn publishers_that_are_forgotten_within_an_hour_are_a_concern() {
    // In 10 minutes, all places are taken by others.
    let rounds = |evicted: i64| {
        let minutes = 0..=10;
        let rounds = minutes.map(|minute| (minute * 60, publishers(100 + evicted * minute / 10)));
        check(&rounds.collect::<Vec<_>>())
    };
    assert_eq!(
        rounds(2978),
        [
            "A publisher is forgotten 10m after its last message at n:1, because others need its place, and copies that come \
             later are stored. Raise memory= of the topic's rule --dedup=...=publisher, which has room for 2978 publishers, or \
             let the producers keep their ids"
        ]
    );
    assert!(
        rounds(600)[0].contains("forgotten 50m after"),
        "{:?}",
        rounds(600)
    );
    assert_eq!(rounds(490), [""; 0]);
    // A rate needs a minute.
    assert_eq!(check(&[(0, publishers(0)), (1, publishers(50))]), [""; 0]);
}

#[test]
fn the_sentence_names_the_nodes() {
    let mut checker = Checker::default();
    let nodes = |refused: i64| {
        ["n:1", "n:2", "n:3", "n:4"].map(|node| {
            let figures = keys(if node == "n:2" { 0 } else { refused });
            (node, figures.as_ref().map(topic))
        })
    };
    checker.check(topic_round(0, &nodes(0)));
    let last = checker.check(topic_round(5, &nodes(1000)));
    let found = &of_topics(&last)[0].sentence;
    assert!(
        found.contains("3.0k times at n:1, n:3 and 1 more, so"),
        "{found}"
    );
}
