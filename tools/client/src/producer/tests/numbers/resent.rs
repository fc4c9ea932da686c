//! Publishes whose connection was lost: what comes again, in which order, and for how long.

use super::*;

#[tokio::test(start_paused = true)]
async fn publishes_without_an_answer_come_again_before_newer_ones() {
    let (mut server, producer) = one_server(|builder| builder.batching(false));
    let mut publishing = vec![start(&producer, "t", "0").await];
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 0").await;
    for body in ["1", "2", "3"] {
        publishing.push(start(&producer, "t", body).await);
    }
    store(&mut nsqd, &["PUB t 1 1"]).await;
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
    let (mut server, producer) = one_server(|builder| builder);
    let publishing = together(&producer, ["1", "2", "3"]).await;
    for _ in 0..3 {
        let mut nsqd = open(&mut server).await;
        nsqd.expect("MPUB t 0 1 2 3").await;
        nsqd.close();
    }
    let _nsqd = open_and_store(&mut server, &["MPUB t 0 1 2 3"]).await;
    for result in publishing.await.unwrap() {
        result.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_publish_comes_again_too() {
    let (mut server, producer) = one_server(|builder| builder);
    let dropped = start(&producer, "t", "1").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    dropped.abort();
    settle().await;
    nsqd.close();
    // Its number is no gap.
    let mut nsqd = open_and_store(&mut server, &["PUB t 0 1"]).await;
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
    let limit = Duration::from_secs(7);
    let (mut server, producer) = one_server(|builder| builder.resend_limit(limit));
    let (publishing, nsqd) = unanswered(&producer, &mut server).await;
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
    let _nsqd = open_and_store(&mut server, &["PUB t 1 2"]).await;
    publishing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_nothing_comes_again() {
    let (mut server, producer) = one_server(|builder| builder.resend_limit(Duration::ZERO));
    let (publishing, nsqd) = unanswered(&producer, &mut server).await;
    nsqd.close();
    let error = publishing.await.unwrap().unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
}

/// The time of the loss plus the limit was above the largest time: the task of the node panicked.
#[tokio::test(start_paused = true)]
async fn the_longest_limit_is_allowed() {
    let (mut server, producer) = one_server(|builder| builder.resend_limit(Duration::MAX));
    let (publishing, nsqd) = unanswered(&producer, &mut server).await;
    server.refuse(true);
    nsqd.close();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!publishing.is_finished(), "the publish waits");
    server.refuse(false);
    let _nsqd = open_and_store(&mut server, &["PUB t 0 1"]).await;
    publishing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_close_waits_for_publishes_that_come_again() {
    let (mut server, producer) = one_server(|builder| builder);
    let (publishing, nsqd) = unanswered(&producer, &mut server).await;
    let closing = close(&producer).await;
    nsqd.close();
    let mut nsqd = open_and_store(&mut server, &["PUB t 0 1"]).await;
    publishing.await.unwrap().unwrap();
    assert_eq!(nsqd.command().await, None, "the client ends the connection");
    nsqd.close();
    closing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_close_gives_up_while_there_is_no_connection() {
    let (mut server, producer) = one_server(|builder| {
        builder
            .resend_limit(Duration::from_secs(3600))
            .flush_timeout(Duration::from_secs(5))
    });
    let (publishing, nsqd) = unanswered(&producer, &mut server).await;
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
