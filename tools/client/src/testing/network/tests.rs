use super::*;
use crate::error::Outcome;
use crate::producer::Producer;

/// The broker stored the publishes behind a refused one that had come in the same read.
#[tokio::test(start_paused = true)]
async fn nothing_behind_a_refused_publish_is_carried_out() {
    let network = MockNetwork::new();
    let broker = network.broker("a:1");
    let producer = Producer::builder()
        .node(broker.address())
        .connector(network)
        .batching(false)
        .build()
        .expect("the builder is complete");
    producer.publish("t", "1").await.expect("it is stored");
    broker.refuse_publish("E_BAD_TOPIC PUB topic name \"t\" is not valid");
    let (refused, behind, last) = futures_util::join!(
        producer.publish("t", "2"),
        producer.publish("t", "3"),
        producer.publish_many("t", ["4", "5"].map(Bytes::from)),
    );
    let refused = refused.expect_err("it is refused");
    assert!(refused.to_string().contains("E_BAD_TOPIC"), "{refused}");
    for lost in [behind.map(drop), last.map(drop)] {
        let lost = lost.expect_err("the connection is closed");
        assert_eq!(lost.outcome(), Outcome::Unknown, "{lost}");
    }
    assert_eq!(broker.published("t"), ["1"]);
    producer.publish("t", "6").await.expect("it connects again");
    assert_eq!(broker.published("t"), ["1", "6"]);
    assert_eq!(broker.connections(), 2);
}
