//! Runtimes that end before the producer does.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio::runtime::{self, Runtime};

use super::*;

fn runtime() -> Runtime {
    let mut builder = runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// Publishes a message in a new runtime.
fn publish(producer: &Producer, body: &'static str) -> Result<Receipt, PublishError> {
    runtime().block_on(async {
        let published = timeout(Duration::from_secs(30), producer.publish("t", body));
        published.await.expect("the publish has a result")
    })
}

/// The node kept the connection, whose task had ended with the first runtime. Each publish failed.
#[test]
fn the_next_runtime_makes_a_new_connection() {
    let network = MockNetwork::new();
    let broker = network.broker("a:1");
    let producer = producer(&network, [broker.address()]);
    for body in ["1", "2", "3"] {
        publish(&producer, body).unwrap();
    }
    assert_eq!(broker.published("t"), ["1", "2", "3"]);
}

/// The node waited for a task that had never begun. Each publish hung.
#[test]
fn an_attempt_to_connect_ends_with_its_runtime() {
    let network = MockNetwork::new();
    let broker = network.broker("a:1");
    let producer = producer(&network, [broker.address()]);
    runtime().block_on(async {
        let mut publishing = pin!(producer.publish("t", "never sent"));
        let is_pending = poll_fn(|cx| Poll::Ready(publishing.as_mut().poll(cx).is_pending()));
        assert!(is_pending.await);
    });
    publish(&producer, "1").unwrap();
    assert_eq!(broker.published("t"), ["1"]);
}

/// Nobody answered the publish: the task that knows the answers had been dropped.
#[test]
fn a_publish_of_another_runtime_gets_an_answer() {
    let network = MockNetwork::new();
    let broker = network.broker("a:1");
    let producer = producer(&network, [broker.address()]);
    let (first, second) = (runtime(), runtime());
    first.block_on(producer.publish("t", "1")).unwrap();
    let publishing = second.block_on(start(&producer, "t", "2"));
    drop(first);
    let result = second.block_on(async { timeout(Duration::from_secs(30), publishing).await });
    // The first runtime had not taken the message, so another connection can.
    let result = result.expect("the publish has a result").unwrap();
    result.unwrap();
    assert_eq!(broker.published("t"), ["1", "2"]);
}
