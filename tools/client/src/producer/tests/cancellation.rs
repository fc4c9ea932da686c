//! Futures that are dropped at any await.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use super::*;
use crate::publisher_id::PublisherId;
use crate::tests::mock_lookupd::MockLookupd;

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
async fn check(polls: usize, batching: bool, permits: usize) -> bool {
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
    for batching in [false, true] {
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

/// The future that is dropped. `On` means one certain node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    On,
    Many,
    ManyOn,
    Deferred,
    Numbered,
    NumberedOn,
    ManyNumbered,
    ManyNumberedOn,
    DeferredNumbered,
    Copies,
    Ping,
    PingOn,
    Flush,
    Close,
}

impl Act {
    const ALL: [Act; 14] = [
        Act::On,
        Act::Many,
        Act::ManyOn,
        Act::Deferred,
        Act::Numbered,
        Act::NumberedOn,
        Act::ManyNumbered,
        Act::ManyNumberedOn,
        Act::DeferredNumbered,
        Act::Copies,
        Act::Ping,
        Act::PingOn,
        Act::Flush,
        Act::Close,
    ];

    /// Returns true if the application numbers the messages.
    fn is_numbered(self) -> bool {
        matches!(
            self,
            Act::Numbered
                | Act::NumberedOn
                | Act::ManyNumbered
                | Act::ManyNumberedOn
                | Act::DeferredNumbered
        )
    }

    /// Carries the act out. `node` is the certain node.
    async fn carry_out(self, producer: &Producer, node: &Address) {
        let deferred = Duration::from_millis(10);
        let bodies = ["1", "2"].map(Bytes::from);
        let published = match self {
            Act::On => producer.publish_on(node, "t", "1").await,
            Act::Many => producer.publish_many("t", bodies).await,
            Act::ManyOn => producer.publish_many_on(node, "t", bodies).await,
            Act::Deferred => producer.publish_deferred("t", deferred, "1").await,
            Act::Numbered => producer.publish_numbered("t", 1, "1").await,
            Act::NumberedOn => producer.publish_numbered_on(node, "t", 1, "1").await,
            Act::ManyNumbered => producer.publish_many_numbered("t", 1, bodies).await,
            Act::ManyNumberedOn => {
                producer
                    .publish_many_numbered_on(node, "t", 1, bodies)
                    .await
            }
            Act::DeferredNumbered => {
                producer
                    .publish_deferred_numbered("t", deferred, 1, "1")
                    .await
            }
            Act::Copies => {
                producer.publish_to(2, "t", "1").await.unwrap();
                return;
            }
            Act::Ping => return producer.ping().await.unwrap(),
            Act::PingOn => return producer.ping_on(node).await.unwrap(),
            Act::Flush => return producer.flush().await.unwrap(),
            Act::Close => return producer.close().await.unwrap(),
        };
        published.unwrap();
    }

    /// Returns the number of bodies that the future stores on all nodes together when it ends.
    fn stored(self) -> usize {
        match self {
            Act::Many | Act::ManyOn | Act::ManyNumbered | Act::ManyNumberedOn | Act::Copies => 2,
            Act::On | Act::Deferred | Act::Numbered | Act::NumberedOn | Act::DeferredNumbered => 1,
            Act::Ping | Act::PingOn | Act::Flush | Act::Close => 0,
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
    if act.is_numbered() {
        builder = builder.publisher_id(PublisherId::random().unwrap());
    }
    let producer = builder.build().unwrap();
    let publish = async |number: u64, body: &'static str| {
        if act.is_numbered() {
            producer.publish_numbered("t", number, body).await
        } else {
            producer.publish("t", body).await
        }
    };
    let before = tokio::spawn({
        let producer = producer.clone();
        async move {
            if act.is_numbered() {
                producer.publish_numbered("t", 0, "before").await
            } else {
                producer.publish("t", "before").await
            }
        }
    });
    // The publish has begun.
    tokio::task::yield_now().await;
    let node = brokers[1].address();
    let carried_out = act.carry_out(&producer, &node);
    let has_ended = drop_after(polls, carried_out).await.is_some();
    before.await.unwrap().unwrap();
    if act == Act::Close {
        producer.close().await.unwrap();
        let stopped = publish(9, "after").await;
        assert!(matches!(stopped, Err(PublishError::Stopped)));
    } else {
        publish(9, "after").await.unwrap();
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
    // A batch is stored as a whole.
    let is_batch = act.stored() == 2 && act != Act::Copies;
    assert!(dropped <= act.stored(), "{act:?}, {polls} polls: {dropped}");
    assert!(!is_batch || dropped != 1, "{act:?}, {polls} polls");
    assert!(!has_ended || dropped == act.stored(), "{act:?}: {dropped}");
    has_ended
}

#[tokio::test(start_paused = true)]
async fn other_futures_may_be_dropped_too() {
    for act in Act::ALL {
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

/// Publishes with a producer that asks an nsqlookupd for its node, over real sockets, and drops the publish after `polls`
/// polls. Returns true if the publish ended.
async fn check_discovering(polls: usize) -> bool {
    let network = MockNetwork::new();
    let broker = network.broker("a:1");
    let lookupd = MockLookupd::start(&broker.address()).await;
    let producer = Producer::builder()
        .lookupd(lookupd.address())
        .connector(network)
        .permits(2)
        .build()
        .unwrap();
    let mut has_ended = false;
    {
        let mut publishing = pin!(producer.publish("t", "dropped"));
        for _ in 0..polls {
            let mut cx = Context::from_waker(Waker::noop());
            if let Poll::Ready(stored) = publishing.as_mut().poll(&mut cx) {
                stored.unwrap();
                has_ended = true;
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    producer.publish("t", "kept").await.unwrap();
    producer.flush().await.unwrap();
    assert_eq!(producer.0.permits.available_permits(), 2);
    let stored = broker.published("t");
    let count = |body: &str| stored.iter().filter(|stored| *stored == body).count();
    assert_eq!(count("kept"), 1, "{polls} polls: {stored:?}");
    assert!(count("dropped") <= 1, "{polls} polls: {stored:?}");
    assert!(!has_ended || count("dropped") == 1, "{stored:?}");
    // The dropped publish began the discovery, or it did not: there is one in any case.
    assert_eq!(lookupd.seen().targets, ["/nodes"], "{polls} polls");
    producer.close().await.unwrap();
    has_ended
}

#[tokio::test]
async fn a_publish_may_be_dropped_while_it_waits_for_the_first_nodes() {
    let mut polls = 0;
    while !check_discovering(polls).await {
        polls += 1;
        assert!(polls < 1000, "the publish does not end");
    }
    assert!(polls >= 2, "{polls} polls reach no await");
}

#[tokio::test(start_paused = true)]
async fn a_dial_goes_on_when_its_publish_is_dropped() {
    let (mut server, producer) = one_server(|builder| builder);
    drop_after(3, producer.publish("t", "dropped")).await;
    let mut nsqd = server.accept().await;
    nsqd.handshake().await;
    let publishing = start(&producer, "t", "1").await;
    store(&mut nsqd, &["PUB t 1"]).await;
    publishing.await.unwrap().unwrap();
}
