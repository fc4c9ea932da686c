//! Each future is polled n times and dropped, for each n until the future ends. Nothing may hang, and no message may be
//! lost.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::consumer::message::Answered;

/// The polls after which each future of these tests has ended. A future that needs more never ends.
const POLLS_MAX: usize = 200;

/// Polls a future up to `times` times. Lets all other tasks run between two polls. Returns the output if there is one.
async fn poll_times<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..times {
        let mut cx = Context::from_waker(Waker::noop());
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Some(output);
        }
        tokio::time::sleep(MS(1)).await;
    }
    None
}

/// Carries `attempt` out with 0, 1, 2 ... polls, until the future under test ends. `attempt` polls and drops the
/// future, checks the effects, and returns true if the future ended.
async fn sweep(attempt: impl AsyncFn(usize) -> bool) {
    let mut times = 0;
    while !attempt(times).await {
        times += 1;
        assert!(times < POLLS_MAX, "the future does not end");
    }
    assert!(times >= 2, "{times} polls reach no await");
}

/// Polls and drops a first `next`. Returns the next message, and true if the first `next` had it.
async fn next_after(consumer: &mut Consumer, times: usize) -> (Message, bool) {
    match poll_times(consumer.next(), times).await {
        Some(message) => (message.expect("the consumer runs"), true),
        None => (next(consumer).await, false),
    }
}

#[tokio::test(start_paused = true)]
async fn next_loses_no_message() {
    sweep(async |times| {
        let (_server, mut nsqd, mut consumer) = ready(5).await;
        let delivering = tokio::spawn(async move {
            tokio::time::sleep(MS(3)).await;
            nsqd.deliver(1, 1, "").await;
            nsqd
        });
        let (message, has_ended) = next_after(&mut consumer, times).await;
        message.finish();
        delivering.await.expect("no panic").expect(&fin(1)).await;
        has_ended
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn connect_leaves_no_connection_behind() {
    sweep(async |times| {
        let network = MockNetwork::new();
        let mut server = network.server("n1:4150");
        let address = server.address();
        let serving = tokio::spawn(async move {
            let mut connections = 0;
            while let Ok(mut nsqd) = timeout(MS(1000), server.accept()).await {
                nsqd.handshake().await;
                tokio::time::sleep(MS(2)).await;
                if nsqd.command().await.is_some() {
                    tokio::time::sleep(MS(2)).await;
                    nsqd.respond("OK").await;
                    while let Some(command) = nsqd.command().await {
                        if command.to_string() == "CLS" {
                            nsqd.respond("CLOSE_WAIT").await;
                        }
                    }
                }
                connections += 1;
            }
            connections
        });
        let builder = builder(&network, 5)
            .node(address)
            .retry_first_connection(false);
        let connected = poll_times(builder.connect(), times).await;
        let has_ended = connected.is_some();
        if let Some(consumer) = connected {
            drop(consumer.expect("nsqd takes the consumer"));
        }
        let connections = serving.await.expect("each connection ends");
        assert!(connections <= 1, "{times} polls: {connections}");
        assert!(!has_ended || connections == 1);
        has_ended
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_shutdown_goes_on() {
    sweep(async |times| {
        let (_server, mut nsqd, mut consumer) = ready(5).await;
        let control = consumer.control();
        if times == 0 {
            assert!(poll_times(control.shutdown(), times).await.is_none());
            expect_silence(&mut nsqd, MS(1000)).await;
            drop(consumer);
            close(&mut nsqd).await;
            return false;
        }
        let closing = tokio::spawn(async move {
            nsqd.expect("CLS").await;
            tokio::time::sleep(MS(2)).await;
            nsqd.respond("CLOSE_WAIT").await;
            assert_eq!(nsqd.command().await, None);
        });
        let has_ended = poll_times(control.shutdown(), times).await.is_some();
        closing.await.expect("nsqd sees the end");
        assert!(consumer.next().await.is_none());
        has_ended
    })
    .await;
}

/// The call of an answer, and the commands that nsqd must get then.
type Answer = (fn(&Message) -> Answered, &'static [&'static str]);

const ANSWERS: [Answer; 4] = [
    (|message| message.finish(), &["FIN 0000000000000001"]),
    (
        |message| message.requeue(Requeue::After(MS(7))),
        &["RDY 0", "REQ 0000000000000001 7"],
    ),
    (
        |message| message.requeue_without_backoff(Requeue::Automatic),
        &["REQ 0000000000000001 90000"],
    ),
    (|message| message.touch(), &["TOUCH 0000000000000001"]),
];

#[tokio::test(start_paused = true)]
async fn answers_are_sent_whether_they_are_awaited_or_not() {
    for (answer, commands) in ANSWERS {
        // The first poll of an answer lets the connection write, and the second one is ready.
        let mut times = 0;
        loop {
            let (_server, mut nsqd, mut consumer) = ready(5).await;
            nsqd.deliver(1, 1, "").await;
            let message = next(&mut consumer).await;
            let sent = poll_times(answer(&message), times).await;
            expect(&mut nsqd, commands).await;
            if !message.is_answered() {
                message.finish();
                nsqd.expect(&fin(1)).await;
            }
            // The drop of an answered message says nothing more.
            drop(message);
            expect_silence(&mut nsqd, MS(1000)).await;
            if let Some(sent) = sent {
                sent.expect("the connection lives");
                break;
            }
            times += 1;
            assert!(times < POLLS_MAX, "the answer does not end");
        }
        assert!(
            times >= 1,
            "the future is ready before the command has left"
        );
    }
}

/// Takes the commands of a connection until its end. Answers CLS.
async fn commands_to_the_end(mut nsqd: MockConnection) -> Vec<String> {
    let mut commands = Vec::new();
    while let Some(command) = nsqd.command().await {
        let command = command.to_string();
        if command == "CLS" {
            nsqd.respond("CLOSE_WAIT").await;
        }
        commands.push(command);
    }
    commands
}

/// The handlers take 3 ms each, two at a time. The last one stops the consumer. A message whose handler was dropped
/// goes back.
#[tokio::test(start_paused = true)]
async fn a_dropped_run_requeues_the_messages_of_its_handlers() {
    sweep(async |times| {
        let (_server, mut nsqd, consumer) = ready(5).await;
        for number in 1..=4 {
            nsqd.deliver(number, 1, "").await;
        }
        let serving = tokio::spawn(commands_to_the_end(nsqd));
        tokio::time::sleep(MS(1)).await;
        let control = consumer.control();
        let run = consumer.run(2, async |_message: Message| {
            tokio::time::sleep(MS(3)).await;
            if control.stats().finished == 3 {
                let control = control.clone();
                tokio::spawn(async move { control.shutdown().await });
            }
            Ok::<(), String>(())
        });
        let has_ended = poll_times(run, times).await.is_some();
        let commands = serving.await.expect("the connection ends");
        let count = |name: &str| {
            let starts = |command: &&String| command.starts_with(name);
            commands.iter().filter(starts).count()
        };
        let (finished, requeued) = (count("FIN "), count("REQ "));
        assert_eq!(finished + requeued, 4, "{times} polls: {commands:?}");
        for number in 1..=4 {
            assert_eq!(
                commands
                    .iter()
                    .filter(|text| text.contains(&format!("{number:016x}")))
                    .count(),
                1,
                "{times} polls: {commands:?}"
            );
        }
        assert!(!has_ended || finished == 4, "{commands:?}");
        has_ended
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_add_node_still_adds_or_forgets() {
    sweep(async |times| {
        let network = MockNetwork::new();
        let (mut one, mut two) = (network.server("n1:4150"), network.server("n2:4150"));
        let address = two.address();
        let builder = builder(&network, 4)
            .node(one.address())
            .retry_first_connection(false);
        let connecting = tokio::spawn(builder.connect());
        let _nsqd_one = accept(&mut one).await;
        let consumer = connecting.await.expect("no panic").expect("it is there");
        let control = consumer.control();
        let serving = tokio::spawn(async move {
            let mut nsqd = two.accept().await;
            tokio::time::sleep(MS(2)).await;
            nsqd.handshake().await;
            nsqd.expect("SUB t c").await;
            tokio::time::sleep(MS(2)).await;
            nsqd.respond("OK").await;
            nsqd.expect("RDY 2").await;
            nsqd
        });
        let added = poll_times(control.add_node(address), times).await;
        if times == 0 {
            expect_no_second_node(&control).await;
            serving.abort();
            return false;
        }
        let _nsqd_two = serving.await.expect("the node is used");
        assert_eq!(control.stats().nodes.len(), 2);
        let has_ended = added.is_some();
        if let Some(added) = added {
            added.expect("nsqd takes the consumer");
        }
        has_ended
    })
    .await;
}

async fn expect_no_second_node(control: &Control) {
    tokio::time::sleep(MS(1000)).await;
    assert_eq!(control.stats().nodes.len(), 1);
}

#[cfg(feature = "dedup")]
mod recognising {
    use super::*;
    use crate::dedup::filters::InverseBloom;
    use crate::dedup::{Dedup, Key};

    /// A consumer that recognises bodies.
    async fn recognising() -> Ready {
        let filter = InverseBloom::new(1000).expect("slots");
        let dedup = Dedup::builder(Key::body(), filter).build();
        ready_with(5, |builder| builder.dedup(dedup.expect("complete"))).await
    }

    /// A copy of a handled message is finished without the application, and the message behind it comes.
    #[tokio::test(start_paused = true)]
    async fn next_loses_no_message_behind_a_copy() {
        sweep(async |times| {
            let (_server, mut nsqd, mut consumer) = recognising().await;
            nsqd.deliver(1, 1, "a").await;
            next(&mut consumer).await.finish();
            nsqd.expect(&fin(1)).await;
            let delivering = tokio::spawn(async move {
                tokio::time::sleep(MS(2)).await;
                nsqd.deliver(2, 1, "a").await;
                tokio::time::sleep(MS(2)).await;
                nsqd.deliver(3, 1, "b").await;
                nsqd.expect(&fin(2)).await;
                nsqd
            });
            let (message, has_ended) = next_after(&mut consumer, times).await;
            assert_eq!(&message.body()[..], b"b");
            message.finish();
            delivering.await.expect("no panic").expect(&fin(3)).await;
            has_ended
        })
        .await;
    }

    /// A copy waits until the first copy fails, and then comes to the application.
    #[tokio::test(start_paused = true)]
    async fn next_loses_no_copy_when_the_first_one_fails() {
        sweep(async |times| {
            let (_server, mut nsqd, mut consumer) = recognising().await;
            nsqd.deliver(1, 1, "a").await;
            let first = next(&mut consumer).await;
            nsqd.deliver(2, 1, "a").await;
            let failing = tokio::spawn(async move {
                tokio::time::sleep(MS(3)).await;
                first.requeue_without_backoff(Requeue::After(MS(0)));
            });
            let (message, has_ended) = next_after(&mut consumer, times).await;
            failing.await.expect("no panic");
            message.finish();
            expect(&mut nsqd, &[&req(1, 0), &fin(2)]).await;
            has_ended
        })
        .await;
    }
}
