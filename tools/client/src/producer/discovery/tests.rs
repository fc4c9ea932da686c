use parking_lot::Mutex;
use test_support::dead_port::DeadPort;

use super::*;
use crate::config::Config;
use crate::producer::{Producer, ProducerBuilder, Receipt};
use crate::testing::{MockBroker, MockNetwork, MockServer};
use crate::tests::mock_lookupd::MockLookupd;

/// Far longer than anything in a test takes.
const LONG: Duration = Duration::from_secs(30);

fn addresses(names: &[&str]) -> BTreeSet<Address> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

/// Returns nsqlookupds with these last answers. `None` is a failure.
fn sources(answers: &[Option<&[&str]>]) -> Vec<Source> {
    let config = Config::default();
    let source = |answer: &Option<&[&str]>| Source {
        lookupd: Lookupd::new("127.0.0.1:1", &config).unwrap(),
        answer: Some(match answer {
            Some(names) => Ok(addresses(names)),
            None => Err(Arc::new(Lookupd::new("no-port", &config).unwrap_err())),
        }),
        soon: Delay::new(config.lookupd_poll_interval, 1),
    };
    answers.iter().map(source).collect()
}

/// A broker, the nsqlookupd that names it, and a builder of producers that ask this nsqlookupd.
async fn named() -> (MockBroker, MockLookupd, ProducerBuilder) {
    let network = MockNetwork::new();
    let broker = network.broker("a:1");
    let lookupd = MockLookupd::start(&broker.address()).await;
    let builder = Producer::builder().lookupd(lookupd.address());
    (broker, lookupd, builder.connector(network))
}

/// Waits until `is_so`.
async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(LONG, waiting).await;
    waited.unwrap_or_else(|_| panic!("{what}"));
}

/// A producer that publishes to its only nsqd.
fn publishing() -> (
    MockServer,
    Producer,
    tokio::task::JoinHandle<Result<Receipt, PublishError>>,
) {
    let network = MockNetwork::new();
    let server = network.server("a:1");
    let builder = Producer::builder().node(server.address());
    let producer = builder.connector(network).build().unwrap();
    let publishing = tokio::spawn({
        let producer = producer.clone();
        async move { producer.publish("t", "1").await }
    });
    (server, producer, publishing)
}

#[tokio::test(start_paused = true)]
async fn nodes_come_and_go_with_the_answers() {
    let network = MockNetwork::new();
    let broker = network.broker("b:1");
    let producer = Producer::builder()
        .node("fixed:1".parse::<Address>().unwrap())
        .lookupd("127.0.0.1:1")
        .connector(network)
        .build()
        .unwrap();
    let fixed = addresses(&["fixed:1"]).into_iter().collect::<Vec<_>>();
    let nodes = || producer.nodes().into_iter().collect::<BTreeSet<_>>();
    let apply = |answers: &[Option<&[&str]>]| apply(&producer.0, &fixed, &sources(answers));
    apply(&[Some(&["a:1"]), Some(&["b:1"])]);
    assert_eq!(nodes(), addresses(&["a:1", "b:1", "fixed:1"]));
    // An nsqlookupd did not answer: it may know the nodes that are missing.
    apply(&[None, Some(&["b:1"])]);
    assert_eq!(nodes(), addresses(&["a:1", "b:1", "fixed:1"]));
    apply(&[Some(&[]), Some(&["b:1"])]);
    assert_eq!(nodes(), addresses(&["b:1", "fixed:1"]));
    // A node that goes gets its publishes to the end. Then its connection ends.
    let b = broker.address();
    producer.publish_on(&b, "t", "x").await.unwrap();
    let node = producer.0.pool.lock().get(&b).unwrap();
    let session = node.sessions().pop().unwrap();
    // An nsqlookupd that has just started knows no node. The connection goes on.
    apply(&[Some(&[]), Some(&[])]);
    assert_eq!(nodes(), addresses(&["b:1", "fixed:1"]));
    apply(&[Some(&["a:1"]), Some(&[])]);
    session.ended().await;
    assert!(producer.publish_on(&b, "t", "y").await.is_err());
    assert_eq!(broker.published("t"), ["x"]);
}

#[tokio::test]
async fn without_any_node_the_error_names_the_nsqlookupd() {
    // Nothing listens on port 1.
    let producer = Producer::builder().lookupd("127.0.0.1:1").build().unwrap();
    let error = producer.publish("t", "x").await.unwrap_err();
    let text = error.to_string();
    test_support::assert_like(&text, "no nsqd is known: nsqlookupd 127.0.0.1:1: …");
    assert_eq!(error.outcome(), crate::error::Outcome::NotStored);
    producer.close().await.unwrap();
}

/// No nsqlookupd names the node any more while a publish has no answer.
#[tokio::test(start_paused = true)]
async fn the_end_waits_for_nodes_that_are_gone() {
    let (mut server, producer, publishing) = publishing();
    let mut nsqd = server.accept().await;
    nsqd.handshake().await;
    nsqd.expect("PUB t 1").await;
    apply(&producer.0, &[], &sources(&[Some(&["b:1"])]));
    let began_at = tokio::time::Instant::now();
    let error = producer.close().await.unwrap_err();
    assert_eq!(began_at.elapsed().as_secs(), 30);
    assert_eq!((error.nodes.len(), error.nodes[0].publishes), (1, 1));
    let lost = publishing.await.unwrap().unwrap_err();
    assert_eq!(lost.outcome(), crate::error::Outcome::Unknown);
}

/// The last answer of an nsqlookupd added a node after the close, and nothing ended the connection to this node.
#[tokio::test]
async fn no_node_comes_after_the_end() {
    let producer = Producer::builder().lookupd("127.0.0.1:1").build().unwrap();
    producer.close().await.unwrap();
    apply(&producer.0, &[], &sources(&[Some(&["a:1"])]));
    assert!(producer.nodes().is_empty());
}

/// The discovery ended with the first runtime, and no node was ever found after that.
#[test]
fn the_discovery_begins_anew_in_another_runtime() {
    let producer = Producer::builder().lookupd("127.0.0.1:1").build().unwrap();
    let progress = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the system has descriptors");
        runtime.block_on(async {
            producer.publish("t", "x").await.unwrap_err();
            let discovery = producer.0.discovery.lock();
            discovery.as_ref().map(|found| found.progress.clone())
        })
    };
    let first = progress().expect("there is an nsqlookupd");
    assert!(first.has_changed().is_err(), "it has ended");
    let second = progress().expect("there is an nsqlookupd");
    assert!(!second.same_channel(&first));
    assert!(second.borrow().has_result);
}

/// The first publish waited for the slowest nsqlookupd: 60 s, if one takes connections and answers nothing.
#[tokio::test]
async fn the_first_useful_answer_is_enough() {
    let black_hole = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (_broker, _lookupd, builder) = named().await;
    let silent = black_hole.local_addr().unwrap().to_string();
    let producer = builder.lookupd(silent).build().unwrap();
    let published = tokio::time::timeout(LONG, producer.publish("t", "x")).await;
    published.expect("it waits for no other answer").unwrap();
}

/// An nsqlookupd that had just started named no node, and the producer dropped its healthy connections for 60 s.
#[tokio::test]
async fn an_nsqlookupd_that_knows_no_node_yet_ends_no_connection() {
    let (broker, lookupd, builder) = named().await;
    let config = Config {
        lookupd_poll_interval: Duration::from_millis(10),
        ..Config::default()
    };
    let producer = builder.config(config).build().unwrap();
    producer.publish("t", "x").await.unwrap();
    lookupd.set_node(None);
    let asked = lookupd.seen().targets.len();
    let is_asked = || lookupd.seen().targets.len() >= asked + 3;
    wait_until("it is asked again", is_asked).await;
    producer.publish("t", "y").await.unwrap();
    assert_eq!(broker.connections(), 1);
}

/// A producer without a node asked again after 60 s or more, and said nothing.
#[tokio::test]
async fn a_producer_without_a_node_asks_again_soon_and_says_so() {
    let (broker, lookupd, builder) = named().await;
    lookupd.set_node(None);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&seen);
    let builder = builder.events(move |event| keep.lock().push(event.name()));
    let producer = builder.build().unwrap();
    let error = producer.publish("t", "x").await.unwrap_err();
    assert!(matches!(error, PublishError::NoNode(None)), "{error}");
    let is_asked = || lookupd.seen().targets.len() >= 3;
    wait_until("it is asked again soon", is_asked).await;
    assert_eq!(*seen.lock(), ["no_node"]);
    lookupd.set_node(Some(&broker.address()));
    let publishing = async {
        while producer.publish("t", "x").await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let found = tokio::time::timeout(LONG, publishing).await;
    found.expect("the node is found soon");
}

/// Beside a node with a connection, an nsqlookupd that named no node was asked again after 60 s or more.
#[tokio::test]
async fn an_nsqlookupd_that_names_no_node_is_asked_again_soon() {
    let (broker, lookupd, builder) = named().await;
    lookupd.set_node(None);
    let producer = builder.node(broker.address()).build().unwrap();
    producer.publish("t", "x").await.unwrap();
    let is_asked = || lookupd.seen().targets.len() >= 3;
    wait_until("it is asked again soon", is_asked).await;
}

/// An nsqlookupd that was away for a moment was asked again after 60 s or more.
#[tokio::test]
async fn an_nsqlookupd_that_failed_is_asked_again_soon() {
    let network = MockNetwork::new();
    let brokers = [network.broker("a:1"), network.broker("b:1")];
    let lookupd = MockLookupd::start(&brokers[0].address()).await;
    // The address of an nsqlookupd that starts later.
    let late = DeadPort::bind();
    let address = late.address;
    let producer = Producer::builder()
        .lookupd(lookupd.address())
        .lookupd(address.to_string())
        .connector(network)
        .build()
        .unwrap();
    producer.publish("t", "x").await.unwrap();
    let _late = MockLookupd::start_at(&address.to_string(), &brokers[1].address()).await;
    let is_found = || producer.nodes().len() == 2;
    wait_until("the other node is found soon", is_found).await;
}
