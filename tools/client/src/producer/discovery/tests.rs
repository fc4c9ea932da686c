use super::*;
use crate::config::Config;
use crate::producer::Producer;
use crate::testing::MockNetwork;

fn addresses(names: &[&str]) -> BTreeSet<Address> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn failure() -> Vec<Arc<LookupdError>> {
    let error = Lookupd::new("no-port", &Config::default()).unwrap_err();
    vec![Arc::new(error)]
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
    apply(&producer.0, &fixed, addresses(&["a:1", "b:1"]), vec![]);
    assert_eq!(nodes(), addresses(&["a:1", "b:1", "fixed:1"]));
    // An nsqlookupd did not answer: it may know the nodes that are missing.
    apply(&producer.0, &fixed, addresses(&["b:1"]), failure());
    assert_eq!(nodes(), addresses(&["a:1", "b:1", "fixed:1"]));
    apply(&producer.0, &fixed, addresses(&["b:1"]), vec![]);
    assert_eq!(nodes(), addresses(&["b:1", "fixed:1"]));
    // A node that goes gets its publishes to the end. Then its connection ends.
    let b = broker.address();
    producer.publish_on(&b, "t", "x").await.unwrap();
    let node = producer.0.pool().get(&b).unwrap();
    let open = node.connections().pop().unwrap();
    apply(&producer.0, &fixed, BTreeSet::new(), vec![]);
    open.ended().await;
    assert!(producer.publish_on(&b, "t", "y").await.is_err());
    assert_eq!(broker.published("t"), ["x"]);
}

#[tokio::test]
async fn without_any_node_the_error_names_the_nsqlookupd() {
    // Nothing listens on port 1.
    let producer = Producer::builder().lookupd("127.0.0.1:1").build().unwrap();
    let error = producer.publish("t", "x").await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("no nsqd is known: nsqlookupd 127.0.0.1:1: "),
        "{text}"
    );
    assert_eq!(error.outcome(), crate::error::Outcome::NotStored);
    producer.close().await.unwrap();
}

/// No nsqlookupd names the node any more while a publish has no answer.
#[tokio::test(start_paused = true)]
async fn the_end_waits_for_nodes_that_are_gone() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = Producer::builder()
        .node(server.address())
        .connector(network)
        .build()
        .unwrap();
    let publishing = tokio::spawn({
        let producer = producer.clone();
        async move { producer.publish("t", "1").await }
    });
    let mut nsqd = server.accept().await;
    nsqd.handshake().await;
    nsqd.expect("PUB t 1").await;
    apply(&producer.0, &[], BTreeSet::new(), vec![]);
    let began_at = tokio::time::Instant::now();
    let error = producer.close().await.unwrap_err();
    assert_eq!(began_at.elapsed().as_secs(), 30);
    assert_eq!((error.nodes.len(), error.nodes[0].publishes), (1, 1));
    let lost = publishing.await.unwrap().unwrap_err();
    assert_eq!(lost.outcome(), crate::error::Outcome::Unknown);
}

/// A node was neither in the pool nor among those that leave it for a moment. A flush of this moment confirmed its
/// publishes.
#[tokio::test(start_paused = true)]
async fn a_flush_finds_the_node_that_leaves_the_pool_in_this_moment() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = Producer::builder()
        .node(server.address())
        .connector(network)
        .build()
        .unwrap();
    let publishing = tokio::spawn({
        let producer = producer.clone();
        async move { producer.publish("t", "1").await }
    });
    let mut nsqd = server.accept().await;
    nsqd.handshake().await;
    nsqd.expect("PUB t 1").await;
    let removed = producer.0.change_nodes(&BTreeSet::new(), |_| false);
    assert_eq!(removed.len(), 1);
    producer.flush().await.unwrap_err();
    nsqd.respond("OK").await;
    publishing.await.unwrap().unwrap();
}

/// The last answer of an nsqlookupd added a node after the close, and nothing ended the connection to this node.
#[tokio::test]
async fn no_node_comes_after_the_end() {
    let producer = Producer::builder().lookupd("127.0.0.1:1").build().unwrap();
    producer.close().await.unwrap();
    apply(&producer.0, &[], addresses(&["a:1"]), vec![]);
    assert!(producer.nodes().is_empty());
}

/// A node that had left the pool was not retired yet when the producer was closed. Its connection opened after the close,
/// and took the publish.
#[tokio::test(start_paused = true)]
async fn the_end_reaches_a_node_that_leaves_the_pool_in_this_moment() {
    let network = MockNetwork::new();
    let server = network.server("a:1");
    let producer = Producer::builder()
        .node(server.address())
        .connector(network)
        .build()
        .unwrap();
    let publishing = tokio::spawn({
        let producer = producer.clone();
        async move { producer.publish("t", "1").await }
    });
    tokio::task::yield_now().await;
    let removed = producer.0.change_nodes(&BTreeSet::new(), |_| false);
    assert_eq!(removed.len(), 1);
    producer.close().await.unwrap();
    let began_at = tokio::time::Instant::now();
    let failed = publishing.await.unwrap().unwrap_err();
    assert!(matches!(failed, PublishError::Stopped), "{failed}");
    assert!(began_at.elapsed().is_zero(), "it waited for the handshake");
}

/// The discovery ended with the first runtime, and no node was ever found after that.
#[test]
fn the_discovery_begins_anew_in_another_runtime() {
    let producer = Producer::builder().lookupd("127.0.0.1:1").build().unwrap();
    let rounds = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the system has descriptors");
        runtime.block_on(async {
            producer.publish("t", "x").await.unwrap_err();
            producer.0.discovery().as_ref().map(Discovery::rounds)
        })
    };
    let first = rounds().expect("there is an nsqlookupd");
    assert!(first.has_changed().is_err(), "it has ended");
    let second = rounds().expect("there is an nsqlookupd");
    assert!(!second.same_channel(&first));
    assert_eq!(second.borrow().0, 1);
}
