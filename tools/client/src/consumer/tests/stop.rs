//! The end of a consumer.

use std::sync::OnceLock;

use futures_util::FutureExt;

use super::*;

fn shut_down(consumer: &Consumer) -> tokio::task::JoinHandle<()> {
    let control = consumer.control();
    tokio::spawn(async move { control.shutdown().await })
}

#[tokio::test(start_paused = true)]
async fn messages_in_work_are_answered_and_others_go_back() {
    let (_server, mut nsqd, mut consumer) = ready(5).await;
    for number in 1..=4 {
        nsqd.deliver(number, 1, "").await;
    }
    let message = next(&mut consumer).await;
    let stopping = shut_down(&consumer);
    nsqd.expect("CLS").await;
    let ended = tokio::spawn(async move { consumer.next().await.is_none() });
    expect(&mut nsqd, &[&req(2, 0), &req(3, 0), &req(4, 0)]).await;
    // A message that was on its way goes back, too.
    nsqd.deliver(5, 1, "").await;
    nsqd.expect(&req(5, 0)).await;
    nsqd.respond("CLOSE_WAIT").await;
    expect_silence(&mut nsqd, MS(10_000)).await;
    assert!(!stopping.is_finished());
    message.finish().await.expect("the connection lives");
    nsqd.expect(&fin(1)).await;
    assert_eq!(nsqd.command().await, None);
    drop(nsqd);
    stopping.await.expect("no panic");
    assert!(ended.await.expect("no panic"));
}

#[tokio::test(start_paused = true)]
async fn without_giving_back_all_received_messages_are_handled() {
    let (_server, mut nsqd, consumer) =
        ready_with(5, |builder| builder.give_back_at_shutdown(false)).await;
    let control = consumer.control();
    for number in 1..=4 {
        nsqd.deliver(number, 1, "").await;
    }
    let running = tokio::spawn(consumer.run(2, async |_message: Message| {
        tokio::time::sleep(MS(2000)).await;
        Ok::<(), String>(())
    }));
    tokio::time::sleep(MS(1000)).await;
    let stopping = tokio::spawn(async move { control.shutdown().await });
    expect(&mut nsqd, &["CLS", &fin(1), &fin(2)]).await;
    nsqd.respond("CLOSE_WAIT").await;
    expect(&mut nsqd, &[&fin(3), &fin(4)]).await;
    assert_eq!(nsqd.command().await, None);
    drop(nsqd);
    stopping.await.expect("no panic");
    running.await.expect("run ends with the consumer");
}

/// Stops a consumer whose application answers nothing. Returns the time of the stop.
async fn stop_without_answers(
    change: impl FnOnce(ConsumerBuilder) -> ConsumerBuilder,
    nsqd_answers: bool,
) -> Duration {
    let (_server, mut nsqd, mut consumer) = ready_with(5, change).await;
    nsqd.deliver(1, 1, "").await;
    let message = next(&mut consumer).await;
    let begin = Instant::now();
    let stopping = shut_down(&consumer);
    nsqd.expect("CLS").await;
    if nsqd_answers {
        nsqd.respond("CLOSE_WAIT").await;
    }
    stopping.await.expect("no panic");
    let elapsed = begin.elapsed();
    assert!(consumer.next().await.is_none());
    assert!(message.finish().await.is_err());
    assert_eq!(nsqd.command().await, None);
    elapsed
}

#[tokio::test(start_paused = true)]
async fn the_limit_ends_a_stop_that_takes_too_long() {
    for nsqd_answers in [true, false] {
        let elapsed = stop_without_answers(|builder| builder, nsqd_answers).await;
        assert_eq!(elapsed, MS(30_000), "the default");
        for limit in [0, 700, 90_000] {
            let set = |builder: ConsumerBuilder| builder.drain_limit(MS(limit));
            let elapsed = stop_without_answers(set, nsqd_answers).await;
            // Timers have a resolution of 1 ms.
            assert!(
                elapsed >= MS(limit) && elapsed <= MS(limit + 1),
                "{limit} ms: {elapsed:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_a_backoff_does_not_hang() {
    let (_server, mut nsqd, mut consumer) = ready(5).await;
    nsqd.deliver(1, 1, "").await;
    next(&mut consumer).await.requeue(Requeue::Automatic);
    expect(&mut nsqd, &["RDY 0", &req(1, 90_000)]).await;
    let begin = Instant::now();
    let stopping = shut_down(&consumer);
    close(&mut nsqd).await;
    drop(nsqd);
    stopping.await.expect("no panic");
    assert!(begin.elapsed() < MS(100), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_stop_without_connections_ends_at_once_and_twice_is_once() {
    let network = MockNetwork::new();
    let address: Address = "nowhere:1".parse().expect("an address");
    let log = Log::default();
    let builder = builder(&network, 5)
        .node(address.clone())
        .events(log.callback());
    let mut consumer = connected(builder).await;
    tokio::time::sleep(MS(50)).await;
    let begin = Instant::now();
    let control = consumer.control();
    control.shutdown().await;
    control.shutdown().await;
    assert!(consumer.next().await.is_none());
    assert_eq!(begin.elapsed(), MS(0));
    log.expect("stopping...", 1);
    let stopped = control.add_node(address).await.expect_err("it has stopped");
    assert_eq!(stopped.to_string(), "consumer stopped");
    drop(consumer);
    assert_eq!(log.count("stopping..."), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_interrupts_an_open_handshake() {
    let (mut server, consumer) = one_server(config(5)).await;
    let mut nsqd = server.accept().await;
    nsqd.handshake().await;
    nsqd.expect("SUB t c").await;
    shut_down(&consumer).await.expect("no panic");
    assert_eq!(nsqd.command().await, None);
    assert!(timeout(MS(100_000), server.accept()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_consumer_gives_back_and_closes() {
    let (_server, mut nsqd, mut consumer) = ready(5).await;
    for number in 1..=4 {
        nsqd.deliver(number, 1, "").await;
    }
    let message = next(&mut consumer).await;
    drop(consumer);
    expect(&mut nsqd, &["CLS", &req(2, 0), &req(3, 0), &req(4, 0)]).await;
    nsqd.respond("CLOSE_WAIT").await;
    // A message that is dropped after that goes back at once.
    drop(message);
    nsqd.expect(&req(1, 0)).await;
    assert_eq!(nsqd.command().await, None);
}

#[tokio::test(start_paused = true)]
async fn nsqd_may_close_instead_of_answering_cls() {
    let (_server, mut nsqd, consumer) = ready(5).await;
    let stopping = shut_down(&consumer);
    nsqd.expect("CLS").await;
    nsqd.close();
    stopping.await.expect("no panic");
}

/// A program that ended with its consumer printed no event of the last connection's end.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_connection_is_told_before_the_consumer_ends() {
    let control = Arc::new(OnceLock::<Control>::new());
    let ends = Arc::new(Mutex::new(Vec::new()));
    let events = {
        let (control, ends) = (Arc::clone(&control), Arc::clone(&ends));
        move |event| {
            if matches!(event, Event::Disconnected { .. }) {
                let control = control.get().expect("it is set first");
                let has_ended = control.shutdown().now_or_never().is_some();
                ends.lock().push(has_ended);
            }
        }
    };
    let (_server, mut nsqd, consumer) = ready_with(5, |builder| builder.events(events)).await;
    control.set(consumer.control()).expect("it is set once");
    let stopping = shut_down(&consumer);
    close(&mut nsqd).await;
    drop(nsqd);
    stopping.await.expect("no panic");
    assert_eq!(*ends.lock(), [false]);
}

#[tokio::test(start_paused = true)]
async fn messages_without_an_answer_at_the_limit_are_told() {
    let log = Log::default();
    let (_server, mut nsqd, mut consumer) =
        ready_with(5, |builder| builder.events(log.callback())).await;
    nsqd.deliver(1, 1, "").await;
    nsqd.deliver(2, 1, "").await;
    let kept = [next(&mut consumer).await, next(&mut consumer).await];
    shut_down(&consumer).await.expect("no panic");
    let text = "ending after 30s although messages have no answer (2); nsqd delivers them again";
    log.expect(text, 1);
    log.expect("WRN ", 1);
    drop(kept);
}

/// The end of the limit was no time, and its computation ended the task of the node.
#[tokio::test(start_paused = true)]
async fn without_a_limit_a_node_that_is_removed_waits_for_the_last_answer() {
    let (server, mut nsqd, mut consumer) =
        ready_with(5, |builder| builder.drain_limit(Duration::MAX)).await;
    nsqd.deliver(1, 1, "").await;
    let message = next(&mut consumer).await;
    let control = consumer.control();
    control.remove_node(&server.address()).expect("a node");
    nsqd.expect("CLS").await;
    nsqd.respond("CLOSE_WAIT").await;
    expect_silence(&mut nsqd, MS(100_000)).await;
    message.finish();
    nsqd.expect(&fin(1)).await;
    assert_eq!(nsqd.command().await, None);
    drop(nsqd);
    control.shutdown().await;
}
