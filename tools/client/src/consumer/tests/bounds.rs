//! The messages that a consumer holds are bounded, whatever an nsqd sends.

use super::*;

/// Sends messages until the client ends the connection. Returns how many there were.
async fn flood(nsqd: &mut MockConnection, most: u64) -> u64 {
    for number in 1..=most {
        nsqd.deliver(number, 1, "x").await;
        if timeout(MS(1), nsqd.command()).await == Ok(None) {
            return number;
        }
    }
    panic!("the client takes {most} messages");
}

#[tokio::test(start_paused = true)]
async fn an_nsqd_that_ignores_rdy_is_given_up() {
    let log = Log::default();
    let (mut server, mut nsqd, mut consumer) =
        ready_with(5, |builder| builder.events(log.callback())).await;
    assert_eq!(flood(&mut nsqd, 1000).await, 21);
    let text = "nsqd sent more messages than RDY permits: 21 wait for the application, and RDY was 5 at most";
    log.expect(text, 1);
    drop(nsqd);
    // Nobody could answer these messages. nsqd delivers them again.
    let mut nsqd = accept(&mut server).await;
    nsqd.expect("RDY 5").await;
    assert_eq!(consumer.inner.inbox.len(), 0);
    nsqd.deliver(1, 2, "x").await;
    assert_eq!(next(&mut consumer).await.attempts(), 2);
}

/// RDY goes down while messages are on their way: all that the higher count permitted may come.
#[tokio::test(start_paused = true)]
async fn a_lower_rdy_closes_no_connection() {
    let (_server, mut nsqd, mut consumer) = ready(50).await;
    consumer.control().set_max_in_flight(1);
    for number in 1..=50 {
        nsqd.deliver(number, 1, "x").await;
    }
    nsqd.expect("RDY 1").await;
    for number in 1..=50 {
        next(&mut consumer).await.finish();
        nsqd.expect(&fin(number)).await;
    }
}

/// The application is stuck, and nsqd delivers again what has timed out.
#[tokio::test(start_paused = true)]
async fn messages_that_wait_beyond_their_timeout_make_room() {
    let log = Log::default();
    let every_attempt = Config {
        max_attempts: 0,
        ..config(5)
    };
    let set = |builder: ConsumerBuilder| builder.config(every_attempt).events(log.callback());
    let (_server, mut nsqd, mut consumer) = ready_with(5, set).await;
    for attempts in 1..=100 {
        for number in 1..=5 {
            nsqd.deliver(number, attempts, "x").await;
        }
        expect_silence(&mut nsqd, MS(60_000)).await;
        assert!(consumer.inner.inbox.len() <= 20);
    }
    assert!(log.count("timed out before the application took them") > 0);
    log.expect("disconnected", 0);
    let stats = consumer.control().stats();
    assert_eq!((stats.received, stats.requeued), (500, 0));
    assert!(stats.in_flight <= 20, "{stats:?}");
    // The newest are there.
    let mut newest = 0;
    while consumer.inner.inbox.len() + consumer.taken.len() > 0 {
        let message = next(&mut consumer).await;
        newest = message.attempts();
        message.finish();
    }
    assert_eq!(newest, 100);
}
