//! Copies that wait, where their waiting could lose a message, keep memory, or hold up the end.

use super::*;
use crate::dedup::filters::{InverseBloom, Memcached, MemcachedOptions};
use crate::dedup::{Dedup, Key};

fn by_body() -> Dedup {
    let filter = InverseBloom::new(10_000).expect("slots");
    Dedup::builder(Key::body(), filter)
        .build()
        .expect("complete")
}

/// Two consumers that share a filter, as the consumers of two processes share memcached. The application of the first
/// one has a message `a`, and the second one may have one message in flight.
type Shared = ([Consumer; 2], [MockConnection; 2], Message, [MockServer; 2]);

async fn shared(answer: &str) -> Shared {
    let network = MockNetwork::new();
    let mut servers = [network.server("n1:4150"), network.server("n2:4150")];
    let dedup = by_body();
    let connect = |server: &MockServer| {
        let builder = builder(&network, 1).node(server.address());
        builder.dedup(dedup.clone()).connect()
    };
    let (one, two) = (connect(&servers[0]), connect(&servers[1]));
    let mut consumers = [one.await.expect("complete"), two.await.expect("complete")];
    let mut nsqds = [servers[0].accept().await, servers[1].accept().await];
    for nsqd in &mut nsqds {
        nsqd.handshake_with(answer).await;
        subscribe(nsqd).await;
        nsqd.expect("RDY 1").await;
    }
    nsqds[0].deliver(1, 1, "a").await;
    let first = next(&mut consumers[0]).await;
    (consumers, nsqds, first, servers)
}

/// The original nsqd counts each REQ as an attempt. A copy that waits must not reach `max_attempts` (5 by default) by
/// that: it would be finished although no application has handled it.
#[tokio::test(start_paused = true)]
async fn a_copy_that_waits_keeps_half_of_its_attempts_for_the_application() {
    let (mut consumers, mut nsqds, first, _servers) = shared(r#"{"max_rdy_count":2500}"#).await;
    let nsqd = &mut nsqds[1];
    for attempts in 1..=2 {
        nsqd.deliver(2, attempts, "a").await;
        nsqd.expect(&req(2, 6000)).await;
    }
    nsqd.deliver(2, 3, "a").await;
    expect_silence(nsqd, MS(29_000)).await;
    drop(first);
    let message = next(&mut consumers[1]).await;
    assert_eq!(message.attempts(), 3);
}

/// With ringq's nsqd, returns are no attempts.
#[tokio::test(start_paused = true)]
async fn a_copy_leaves_as_often_as_needed_if_that_is_no_attempt() {
    let (_consumers, mut nsqds, first, _servers) =
        shared(r#"{"max_rdy_count":2500,"req_uncounted":true}"#).await;
    nsqds[1].deliver(2, 4, "a").await;
    let command = nsqds[1].command().await.expect("open").to_string();
    assert!(command.starts_with(&req(2, 6000)), "{command}");
    drop(first);
}

/// Earlier attempts may have been waits near nsqd's limit, or waits of other consumers.
#[tokio::test(start_paused = true)]
async fn a_copy_that_has_waited_is_given_up_after_twice_the_attempts() {
    for (attempts, is_handled) in [(6, true), (10, true), (11, false)] {
        let (mut consumers, mut nsqds, first, _servers) = shared(r#"{"max_rdy_count":2500}"#).await;
        nsqds[1].deliver(2, attempts, "a").await;
        tokio::time::sleep(MS(500)).await;
        drop(first);
        let taken = timeout(MS(500), consumers[1].next()).await.ok().flatten();
        let taken = taken.map(|message| message.attempts());
        assert_eq!(taken, is_handled.then_some(attempts));
    }
}

/// An nsqd that ignores RDY sends copies without end.
#[tokio::test(start_paused = true)]
async fn the_copies_of_a_connection_are_bounded() {
    let (_server, mut nsqd, consumer) = ready_with(5, |it| it.dedup(by_body())).await;
    let mut count = 0;
    while count < 1000 && timeout(MS(1), nsqd.command()).await != Ok(None) {
        count += 1;
        nsqd.deliver(count, 1, "a").await;
    }
    assert_eq!(count, 21, "four times RDY, and the one beyond");
    tokio::time::sleep(MS(1000)).await;
    let stats = consumer.control().stats();
    assert_eq!(stats.dedup.expect("a filter").waiting, 0);
}

/// The state of these copies is in memcached, so any other consumer can take them. The end must not wait for a lease.
#[tokio::test(start_paused = true)]
async fn copies_that_wait_for_a_store_do_not_hold_up_the_end() {
    // Nobody listens there, so the copy waits until the store answers.
    let options = MemcachedOptions::new("unix:///proc/no/memcached");
    let store = Memcached::new(options).expect("complete");
    let dedup = Dedup::builder(Key::body(), store)
        .build()
        .expect("complete");
    let set = |builder: ConsumerBuilder| builder.give_back_at_shutdown(false).dedup(dedup);
    let (_server, mut nsqd, consumer) = ready_with(5, set).await;
    nsqd.deliver(1, 1, "a").await;
    let control = consumer.control();
    while control.stats().dedup.expect("a filter").waiting == 0 {
        tokio::time::sleep(MS(10)).await;
    }
    let began = Instant::now();
    let nsqd = async {
        expect(&mut nsqd, &["CLS", &req(1, 0)]).await;
        nsqd.respond("CLOSE_WAIT").await;
        assert_eq!(nsqd.command().await, None);
    };
    tokio::join!(control.shutdown(), nsqd);
    assert!(began.elapsed() < MS(5000), "{:?}", began.elapsed());
}
