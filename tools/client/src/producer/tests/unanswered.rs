//! An nsqd that sends heartbeats and never answers.

use tokio::time::sleep;

use super::*;

/// Answers the handshake, and then sends a heartbeat every 10 s.
async fn mute(mut server: MockServer) {
    let mut nsqd = server.accept().await;
    nsqd.handshake().await;
    loop {
        nsqd.heartbeat().await;
        sleep(Duration::from_secs(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_gives_up_and_says_what_has_an_unknown_outcome() {
    let (server, producer) = one_server(|builder| builder);
    tokio::spawn(mute(server));
    let first = start(&producer, "t", "1").await;
    let second = start(&producer, "t", "2").await;
    let began_at = Instant::now();
    let closed = timeout(Duration::from_secs(3600), producer.close()).await;
    let error = closed.expect("a close has a limit").unwrap_err();
    assert_eq!(began_at.elapsed().as_secs(), 30);
    assert_eq!(error.to_string(), "publishes have no answer: 2 to a:1");
    for publish in [first, second] {
        let error = publish.await.unwrap().unwrap_err();
        assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    }
    producer.close().await.expect("nothing is left");
}

#[tokio::test(start_paused = true)]
async fn a_flush_gives_up_and_the_publishes_go_on() {
    let (mut server, producer) =
        one_server(|builder| builder.flush_timeout(Duration::from_secs(5)));
    let (publishing, mut nsqd) = unanswered(&producer, &mut server).await;
    let began_at = Instant::now();
    let flushed = timeout(Duration::from_secs(3600), producer.flush()).await;
    let error = flushed.expect("a flush has a limit").unwrap_err();
    assert_eq!(began_at.elapsed().as_secs(), 5);
    assert_eq!(error.to_string(), "publishes have no answer: 1 to a:1");
    nsqd.respond("OK").await;
    publishing.await.unwrap().unwrap();
    producer.flush().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_flush_ends_with_the_connection_and_the_publish_tells() {
    let (mut server, producer) = one_server(|builder| builder);
    let (publishing, nsqd) = unanswered(&producer, &mut server).await;
    let flushing = flush(&producer).await;
    nsqd.close();
    flushing.await.unwrap().unwrap();
    let error = publishing.await.unwrap().unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    let later = start(&producer, "t", "2").await;
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["PUB t 2"]).await;
    later.await.unwrap().unwrap();
}

/// The message is stored nowhere when its nsqd declines it, and the program may end after the flush.
#[tokio::test(start_paused = true)]
async fn a_flush_waits_for_a_publish_that_goes_to_another_node() {
    let network = MockNetwork::new();
    let mut servers = ["a:1", "b:1"].map(|address| network.server(address));
    let producer = producer(&network, servers.each_ref().map(MockServer::address));
    let (publishing, mut nsqd) = unanswered(&producer, &mut servers[0]).await;
    let flushing = flush(&producer).await;
    nsqd.fail("E_PUB_FAILED PUB failed exiting").await;
    let mut nsqd = open(&mut servers[1]).await;
    nsqd.expect("PUB t 1").await;
    assert!(!flushing.is_finished());
    nsqd.respond("OK").await;
    publishing.await.unwrap().unwrap();
    flushing.await.unwrap().unwrap();
}

/// A caller that has begun a publish and looks at it later holds up no flush.
#[tokio::test(start_paused = true)]
async fn a_flush_does_not_wait_for_the_callers() {
    let network = MockNetwork::new();
    let producer = producer(&network, [network.broker("a:1").address()]);
    producer.publish("t", "1").await.unwrap();
    let mut publishing = std::pin::pin!(producer.publish("t", "2"));
    assert!(futures_util::poll!(publishing.as_mut()).is_pending());
    producer.flush().await.unwrap();
    publishing.await.unwrap();
}

/// A publish that no nsqd has yet, and whose future nobody polls, keeps its permit. A close waited for it without a limit
/// once.
#[tokio::test(start_paused = true)]
async fn a_close_does_not_wait_for_ever_for_the_callers() {
    // The first publish connects, or has the only permit: the second waits for it.
    for bodies in [vec!["1"], vec!["1", "2"]] {
        let (_server, producer) = one_server(|builder| builder.permits(1));
        let mut begun: Vec<_> = (bodies
            .iter()
            .map(|body| Box::pin(producer.publish("t", *body))))
        .collect();
        for publishing in &mut begun {
            assert!(futures_util::poll!(publishing.as_mut()).is_pending());
        }
        let closed = timeout(Duration::from_secs(3600), producer.close()).await;
        closed.expect("a close has a limit").unwrap();
        for publishing in begun {
            publishing.await.unwrap_err();
        }
    }
}

/// A flush whose future nobody polls held up all later publishes once.
#[tokio::test(start_paused = true)]
async fn a_flush_that_waits_holds_up_no_later_publish() {
    let network = MockNetwork::new();
    let mut mute = network.server("a:1");
    let producer = producer(&network, [mute.address()]);
    let (publishing, mut nsqd) = unanswered(&producer, &mut mute).await;
    let mut first = std::pin::pin!(producer.flush());
    assert!(futures_util::poll!(first.as_mut()).is_pending());
    let later = start(&producer, "t", "2").await;
    nsqd.expect("PUB t 2").await;
    let mut second = std::pin::pin!(producer.flush());
    assert!(futures_util::poll!(second.as_mut()).is_pending());
    nsqd.respond("OK").await;
    publishing.await.unwrap().unwrap();
    first.await.unwrap();
    assert!(futures_util::poll!(second.as_mut()).is_pending());
    nsqd.respond("OK").await;
    later.await.unwrap().unwrap();
    second.await.unwrap();
}

/// The last clone goes away while a publish has no answer. Its connection ends in the background.
#[tokio::test(start_paused = true)]
async fn a_dropped_producer_leaves_no_connection_behind() {
    let (mut server, producer) = one_server(|builder| builder);
    let (publishing, mut nsqd) = unanswered(&producer, &mut server).await;
    publishing.abort();
    drop(producer);
    let began_at = Instant::now();
    loop {
        match timeout(Duration::from_secs(10), nsqd.command()).await {
            Ok(None) => break,
            Ok(Some(command)) => assert_eq!(command.to_string(), "NOP"),
            Err(_) => nsqd.heartbeat().await,
        }
        assert!(began_at.elapsed().as_secs() < 3600, "the connection stays");
    }
    assert!((30..41).contains(&began_at.elapsed().as_secs()));
}
