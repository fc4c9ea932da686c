//! Messages that wait in a topic itself.

use super::*;

/// Returns the topic `t` of a node, with these channels. `None` is the age of nsqd 1.3.0, which tells none.
fn topic(channels: &[&str], depth: i64, age: Option<i64>) -> Value {
    let channels = channels.iter();
    let channels: Vec<Value> = channels
        .map(|name| json!({"channel_name": name, "clients": [{"ready_count": 1}]}))
        .collect();
    json!({"topic_name": "t", "depth": depth, "message_count": depth, "oldest_unfinished_ms": age, "channels": channels})
}

/// Checks a round of these nodes. Returns the sentence about the topic, if there is one.
fn sentence(nodes: &[(&str, Value)]) -> Option<String> {
    let nodes: Vec<_> = nodes
        .iter()
        .map(|(address, topic)| (*address, Some(topic.clone())))
        .collect();
    let checkup = Checker::default().check(topic_round(0, &nodes));
    let concerns = of_topics(&checkup);
    assert!(concerns.len() < 2, "{concerns:?}");
    concerns.first().map(|concern| concern.sentence.clone())
}

/// The largest number of channels of all nodes decided, so the messages at the other nodes were in no list.
#[test]
fn messages_at_a_node_that_lacks_the_channels_of_the_topic_are_a_concern() {
    let with = topic(&["archive"], 0, Some(0));
    let without = topic(&[], 6, Some(12_000));
    let nodes = [("n:1", Some(with.clone())), ("n:2", Some(without.clone()))];
    let checkup = Checker::default().check(topic_round(0, &nodes));
    let [concern] = of_topics(&checkup)[..] else {
        panic!("{checkup:?}");
    };
    assert_eq!(
        concern.sentence,
        "No channel at n:2, where 6 messages wait; other nodes have archive. Connect the consumers to every node: nsqlookupd \
         names it, unless the topic is tombstoned there. Or create the channel on the page Lookup, which creates it at all nodes"
    );
    let figures = (concern.depth, concern.oldest_ms, concern.is_older);
    assert_eq!(figures, (6, Some(12_000), true));
    let many = topic(&["archive", "billing", "mails"], 0, Some(0));
    let found = sentence(&[
        ("n:1", many),
        ("n:2", without.clone()),
        ("n:3", topic(&[], 1, Some(90_000))),
        // This node has the channel, and another reason.
        ("n:4", topic(&["archive"], 5, Some(90_000))),
    ]);
    let begin = "No channel at n:2, n:3, where 7 messages wait; other nodes have archive, billing and 1 more. ";
    assert!(
        found.as_ref().is_some_and(|it| it.starts_with(begin)),
        "{found:?}"
    );
    // Nothing waits at the node.
    assert_eq!(
        sentence(&[("n:1", with), ("n:2", topic(&[], 0, Some(0)))]),
        None
    );
    let alone = sentence(&[("n:1", topic(&[], 3, Some(5))), ("n:2", without)]);
    assert_eq!(
        alone.as_deref(),
        Some("No channel: messages wait in the topic for the first one; start a consumer")
    );
}

#[test]
fn the_moment_between_a_topic_and_its_channel_is_no_concern() {
    let with = ("n:1", topic(&["archive"], 0, Some(0)));
    for (age, is_told) in [(0, false), (9_999, false), (10_000, true)] {
        let found = sentence(&[with.clone(), ("n:2", topic(&[], 6, Some(age)))]);
        assert_eq!(found.is_some(), is_told, "at an age of {age} ms");
    }
}

/// nsqd 1.3.0 tells no age, so the time for which the messages have been seen counts.
#[test]
fn a_node_that_tells_no_age_is_a_concern_when_it_has_been_so_for_ten_seconds() {
    let told_at = |figures: &dyn Fn(i64) -> Option<Value>| {
        let mut checker = Checker::default();
        let seconds = (0..=30).step_by(2);
        let is_told = |second: &i64| {
            let with = topic(&["archive"], 0, None);
            let nodes = [("n:1", Some(with)), ("n:2", figures(*second))];
            !of_topics(&checker.check(topic_round(*second, &nodes))).is_empty()
        };
        seconds.filter(is_told).collect::<Vec<i64>>()
    };
    let without = topic(&[], 6, None);
    assert_eq!(told_at(&|_| Some(without.clone()))[0], 10);
    // A round without an answer of the node begins nothing anew.
    let fails = told_at(&|second| (second != 6).then(|| without.clone()));
    assert_eq!(fails[0], 10);
    let channel = topic(&["archive"], 0, None);
    let heals = told_at(&|second| match second {
        8..20 => Some(channel.clone()),
        _ => Some(without.clone()),
    });
    assert_eq!(heals, [30]);
}

/// The advice was to start a consumer, which would have got nothing.
#[test]
fn a_paused_topic_without_channels_says_who_has_paused_it() {
    const NONE: &str = "No channel: messages wait in the topic for the first one; start a consumer";
    let paused = |depth: i64, by: &str, note: &str| {
        let mut topic = topic(&[], depth, Some(60_000));
        topic["paused"] = json!(true);
        (topic["paused_by"], topic["pause_note"]) = (json!(by), json!(note));
        topic
    };
    let by_ann = paused(1200, "ann", "bad deploy");
    assert_eq!(
        sentence(&[("n:1", by_ann.clone())]),
        Some(format!(
            "Topic paused by ann (bad deploy); 1.2k messages wait. {NONE}"
        ))
    );
    let by_nobody = [("n:1", paused(3, "", "")), ("n:2", paused(4, "", ""))];
    assert_eq!(
        sentence(&by_nobody),
        Some(format!(
            "Topic paused with 7 waiting messages: unpause it. {NONE}"
        ))
    );
    let running = topic(&[], 5, Some(60_000));
    assert_eq!(
        sentence(&[("n:1", by_ann.clone()), ("n:2", running)]),
        Some(format!(
            "{NONE}. Topic paused at 1 of 2 nodes by ann (bad deploy); 1.2k messages wait there"
        ))
    );
    let with = topic(&["archive"], 0, Some(0));
    let found = sentence(&[("n:1", by_ann), ("n:2", with)]);
    let begin = "Topic paused at 1 of 2 nodes by ann (bad deploy); 1.2k messages wait there. No channel at n:1, where 1.2k";
    assert!(
        found.as_ref().is_some_and(|it| it.starts_with(begin)),
        "{found:?}"
    );
    // The doctor tells the pause at a node that has the channel.
    let mut paused_with = topic(&["archive"], 9, Some(60_000));
    paused_with["paused"] = json!(true);
    let found = sentence(&[("n:1", topic(&[], 6, Some(60_000))), ("n:2", paused_with)]);
    assert!(
        found.as_ref().is_some_and(|it| !it.contains("paused")),
        "{found:?}"
    );
}
