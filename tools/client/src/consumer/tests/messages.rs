//! Answers to messages.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_message_with_too_many_attempts_is_given_up() {
    let given_up = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&given_up);
    let log = Log::default();
    let (_server, mut nsqd, mut consumer) = ready_with(5, |builder| {
        let builder = builder.events(log.callback());
        builder.give_up(move |message| keep.lock().push(message))
    })
    .await;
    nsqd.deliver(1, 6, "old").await;
    nsqd.deliver(2, 5, "young").await;
    let message = next(&mut consumer).await;
    assert_eq!(&message.body()[..], b"young");
    nsqd.expect(&fin(1)).await;
    let given_up = given_up.lock();
    let [message] = &given_up[..] else {
        panic!("{given_up:?}")
    };
    assert_eq!(
        (&message.body[..], message.attempts, message.topic.as_str()),
        (&b"old"[..], 6, "t")
    );
    assert_eq!(
        message.to_string(),
        "msg 0000000000000001 attempted 6 times, giving up"
    );
    log.expect("WRN", 1);
    log.expect(
        "[t/c] (n1:4150) msg 0000000000000001 attempted 6 times, giving up",
        1,
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_nothing_is_given_up() {
    let config = Config {
        max_attempts: 0,
        ..config(5)
    };
    let (_server, mut nsqd, mut consumer) = ready_with(5, |it| it.config(config)).await;
    nsqd.deliver(1, u16::MAX, "").await;
    assert_eq!(next(&mut consumer).await.attempts(), u16::MAX);
}

#[tokio::test(start_paused = true)]
async fn the_automatic_delay_grows_with_the_attempts() {
    let config = Config {
        max_attempts: 0,
        max_backoff_duration: MS(0),
        ..config(9)
    };
    let (_server, mut nsqd, mut consumer) = ready_with(9, |it| it.config(config)).await;
    for (attempts, ms) in [
        (1, 90_000),
        (2, 180_000),
        (3, 270_000),
        (10, 900_000),
        (11, 900_000),
    ] {
        nsqd.deliver(1, attempts, "").await;
        next(&mut consumer).await.requeue(Requeue::Automatic);
        nsqd.expect(&req(1, ms)).await;
    }
    // The bounds of automatic delays do not apply to an explicit one.
    nsqd.deliver(1, 1, "").await;
    next(&mut consumer)
        .await
        .requeue(Requeue::After(MS(3_600_001)));
    nsqd.expect(&req(1, 3_600_001)).await;
}

/// Only an nsqd that has agreed to it knows the parameter `uncounted`.
#[tokio::test(start_paused = true)]
async fn a_message_that_is_given_back_is_no_attempt_if_nsqd_agrees() {
    for (agreed, end) in [("true", " uncounted"), ("false", "")] {
        let (mut server, mut consumer) = one_server(config(5)).await;
        let mut nsqd = server.accept().await;
        let answer = format!(r#"{{"max_rdy_count":2500,"req_uncounted":{agreed}}}"#);
        let identify = nsqd.handshake_with(&answer).await;
        assert_eq!(identify["req_uncounted"], true);
        subscribe(&mut nsqd).await;
        nsqd.expect("RDY 5").await;
        nsqd.deliver(1, 1, "").await;
        next(&mut consumer).await.give_back();
        nsqd.expect(&format!("{}{end}", req(1, 0))).await;
        // No backoff has begun, which would send RDY 0.
        nsqd.deliver(2, 1, "").await;
        let (_, acker) = next(&mut consumer).await.split();
        acker.give_back();
        nsqd.expect(&format!("{}{end}", req(2, 0))).await;
        assert!(acker.is_answered());
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_counts() {
    let (_server, mut nsqd, mut consumer) = ready(5).await;
    nsqd.deliver(1, 1, "").await;
    let message = next(&mut consumer).await;
    assert!(!message.is_answered());
    message.requeue_without_backoff(Requeue::After(MS(7)));
    assert!(message.is_answered());
    assert_eq!(message.finish().await, Ok(()));
    message.finish();
    message.touch();
    drop(message);
    nsqd.expect(&req(1, 7)).await;
    nsqd.deliver(2, 1, "").await;
    let (body, acker) = next(&mut consumer).await.split();
    assert_eq!((&body[..], acker.attempts()), (&b""[..], 1));
    acker.touch();
    acker.finish();
    acker.requeue(Requeue::Automatic);
    drop(acker);
    expect(&mut nsqd, &["TOUCH 0000000000000002", &fin(2)]).await;
    expect_silence(&mut nsqd, MS(1000)).await;
    let stats = consumer.control().stats();
    assert_eq!(
        (
            stats.received,
            stats.finished,
            stats.requeued,
            stats.in_flight
        ),
        (2, 1, 1, 0)
    );
}

/// Programs give a consumer to functions that take any stream.
#[tokio::test(start_paused = true)]
async fn a_consumer_is_a_stream() {
    use futures_util::StreamExt;
    let (_server, mut nsqd, consumer) = ready(5).await;
    for number in 1..=3 {
        nsqd.deliver(number, 1, "").await;
    }
    let finished = consumer.map(|message| {
        message.finish();
        message.attempts()
    });
    assert_eq!(finished.take(3).collect::<Vec<_>>().await, [1; 3]);
    expect(&mut nsqd, &[&fin(1), &fin(2), &fin(3)]).await;
    close(&mut nsqd).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_message_is_requeued_as_a_failure() {
    let (_server, mut nsqd, mut consumer) = ready(5).await;
    nsqd.deliver(1, 2, "").await;
    drop(next(&mut consumer).await);
    expect(&mut nsqd, &["RDY 0", &req(1, 180_000)]).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_until_the_application_answers() {
    let (_server, mut nsqd, mut consumer) = ready(5).await;
    nsqd.deliver(1, 1, "").await;
    let message = next(&mut consumer).await;
    expect_silence(&mut nsqd, MS(120_000)).await;
    // Any thread may answer.
    std::thread::spawn(move || message.finish())
        .join()
        .expect("no panic");
    nsqd.expect(&fin(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_answer_by_itself() {
    let (_server, mut nsqd, consumer) = ready(9).await;
    let (later, mut held) = tokio::sync::mpsc::unbounded_channel();
    let running = tokio::spawn(consumer.run(2, move |message: Message| {
        let later = later.clone();
        async move {
            match &message.body()[..] {
                b"touch" => {
                    message.touch();
                    Ok(())
                }
                b"requeue" => {
                    message.requeue_without_backoff(Requeue::After(MS(1)));
                    Err("the answer has been given")
                }
                _ => {
                    message.disable_auto_response();
                    later.send(message).map_err(|_| "nobody waits")
                }
            }
        }
    }));
    nsqd.deliver(1, 1, "touch").await;
    expect(&mut nsqd, &["TOUCH 0000000000000001", &fin(1)]).await;
    nsqd.deliver(2, 1, "requeue").await;
    nsqd.expect(&req(2, 1)).await;
    nsqd.deliver(3, 1, "manual").await;
    let message = held.recv().await.expect("a message");
    expect_silence(&mut nsqd, MS(10_000)).await;
    message.finish();
    nsqd.expect(&fin(3)).await;
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_its_message() {
    let log = Log::default();
    let (_server, mut nsqd, consumer) = ready_with(9, |it| it.events(log.callback())).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let running = tokio::spawn(consumer.run(3, move |message: Message| {
        counter.fetch_add(1, Ordering::Relaxed);
        assert!(&message.body()[..] != b"at once", "no such body");
        async move {
            tokio::task::yield_now().await;
            assert!(&message.body()[..] != b"later", "nor {}", 1);
            Ok::<(), String>(())
        }
    }));
    nsqd.deliver(1, 1, "at once").await;
    expect(&mut nsqd, &["RDY 0", &req(1, 90_000), "RDY 1"]).await;
    nsqd.deliver(2, 1, "later").await;
    expect(&mut nsqd, &["RDY 0", &req(2, 90_000), "RDY 1"]).await;
    nsqd.deliver(3, 1, "good").await;
    expect(&mut nsqd, &["RDY 0", &fin(3)]).await;
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    let line = "Handler returned error (panic: no such body) for msg 0000000000000001";
    assert_eq!(log.count(line), 1, "{:?}", log.lines());
    assert_eq!(
        log.count("(panic: nor 1) for msg 0000000000000002"),
        1,
        "{:?}",
        log.lines()
    );
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn no_more_handlers_run_than_allowed() {
    let (_server, mut nsqd, consumer) = ready(100).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let most_seen = Arc::clone(&most);
    let running = tokio::spawn(consumer.run(7, move |_message: Message| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(MS(10)).await;
            now.fetch_sub(1, Ordering::Relaxed);
            Ok::<(), String>(())
        }
    }));
    for number in 0..70 {
        nsqd.deliver(number, 1, "").await;
    }
    let begin = Instant::now();
    for _ in 0..70 {
        nsqd.command().await.expect("a FIN");
    }
    assert_eq!(most_seen.load(Ordering::Relaxed), 7);
    assert!(begin.elapsed() < MS(150), "{:?}", begin.elapsed());
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn auto_touch_touches_until_the_answer_or_the_limit() {
    let auto = AutoTouch { limit: MS(100_000) };
    let (_server, mut nsqd, mut consumer) = ready_with(9, |it| it.auto_touch(Some(auto))).await;
    // The message timeout of the mock is 60 s.
    nsqd.deliver(1, 1, "").await;
    nsqd.deliver(2, 1, "").await;
    let (one, two) = (next(&mut consumer).await, next(&mut consumer).await);
    let begin = Instant::now();
    assert_eq!(one.timeout_at(), begin.into_std() + MS(60_000));
    two.finish();
    nsqd.expect(&fin(2)).await;
    for times in 1..=3 {
        nsqd.expect("TOUCH 0000000000000001").await;
        assert_eq!(begin.elapsed().as_millis(), times * 30_000);
    }
    assert_eq!(one.timeout_at(), begin.into_std() + MS(150_000));
    expect_silence(&mut nsqd, MS(200_000)).await;
    one.finish();
    nsqd.expect(&fin(1)).await;
    nsqd.deliver(3, 1, "").await;
    let three = next(&mut consumer).await;
    nsqd.expect("TOUCH 0000000000000003").await;
    drop(three);
}

#[test]
fn messages_may_outlive_the_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let (mut server, message, consumer) = runtime.block_on(async {
        let (mut server, mut consumer) = one_server(config(5)).await;
        let mut nsqd = accept(&mut server).await;
        for number in 1..=3 {
            nsqd.deliver(number, 1, "").await;
        }
        let message = next(&mut consumer).await;
        (server, message, consumer)
    });
    let control = consumer.control();
    drop(runtime);
    message.touch();
    let (_, acker) = message.split();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _held = acker;
        panic!("while a message is held");
    }));
    assert!(panicked.is_err());
    drop(consumer);
    assert_eq!(control.stats().nodes, []);
    server.refuse(true);
    let _ = &mut server;
}

/// A program whose handlers are slower than the message timeout saw only nsqd's errors.
#[tokio::test(start_paused = true)]
async fn one_event_says_that_answers_come_too_late() {
    let log = Log::default();
    let (_server, mut nsqd, _consumer) = ready_with(5, |it| it.events(log.callback())).await;
    for _ in 0..3 {
        nsqd.fail("E_FIN_FAILED FIN 0000000000000001 failed ID not in flight")
            .await;
    }
    tokio::time::sleep(MS(1)).await;
    log.expect("E_FIN_FAILED", 3);
    let text = "[t/c] (n1:4150) an answer came after the message timeout of 1m0s";
    log.expect(text, 1);
    assert_eq!(log.count("msg_timeout or auto_touch"), 1);
}
