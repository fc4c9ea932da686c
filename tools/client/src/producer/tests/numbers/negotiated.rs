//! The numbers of messages follow from what nsqd agrees to.

use super::*;

#[tokio::test(start_paused = true)]
async fn each_topic_counts_its_messages() {
    let (mut server, producer) = one_server(|builder| builder);
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
            if is_own {
                producer.publish_numbered("t", 7, "1").await
            } else {
                producer.publish("t", "1").await
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
async fn an_nsqd_that_comes_back_without_its_rule_gets_nothing_twice() {
    let (mut server, producer) = one_server(|builder| builder);
    let (publishing, nsqd) = unanswered(&producer, &mut server).await;
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
