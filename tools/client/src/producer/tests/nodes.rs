//! Several nodes: fail-over, certain nodes, copies on several nodes, and wrong settings.

use super::*;
use crate::error::ConnectionError;

fn brokers(network: &MockNetwork, count: usize) -> Vec<MockBroker> {
    (0..count)
        .map(|number| network.broker(&format!("nsqd-{number}:4150")))
        .collect()
}

fn addresses(brokers: &[MockBroker]) -> Vec<Address> {
    brokers.iter().map(MockBroker::address).collect()
}

fn counts(brokers: &[MockBroker]) -> Vec<usize> {
    brokers
        .iter()
        .map(|broker| broker.published("t").len())
        .collect()
}

/// A producer with the settings of `set`, and its nsqds.
fn with_brokers(
    count: usize,
    set: impl FnOnce(ProducerBuilder) -> ProducerBuilder,
) -> (Vec<MockBroker>, Producer) {
    let network = MockNetwork::new();
    let brokers = brokers(&network, count);
    let builder = set(builder(&network, addresses(&brokers)));
    (brokers, builder.build().unwrap())
}

#[tokio::test(start_paused = true)]
async fn publishes_go_round_the_nodes() {
    let (brokers, producer) = with_brokers(3, |builder| builder);
    for _ in 0..6 {
        producer.publish("t", "x").await.unwrap();
    }
    assert_eq!(counts(&brokers), [2, 2, 2]);
    producer.ping().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_reached_is_avoided_and_comes_back() {
    let (brokers, producer) = with_brokers(2, |builder| builder);
    brokers[0].refuse(true);
    for _ in 0..10 {
        let receipt = producer.publish("t", "x").await.unwrap();
        assert_eq!(*receipt.node(), brokers[1].address());
    }
    let error = producer.ping().await.unwrap_err();
    assert_eq!(error.node(), Some(&brokers[0].address()));
    brokers[0].refuse(false);
    tokio::time::sleep(Duration::from_secs(120)).await;
    for _ in 0..4 {
        producer.publish("t", "x").await.unwrap();
    }
    assert_eq!(counts(&brokers), [2, 12]);
}

#[tokio::test(start_paused = true)]
async fn if_no_node_can_be_reached_the_error_says_so_and_the_next_publish_tries_again() {
    let (brokers, producer) = with_brokers(2, |builder| builder);
    brokers.iter().for_each(|broker| broker.refuse(true));
    let error = producer.publish("t", "x").await.unwrap_err();
    assert!(matches!(error, PublishError::Connect { .. }), "{error}");
    assert!(error.to_string().contains("failed to connect"), "{error}");
    assert_eq!(error.outcome(), Outcome::NotStored);
    brokers[1].refuse(false);
    producer.publish("t", "x").await.unwrap();
    assert_eq!(counts(&brokers), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_exits_or_is_drained_hands_over() {
    for why in ["exiting", "draining, publish to another nsqd"] {
        let (brokers, producer) = with_brokers(2, |builder| builder.spread(Spread::FirstThatWorks));
        brokers[0].refuse_publish(&format!("E_PUB_FAILED PUB failed {why}"));
        let receipt = producer.publish("t", "x").await.unwrap();
        assert_eq!(*receipt.node(), brokers[1].address());
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_not_tried_elsewhere() {
    let (brokers, producer) = with_brokers(2, |builder| builder.spread(Spread::FirstThatWorks));
    brokers[0].refuse_publish("E_PUB_FAILED PUB failed no space left on device");
    let error = producer.publish("t", "x").await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(counts(&brokers), [0, 0]);
}

/// The reason was lost: each error said that the producer was stopped.
#[tokio::test(start_paused = true)]
async fn a_ping_tells_how_its_connection_ended() {
    let (mut server, producer) = one_server(|builder| builder);
    let pinging = tokio::spawn(async move { producer.ping().await });
    for _ in 0..2 {
        open(&mut server).await.close();
    }
    let error = pinging.await.unwrap().unwrap_err();
    assert!(
        matches!(&error, PublishError::NotSent { error, .. } if !matches!(**error, ConnectionError::Stopped)),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_lost_unnoticed_is_made_again() {
    let (mut server, producer) = one_server(|builder| builder);
    let (publishing, mut nsqd) = unanswered(&producer, &mut server).await;
    nsqd.respond("OK").await;
    publishing.await.unwrap().unwrap();
    nsqd.close();
    // The connection's task has not seen the end yet.
    let publishing = tokio::spawn({
        let producer = producer.clone();
        async move { producer.publish("t", "2").await }
    });
    let mut nsqd = server.accept().await;
    nsqd.handshake().await;
    store(&mut nsqd, &["PUB t 2"]).await;
    publishing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_certain_node_gets_the_message_or_nobody() {
    let (brokers, producer) = with_brokers(2, |builder| builder);
    let second = brokers[1].address();
    for _ in 0..3 {
        producer.publish_on(&second, "t", "x").await.unwrap();
    }
    let bodies = ["y", "z"].map(Bytes::from);
    let done = producer.publish_many_on(&second, "t", bodies).await;
    done.unwrap();
    assert_eq!(counts(&brokers), [0, 5]);
    producer.ping_on(&second).await.unwrap();
    brokers[0].refuse(true);
    let first = brokers[0].address();
    let error = producer.publish_on(&first, "t", "x").await.unwrap_err();
    assert!(matches!(error, PublishError::Connect { .. }), "{error}");
    let other: Address = "other:1".parse().unwrap();
    let error = producer.publish_on(&other, "t", "x").await.unwrap_err();
    assert_eq!(error.to_string(), "the producer has no node other:1");
    assert!(producer.ping_on(&other).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn copies_go_to_different_nodes() {
    let (brokers, producer) = with_brokers(3, |builder| builder);
    let receipts = producer.publish_to(2, "t", "x").await.unwrap();
    assert_eq!(receipts.len(), 2);
    assert_ne!(receipts[0], receipts[1]);
    brokers[2].refuse(true);
    brokers[0].refuse_publish("E_PUB_FAILED PUB failed exiting");
    let error = producer.publish_to(2, "t", "y").await.unwrap_err();
    assert_eq!((error.wanted, error.stored.len()), (2, 1));
    assert_eq!(error.failures.len(), 2);
    assert_eq!(error.outcome(), Outcome::Stored);
    test_support::assert_like(error.to_string(), "the message reached 1 of 2 nodes…");
    let error = producer.publish_to(4, "t", "z").await.unwrap_err();
    assert_eq!((error.wanted, error.stored.len()), (4, 0));
    assert_eq!(error.outcome(), Outcome::NotStored);
    assert!(!brokers[1].published("t").contains(&Bytes::from("z")));
}

/// Returns the nodes that have a copy, in order.
async fn nodes_of_copies(producer: &Producer, count: usize) -> Vec<Address> {
    let receipts = producer.publish_to(count, "t", "x").await.unwrap();
    let nodes: BTreeSet<String> = receipts
        .iter()
        .map(|receipt| receipt.node().to_string())
        .collect();
    assert_eq!(nodes.len(), count, "{receipts:?}");
    nodes.iter().map(|node| node.parse().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn another_node_takes_the_copy_that_one_refuses() {
    for why in [
        "E_PUB_FAILED PUB failed exiting",
        "E_PUB_FAILED PUB failed no space left on device",
        "E_BAD_MESSAGE PUB message too big 1 > 0",
    ] {
        let (brokers, producer) = with_brokers(3, |builder| builder);
        brokers[0].refuse_publish(why);
        let nodes = nodes_of_copies(&producer, 2).await;
        assert_eq!(nodes, addresses(&brokers[1..]), "{why}");
        assert_eq!(counts(&brokers), [0, 1, 1], "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_node_takes_the_copy_of_one_that_cannot_be_reached() {
    let (brokers, producer) = with_brokers(4, |builder| builder);
    brokers[0].refuse(true);
    brokers[1].refuse(true);
    let nodes = nodes_of_copies(&producer, 2).await;
    assert_eq!(nodes, addresses(&brokers[2..]));
    assert_eq!(counts(&brokers), [0, 0, 1, 1]);
    // Nodes that failed are avoided.
    let nodes = nodes_of_copies(&producer, 2).await;
    assert_eq!(nodes, addresses(&brokers[2..]));
    brokers[2].refuse_publish("E_PUB_FAILED PUB failed exiting");
    let error = producer.publish_to(2, "t", "y").await.unwrap_err();
    assert_eq!(error.stored.len(), 1);
    assert_eq!(*error.stored[0].node(), brokers[3].address());
    assert_eq!(error.failures.len(), 3, "each node was tried: {error}");
}

/// The lost node may have the message, so the message may be stored once more than asked for.
#[tokio::test(start_paused = true)]
async fn another_node_takes_the_copy_of_one_that_is_lost_without_an_answer() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let brokers = brokers(&network, 2);
    let nodes = [&[server.address()], &addresses(&brokers)[..]].concat();
    let producer = producer(&network, nodes);
    let publishing = tokio::spawn({
        let producer = producer.clone();
        async move { nodes_of_copies(&producer, 2).await }
    });
    let mut nsqd = server.accept().await;
    nsqd.handshake().await;
    nsqd.expect("PUB t x").await;
    nsqd.close();
    assert_eq!(publishing.await.unwrap(), addresses(&brokers));
    assert_eq!(counts(&brokers), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn wrong_settings_are_refused() {
    let refused = |builder: ProducerBuilder| builder.build().unwrap_err().to_string();
    let network = MockNetwork::new();
    let with_node = || builder(&network, ["a:1".parse().unwrap()]);
    assert!(refused(with_node().node("a").node("b")).contains("address \"a\": missing port"));
    assert!(refused(Producer::builder()).contains("needs the address of an nsqd"));
    assert!(refused(with_node().permits(0)).contains("0 permits"));
    let config = crate::config::Config {
        heartbeat_interval: Some(Duration::from_secs(61)),
        ..crate::config::Config::default()
    };
    assert!(refused(with_node().config(config)).contains("HeartbeatInterval 1m1s"));
    assert!(refused(with_node().lookupd("localhost")).contains("missing port: write host:port"));
}
