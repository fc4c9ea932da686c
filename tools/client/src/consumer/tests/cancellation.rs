//! Each future is polled n times and dropped, for each n until it ends. Nothing may hang, and no message may be lost.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

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

#[tokio::test(start_paused = true)]
async fn next_loses_no_message() {
    let (mut server, mut consumer) = one_server(config(5)).await;
    let mut nsqd = accept(&mut server).await;
    nsqd.expect("RDY 5").await;
    for times in 0..5 {
        assert!(poll_times(consumer.next(), times).await.is_none());
        nsqd.deliver(times as u64, 1, "").await;
        let message = poll_times(consumer.next(), 3).await.flatten();
        message.expect("the message is there").finish();
        nsqd.expect(&fin(times as u64)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn connect_leaves_no_connection_behind() {
    for times in 0..8 {
        let network = MockNetwork::new();
        let mut server = network.server("n1:4150");
        let address = server.address();
        let serving = tokio::spawn(async move {
            let mut ends = Vec::new();
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
                ends.push(());
            }
            ends.len()
        });
        let builder = builder(&network, 5)
            .node(address)
            .retry_first_connection(false);
        let connected = poll_times(builder.connect(), times).await;
        drop(connected);
        let connections = serving.await.expect("each connection ends");
        assert!(connections <= 1, "{times} polls: {connections}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_shutdown_goes_on() {
    for times in 0..4 {
        let (mut server, mut consumer) = one_server(config(5)).await;
        let mut nsqd = accept(&mut server).await;
        nsqd.expect("RDY 5").await;
        let control = consumer.control();
        assert!(poll_times(control.shutdown(), times).await.is_none());
        if times == 0 {
            expect_silence(&mut nsqd, MS(1000)).await;
            drop(consumer);
            close(&mut nsqd).await;
        } else {
            close(&mut nsqd).await;
            drop(nsqd);
            assert!(consumer.next().await.is_none());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_sent_whether_they_are_awaited_or_not() {
    let (mut server, mut consumer) = one_server(config(5)).await;
    let mut nsqd = accept(&mut server).await;
    nsqd.expect("RDY 5").await;
    for times in 0..4 {
        nsqd.deliver(times as u64, 1, "").await;
        let message = next(&mut consumer).await;
        poll_times(message.finish(), times).await;
        nsqd.expect(&fin(times as u64)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_requeues_the_messages_of_its_handlers() {
    for times in 1..5 {
        let (mut server, consumer) = one_server(config(5)).await;
        let mut nsqd = accept(&mut server).await;
        nsqd.expect("RDY 5").await;
        for number in 1..=4 {
            nsqd.deliver(number, 1, "").await;
        }
        tokio::time::sleep(MS(1)).await;
        let run = consumer.run(2, async |_message: Message| {
            std::future::pending::<()>().await;
            Ok::<(), String>(())
        });
        assert!(poll_times(run, times).await.is_none());
        let mut requeued = Vec::new();
        let mut has_cls = false;
        while requeued.len() < 4 {
            match nsqd.command().await.expect("it is open").to_string() {
                cls if cls == "CLS" => has_cls = true,
                rdy if rdy.starts_with("RDY") => {}
                other => requeued.push(other),
            }
        }
        requeued.sort();
        requeued.dedup_by_key(|text| text[..20].to_owned());
        assert!(has_cls && requeued.len() == 4, "{requeued:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_add_node_still_adds_or_forgets() {
    for times in 0..6 {
        let network = MockNetwork::new();
        let (mut one, mut two) = (network.server("n1:4150"), network.server("n2:4150"));
        let builder = builder(&network, 4)
            .node(one.address())
            .retry_first_connection(false);
        let connecting = tokio::spawn(builder.connect());
        let _nsqd_one = accept(&mut one).await;
        let consumer = connecting.await.expect("no panic").expect("it is there");
        let control = consumer.control();
        poll_times(control.add_node(two.address()), times).await;
        if times > 0 {
            let mut nsqd = accept(&mut two).await;
            nsqd.expect("RDY 2").await;
        } else {
            control
                .add_node(two.address())
                .await
                .expect_err("nobody answers within the timeouts");
        }
    }
}
