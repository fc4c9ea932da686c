//! Futures that are dropped at any await.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::*;

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

#[tokio::test(start_paused = true)]
async fn other_futures_may_be_dropped_too() {
    for polls in 0..20 {
        let network = MockNetwork::new();
        let brokers = ["a:1", "b:1"].map(|address| network.broker(address));
        let producer = producer(&network, brokers.each_ref().map(MockBroker::address));
        drop_after(polls, producer.publish_to(2, "t", "copies")).await;
        drop_after(polls, producer.ping()).await;
        let bodies = ["1", "2"].map(Bytes::from);
        drop_after(polls, producer.publish_many("t", bodies)).await;
        drop_after(polls, producer.flush()).await;
        producer.publish("t", "x").await.unwrap();
        drop_after(polls, producer.close()).await;
        producer.close().await.unwrap();
        settle().await;
        assert!(matches!(
            producer.publish("t", "y").await,
            Err(PublishError::Stopped)
        ));
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
