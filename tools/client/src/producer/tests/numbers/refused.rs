//! Publishes that an nsqd refuses, also in its drain, and those behind them.

use super::*;

/// The error of a publish in a drain.
const DRAINING: &str = "E_PUB_FAILED PUB failed draining, publish to another nsqd";

#[tokio::test(start_paused = true)]
async fn publishes_behind_a_refused_one_come_again() {
    let (mut server, producer) = one_server(|builder| builder.batching(false));
    let (refused, mut nsqd) = unanswered(&producer, &mut server).await;
    let behind = start(&producer, "t", "2").await;
    nsqd.fail("E_BAD_MESSAGE PUB message too big 1 > 0").await;
    let refused = refused.await.unwrap().unwrap_err();
    assert_eq!(refused.outcome(), Outcome::NotStored);
    let next = start(&producer, "t", "3").await;
    drop(nsqd);
    let _nsqd = open_and_store(&mut server, &["PUB t 1 2", "PUB t 2 3"]).await;
    behind.await.unwrap().unwrap();
    next.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_messages_of_a_refused_batch_get_new_numbers() {
    let (mut server, producer) = one_server(|builder| builder);
    let publishing = together(&producer, ["1", "2"]).await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("MPUB t 0 1 2").await;
    nsqd.fail("E_BAD_MESSAGE MPUB message too big 3 > 2").await;
    let _nsqd = open_and_store(&mut server, &["PUB t 2 1", "PUB t 3 2"]).await;
    for result in publishing.await.unwrap() {
        result.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_second_try_leaves_the_outcome_unknown() {
    let (mut server, other, producer) = two_nodes(true);
    let (publishing, nsqd) = unanswered(&producer, &mut server).await;
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
    let (mut server, other, producer) = two_nodes(false);
    let began_at = Instant::now();
    let (refused, mut nsqd) = unanswered(&producer, &mut server).await;
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
    let (mut server, other, producer) = two_nodes(false);
    let (waiting, nsqd) = unanswered(&producer, &mut server).await;
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
    let _nsqd = open_and_store(&mut server, &["PUB t 0 1"]).await;
    assert_eq!(waiting.await.unwrap().unwrap().node(), &server.address());
}

/// The message may be stored since its first try. A second try that nsqd read in part says nothing of it.
#[tokio::test(start_paused = true)]
async fn a_second_try_that_nsqd_read_in_part_is_followed_by_a_third_one() {
    let (mut server, producer) = one_server(|builder| builder);
    let (publishing, nsqd) = unanswered(&producer, &mut server).await;
    nsqd.close();
    let mut nsqd = open(&mut server).await;
    nsqd.expect("PUB t 0 1").await;
    nsqd.fail("E_BAD_MESSAGE PUB failed to read message body")
        .await;
    let _nsqd = open_and_store(&mut server, &["PUB t 0 1"]).await;
    publishing.await.unwrap().unwrap();
}

/// Each message of the batch may be stored since the first try.
#[tokio::test(start_paused = true)]
async fn a_batch_that_comes_again_and_is_refused_holds_up_no_newer_message() {
    let (mut server, producer) = one_server(|builder| builder);
    let publishing = together(&producer, ["1", "2", "3"]).await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("MPUB t 0 1 2 3").await;
    nsqd.close();
    let mut nsqd = open(&mut server).await;
    nsqd.expect("MPUB t 0 1 2 3").await;
    let newer = start(&producer, "t", "4").await;
    nsqd.fail("E_BAD_MESSAGE MPUB message too big 3 > 2").await;
    let _nsqd = open_and_store(&mut server, &["PUB t 3 4"]).await;
    newer.await.unwrap().unwrap();
    for refused in publishing.await.unwrap() {
        let error = refused.unwrap_err();
        assert!(matches!(error, PublishError::ResendRefused { .. }));
    }
}
