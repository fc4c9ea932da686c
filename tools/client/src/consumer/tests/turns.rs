//! Many handlers in one task.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Each handler takes a free permit several times, which is more than tokio permits one task at a time. No handler waits.
#[tokio::test(start_paused = true)]
async fn handlers_that_need_not_wait_are_polled_once() {
    const MESSAGES: u32 = 1000;
    let (_server, mut nsqd, consumer) = ready(MESSAGES).await;
    for number in 1..=u64::from(MESSAGES) {
        nsqd.deliver(number, 1, "x").await;
    }
    let permits = tokio::sync::Semaphore::new(10);
    let in_vain = AtomicUsize::new(0);
    let handler = async |_: Message| {
        for _ in 0..5 {
            let mut acquiring = pin!(permits.acquire());
            let permit = poll_fn(|cx| {
                let polled = acquiring.as_mut().poll(cx);
                in_vain.fetch_add(usize::from(polled.is_pending()), Ordering::Relaxed);
                polled
            });
            drop(permit.await);
        }
        Ok::<(), &str>(())
    };
    let answered = async {
        for number in 1..=u64::from(MESSAGES) {
            nsqd.expect(&fin(number)).await;
        }
    };
    tokio::select! {
        () = consumer.run(MESSAGES as usize, handler) => panic!("the consumer ends"),
        () = answered => {}
    }
    assert_eq!(in_vain.load(Ordering::Relaxed), 0);
}
