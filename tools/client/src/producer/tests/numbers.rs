//! Numbered messages: what comes again, in which order, and with which numbers.

use super::*;
use crate::publisher_id::PublisherId;
use crate::testing::Cut;

/// The error of a publish in a drain.
const DRAINING: &str = "E_PUB_FAILED PUB failed draining, publish to another nsqd";

fn numbering(network: &MockNetwork, nodes: impl IntoIterator<Item = Address>) -> ProducerBuilder {
    builder(network, nodes).number_messages()
}

fn id() -> PublisherId {
    PublisherId::new(0x9f86_d081_884c_7d65).unwrap()
}

async fn open(server: &mut MockServer) -> MockConnection {
    let mut nsqd = server.accept().await;
    nsqd.handshake_with_numbers().await;
    nsqd
}

/// Reads commands, which must be these, and answers each of them.
async fn store(nsqd: &mut MockConnection, commands: &[&str]) {
    for command in commands {
        nsqd.expect(command).await;
        nsqd.respond("OK").await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_topic_counts_its_messages() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = numbering(&network, [server.address()]).build().unwrap();
    let publishing = tokio::spawn(async move {
        let together = ["1", "2", "3"].map(|body| producer.publish("t", body));
        join_all(together).await;
        producer.publish("u", "4").await?;
        producer
            .publish_many("t", ["5", "6"].map(Bytes::from))
            .await?;
        let delay = Duration::from_millis(1500);
        producer.publish_deferred("t", delay, "7").await?;
        producer.publish("t", "8").await
    });
    let mut nsqd = server.accept().await;
    let identify = nsqd.handshake_with_numbers().await;
    let id = identify["publisher_id"].as_str().unwrap();
    id.parse::<PublisherId>().unwrap();
    assert_eq!(identify["feature_negotiation"], true);
    let commands = [
        "MPUB t 0 1 2 3",
        "PUB u 0 4",
        "MPUB t 3 5 6",
        "DPUB t 1500 5 7",
        "PUB t 6 8",
    ];
    store(&mut nsqd, &commands).await;
    publishing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_nsqd_that_takes_no_numbers_gets_none() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    for builder in [
        numbering(&network, [server.address()]),
        builder(&network, [server.address()]).publisher_id(id()),
    ] {
        let producer = builder.build().unwrap();
        let is_own = matches!(
            producer.0.shared.numbering,
            super::numbering::Numbering::Application(_)
        );
        let publishing = tokio::spawn(async move {
            match is_own {
                true => producer.publish_numbered("t", 7, "1").await,
                false => producer.publish("t", "1").await,
            }
        });
        let mut nsqd = server.accept().await;
        let identify = nsqd.handshake().await;
        assert!(identify.get("publisher_id").is_some());
        nsqd.expect("PUB t 1").await;
        nsqd.close();
        // The outcome is unknown, and nsqd could not recognise the message.
        let error = publishing.await.unwrap().unwrap_err();
        assert!(matches!(error, PublishError::Lost { .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_producer_without_numbers_asks_for_none() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = producer(&network, [server.address()]);
    let publishing = start(&producer, "t", "1").await;
    let mut nsqd = server.accept().await;
    let identify = nsqd.handshake_with_numbers().await;
    assert_eq!(identify.get("publisher_id"), None);
    nsqd.expect("PUB t 1").await;
    nsqd.close();
    let error = publishing.await.unwrap().unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn publishes_without_an_answer_come_again_before_newer_ones() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = numbering(&network, [server.address()])
        .batching(None)
        .build()
        .unwrap();
    let mut publishing = vec![start(&producer, "t", "0").await];
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 0").await;
    for body in ["1", "2", "3"] {
        publishing.push(start(&producer, "t", body).await);
    }
    nsqd.expect("PUB t 1 1").await;
    nsqd.respond("OK").await;
    settle().await;
    nsqd.close();
    settle().await;
    publishing.push(start(&producer, "t", "4").await);
    let mut nsqd = open(&mut server).await;
    let commands = ["PUB t 1 1", "PUB t 2 2", "PUB t 3 3", "PUB t 4 4"];
    store(&mut nsqd, &commands).await;
    for publish in publishing {
        publish.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_comes_again_with_its_numbers() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = numbering(&network, [server.address()]).build().unwrap();
    let publishing = tokio::spawn({
        let producer = producer.clone();
        async move {
            let together = ["1", "2", "3"].map(|body| producer.publish("t", body));
            join_all(together).await
        }
    });
    for _ in 0..3 {
        let mut nsqd = open(&mut server).await;
        nsqd.expect("MPUB t 0 1 2 3").await;
        nsqd.close();
    }
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["MPUB t 0 1 2 3"]).await;
    for result in publishing.await.unwrap() {
        result.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_publish_comes_again_too() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = numbering(&network, [server.address()]).build().unwrap();
    let dropped = start(&producer, "t", "1").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    dropped.abort();
    settle().await;
    nsqd.close();
    // Its number is no gap.
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["PUB t 0 1"]).await;
    let publishing = start(&producer, "t", "2").await;
    store(&mut nsqd, &["PUB t 1 2"]).await;
    publishing.await.unwrap().unwrap();
    producer.flush().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_number_that_never_left_is_used_again_and_its_message_goes_elsewhere() {
    let network = MockNetwork::new();
    let mut first = network.server("a:1");
    let mut second = network.server("b:1");
    let producer = numbering(&network, [first.address(), second.address()])
        .spread(Spread::FirstThatWorks)
        .build()
        .unwrap();
    // The connection breaks before the commands leave the process.
    let large = "x".repeat(300_000);
    let publishing = tokio::spawn({
        let producer = producer.clone();
        async move { producer.publish("t", large).await }
    });
    let nsqd = open(&mut first).await;
    settle().await;
    let waiting = start(&producer, "t", "2").await;
    first.refuse(true);
    nsqd.close();
    let mut elsewhere = open(&mut second).await;
    store(&mut elsewhere, &["PUB t 0 2"]).await;
    assert_eq!(waiting.await.unwrap().unwrap().node(), &second.address());
    // The large one may have left, and waits for the first nsqd.
    assert!(!publishing.is_finished());
    first.refuse(false);
    let mut nsqd = open(&mut first).await;
    let again = nsqd.command().await.unwrap().to_string();
    assert!(again.starts_with("PUB t 0 xxx"), "{}", &again[..20]);
    nsqd.respond("OK").await;
    publishing.await.unwrap().unwrap();
    let next = tokio::spawn(async move {
        let node = first.address();
        producer.publish_on(&node, "t", "3").await
    });
    store(&mut nsqd, &["PUB t 1 3"]).await;
    next.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_publish_waits_for_its_nsqd_up_to_the_limit() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let limit = Duration::from_secs(7);
    let producer = numbering(&network, [server.address()])
        .resend_limit(limit)
        .build()
        .unwrap();
    let publishing = start(&producer, "t", "1").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    server.refuse(true);
    let began_at = Instant::now();
    nsqd.close();
    let error = publishing.await.unwrap().unwrap_err();
    assert!(matches!(error, PublishError::Lost { .. }), "{error}");
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(
        error.to_string(),
        "not connected: a:1: nsqd closed the connection; the message may be stored"
    );
    assert_eq!(began_at.elapsed(), limit);
    // The number is not used again: nsqd may know it.
    server.refuse(false);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let publishing = start(&producer, "t", "2").await;
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["PUB t 1 2"]).await;
    publishing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_nothing_comes_again() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = numbering(&network, [server.address()])
        .resend_limit(Duration::ZERO)
        .build()
        .unwrap();
    let publishing = start(&producer, "t", "1").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    nsqd.close();
    let error = publishing.await.unwrap().unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn an_nsqd_that_comes_back_without_its_rule_gets_nothing_twice() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = numbering(&network, [server.address()]).build().unwrap();
    let publishing = start(&producer, "t", "1").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    nsqd.close();
    let mut nsqd = server.accept().await;
    nsqd.handshake().await;
    let error = publishing.await.unwrap().unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    let publishing = start(&producer, "t", "2").await;
    store(&mut nsqd, &["PUB t 2"]).await;
    publishing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn publishes_behind_a_refused_one_come_again() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = numbering(&network, [server.address()])
        .batching(None)
        .build()
        .unwrap();
    let refused = start(&producer, "t", "1").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    let behind = start(&producer, "t", "2").await;
    nsqd.fail("E_BAD_MESSAGE PUB message too big 1 > 0").await;
    let refused = refused.await.unwrap().unwrap_err();
    assert_eq!(refused.outcome(), Outcome::NotStored);
    let next = start(&producer, "t", "3").await;
    drop(nsqd);
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["PUB t 1 2", "PUB t 2 3"]).await;
    behind.await.unwrap().unwrap();
    next.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_messages_of_a_refused_batch_get_new_numbers() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = numbering(&network, [server.address()]).build().unwrap();
    let publishing = tokio::spawn(async move {
        let together = ["1", "2"].map(|body| producer.publish("t", body));
        join_all(together).await
    });
    let mut nsqd = open(&mut server).await;
    nsqd.expect("MPUB t 0 1 2").await;
    nsqd.fail("E_BAD_MESSAGE MPUB message too big 3 > 2").await;
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["PUB t 2 1", "PUB t 3 2"]).await;
    for result in publishing.await.unwrap() {
        result.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_second_try_leaves_the_outcome_unknown() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let other = network.broker("b:1");
    let producer = numbering(&network, [server.address(), other.address()])
        .spread(Spread::FirstThatWorks)
        .build()
        .unwrap();
    let publishing = start(&producer, "t", "1").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    nsqd.close();
    // nsqd exits, and starts again.
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    nsqd.fail("E_PUB_FAILED PUB failed exiting").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    nsqd.fail("E_BAD_MESSAGE PUB message too big 1 > 0").await;
    let error = publishing.await.unwrap().unwrap_err();
    assert!(matches!(error, PublishError::ResendRefused { .. }));
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(
        error.to_string(),
        "a:1 refused the message when it came again: E_BAD_MESSAGE PUB message too big 1 > 0; the message may be stored"
    );
    assert!(other.published("t").is_empty());
}

/// The commands behind the one that nsqd refused in its drain were kept, and waited at the drained nsqd.
#[tokio::test(start_paused = true)]
async fn publishes_behind_one_that_a_drain_refused_go_elsewhere_at_once() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let other = network.broker("b:1");
    let producer = numbering(&network, [server.address(), other.address()])
        .spread(Spread::FirstThatWorks)
        .batching(None)
        .build()
        .unwrap();
    let began_at = Instant::now();
    let refused = start(&producer, "t", "1").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    let behind = start(&producer, "t", "2").await;
    nsqd.expect("PUB t 1 2").await;
    nsqd.fail(DRAINING).await;
    nsqd.close();
    for publishing in [refused, behind] {
        let receipt = publishing.await.unwrap().unwrap();
        assert_eq!(receipt.node(), &other.address());
    }
    assert_eq!(began_at.elapsed(), Duration::ZERO);
    assert_eq!(other.published("t"), ["1", "2"]);
}

/// A message that came again to an nsqd in a drain held up all newer ones for the whole limit, and their outcome was
/// unknown after that.
#[tokio::test(start_paused = true)]
async fn a_message_that_waits_for_a_drained_nsqd_holds_up_no_newer_ones() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let other = network.broker("b:1");
    let producer = numbering(&network, [server.address(), other.address()])
        .spread(Spread::FirstThatWorks)
        .batching(None)
        .build()
        .unwrap();
    let waiting = start(&producer, "t", "1").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    nsqd.close();
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    let newer = start(&producer, "t", "2").await;
    nsqd.expect("PUB t 1 2").await;
    let began_at = Instant::now();
    nsqd.fail(DRAINING).await;
    nsqd.close();
    let receipt = newer.await.unwrap().unwrap();
    assert_eq!(receipt.node(), &other.address());
    assert_eq!(began_at.elapsed(), Duration::ZERO);
    assert!(!waiting.is_finished());
    // The drain was taken back.
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["PUB t 0 1"]).await;
    assert_eq!(waiting.await.unwrap().unwrap().node(), &server.address());
}

/// The time of the loss plus the limit was above the largest time: the task of the node panicked.
#[tokio::test(start_paused = true)]
async fn the_longest_limit_is_allowed() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = numbering(&network, [server.address()])
        .resend_limit(Duration::MAX)
        .build()
        .unwrap();
    let publishing = start(&producer, "t", "1").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    server.refuse(true);
    nsqd.close();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!publishing.is_finished(), "the publish waits");
    server.refuse(false);
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["PUB t 0 1"]).await;
    publishing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_close_waits_for_publishes_that_come_again() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = numbering(&network, [server.address()]).build().unwrap();
    let publishing = start(&producer, "t", "1").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    let closing = tokio::spawn({
        let producer = producer.clone();
        async move { producer.close().await }
    });
    settle().await;
    nsqd.close();
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["PUB t 0 1"]).await;
    publishing.await.unwrap().unwrap();
    assert_eq!(nsqd.command().await, None, "the client ends the connection");
    nsqd.close();
    closing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_close_gives_up_while_there_is_no_connection() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = numbering(&network, [server.address()])
        .resend_limit(Duration::from_secs(3600))
        .flush_timeout(Duration::from_secs(5))
        .build()
        .unwrap();
    let publishing = start(&producer, "t", "1").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    server.refuse(true);
    nsqd.close();
    settle().await;
    let flushed = producer.flush().await.unwrap_err();
    assert_eq!(flushed.nodes[0].publishes, 1);
    let began_at = Instant::now();
    let error = producer.close().await.unwrap_err();
    assert_eq!(error.nodes[0].publishes, 1);
    assert_eq!(began_at.elapsed().as_secs(), 5);
    let error = publishing.await.unwrap().unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    producer.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn copies_go_to_another_node_at_once() {
    let network = MockNetwork::new();
    let mut lost = network.server("a:1");
    let brokers = ["b:1", "c:1"].map(|address| network.broker(address));
    brokers.iter().for_each(|broker| broker.take_numbers(true));
    let nodes = [lost.address(), brokers[0].address(), brokers[1].address()];
    let producer = numbering(&network, nodes).build().unwrap();
    let publishing = tokio::spawn({
        let producer = producer.clone();
        async move { producer.publish_to(2, "t", "1").await }
    });
    let mut nsqd = open(&mut lost).await;
    nsqd.expect("PUB t 0 1").await;
    let began_at = Instant::now();
    nsqd.close();
    assert_eq!(publishing.await.unwrap().unwrap().len(), 2);
    assert_eq!(began_at.elapsed(), Duration::ZERO);
    for broker in brokers {
        assert_eq!(broker.published("t"), ["1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_have_ids_and_numbers_of_their_own() {
    let network = MockNetwork::new();
    let mut servers = ["a:1", "b:1"].map(|address| network.server(address));
    let producer = numbering(&network, servers.each_ref().map(MockServer::address))
        .build()
        .unwrap();
    let mut ids = BTreeSet::new();
    for server in &mut servers {
        let publishing = start(&producer, "t", "1").await;
        let mut nsqd = server.accept().await;
        let identify = nsqd.handshake_with_numbers().await;
        ids.insert(identify["publisher_id"].to_string());
        store(&mut nsqd, &["PUB t 0 1"]).await;
        publishing.await.unwrap().unwrap();
    }
    assert_eq!(ids.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_application_numbers_its_messages() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let node = server.address();
    let producer = builder(&network, [node.clone()])
        .publisher_id(id())
        .build()
        .unwrap();
    let publishing = tokio::spawn({
        let producer = producer.clone();
        async move {
            let together = [(7, "1"), (8, "2"), (10, "3"), (11, "4")]
                .map(|(number, body)| producer.publish_numbered("t", number, body));
            join_all(together).await;
            let bodies = || ["5", "6"].map(Bytes::from);
            producer.publish_many_numbered("t", 20, bodies()).await?;
            producer
                .publish_many_numbered_on(&node, "t", 30, bodies())
                .await?;
            producer.publish_numbered_on(&node, "t", 0, "7").await?;
            let delay = Duration::from_millis(1500);
            producer
                .publish_deferred_numbered("t", delay, 40, "8")
                .await
        }
    });
    let mut nsqd = server.accept().await;
    let identify = nsqd.handshake_with_numbers().await;
    assert_eq!(identify["publisher_id"], "9f86d081884c7d65");
    nsqd.expect("MPUB t 7 1 2").await;
    nsqd.close();
    let mut nsqd = open(&mut server).await;
    let commands = [
        "MPUB t 7 1 2",
        "MPUB t 10 3 4",
        "MPUB t 20 5 6",
        "MPUB t 30 5 6",
        "PUB t 0 7",
        "DPUB t 1500 40 8",
    ];
    store(&mut nsqd, &commands).await;
    publishing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_missing_number_is_an_error_and_a_needless_one_too() {
    let network = MockNetwork::new();
    let broker = network.broker("a:1");
    let own = builder(&network, [broker.address()])
        .publisher_id(id())
        .build()
        .unwrap();
    let missing = "the message has no number, and the producer was built with publisher_id: use publish_numbered, or \
                   another producer";
    let error = own.publish("t", "1").await.unwrap_err();
    assert_eq!(error.to_string(), missing);
    assert_eq!(error.outcome(), Outcome::NotStored);
    let error = own.publish_to(1, "t", "1").await.unwrap_err();
    assert_eq!(error.failures[0].to_string(), missing);
    let error = own.publish_numbered("t", u64::MAX, "1").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "message number 18446744073709551615 is above 9223372036854775807"
    );
    for builder in [
        builder(&network, [broker.address()]),
        numbering(&network, [broker.address()]),
    ] {
        let producer = builder.build().unwrap();
        let error = producer.publish_numbered("t", 1, "1").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the message has a number, and the producer was built without publisher_id: give the builder a \
             publisher_id, or use publish"
        );
    }
    assert!(broker.published("t").is_empty());
}

/// Publishes over connections that break at random bytes. Every publish must be confirmed and stored once.
async fn check(seed: u64, cuts: u64) -> u64 {
    let network = MockNetwork::new();
    let brokers = ["a:1", "b:1"].map(|address| network.broker(address));
    brokers.iter().for_each(|broker| broker.take_numbers(true));
    let mut random = fastrand::Rng::with_seed(seed);
    for broker in &brokers {
        for _ in 0..cuts {
            broker.cut_next(Cut {
                sent: random.u64(0..2000),
                lost: random.u64(0..1000),
                received: random.u64(0..500),
            });
        }
    }
    let batching = random.bool().then(Batching::default);
    let producer = numbering(&network, brokers.each_ref().map(MockBroker::address))
        .batching(batching)
        .permits(random.usize(1..40))
        .resend_limit(Duration::from_secs(3600))
        .build()
        .unwrap();
    let mut confirmed = BTreeSet::new();
    let mut number = 0_u64;
    while brokers.iter().map(MockBroker::connections).sum::<u64>() < cuts {
        let bodies: Vec<String> = (0..random.u64(1..12))
            .map(|_| {
                number += 1;
                format!("{number} {}", "x".repeat(random.usize(0..100)))
            })
            .collect();
        let publishes = bodies.iter().map(async |body| {
            let topic = ["t", "u"][body.len() % 2];
            // A publish that no nsqd took is tried again, as a program would.
            loop {
                match producer.publish(topic, body.clone()).await {
                    Ok(_) => break,
                    Err(error) => assert_eq!(
                        error.outcome(),
                        Outcome::NotStored,
                        "seed {seed}: {body:?} {error}"
                    ),
                }
            }
        });
        join_all(publishes).await;
        confirmed.extend(bodies);
    }
    producer.close().await.unwrap();
    settle().await;
    let mut stored = Vec::new();
    for broker in &brokers {
        for topic in ["t", "u"] {
            let bodies = broker.published(topic).into_iter();
            stored.extend(bodies.map(|body| String::from_utf8(body.to_vec()).unwrap()));
        }
    }
    stored.sort();
    let confirmed: Vec<String> = confirmed.into_iter().collect();
    assert_eq!(stored, confirmed, "seed {seed}");
    brokers.iter().map(MockBroker::duplicates).sum()
}

#[tokio::test(start_paused = true)]
async fn each_message_is_stored_once_however_often_connections_break() {
    let mut duplicates = 0;
    for seed in 0..10 {
        duplicates += check(seed, 500).await;
    }
    assert!(duplicates > 100, "{duplicates} messages came again");
}
