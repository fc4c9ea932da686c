use super::*;
use crate::checkup::Checkup;
use crate::figures::NodeIdentity;

fn node(address: &str, topics: &str) -> NodeStats {
    let body = format!("{{\"topics\":[{topics}]}}");
    let stats: answer::Stats = answer::read(body.as_bytes()).expect("the text is JSON");
    NodeStats {
        node: NodeIdentity {
            address: address.to_owned(),
            ..NodeIdentity::default()
        },
        topics: stats.topics,
    }
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
    Snapshot::next(&Snapshot::default(), &stats, 1_000_000, String::new())
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
    let second = Snapshot::next(&first, &stats, 1_002_000, String::new());
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(
        near(second.topics["t"].total.figures.rate, 10.0),
        "a new node has no rate yet"
    );
    assert!(near(second.topics["t"].channels["c"].figures.rate, 10.0));
    assert!(near(second.topics["t"].total.nodes["a:1"].rate, 10.0));
    assert!(near(second.nodes["a:1"].rate, 10.0) && near(second.nodes["b:1"].rate, 0.0));
    assert!(near(second.topics["idle"].total.figures.rate, 0.0));
    let again = Snapshot::next(&second, &stats, 1_002_000, String::new());
    assert!(
        near(again.topics["t"].total.figures.rate, 0.0),
        "no time has passed"
    );
}

/// The rate was 0 in the first snapshot after a missed answer.
#[test]
fn a_node_that_has_missed_answers_has_the_rate_of_the_whole_time() {
    let (a, t) = (|| node("a:1", &topic("t", 100)), |count| topic("t", count));
    let next = |before: &Snapshot, stats: &[NodeStats], second: i64| {
        Snapshot::next(before, stats, second * 1000, String::new())
    };
    let known = next(&Snapshot::default(), &[a(), node("b:1", &t(1000))], 1);
    let missed = next(&known, &[a()], 2);
    let missed = next(&missed, &[a()], 3);
    let back = next(&missed, &[a(), node("b:1", &t(1200))], 11);
    let rates = |snapshot: &Snapshot| {
        let topic = &snapshot.topics["t"];
        let rates = [
            &topic.total.figures,
            &topic.total.nodes["b:1"],
            &topic.channels["c"].figures,
            &snapshot.nodes["b:1"],
        ];
        rates.map(|figures| figures.rate)
    };
    assert_eq!(rates(&back), [20.0; 4]);
    let after = next(&back, &[a(), node("b:1", &t(1205))], 12);
    assert_eq!(rates(&after), [5.0; 4]);
    // A node that was gone for long has no rate yet, and does not take memory for ever.
    let mut gone = missed;
    for minute in 1..=30 {
        gone = next(&gone, &[a()], minute * 60);
    }
    let back = next(&gone, &[a(), node("b:1", &t(9000))], 31 * 60);
    assert_eq!(rates(&back), [0.0; 4]);
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
    let second = Snapshot::next(&first, &stats, 1_001_000, "WARNING: x".to_owned());
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
    let third = Snapshot::next(&second, &stats, 1_002_000, String::new());
    let fourth = Snapshot::next(&third, &stats, 1_003_000, String::new());
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
    let of = |wanted: &dyn Fn(&Key) -> bool| -> f32 {
        let found = samples.iter().filter(|(key, _)| wanted(key));
        found.map(|(_, point)| point.depth).sum()
    };
    let topics = of(&|key| matches!(key, Key::Topic(_)));
    assert!(
        (samples[0].1.depth - topics).abs() < 1e-6,
        "all topics together"
    );
    assert!(
        (samples[4].1.depth - 6.0).abs() < 1e-6,
        "the topic's own and its channels' messages"
    );
    assert!((samples[4].1.oldest_seconds - 0.007).abs() < 1e-6);
}
