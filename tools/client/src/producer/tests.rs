//! A producer over memory, with a virtual clock.

mod cancellation;
mod cuts;
mod nodes;
mod numbers;
mod runtimes;
mod script;
mod unanswered;

use futures_util::future::join_all;

use std::collections::BTreeSet;

use tokio::time::{Instant, timeout};

use super::*;
use crate::error::Outcome;
use crate::testing::{MockBroker, MockConnection, MockNetwork, MockServer};

/// Builds a producer of the nodes.
fn producer(network: &MockNetwork, nodes: impl IntoIterator<Item = Address>) -> Producer {
    builder(network, nodes).build().unwrap()
}

fn builder(network: &MockNetwork, nodes: impl IntoIterator<Item = Address>) -> ProducerBuilder {
    Producer::builder().nodes(nodes).connector(network.clone())
}

/// A producer with the settings of `set`, and its only nsqd, which does what the test says.
fn one_server(set: impl FnOnce(ProducerBuilder) -> ProducerBuilder) -> (MockServer, Producer) {
    let network = MockNetwork::new();
    let server = network.server("a:1");
    let builder = set(builder(&network, [server.address()]));
    (server, builder.build().unwrap())
}

async fn open(server: &mut MockServer) -> MockConnection {
    let mut nsqd = server.accept().await;
    nsqd.handshake().await;
    nsqd
}

/// Reads commands, which must be these, and answers each of them.
async fn store(nsqd: &mut MockConnection, commands: &[&str]) {
    for command in commands {
        nsqd.expect(command).await;
        nsqd.respond("OK").await;
    }
}

/// Publishes the first message, which nsqd receives and does not answer.
async fn unanswered(producer: &Producer, server: &mut MockServer) -> (Publishing, MockConnection) {
    let publishing = start(producer, "t", "1").await;
    let mut nsqd = open(server).await;
    nsqd.expect("PUB t 1").await;
    (publishing, nsqd)
}

/// Starts a flush. Other tasks then run until they wait.
async fn flush(producer: &Producer) -> tokio::task::JoinHandle<Result<(), UnansweredError>> {
    let producer = producer.clone();
    let flushing = tokio::spawn(async move { producer.flush().await });
    settle().await;
    flushing
}

/// Starts a close. Other tasks then run until they wait.
async fn close(producer: &Producer) -> tokio::task::JoinHandle<Result<(), UnansweredError>> {
    let producer = producer.clone();
    let closing = tokio::spawn(async move { producer.close().await });
    settle().await;
    closing
}

/// Starts publishes that come together. Other tasks then run until they wait.
async fn together<const N: usize>(
    producer: &Producer,
    bodies: [&'static str; N],
) -> tokio::task::JoinHandle<Vec<Result<Receipt, PublishError>>> {
    let producer = producer.clone();
    let publishing =
        tokio::spawn(async move { join_all(bodies.map(|body| producer.publish("t", body))).await });
    settle().await;
    publishing
}

/// A publish in a task of its own.
type Publishing = tokio::task::JoinHandle<Result<Receipt, PublishError>>;

/// Starts a publish. Other tasks then run until they wait.
async fn start(producer: &Producer, topic: &'static str, body: &'static str) -> Publishing {
    let producer = producer.clone();
    let publishing = tokio::spawn(async move { producer.publish(topic, body).await });
    settle().await;
    publishing
}

/// Lets the other tasks run until all of them wait.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}
