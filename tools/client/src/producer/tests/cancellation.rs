//! Futures that are dropped at any await.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::*;
use crate::publisher_id::PublisherId;

/// Polls a future at most so many times.
struct Limited<'a, F> {
    future: Pin<&'a mut F>,
    polls_left: usize,
}

impl<F: Future> Future for Limited<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls_left == 0 {
            return Poll::Ready(None);
        }
        self.polls_left -= 1;
        match self.future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // The last poll ends here: nothing wakes this task before the future is dropped.
            Poll::Pending if self.polls_left == 0 => Poll::Ready(None),
            Poll::Pending => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

/// Polls `future` so many times, with time for other tasks between two polls, and drops it.
async fn drop_after<F: Future>(polls_left: usize, future: F) -> Option<F::Output> {
    let future = pin!(future);
    Limited { future, polls_left }.await
}

/// Publishes while other publishes are dropped after `polls` polls. The answers still belong to their publishes.
async fn check(polls: usize, batching: Option<Batching>, permits: usize) -> bool {
    let network = MockNetwork::new();
    let broker = network.broker("a:1");
    let producer = builder(&network, [broker.address()])
        .batching(batching)
        .permits(permits)
        .build()
        .unwrap();
    let mut all_ended = true;
    for round in 0..4 {
        let dropped = format!("dropped {round}");
        let kept = format!("kept {round}");
        let (first, second) = tokio::join!(
            drop_after(polls, producer.publish("t", dropped)),
            producer.publish("t", kept.clone()),
        );
        all_ended &= first.is_some();
        second.unwrap();
        assert!(broker.published("t").contains(&Bytes::from(kept)));
    }
    producer.flush().await.unwrap();
    settle().await;
    assert_eq!(producer.0.permits.available_permits(), permits);
    let stored = broker.published("t");
    let distinct: BTreeSet<&Bytes> = stored.iter().collect();
    assert_eq!(distinct.len(), stored.len(), "{polls} polls: {stored:?}");
    // Each answer still belongs to its publish.
    broker.refuse_publish("E_BAD_TOPIC t");
    let refused = producer.publish("t", "refused").await.unwrap_err();
    assert_eq!(refused.to_string(), "E_BAD_TOPIC t");
    producer.publish("t", "last").await.unwrap();
    all_ended
}

#[tokio::test(start_paused = true)]
async fn a_publish_may_be_dropped_at_each_await() {
    for batching in [None, Some(Batching::default())] {
        for permits in [1, 2, 100] {
            let mut polls = 0;
            while !check(polls, batching, permits).await {
                polls += 1;
                assert!(polls < 1000, "the publish does not end");
            }
            assert!(polls >= 2, "{polls} polls reach no await");
        }
    }
}

/// The future that is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Many,
    Deferred,
    Numbered,
    Copies,
    Ping,
    Flush,
    Close,
}

impl Act {
    async fn carry_out(self, producer: &Producer) {
        let deferred = Duration::from_millis(10);
        let done = match self {
            Act::Many => {
                let bodies = ["1", "2"].map(Bytes::from);
                producer.publish_many("t", bodies).await.map(drop)
            }
            Act::Deferred => producer
                .publish_deferred("t", deferred, "1")
                .await
                .map(drop),
            Act::Numbered => producer.publish_numbered("t", 1, "1").await.map(drop),
            Act::Copies => {
                producer.publish_to(2, "t", "1").await.unwrap();
                Ok(())
            }
            Act::Ping => producer.ping().await,
            Act::Flush => {
                producer.flush().await.unwrap();
                Ok(())
            }
            Act::Close => {
                producer.close().await.unwrap();
                Ok(())
            }
        };
        done.unwrap();
    }

    /// Returns the number of bodies that the future stores on all nodes together when it ends.
    fn stored(self) -> usize {
        match self {
            Act::Many | Act::Copies => 2,
            Act::Deferred | Act::Numbered => 1,
            Act::Ping | Act::Flush | Act::Close => 0,
        }
    }
}

/// Drops `act` after `polls` polls while another publish waits. Returns true if the future ended.
async fn check_act(polls: usize, act: Act) -> bool {
    const PERMITS: usize = 4;
    let network = MockNetwork::new();
    let brokers = ["a:1", "b:1"].map(|address| network.broker(address));
    brokers.iter().for_each(|broker| broker.take_numbers(true));
    let mut builder =
        builder(&network, brokers.each_ref().map(MockBroker::address)).permits(PERMITS);
    if act == Act::Numbered {
        builder = builder.publisher_id(PublisherId::random().unwrap());
    }
    let producer = builder.build().unwrap();
    let publish = async |number: u64, body: &'static str| match act {
        Act::Numbered => producer.publish_numbered("t", number, body).await,
        _ => producer.publish("t", body).await,
    };
    let before = tokio::spawn({
        let producer = producer.clone();
        async move {
            match act {
                Act::Numbered => producer.publish_numbered("t", 0, "before").await,
                _ => producer.publish("t", "before").await,
            }
        }
    });
    // The publish has begun.
    tokio::task::yield_now().await;
    let has_ended = drop_after(polls, act.carry_out(&producer)).await.is_some();
    before.await.unwrap().unwrap();
    if act == Act::Close {
        producer.close().await.unwrap();
        let stopped = publish(2, "after").await;
        assert!(matches!(stopped, Err(PublishError::Stopped)));
    } else {
        publish(2, "after").await.unwrap();
        producer.flush().await.unwrap();
    }
    // The time of the deferred message.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(producer.0.permits.available_permits(), PERMITS);
    let mut dropped = 0;
    for broker in &brokers {
        let stored = broker.published("t");
        let distinct: BTreeSet<&Bytes> = stored.iter().collect();
        assert_eq!(
            distinct.len(),
            stored.len(),
            "{act:?}, {polls} polls: {stored:?}"
        );
        let is_dropped = |body: &&Bytes| *body != "before" && *body != "after";
        dropped += stored.iter().filter(is_dropped).count();
    }
    match act {
        Act::Many => assert!(dropped == 0 || dropped == 2, "{polls} polls: {dropped}"),
        _ => assert!(dropped <= act.stored(), "{act:?}, {polls} polls: {dropped}"),
    }
    assert!(!has_ended || dropped == act.stored(), "{act:?}: {dropped}");
    has_ended
}

#[tokio::test(start_paused = true)]
async fn other_futures_may_be_dropped_too() {
    let all = [
        Act::Many,
        Act::Deferred,
        Act::Numbered,
        Act::Copies,
        Act::Ping,
        Act::Flush,
        Act::Close,
    ];
    for act in all {
        let mut polls = 0;
        while !check_act(polls, act).await {
            polls += 1;
            assert!(polls < 1000, "{act:?} does not end");
        }
        // A flush is ready at once if nothing has left for an nsqd.
        let least = if act == Act::Flush { 1 } else { 2 };
        assert!(polls >= least, "{act:?}: {polls} polls reach no await");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dial_goes_on_when_its_publish_is_dropped() {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = producer(&network, [server.address()]);
    drop_after(3, producer.publish("t", "dropped")).await;
    let mut nsqd = server.accept().await;
    nsqd.handshake().await;
    let publishing = start(&producer, "t", "1").await;
    nsqd.expect("PUB t 1").await;
    nsqd.respond("OK").await;
    publishing.await.unwrap().unwrap();
}
