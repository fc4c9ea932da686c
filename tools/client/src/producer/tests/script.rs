//! Exchanges with a scripted nsqd, command by command.

use super::*;

#[tokio::test(start_paused = true)]
async fn pipelined_publishes_are_answered_in_order() {
    let (mut server, producer) = one_server(|builder| builder.batching(false));
    let mut publishing = Vec::new();
    for body in ["1", "2", "3", "4", "5"] {
        publishing.push(start(&producer, "t", body).await);
    }
    let mut nsqd = open(&mut server).await;
    for body in ["1", "2", "3", "4", "5"] {
        nsqd.expect(&format!("PUB t {body}")).await;
    }
    nsqd.respond("OK").await;
    nsqd.fail("E_BAD_TOPIC PUB topic name is not valid").await;
    nsqd.close();
    let mut results = Vec::new();
    for publish in publishing {
        results.push(publish.await.unwrap());
    }
    assert_eq!(results[0].as_ref().unwrap().node(), &server.address());
    let refused = results[1].as_ref().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "E_BAD_TOPIC PUB topic name is not valid"
    );
    assert_eq!(refused.outcome(), Outcome::NotStored);
    for lost in &results[2..] {
        let lost = lost.as_ref().unwrap_err();
        assert!(lost.to_string().starts_with("not connected: "), "{lost}");
        assert_eq!(lost.outcome(), Outcome::Unknown);
    }
    // The next publish connects again.
    let publishing = start(&producer, "t", "6").await;
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["PUB t 6"]).await;
    publishing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn heartbeats_are_answered_and_publishing_goes_on() {
    let (mut server, producer) = one_server(|builder| builder);
    let (publishing, mut nsqd) = unanswered(&producer, &mut server).await;
    nsqd.respond("OK").await;
    publishing.await.unwrap().unwrap();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(30)).await;
        nsqd.heartbeat().await;
        nsqd.expect("NOP").await;
    }
    let publishing = start(&producer, "t", "2").await;
    nsqd.heartbeat().await;
    nsqd.expect("PUB t 2").await;
    nsqd.expect("NOP").await;
    nsqd.respond("OK").await;
    publishing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_silent_nsqd_is_noticed() {
    let (mut server, producer) = one_server(|builder| builder);
    let publishing = start(&producer, "t", "1").await;
    let nsqd = open(&mut server).await;
    let start = Instant::now();
    let error = publishing.await.unwrap().unwrap_err();
    assert_eq!(start.elapsed().as_secs(), 60);
    assert!(error.to_string().contains("read timed out"), "{error}");
    assert_eq!(error.outcome(), Outcome::Unknown);
    drop(nsqd);
}

#[tokio::test(start_paused = true)]
async fn concurrent_publishes_of_a_topic_become_one_command() {
    let (mut server, producer) = one_server(|builder| builder);
    let publishing = together(&producer, ["1", "2", "3"]).await;
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["MPUB t 1 2 3"]).await;
    let results = publishing.await.unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    // Alone, a publish is a PUB, and goes out at once.
    let publishing = start(&producer, "t", "4").await;
    store(&mut nsqd, &["PUB t 4"]).await;
    publishing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_refused_batch_are_sent_one_by_one() {
    let (mut server, producer) = one_server(|builder| builder);
    let publishing = together(&producer, ["1", "2", "3"]).await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("MPUB t 1 2 3").await;
    nsqd.fail("E_BAD_MESSAGE MPUB message too big 3 > 2").await;
    nsqd.close();
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["PUB t 1"]).await;
    nsqd.expect("PUB t 2").await;
    // A flush waits for messages that are sent again.
    let flushing = flush(&producer).await;
    nsqd.fail("E_BAD_MESSAGE PUB message too big 3 > 2").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 3").await;
    assert!(!flushing.is_finished());
    nsqd.respond("OK").await;
    flushing.await.unwrap().unwrap();
    let results = publishing.await.unwrap();
    assert!(results[0].is_ok() && results[2].is_ok(), "{results:?}");
    let refused = results[1].as_ref().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "E_BAD_MESSAGE PUB message too big 3 > 2"
    );
}

/// A newer publish joined the message that was sent alone, and the refusal of both made it wait for itself.
#[tokio::test(start_paused = true)]
async fn no_publish_joins_one_that_is_sent_alone() {
    let (mut server, producer) = one_server(|builder| builder);
    let publishing = together(&producer, ["1", "2"]).await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("MPUB t 1 2").await;
    nsqd.fail("E_BAD_MESSAGE MPUB message too big 3 > 2").await;
    nsqd.close();
    settle().await;
    let newer = start(&producer, "t", "3").await;
    let mut nsqd = open(&mut server).await;
    for command in ["PUB t 1", "PUB t 2", "PUB t 3"] {
        nsqd.expect(command).await;
    }
    nsqd.fail("E_BAD_MESSAGE PUB message too big 3 > 2").await;
    nsqd.close();
    let mut nsqd = open(&mut server).await;
    for _ in 0..2 {
        nsqd.command().await.expect("two messages are left");
        nsqd.respond("OK").await;
    }
    let results = timeout(Duration::from_secs(1), publishing).await;
    let results = results.expect("no publish waits for itself").unwrap();
    let refused = results[0].as_ref().unwrap_err();
    assert!(refused.is_about_message(), "{refused}");
    assert!(results[1].is_ok(), "{results:?}");
    newer.await.unwrap().unwrap();
}

/// The publishes behind a refused one had an unknown outcome, although nsqd had read none of them.
#[tokio::test(start_paused = true)]
async fn publishes_behind_a_refused_one_are_sent_again() {
    let (mut server, producer) = one_server(|builder| builder.batching(false));
    let mut publishing = Vec::new();
    for body in ["1", "2", "3", "4"] {
        publishing.push(start(&producer, "t", body).await);
    }
    // More refusals than tries that a lost connection is worth.
    for refused in ["1", "2", "3"] {
        let mut nsqd = open(&mut server).await;
        nsqd.expect(&format!("PUB t {refused}")).await;
        nsqd.fail("E_BAD_MESSAGE PUB message too big 3 > 2").await;
        let error = publishing.remove(0).await.unwrap().unwrap_err();
        assert!(error.is_about_message(), "{error}");
    }
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["PUB t 4"]).await;
    publishing.remove(0).await.unwrap().unwrap();
}

/// An error for which no command waited counted as the refusal of a message. So the publish was sent again without an
/// end.
#[tokio::test(start_paused = true)]
async fn an_error_behind_the_handshake_is_no_refusal_of_a_message() {
    let (mut server, producer) = one_server(|builder| builder);
    let publishing = start(&producer, "t", "1").await;
    for _ in 0..2 {
        let mut nsqd = open(&mut server).await;
        nsqd.fail("E_BAD_MESSAGE no message is wanted").await;
        nsqd.close();
    }
    let published = timeout(Duration::from_secs(1), publishing).await;
    let error = published.expect("two tries are enough").unwrap();
    assert!(matches!(error, Err(PublishError::NotSent { .. })));
}

/// nsqd had read a part of the message when its time was over. The message counted as one that nsqd does not take.
#[tokio::test(start_paused = true)]
async fn a_message_that_nsqd_read_in_part_is_sent_again() {
    let (mut server, producer) = one_server(|builder| builder.batching(false));
    let first = start(&producer, "t", "1").await;
    let second = start(&producer, "t", "2").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 1").await;
    nsqd.fail("E_BAD_MESSAGE PUB failed to read message body")
        .await;
    let mut nsqd = open(&mut server).await;
    for _ in 0..2 {
        nsqd.command().await.expect("both messages come again");
        nsqd.respond("OK").await;
    }
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_failed_in_the_middle_has_an_unknown_outcome() {
    let (mut server, producer) = one_server(|builder| builder);
    let publishing = together(&producer, ["1", "2"]).await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("MPUB t 1 2").await;
    nsqd.fail("E_MPUB_FAILED MPUB failed no space left on device")
        .await;
    for result in publishing.await.unwrap() {
        assert_eq!(result.unwrap_err().outcome(), Outcome::Unknown);
    }
}

#[tokio::test(start_paused = true)]
async fn deferred_and_multiple_messages_have_their_commands() {
    let (mut server, producer) = one_server(|builder| builder);
    let publishing = tokio::spawn(async move {
        let delay = Duration::from_micros(1_500_999);
        producer.publish_deferred("t", delay, "1").await?;
        let bodies = ["2", "3"].map(Bytes::from);
        producer.publish_many("t", bodies).await
    });
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["DPUB t 1500 1", "MPUB t 2 3"]).await;
    publishing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_waits_for_ends_the_connection() {
    let (mut server, producer) = one_server(|builder| builder);
    let (publishing, mut nsqd) = unanswered(&producer, &mut server).await;
    nsqd.respond("OK").await;
    publishing.await.unwrap().unwrap();
    nsqd.respond("OK").await;
    assert_eq!(nsqd.command().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_tells_whether_the_message_may_be_stored() {
    let (mut server, producer) = one_server(|builder| {
        builder
            .publish_timeout(Some(Duration::from_secs(5)))
            .permits(1)
            .batching(false)
    });
    let first = start(&producer, "t", "1").await;
    let second = start(&producer, "t", "2").await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 1").await;
    let first = first.await.unwrap().unwrap_err();
    assert_eq!(first.outcome(), Outcome::Unknown);
    assert_eq!(first.node(), Some(&server.address()));
    // The second one had no permit.
    let second = second.await.unwrap().unwrap_err();
    assert_eq!(second.outcome(), Outcome::NotStored);
    // The late answer belongs to the first publish.
    nsqd.respond("OK").await;
    let third = start(&producer, "t", "3").await;
    nsqd.expect("PUB t 3").await;
    nsqd.fail("E_BAD_TOPIC").await;
    assert_eq!(third.await.unwrap().unwrap_err().to_string(), "E_BAD_TOPIC");
}

#[tokio::test(start_paused = true)]
async fn permits_limit_the_publishes_without_an_answer() {
    let (mut server, producer) = one_server(|builder| builder.permits(2).batching(false));
    let mut publishing = Vec::new();
    for body in ["1", "2", "3"] {
        publishing.push(start(&producer, "t", body).await);
    }
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 1").await;
    nsqd.expect("PUB t 2").await;
    let third = tokio::time::timeout(Duration::from_secs(1), nsqd.command()).await;
    assert!(third.is_err(), "{third:?}");
    nsqd.respond("OK").await;
    store(&mut nsqd, &["PUB t 3"]).await;
    nsqd.respond("OK").await;
    for publish in publishing {
        publish.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_flush_waits_for_answers_and_close_is_final() {
    let (mut server, producer) = one_server(|builder| builder);
    let (publishing, mut nsqd) = unanswered(&producer, &mut server).await;
    let flushing = flush(&producer).await;
    let closing = close(&producer).await;
    assert!(!flushing.is_finished() && !closing.is_finished());
    let refused = producer.publish("t", "2").await.unwrap_err();
    assert_eq!(refused.to_string(), "stopped");
    nsqd.respond("OK").await;
    publishing.await.unwrap().unwrap();
    flushing.await.unwrap().unwrap();
    assert_eq!(nsqd.command().await, None, "the client ends the connection");
    nsqd.close();
    closing.await.unwrap().unwrap();
    producer.close().await.unwrap();
    let refused = producer.publish("t", "3").await.unwrap_err();
    assert_eq!(refused.outcome(), Outcome::NotStored);
    assert!(matches!(refused, PublishError::Stopped));
}

#[tokio::test(start_paused = true)]
async fn the_last_clone_ends_the_connection_after_the_output() {
    let (mut server, producer) = one_server(|builder| builder);
    let (publishing, mut nsqd) = unanswered(&producer, &mut server).await;
    publishing.abort();
    drop(producer);
    settle().await;
    nsqd.respond("OK").await;
    assert_eq!(nsqd.command().await, None);
}
