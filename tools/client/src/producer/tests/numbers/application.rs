//! Numbers of the application.

use super::*;

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
