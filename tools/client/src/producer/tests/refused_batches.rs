//! A batch of numbered messages that comes again, and that nsqd refuses because of one of its messages.

use super::*;

/// Answers commands, which must be these. The answer to the last one is an error if there is one, and ends the connection.
async fn serve(server: &mut MockServer, commands: &[&str], error: Option<&str>) {
    let mut nsqd = server.accept().await;
    nsqd.handshake_with_numbers().await;
    for (index, command) in commands.iter().enumerate() {
        nsqd.expect(command).await;
        match error.filter(|_| index + 1 == commands.len()) {
            Some(error) => nsqd.fail(error).await,
            None => nsqd.respond("OK").await,
        }
    }
    settle().await;
}

/// The refusal of a batch that came again made the outcomes of all its messages unknown. nsqd may have stored them at the
/// first try, and stores them now: only the message that it refuses is in doubt.
#[tokio::test(start_paused = true)]
async fn one_bad_message_of_a_batch_that_came_again_leaves_the_others_certain() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = builder(&network, [server.address()]).number_messages();
    let producer = producer.build().unwrap();
    let publishing = tokio::spawn({
        let producer = producer.clone();
        async move { join_all(["1", "2", "3"].map(|body| producer.publish("t", body))).await }
    });
    let mut nsqd = server.accept().await;
    nsqd.handshake_with_numbers().await;
    nsqd.expect("MPUB t 0 1 2 3").await;
    nsqd.close();
    let error = "E_BAD_MESSAGE MPUB message too big 3 > 2";
    serve(&mut server, &["MPUB t 0 1 2 3"], Some(error)).await;
    let newer = start(&producer, "t", "4").await;
    // Each message comes alone, with its own number, and before all newer ones.
    let error = "E_BAD_MESSAGE PUB message too big 3 > 2";
    serve(&mut server, &["PUB t 0 1", "PUB t 1 2"], Some(error)).await;
    serve(&mut server, &["PUB t 2 3", "PUB t 3 4"], None).await;
    newer.await.unwrap().unwrap();
    let [first, bad, last] = <[_; 3]>::try_from(publishing.await.unwrap()).unwrap();
    first.unwrap();
    last.unwrap();
    let bad = bad.unwrap_err();
    assert!(matches!(bad, PublishError::ResendRefused { .. }), "{bad}");
    assert_eq!(bad.outcome(), Outcome::Unknown);
    producer.flush().await.unwrap();
}

/// `publish_many` has one outcome for its messages, so they stay together.
#[tokio::test(start_paused = true)]
async fn messages_with_one_outcome_stay_together() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = builder(&network, [server.address()]).number_messages();
    let producer = producer.build().unwrap();
    let publishing = tokio::spawn(async move {
        let bodies = ["1", "2"].map(Bytes::from);
        producer.publish_many("t", bodies).await
    });
    let mut nsqd = server.accept().await;
    nsqd.handshake_with_numbers().await;
    nsqd.expect("MPUB t 0 1 2").await;
    nsqd.close();
    let error = "E_BAD_MESSAGE MPUB message too big 3 > 2";
    serve(&mut server, &["MPUB t 0 1 2"], Some(error)).await;
    let error = publishing.await.unwrap().unwrap_err();
    assert!(
        matches!(error, PublishError::ResendRefused { .. }),
        "{error}"
    );
}
