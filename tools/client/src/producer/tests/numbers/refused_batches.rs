//! A batch of numbered messages that comes again, and that nsqd refuses because of one of its messages.

use tokio::task::JoinHandle;

use super::*;
use crate::testing::Received;

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

/// Publishes "1", "2" and "3" in one batch, and ends the connection before an answer.
async fn publish_and_cut(
    server: &mut MockServer,
    producer: &Producer,
) -> JoinHandle<Vec<Result<Receipt, PublishError>>> {
    let publishing = together(producer, ["1", "2", "3"]).await;
    let mut nsqd = server.accept().await;
    nsqd.handshake_with_numbers().await;
    nsqd.expect("MPUB t 0 1 2 3").await;
    nsqd.close();
    publishing
}

#[track_caller]
fn expect_refused(error: &PublishError) {
    assert!(
        matches!(error, PublishError::ResendRefused { .. }),
        "{error}"
    );
}

/// The refusal of a batch that came again made the outcomes of all its messages unknown. nsqd may have stored them at the
/// first try, and stores them now: only the message that it refuses is in doubt.
#[tokio::test(start_paused = true)]
async fn one_bad_message_of_a_batch_that_came_again_leaves_the_others_certain() {
    let (mut server, producer) = one_server(|builder| builder);
    let publishing = publish_and_cut(&mut server, &producer).await;
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
    expect_refused(&bad);
    assert_eq!(bad.outcome(), Outcome::Unknown);
    producer.flush().await.unwrap();
}

/// `publish_many` has one outcome for its messages, so they stay together.
#[tokio::test(start_paused = true)]
async fn messages_with_one_outcome_stay_together() {
    let (mut server, producer) = one_server(|builder| builder);
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
    expect_refused(&error);
}

/// A node whose limit became smaller refuses every message of the batch. Each refusal doubled the pause before the next
/// connection, and newer messages waited behind the batch until their time was over, too.
#[tokio::test(start_paused = true)]
async fn a_batch_of_bad_messages_holds_up_no_newer_message() {
    let (mut server, producer) = one_server(|builder| builder);
    let publishing = tokio::spawn({
        let producer = producer.clone();
        async move { join_all((0..100).map(|_| producer.publish("t", "bad"))).await }
    });
    let mut nsqd = server.accept().await;
    nsqd.handshake_with_numbers().await;
    assert!(matches!(nsqd.command().await, Some(Received::Mpub { .. })));
    nsqd.close();
    let newer = tokio::spawn({
        let producer = producer.clone();
        async move { producer.publish("t", "good").await }
    });
    let began = Instant::now();
    let serving = async {
        loop {
            let mut nsqd = server.accept().await;
            nsqd.handshake_with_numbers().await;
            while let Some(command) = nsqd.command().await {
                match command {
                    Received::Pub { body, .. } if body == "good" => nsqd.respond("OK").await,
                    _ => {
                        let error = "E_BAD_MESSAGE PUB message too big 3 > 2";
                        nsqd.fail(error).await;
                        break;
                    }
                }
            }
        }
    };
    tokio::select! {
        stored = newer => drop(stored.unwrap().unwrap()),
        () = serving => unreachable!("it never ends"),
    }
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    for refused in publishing.await.unwrap() {
        expect_refused(&refused.unwrap_err());
    }
}

/// Alone, each message would meet the same refusal.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_does_not_depend_on_the_messages_splits_no_batch() {
    let (mut server, producer) = one_server(|builder| builder);
    let publishing = publish_and_cut(&mut server, &producer).await;
    let error = "E_UNAUTHORIZED AUTH failed for MPUB on \"t\" \"\"";
    serve(&mut server, &["MPUB t 0 1 2 3"], Some(error)).await;
    for refused in publishing.await.unwrap() {
        expect_refused(&refused.unwrap_err());
    }
}
