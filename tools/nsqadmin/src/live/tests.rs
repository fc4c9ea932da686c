use super::*;
use crate::checkup::Checkup;
use crate::figures::NodeIdentity;

fn node(address: &str, topics: &str) -> NodeStats {
    let body = format!("{{\"topics\":[{topics}]}}");
    let stats: nsq_http::Stats = nsq_http::read(body.as_bytes()).expect("the text is JSON");
    NodeStats {
        node: NodeIdentity {
            address: address.to_owned(),
            ..NodeIdentity::default()
        },
        topics: stats.topics,
        ..NodeStats::default()
    }
}

/// Returns the snapshot of answers that all come at the time of the question.
fn answered_at_once(before: &Snapshot, stats: &[NodeStats], now: Now) -> Snapshot {
    let mut stats = stats.to_vec();
    for given in &mut stats {
        given.answered.steady_millis = now.steady_millis;
    }
    Snapshot::next(before, &stats, now, String::new())
}

fn topic(name: &str, count: i64) -> String {
    format!(
        r#"{{"topic_name":"{name}","depth":1,"message_count":{count},"oldest_unfinished_ms":5,"channels":[
            {{"channel_name":"c","depth":2,"in_flight_count":3,"message_count":{count},"client_count":4,
              "oldest_unfinished_ms":7}}]}}"#
    )
}

fn first() -> Snapshot {
    let stats = [
        node("a:1", &[topic("t", 100), topic("idle", 5)].join(",")),
        node("b:1", &topic("t", 50)),
    ];
    answered_at_once(&Snapshot::default(), &stats, Now::at(1_000_000))
}

#[test]
fn figures_are_sums_and_rates_are_differences() {
    let first = first();
    let t = &first.topics["t"].total.figures;
    assert_eq!(
        (t.depth, t.channel_depth, t.in_flight, t.clients),
        (2, 4, 6, 8)
    );
    assert_eq!((t.message_count, t.oldest_ms), (150, 7));
    let stats = [
        node("a:1", &[topic("t", 120), topic("idle", 5)].join(",")),
        // This node has started anew.
        node("b:1", &topic("t", 10)),
        node("c:1", &topic("t", 1_000)),
    ];
    let second = answered_at_once(&first, &stats, Now::at(1_002_000));
    let t = &second.topics["t"];
    let rates = |total: &Total| ["a:1", "b:1", "c:1"].map(|node| total.nodes[node].rate);
    assert_eq!(rates(&t.total), [Some(10.0), None, None]);
    assert_eq!(rates(&t.channels["c"]), [Some(10.0), None, None]);
    assert_eq!(t.total.figures.rate, None, "two nodes have no rate yet");
    assert_eq!(second.nodes["a:1"].rate, Some(10.0));
    assert_eq!(second.topics["idle"].total.figures.rate, Some(0.0));
    let third = answered_at_once(&second, &stats, Now::at(1_003_000));
    assert_eq!(third.topics["t"].total.figures.rate, Some(0.0));
    let again = answered_at_once(&third, &stats, Now::at(1_003_000));
    let rate = again.topics["t"].total.figures.rate;
    assert_eq!(rate, None, "no time has passed");
}

/// One nsqd hung until its deadline, and the answers of the others got the time after it. The next answers came some
/// milliseconds later, so the rate of 100/s became 2,846/s and 71,428/s.
#[test]
fn a_node_that_hangs_changes_no_rate_of_the_others() {
    let answer = |address: &str, count: i64, millis: i64| {
        let mut stats = node(address, &topic("t", count));
        stats.answered.steady_millis = millis;
        stats
    };
    let next = |before: &Snapshot, stats: &[NodeStats], millis| {
        Snapshot::next(before, stats, Now::at(millis), String::new())
    };
    let mut last = next(&Snapshot::default(), &[answer("a:1", 0, 10)], 0);
    // The other node answers after 4 seconds in the first collection, and at once in the second one.
    for (asked, of_b) in [(1_000, 5_000), (5_010, 5_020), (6_010, 6_020)] {
        let answered = asked + 10;
        let a = answer("a:1", answered / 10, answered);
        last = next(&last, &[a, answer("b:1", of_b / 10, of_b)], asked);
        let rate = last.nodes["a:1"].rate.unwrap();
        assert!((99.0..=101.0).contains(&rate), "at {asked}: {rate}");
        if asked > 1_000 {
            assert_eq!(last.nodes["b:1"].rate, Some(100.0), "at {asked}");
        }
    }
}

/// The past had a rate of 0 for a new topic, after a restart of a node, and at the start of nsqadmin.
#[test]
fn a_rate_without_an_earlier_count_is_unknown_in_the_past_too() {
    let rates = |snapshot: &Snapshot| -> BTreeMap<Key, Option<f64>> {
        let samples = snapshot.samples();
        samples.map(|(key, point)| (key, point.rate)).collect()
    };
    let begun = rates(&first());
    assert!(begun.values().all(Option::is_none), "{begun:?}");
    let t = || Key::Topic("t".to_owned());
    let c = || Key::Channel("t".to_owned(), "c".to_owned());
    let [a, b] = ["a:1", "b:1"].map(|node| Key::Node(node.to_owned()));
    let a_stats = |count| node("a:1", &[topic("t", count), topic("idle", 5)].join(","));
    let with_new = node("a:1", &[topic("t", 110), topic("new", 7)].join(","));
    let stats = [with_new, node("b:1", &topic("t", 60))];
    let second = answered_at_once(&first(), &stats, Now::at(1_001_000));
    let found = rates(&second);
    assert_eq!(found[&Key::Topic("new".to_owned())], None);
    // A new topic must not leave its node and all topics without a rate.
    assert_eq!(
        [&found[&t()], &found[&a], &found[&Key::All]],
        [&Some(20.0), &Some(10.0), &Some(20.0)]
    );
    let mut restarted = node("b:1", &topic("t", 90));
    restarted.answered.start_time = 7;
    let stats = [a_stats(120), restarted];
    let found = rates(&answered_at_once(&second, &stats, Now::at(1_002_000)));
    assert_eq!(
        [&found[&t()], &found[&c()], &found[&b], &found[&Key::All]],
        [&None; 4]
    );
    assert_eq!(found[&a], Some(10.0));
    let told = &first().changes(None);
    assert!(told.contains(r#""rate":null"#), "{told}");
}

/// After a step back of the system's clock, all rates were 0 once, and those of missing nodes too low or too high.
#[test]
fn a_clock_that_jumps_changes_no_rate() {
    for jump in [-3_600_000, 3_600_000] {
        let after = |seconds: i64| Now {
            unix_millis: 1_000_000 + seconds * 1000 + jump,
            steady_millis: 1_000_000 + seconds * 1000,
        };
        let next = |before: &Snapshot, stats: &[NodeStats], seconds: i64| {
            answered_at_once(before, stats, after(seconds))
        };
        let a = |count| node("a:1", &topic("t", count));
        let second = next(&first(), &[a(120)], 2);
        assert_eq!(
            second.topics["t"].total.nodes["a:1"].rate,
            Some(10.0),
            "{jump}"
        );
        let back = next(&second, &[a(120), node("b:1", &topic("t", 90))], 4);
        assert_eq!(back.nodes["b:1"].rate, Some(10.0), "{jump}");
        let told: serde_json::Value = serde_json::from_str(&back.changes(None)).unwrap();
        assert_eq!(told["time"], 1_004_000 + jump);
        assert_eq!(told["steady_ms"], 1_004_000);
    }
}

/// The rate was 0 in the first snapshot after a missed answer.
#[test]
fn a_node_that_has_missed_answers_has_the_rate_of_the_whole_time() {
    let (a, t) = (|| node("a:1", &topic("t", 100)), |count| topic("t", count));
    let next = |before: &Snapshot, stats: &[NodeStats], second: i64| {
        answered_at_once(before, stats, Now::at(second * 1000))
    };
    let known = next(&Snapshot::default(), &[a(), node("b:1", &t(1000))], 1);
    let missed = next(&known, &[a()], 2);
    let missed = next(&missed, &[a()], 3);
    let back = next(&missed, &[a(), node("b:1", &t(1200))], 11);
    let rates = |snapshot: &Snapshot| {
        let topic = &snapshot.topics["t"];
        let rates = [
            &topic.total.nodes["b:1"],
            &topic.channels["c"].nodes["b:1"],
            &snapshot.nodes["b:1"],
        ];
        rates.map(|figures| figures.rate)
    };
    assert_eq!(rates(&back), [Some(20.0); 3]);
    let after = next(&back, &[a(), node("b:1", &t(1205))], 12);
    assert_eq!(rates(&after), [Some(5.0); 3]);
    // A node that was gone for long has no rate yet, and does not take memory for ever.
    let mut gone = missed;
    for minute in 1..=30 {
        gone = next(&gone, &[a()], minute * 60);
    }
    let back = next(&gone, &[a(), node("b:1", &t(9000))], 31 * 60);
    assert_eq!(rates(&back), [None; 3]);
}

/// No nsqd answered for hours, and then the mean of these hours was shown as the present rate.
#[test]
fn after_a_long_outage_of_all_nodes_there_is_no_rate_yet() {
    let stats = [node("a:1", &topic("t", 700_000))];
    let silent = || Snapshot {
        message: "failed to query any nsqd".to_owned(),
        ..first()
    };
    for (before, seconds, expected) in [
        (silent(), 599, true),
        (silent(), 600, false),
        (silent(), 7200, false),
        // With --live-interval=2h, there are no figures in between.
        (first(), 7200, true),
    ] {
        let now = Now::at(1_000_000 + seconds * 1000);
        let back = answered_at_once(&before, &stats, now);
        let rates = [
            back.topics["t"].total.figures.rate,
            back.topics["t"].channels["c"].figures.rate,
            back.nodes["a:1"].rate,
        ];
        assert_eq!(rates.map(|rate| rate.is_some()), [expected; 3], "{seconds}");
    }
}

#[test]
fn only_what_differs_is_told() {
    let first = first();
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("it is JSON");
    let all = json(&first.changes(None));
    assert_eq!(all["topics"].as_array().map(Vec::len), Some(2));
    assert_eq!(all["nodes"].as_array().map(Vec::len), Some(2));
    assert_eq!(all["is_complete"], serde_json::json!(true));
    let stats = [node("a:1", &[topic("t", 120), topic("new", 1)].join(","))];
    let mut second = answered_at_once(&first, &stats, Now::at(1_001_000));
    second.message = "WARNING: x".to_owned();
    let some = json(&second.changes(Some(&first)));
    let names: Vec<_> = some["topics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|topic| topic["topic"].clone())
        .collect();
    assert_eq!(names, ["new", "t"]);
    assert_eq!(some["gone_topics"], serde_json::json!(["idle"]));
    assert_eq!(some["gone_nodes"], serde_json::json!(["b:1"]));
    assert_eq!(some["message"], serde_json::json!("WARNING: x"));
    let third = answered_at_once(&second, &stats, Now::at(1_002_000));
    let fourth = answered_at_once(&third, &stats, Now::at(1_003_000));
    let none = json(&fourth.changes(Some(&third)));
    assert_eq!(
        (&none["topics"], &none["nodes"]),
        (&serde_json::json!([]), &serde_json::json!([]))
    );
    let detail = json(&second.topic("t", &Checkup::default()).unwrap());
    assert_eq!(detail["channels"][0]["channel"], serde_json::json!("c"));
    assert_eq!(detail["topic"]["channel_count"], serde_json::json!(1));
    assert_eq!(second.topic("idle", &Checkup::default()), None);
    let topics = json(&second.topics(&Checkup::default()));
    let t = &topics["topics"][1];
    assert_eq!(
        (&t["topic"], &t["channels"][0]["channel"]),
        (&"t".into(), &"c".into())
    );
    assert_eq!(t["channels"][0]["in_flight"], serde_json::json!(3));
    assert_eq!(topics["message"], serde_json::json!("WARNING: x"));
}

#[test]
fn samples_have_the_backlog_of_topics_and_nodes_come_first() {
    let first = first();
    let samples: Vec<(Key, Point)> = first.samples().collect();
    let keys: Vec<&Key> = samples.iter().map(|(key, _)| key).collect();
    let named = |name: &str| name.to_owned();
    assert_eq!(keys[0], &Key::All);
    assert_eq!(keys[1], &Key::Node(named("a:1")));
    assert_eq!(keys[4], &Key::Topic(named("t")));
    assert_eq!(keys[6], &Key::Channel(named("t"), named("c")));
    let of = |wanted: &dyn Fn(&Key) -> bool| -> u64 {
        let found = samples.iter().filter(|(key, _)| wanted(key));
        found.map(|(_, point)| point.depth).sum()
    };
    let topics = of(&|key| matches!(key, Key::Topic(_)));
    assert_eq!(samples[0].1.depth, topics, "all topics together");
    assert_eq!(
        samples[4].1.depth, 6,
        "the topic's own and its channels' messages"
    );
    assert_eq!(samples[4].1.oldest_ms, 7);
}

#[test]
fn a_topic_tells_whether_its_figures_are_a_sum_of_the_same_nodes() {
    let sets = |snapshot: &Snapshot| -> Vec<i64> {
        let json: serde_json::Value =
            serde_json::from_str(&snapshot.topics(&Checkup::default())).expect("JSON");
        let topics = json["topics"].as_array().expect("a list").iter();
        topics
            .map(|topic| topic["node_set"].as_i64().expect("a number"))
            .collect()
    };
    let found = sets(&first());
    assert_eq!(found.len(), 2);
    assert_ne!(found[0], found[1]);
    assert!(
        found.iter().all(|set| (0..1 << 53).contains(set)),
        "{found:?}"
    );
    assert_eq!(sets(&first()), found);
}
