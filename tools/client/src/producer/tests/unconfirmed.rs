//! Publishes that nsqd has not stored, and that no connection has any more: they are to be sent again, or their callers
//! have gone away. No flush confirms them.

use std::cell::Cell;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::*;
use crate::connection::{Negotiated, Outbox};
use crate::error::ErrorFrame;
use crate::producer::numbering::Numbers;
use crate::producer::session::ProducerConnection;
use crate::producer::unconfirmed::Account;

/// Publishes "1", which nsqd refuses, and "2" behind it.
async fn refused_and_skipped(
    server: &mut MockServer,
    producer: &Producer,
) -> (MockConnection, Publishing, Publishing) {
    let refused = start(producer, "t", "1").await;
    let skipped = start(producer, "t", "2").await;
    let mut nsqd = open(server).await;
    nsqd.expect("PUB t 1").await;
    nsqd.expect("PUB t 2").await;
    (nsqd, refused, skipped)
}

const REFUSAL: &str = "E_BAD_MESSAGE PUB message too big 3 > 2";

/// The error of a flush, if one publish behind the refused one is not confirmed.
const SKIPPED: &str = "1 publish to a:1 is not confirmed: nsqd refused this publish or one before it: \
                       E_BAD_MESSAGE PUB message too big 3 > 2";

#[track_caller]
fn expect_unconfirmed(result: Result<(), UnansweredError>, text: &str) {
    assert_eq!(result.unwrap_err().to_string(), text);
}

/// The message is stored nowhere at this moment, and the program may end after the flush.
#[tokio::test(start_paused = true)]
async fn a_flush_confirms_no_publish_that_is_to_be_sent_again() {
    let (mut server, producer) = one_server(|builder| builder.batching(None));
    let (mut nsqd, refused, skipped) = refused_and_skipped(&mut server, &producer).await;
    let flushing = flush(&producer).await;
    nsqd.fail(REFUSAL).await;
    expect_unconfirmed(flushing.await.unwrap(), SKIPPED);
    refused.await.unwrap().unwrap_err();
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["PUB t 2"]).await;
    skipped.await.unwrap().unwrap();
    producer.flush().await.unwrap();
}

/// The connection was over when the flush began, and no other one had the message.
#[tokio::test(start_paused = true)]
async fn a_flush_that_begins_before_a_publish_is_sent_again_does_not_confirm_it() {
    let (mut server, producer) = one_server(|builder| builder.batching(None));
    let (mut nsqd, refused, skipped) = refused_and_skipped(&mut server, &producer).await;
    nsqd.fail(REFUSAL).await;
    refused.await.unwrap().unwrap_err();
    settle().await;
    expect_unconfirmed(producer.flush().await, SKIPPED);
    let mut nsqd = open(&mut server).await;
    store(&mut nsqd, &["PUB t 2"]).await;
    skipped.await.unwrap().unwrap();
    producer.flush().await.unwrap();
    producer.close().await.unwrap();
}

/// Nobody sends a message again whose future is gone. Whether the connection is over when the flush begins does not
/// matter.
#[tokio::test(start_paused = true)]
async fn a_flush_tells_once_of_forgotten_publishes_behind_a_refused_one() {
    for is_over in [false, true] {
        let (mut server, producer) = one_server(|builder| builder.batching(None));
        let (mut nsqd, refused, forgotten) = refused_and_skipped(&mut server, &producer).await;
        forgotten.abort();
        settle().await;
        nsqd.fail(REFUSAL).await;
        if is_over {
            settle().await;
        }
        expect_unconfirmed(producer.flush().await, SKIPPED);
        refused.await.unwrap().unwrap_err();
        producer.flush().await.unwrap();
        producer.close().await.unwrap();
    }
}

/// The caller goes away while it waits for the connection over which the message is to be sent again.
#[tokio::test(start_paused = true)]
async fn a_close_tells_of_a_publish_that_nobody_sends_again() {
    let (mut server, producer) = one_server(|builder| builder.batching(None));
    let (mut nsqd, refused, skipped) = refused_and_skipped(&mut server, &producer).await;
    nsqd.fail(REFUSAL).await;
    refused.await.unwrap().unwrap_err();
    settle().await;
    skipped.abort();
    settle().await;
    expect_unconfirmed(producer.close().await, SKIPPED);
    producer.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_flush_tells_of_a_forgotten_publish_that_was_lost_before() {
    let (mut server, producer) = one_server(|builder| builder.batching(None));
    let (forgotten, nsqd) = unanswered(&producer, &mut server).await;
    forgotten.abort();
    settle().await;
    nsqd.close();
    settle().await;
    expect_unconfirmed(
        producer.flush().await,
        "1 publish to a:1 is not confirmed: nsqd closed the connection",
    );
    producer.flush().await.unwrap();
}

/// The future of a lost publish has said so.
#[tokio::test(start_paused = true)]
async fn a_flush_does_not_repeat_what_a_publish_has_told() {
    let (mut server, producer) = one_server(|builder| builder.batching(None));
    let (lost, nsqd) = unanswered(&producer, &mut server).await;
    nsqd.close();
    lost.await.unwrap().unwrap_err();
    producer.flush().await.unwrap();
}

/// The messages of a refused batch wait for their turn to be sent alone. One of them is forgotten.
#[tokio::test(start_paused = true)]
async fn a_flush_confirms_no_message_of_a_refused_batch() {
    let (mut server, producer) = one_server(|builder| builder);
    let mut together = Vec::new();
    for body in ["1", "2", "3"] {
        let producer = producer.clone();
        together.push(tokio::spawn(
            async move { producer.publish("t", body).await },
        ));
    }
    let mut nsqd = open(&mut server).await;
    nsqd.expect("MPUB t 1 2 3").await;
    together.remove(2).abort();
    settle().await;
    nsqd.fail("E_BAD_MESSAGE MPUB message too big 3 > 2").await;
    nsqd.close();
    settle().await;
    let unconfirmed = producer.flush().await.unwrap_err();
    assert_eq!(unconfirmed.nodes.len(), 1, "{unconfirmed}");
    assert_eq!(unconfirmed.nodes[0].publishes, 3, "{unconfirmed}");
    let mut nsqd = open(&mut server).await;
    for command in ["PUB t 1", "PUB t 2"] {
        nsqd.expect(command).await;
        nsqd.respond("OK").await;
    }
    for publishing in together {
        publishing.await.unwrap().unwrap();
    }
    producer.flush().await.unwrap();
}

/// The reason of the loss was gone when the flush ended over the next connection: the error said "stopped".
#[tokio::test(start_paused = true)]
async fn a_flush_keeps_the_reason_over_the_next_connection() {
    let (mut server, producer) = one_server(|builder| builder.number_messages().batching(None));
    let kept = start(&producer, "t", "1").await;
    let mut nsqd = server.accept().await;
    nsqd.handshake_with_numbers().await;
    nsqd.expect("PUB t 0 1").await;
    let copy = tokio::spawn({
        let producer = producer.clone();
        async move { producer.publish_to(1, "t", "2").await }
    });
    nsqd.expect("PUB t 1 2").await;
    let flushing = flush(&producer).await;
    nsqd.close();
    copy.await.unwrap().unwrap_err();
    let mut nsqd = server.accept().await;
    nsqd.handshake_with_numbers().await;
    store(&mut nsqd, &["PUB t 0 1"]).await;
    kept.await.unwrap().unwrap();
    expect_unconfirmed(
        flushing.await.unwrap(),
        "1 publish to a:1 is not confirmed: nsqd closed the connection",
    );
}

/// The errors of an nsqd that has not taken a publish. Another nsqd, or the same one over the next connection, may take it.
const DECLINED: [&str; 2] = [
    "E_BAD_MESSAGE PUB failed to read message body",
    "E_PUB_FAILED PUB failed exiting",
];

/// Returns the error of a flush, if one publish is not confirmed because nsqd answered it with `error`.
fn declined(error: &str) -> String {
    format!(
        "1 publish to a:1 is not confirmed: nsqd refused this publish or one before it: {error}"
    )
}

/// The message is stored nowhere at this moment, as behind a refused one.
#[tokio::test(start_paused = true)]
async fn a_flush_confirms_no_publish_that_nsqd_has_declined() {
    for error in DECLINED {
        let network = MockNetwork::new();
        let mut servers = ["a:1", "b:1"].map(|address| network.server(address));
        let nodes = servers.each_ref().map(MockServer::address);
        let producer = builder(&network, nodes).batching(None).build().unwrap();
        let publishing = start(&producer, "t", "1").await;
        let mut nsqd = open(&mut servers[0]).await;
        nsqd.expect("PUB t 1").await;
        let flushing = flush(&producer).await;
        nsqd.fail(error).await;
        nsqd.close();
        expect_unconfirmed(flushing.await.unwrap(), &declined(error));
        let mut nsqd = open(&mut servers[1]).await;
        store(&mut nsqd, &["PUB t 1"]).await;
        let receipt = publishing.await.unwrap().unwrap();
        assert_eq!(receipt.node(), &servers[1].address());
        producer.flush().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_confirms_no_publish_that_nsqd_has_declined() {
    for error in DECLINED {
        let (mut server, producer) = one_server(|builder| builder.batching(None));
        let (publishing, mut nsqd) = unanswered(&producer, &mut server).await;
        let closing = close(&producer).await;
        nsqd.fail(error).await;
        nsqd.close();
        expect_unconfirmed(closing.await.unwrap(), &declined(error));
        let stopped = publishing.await.unwrap().unwrap_err();
        assert!(matches!(stopped, PublishError::Stopped), "{stopped}");
    }
}

/// Nobody sends the message again.
#[tokio::test(start_paused = true)]
async fn a_flush_tells_once_of_a_forgotten_publish_that_nsqd_has_declined() {
    for error in DECLINED {
        let (mut server, producer) = one_server(|builder| builder.batching(None));
        let (forgotten, mut nsqd) = unanswered(&producer, &mut server).await;
        forgotten.abort();
        settle().await;
        nsqd.fail(error).await;
        nsqd.close();
        settle().await;
        expect_unconfirmed(producer.flush().await, &declined(error));
        producer.flush().await.unwrap();
    }
}

/// A drain refuses all numbered publishes that are on the way. One of them is forgotten.
#[tokio::test(start_paused = true)]
async fn a_flush_confirms_no_numbered_publish_that_a_drain_refuses() {
    let (mut server, producer) = one_server(|builder| builder.number_messages().batching(None));
    let first = start(&producer, "t", "1").await;
    let mut nsqd = server.accept().await;
    nsqd.handshake_with_numbers().await;
    nsqd.expect("PUB t 0 1").await;
    let forgotten = start(&producer, "t", "2").await;
    nsqd.expect("PUB t 1 2").await;
    forgotten.abort();
    let flushing = flush(&producer).await;
    // The flush has begun before this publish, and does not count it.
    let newer = start(&producer, "t", "3").await;
    nsqd.expect("PUB t 2 3").await;
    let draining = "E_PUB_FAILED PUB failed draining, publish to another nsqd";
    nsqd.fail(draining).await;
    let unconfirmed = flushing.await.unwrap().unwrap_err();
    assert_eq!(unconfirmed.nodes.len(), 1, "{unconfirmed}");
    assert_eq!(unconfirmed.nodes[0].publishes, 2, "{unconfirmed}");
    for refused in [first, newer] {
        assert!(refused.await.unwrap().unwrap_err().permits_retry());
    }
    producer.flush().await.unwrap();
}

/// The flush waited for a batch, and ended with its refusal.
#[tokio::test(start_paused = true)]
async fn a_flush_that_has_begun_confirms_no_message_of_a_refused_batch() {
    let (mut server, producer) = one_server(|builder| builder);
    let together = together(&producer, ["1", "2"]).await;
    let mut nsqd = open(&mut server).await;
    nsqd.expect("MPUB t 1 2").await;
    let flushing = flush(&producer).await;
    nsqd.fail("E_BAD_MESSAGE MPUB message too big 3 > 2").await;
    nsqd.close();
    let unconfirmed = flushing.await.unwrap().unwrap_err();
    assert_eq!(unconfirmed.nodes[0].publishes, 2, "{unconfirmed}");
    let mut nsqd = open(&mut server).await;
    for command in ["PUB t 1", "PUB t 2"] {
        nsqd.expect(command).await;
        nsqd.respond("OK").await;
    }
    for result in together.await.unwrap() {
        result.unwrap();
    }
    producer.flush().await.unwrap();
}

/// Regression: the caller knew, and a later flush failed nevertheless.
#[tokio::test(start_paused = true)]
async fn a_publish_whose_timeout_has_ended_between_two_tries_is_told() {
    let network = MockNetwork::new();
    let mut servers = ["a:1", "b:1"].map(|address| network.server(address));
    let nodes = servers.each_ref().map(MockServer::address);
    let limit = Some(Duration::from_secs(5));
    let producer = builder(&network, nodes).batching(None);
    let producer = producer.publish_timeout(limit).build().unwrap();
    let publishing = start(&producer, "t", "1").await;
    let mut nsqd = open(&mut servers[0]).await;
    nsqd.expect("PUB t 1").await;
    nsqd.fail(DECLINED[1]).await;
    nsqd.close();
    // The other nsqd takes the connection, and says nothing.
    let error = publishing.await.unwrap().unwrap_err();
    assert!(
        matches!(error, PublishError::Timeout { node: None, .. }),
        "{error}"
    );
    producer.flush().await.unwrap();
    producer.close().await.unwrap();
}

/// Only the flush that ended first told it, and the other one confirmed the publish.
#[tokio::test(start_paused = true)]
async fn each_flush_that_waits_for_a_forgotten_publish_tells_of_it() {
    let (mut server, producer) = one_server(|builder| builder.batching(None));
    let (forgotten, nsqd) = unanswered(&producer, &mut server).await;
    forgotten.abort();
    let flushes = [producer.clone(), producer.clone()]
        .map(|producer| tokio::spawn(async move { producer.flush().await }));
    settle().await;
    nsqd.close();
    for flush in flushes {
        expect_unconfirmed(
            flush.await.unwrap(),
            "1 publish to a:1 is not confirmed: nsqd closed the connection",
        );
    }
    producer.flush().await.unwrap();
}

/// The copy of the lost node counted as told, although the caller went away before the other nodes had answered.
#[tokio::test(start_paused = true)]
async fn a_flush_tells_of_a_lost_copy_that_was_forgotten() {
    let network = MockNetwork::new();
    let mut servers = ["a:1", "b:1", "c:1"].map(|address| network.server(address));
    let producer = producer(&network, servers.each_ref().map(MockServer::address));
    let forgotten = tokio::spawn({
        let producer = producer.clone();
        async move { producer.publish_to(2, "t", "1").await }
    });
    let mut first = open(&mut servers[0]).await;
    first.expect("PUB t 1").await;
    first.close();
    let mut others = Vec::new();
    for server in &mut servers[1..] {
        let mut nsqd = open(server).await;
        nsqd.expect("PUB t 1").await;
        others.push(nsqd);
    }
    forgotten.abort();
    settle().await;
    for nsqd in &mut others {
        nsqd.respond("OK").await;
    }
    expect_unconfirmed(
        producer.flush().await,
        "1 publish to a:1 is not confirmed: nsqd closed the connection",
    );
    producer.flush().await.unwrap();
}

/// The flush looked at all tasks again after each publish that had come back in the meantime.
#[tokio::test(start_paused = true)]
async fn a_flush_begins_although_publishes_come_back_all_the_time() {
    let (mut server, producer) = one_server(|builder| builder.batching(None));
    let (publishing, mut nsqd) = unanswered(&producer, &mut server).await;
    let account = Account {
        unconfirmed: Arc::clone(&producer.0.shared.unconfirmed),
        node: server.address(),
    };
    let reason = Arc::new(ConnectionError::Closed);
    let turns = Cell::new(0);
    let begun = producer.0.begin(|session| {
        turns.set(turns.get() + 1);
        assert!(turns.get() < 1000, "the flush never begins");
        account.begin(&reason).settle();
        session.begin_flush()
    });
    assert_eq!(begun.sessions.len(), 1);
    // No task had this publish when the flush came to it, so the flush cannot wait for it.
    assert_eq!(begun.returning[0].publishes, 1);
    nsqd.respond("OK").await;
    publishing.await.unwrap().unwrap();
    producer.flush().await.unwrap();
}

/// The flush has looked at no task yet when a connection breaks.
#[tokio::test(start_paused = true)]
async fn a_flush_misses_no_publish_that_is_lost_while_it_begins() {
    let network = MockNetwork::new();
    let mut servers = ["a:1", "b:1"].map(|address| network.server(address));
    let producer = producer(&network, servers.each_ref().map(MockServer::address));
    let (mut publishing, mut connections) = (Vec::new(), Vec::new());
    for server in &mut servers {
        publishing.push(start(&producer, "t", "1").await);
        let mut nsqd = open(server).await;
        nsqd.expect("PUB t 1").await;
        connections.push(nsqd);
    }
    let tasks = producer.0.sessions();
    let reason = Arc::new(ConnectionError::Closed);
    let begun = producer.0.begin(|session| {
        tasks.iter().for_each(|(_, task)| task.end(&reason));
        session.begin_flush()
    });
    assert_eq!(begun.sessions.len(), 0);
    let publishes = begun.returning.iter().map(|node| node.publishes);
    assert_eq!(publishes.collect::<Vec<_>>(), [1, 1]);
    for publishing in publishing {
        publishing.await.unwrap().unwrap_err();
    }
}

/// A waker that begins a flush.
struct FlushWhenWoken {
    producer: Producer,
    /// The number of publishes that each flush counts at once, and the number of tasks that the flush waits for.
    begun: Mutex<Vec<(usize, usize)>>,
}

impl Wake for FlushWhenWoken {
    fn wake(self: Arc<Self>) {
        let begun = self.producer.0.begin(Session::begin_flush);
        let returning = begun.returning.iter().map(|node| node.publishes);
        let counts = (returning.sum(), begun.sessions.len());
        self.begun.lock().push(counts);
    }
}

/// The task of the connection learned of the message that came again before the flush did: nsqd could have stored the
/// message, and the flush failed.
#[tokio::test(start_paused = true)]
async fn a_flush_waits_for_a_message_that_a_task_is_given_again() {
    let network = MockNetwork::new();
    let producer = producer(&network, ["a:1".parse().unwrap()]);
    let mut publishing = pin!(producer.publish("t", "1"));
    let mut cx = Context::from_waker(Waker::noop());
    // The task of the node has not begun, and does not: this test gives the node a connection without a task.
    assert!(publishing.as_mut().poll(&mut cx).is_pending());
    let node = producer.0.pool.lock().all().remove(0);
    let session = node.sessions().remove(0);
    let (_over, over) = watch::channel(None);
    let outbox = Outbox::new();
    let open = ProducerConnection::new(Arc::clone(&session), outbox.clone(), Numbers::None, over);
    node.succeed(&Arc::new(open), &Negotiated::default());
    assert!(publishing.as_mut().poll(&mut cx).is_pending());
    // The output has the message, and is empty then.
    outbox.take(&mut cx, &mut Vec::new());
    let flushing = Arc::new(FlushWhenWoken {
        producer: producer.clone(),
        begun: Mutex::default(),
    });
    let waker = Waker::from(Arc::clone(&flushing));
    outbox.take(&mut Context::from_waker(&waker), &mut Vec::new());
    let declined = ErrorFrame::new(DECLINED[0].as_bytes());
    assert!(session.answer(Some(&declined)));
    assert!(publishing.as_mut().poll(&mut cx).is_pending());
    assert_eq!(*flushing.begun.lock(), [(0, 1)]);
    assert!(session.answer(None));
    let stored = publishing.as_mut().poll(&mut cx);
    assert!(matches!(stored, Poll::Ready(Ok(_))), "{stored:?}");
}
