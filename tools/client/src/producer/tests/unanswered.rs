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
    assert_eq!(
        error.to_string(),
        "2 publishes to a:1 are not confirmed: a publish had no answer for 30s"
    );
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
    assert_eq!(
        error.to_string(),
        "1 publish to a:1 is not confirmed: a publish had no answer for 5s"
    );
    nsqd.respond("OK").await;
    publishing.await.unwrap().unwrap();
    producer.flush().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_during_a_flush_is_told() {
    let (mut server, producer) = one_server(|builder| builder);
    let (publishing, nsqd) = unanswered(&producer, &mut server).await;
    let flushing = flush(&producer).await;
    nsqd.close();
    let error = flushing.await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "1 publish to a:1 is not confirmed: nsqd closed the connection"
    );
    assert!(publishing.await.unwrap().is_err());
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
