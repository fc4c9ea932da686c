//! A producer over memory, with a virtual clock.

mod cancellation;
mod cuts;
mod nodes;
mod numbers;
mod runtimes;
mod script;
mod unanswered;
mod unconfirmed;

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
