//! Nodes that nsqlookupds name.

use std::collections::VecDeque;

use super::*;
use crate::consumer::discovery::{Directory, Found, Listing};
use crate::lookupd::LookupdError;

/// A directory with prepared answers. The last one is repeated.
struct Script {
    name: &'static str,
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<Instant>>,
}

#[derive(Clone)]
enum Answer {
    Nodes(Vec<&'static str>),
    /// One node, and so many further ones.
    TooMany(&'static str, usize),
    Unknown,
    Refusal,
    Silence,
}

impl Script {
    fn new(name: &'static str, answers: &[Answer]) -> Arc<Script> {
        Arc::new(Script {
            name,
            answers: Mutex::new(answers.iter().cloned().collect()),
            asked: Mutex::default(),
        })
    }

    /// Returns the times of the requests, in milliseconds since `begin`.
    fn asked(&self, begin: Instant) -> Vec<u128> {
        let asked = self.asked.lock();
        asked
            .iter()
            .map(|at| at.duration_since(begin).as_millis())
            .collect()
    }
}

/// Makes the error of an nsqlookupd that refuses.
async fn refusal() -> LookupdError {
    crate::lookupd::Lookupd::new("localhost", &Config::default()).expect_err("the port is missing")
}

impl Directory for Script {
    fn address(&self) -> &str {
        self.name
    }

    fn list<'a>(&'a self, topic: &'a str) -> Listing<'a> {
        assert_eq!(topic, "t");
        self.asked.lock().push(Instant::now());
        let mut answers = self.answers.lock();
        let answer = match answers.len() {
            1 => answers[0].clone(),
            _ => answers.pop_front().expect("an answer"),
        };
        Box::pin(async move {
            match answer {
                Answer::Nodes(nodes) => {
                    let nodes = nodes
                        .into_iter()
                        .map(|node| node.parse().expect("an address"));
                    Ok(Some(Found {
                        nodes: nodes.collect(),
                        ignored: 0,
                    }))
                }
                Answer::TooMany(node, ignored) => Ok(Some(Found {
                    nodes: vec![node.parse().expect("an address")],
                    ignored,
                })),
                Answer::Unknown => Ok(None),
                Answer::Refusal => Err(refusal().await),
                Answer::Silence => std::future::pending().await,
            }
        })
    }
}

async fn discover(builder: ConsumerBuilder, scripts: &[&Arc<Script>]) -> Consumer {
    let directories = scripts
        .iter()
        .map(|script| Arc::clone(script) as Arc<dyn Directory>);
    let consumer = builder.connect_with(directories.collect()).await;
    consumer.expect("the builder is complete")
}

#[tokio::test(start_paused = true)]
async fn all_are_asked_at_once_and_the_union_is_connected() {
    let network = MockNetwork::new();
    let mut servers = ["n1:4150", "n2:4150", "n3:4150"].map(|address| network.server(address));
    let one = Script::new("one", &[Answer::Nodes(vec!["n1:4150"])]);
    let two = Script::new("two", &[Answer::Nodes(vec!["n2:4150", "n1:4150"])]);
    let three = Script::new("three", &[Answer::Nodes(vec!["n3:4150"])]);
    let silent = Script::new("silent", &[Answer::Silence]);
    let begin = Instant::now();
    let scripts = [&silent, &one, &two, &three];
    let consumer = discover(builder(&network, 9), &scripts).await;
    for server in &mut servers {
        accept(server).await;
    }
    assert_eq!(begin.elapsed(), MS(0));
    for script in scripts {
        assert_eq!(script.asked(begin), [0]);
    }
    drop(consumer);
}

#[tokio::test(start_paused = true)]
async fn failures_of_nsqlookupds_reach_only_the_events() {
    let network = MockNetwork::new();
    let mut server = network.server("n1:4150");
    let unknown = Script::new("unknown", &[Answer::Unknown]);
    let refusing = Script::new("refusing", &[Answer::Refusal]);
    let good = Script::new("good", &[Answer::Nodes(vec!["n1:4150"])]);
    let log = Log::default();
    let builder = builder(&network, 9).events(log.callback());
    let _consumer = discover(builder, &[&unknown, &refusing, &good]).await;
    let mut nsqd = accept(&mut server).await;
    nsqd.expect("RDY 9").await;
    let lines = log.lines();
    assert_eq!(log.count("INF"), lines.len() - 2, "{lines:?}");
    assert_eq!(
        log.count("[t/c] nsqlookupd unknown does not know the topic yet"),
        1,
        "{lines:?}"
    );
    assert_eq!(
        log.count("error querying nsqlookupd - nsqlookupd localhost: missing port"),
        1,
        "{lines:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn ignored_nodes_are_told() {
    let network = MockNetwork::new();
    let mut server = network.server("n1:4150");
    let script = Script::new("http://u:pass@l:1", &[Answer::TooMany("n1:4150", 7)]);
    let log = Log::default();
    let builder = builder(&network, 9).events(log.callback());
    let _consumer = discover(builder, &[&script]).await;
    accept(&mut server).await;
    let text = "left out 7 of the nodes and channels that nsqlookupd http://***@l:1 names: ";
    log.expect(text, 1);
}

#[tokio::test(start_paused = true)]
async fn polls_have_a_random_part_in_each_interval() {
    let network = MockNetwork::new();
    let script = Script::new("one", &[Answer::Nodes(vec![])]);
    let begin = Instant::now();
    let consumer = discover(builder(&network, 9), &[&script]).await;
    tokio::time::sleep(MS(3_600_000)).await;
    let asked = script.asked(begin);
    let intervals: Vec<u128> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // 60 s, and up to 30 % on top.
    assert!(
        intervals.iter().all(|ms| (60_000..=78_000).contains(ms)),
        "{intervals:?}"
    );
    assert!((46..=60).contains(&intervals.len()), "{intervals:?}");
    let mut different = intervals.clone();
    different.sort_unstable();
    different.dedup();
    assert!(different.len() > 10, "{intervals:?}");
    drop(consumer);
}

#[tokio::test(start_paused = true)]
async fn a_lost_node_is_looked_up_soon_and_connected_only_if_it_is_listed() {
    let network = MockNetwork::new();
    let mut server = network.server("n1:4150");
    let listed = Answer::Nodes(vec!["n1:4150"]);
    let gone = Answer::Nodes(vec![]);
    let answers = [
        listed.clone(),
        gone.clone(),
        gone.clone(),
        gone.clone(),
        listed,
    ];
    let script = Script::new("one", &answers);
    let begin = Instant::now();
    let consumer = discover(builder(&network, 9), &[&script]).await;
    let nsqd = accept(&mut server).await;
    tokio::time::sleep(MS(1000)).await;
    nsqd.close();
    let nsqd = accept(&mut server).await;
    let asked = script.asked(begin);
    assert_eq!(asked.len(), 5, "{asked:?}");
    // Delays of 0.1, 0.2, 0.4 and 0.8 s, of which a random half is left out.
    assert!((1750..=2500).contains(&asked[4]), "{asked:?}");
    // A listed node is not asked about any more.
    tokio::time::sleep(MS(30_000)).await;
    assert_eq!(script.asked(begin).len(), 5);
    drop((nsqd, consumer));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_listed_any_more_stays_connected() {
    let network = MockNetwork::new();
    let mut server = network.server("n1:4150");
    let answers = [Answer::Nodes(vec!["n1:4150"]), Answer::Nodes(vec![])];
    let script = Script::new("one", &answers);
    let consumer = discover(builder(&network, 9), &[&script]).await;
    let mut nsqd = accept(&mut server).await;
    nsqd.expect("RDY 9").await;
    for _ in 0..20 {
        tokio::time::sleep(MS(30_000)).await;
        nsqd.heartbeat().await;
        nsqd.expect("NOP").await;
    }
    assert_eq!(consumer.control().stats().nodes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_discovered_node_that_cannot_be_reached_is_tried_at_each_poll() {
    let network = MockNetwork::new();
    let script = Script::new("one", &[Answer::Nodes(vec!["n1:4150"])]);
    let log = Log::default();
    let builder = builder(&network, 9).events(log.callback());
    let _consumer = discover(builder, &[&script]).await;
    tokio::time::sleep(MS(600_000)).await;
    let attempts = log.count("error connecting to nsqd");
    assert!((8..=11).contains(&attempts), "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn a_filter_gets_the_union_and_chooses() {
    let network = MockNetwork::new();
    let mut wanted = network.server("near-1:4150");
    let mut unwanted = network.server("far-1:4150");
    let one = Script::new("one", &[Answer::Nodes(vec!["far-1:4150"])]);
    let two = Script::new("two", &[Answer::Nodes(vec!["near-1:4150"])]);
    let builder = builder(&network, 9).discovery_filter(|mut found| {
        assert_eq!(found.len(), 2, "{found:?}");
        found.retain(|node| node.to_string().starts_with("near"));
        found
    });
    let _consumer = discover(builder, &[&one, &two]).await;
    accept(&mut wanted).await;
    assert!(timeout(MS(600_000), unwanted.accept()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_removed_node_does_not_come_back() {
    let network = MockNetwork::new();
    let mut server = network.server("n1:4150");
    let script = Script::new("one", &[Answer::Nodes(vec!["n1:4150"])]);
    let consumer = discover(builder(&network, 9), &[&script]).await;
    let mut nsqd = accept(&mut server).await;
    nsqd.expect("RDY 9").await;
    let control = consumer.control();
    control.remove_node(&server.address()).expect("it is there");
    close(&mut nsqd).await;
    drop(nsqd);
    assert!(timeout(MS(600_000), server.accept()).await.is_err());
    let done = control.add_node(server.address()).await;
    done.expect("it is wanted again");
    accept(&mut server).await;
}

#[tokio::test(start_paused = true)]
async fn nsqlookupds_come_and_go() {
    let network = MockNetwork::new();
    let node: Address = "n1:4150".parse().expect("an address");
    let consumer = connected(builder(&network, 9).node(node)).await;
    let control = consumer.control();
    control.add_lookupd("127.0.0.1:1").expect("an address");
    control
        .add_lookupd("127.0.0.1:1")
        .expect("a second time is ignored");
    control.add_lookupd("127.0.0.1:2").expect("an address");
    let error = control.add_lookupd("localhost").expect_err("no port");
    assert!(error.to_string().contains("missing port"), "{error}");
    assert_eq!(control.lookupds(), ["127.0.0.1:1", "127.0.0.1:2"]);
    control.remove_lookupd("127.0.0.1:1").expect("it is there");
    let error = control
        .remove_lookupd("127.0.0.1:1")
        .expect_err("it is gone");
    assert_eq!(error.to_string(), "not connected: nsqlookupd 127.0.0.1:1");
    let error = control
        .remove_lookupd("127.0.0.1:2")
        .expect_err("it is the last one");
    let expected = "cannot disconnect from only remaining nsqlookupd HTTP address 127.0.0.1:2";
    assert_eq!(error.to_string(), expected);
}
