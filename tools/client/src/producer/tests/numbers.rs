//! Numbered messages. The modules share their script: a producer that numbers its messages, and nsqds that take numbers.

mod application;
mod cuts;
mod negotiated;
mod refused;
mod resent;

use super::*;
use crate::publisher_id::PublisherId;

fn numbering(network: &MockNetwork, nodes: impl IntoIterator<Item = Address>) -> ProducerBuilder {
    builder(network, nodes).number_messages()
}

/// A producer with the settings of `set`, and its only nsqd.
fn one_server(set: impl FnOnce(ProducerBuilder) -> ProducerBuilder) -> (MockServer, Producer) {
    super::one_server(|builder| set(builder.number_messages()))
}

/// A producer, its nsqd, and the nsqd that the producer takes while the first one does not work.
fn two_nodes(batching: bool) -> (MockServer, MockBroker, Producer) {
    let network = MockNetwork::new();
    let server = network.server("a:1");
    let other = network.broker("b:1");
    let builder = numbering(&network, [server.address(), other.address()])
        .spread(Spread::FirstThatWorks)
        .batching(batching);
    (server, other, builder.build().unwrap())
}

fn id() -> PublisherId {
    PublisherId::new(0x9f86_d081_884c_7d65).unwrap()
}

async fn open(server: &mut MockServer) -> MockConnection {
    let mut nsqd = server.accept().await;
    nsqd.handshake_with_numbers().await;
    nsqd
}

/// Accepts the next connection, and stores these commands.
async fn open_and_store(server: &mut MockServer, commands: &[&str]) -> MockConnection {
    let mut nsqd = open(server).await;
    store(&mut nsqd, commands).await;
    nsqd
}

/// Publishes the first message, which nsqd receives and does not answer.
async fn unanswered(producer: &Producer, server: &mut MockServer) -> (Publishing, MockConnection) {
    let publishing = start(producer, "t", "1").await;
    let mut nsqd = open(server).await;
    nsqd.expect("PUB t 0 1").await;
    (publishing, nsqd)
}
