//! The consumer and a scripted nsqd in memory, on a virtual clock.

mod basics;
mod bounds;
mod cancellation;
#[cfg(feature = "memcached")]
mod copies;
mod cuts;
#[cfg(feature = "dedup")]
mod dedup;
mod discovery;
mod flow;
#[cfg(feature = "memcached")]
mod lives;
mod lookupds;
mod messages;
#[cfg(feature = "dedup")]
mod saves;
mod stop;
#[cfg(feature = "memcached")]
mod three_states;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::*;
use crate::address::Address;
use crate::config::Config;
use crate::consumer::message::Requeue;
use crate::testing::{MockConnection, MockNetwork, MockServer};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A builder for topic `t` and channel `c` in a network.
fn builder(network: &MockNetwork, max_in_flight: u32) -> ConsumerBuilder {
    Consumer::builder("t", "c")
        .config(config(max_in_flight))
        .connector(network.clone())
}

/// A network with one server, and a consumer that connects to it.
async fn one_server(config: Config) -> (MockServer, Consumer) {
    let network = MockNetwork::new();
    let server = network.server("n1:4150");
    let builder = builder(&network, 1).config(config);
    let consumer = connected(builder.node(server.address())).await;
    (server, consumer)
}

/// The scripted nsqd sends no heartbeats by itself.
fn config(max_in_flight: u32) -> Config {
    Config {
        max_in_flight,
        read_timeout: MS(300_000),
        ..Config::default()
    }
}

/// Accepts a connection up to the answer to SUB.
async fn accept(server: &mut MockServer) -> MockConnection {
    let mut nsqd = server.accept().await;
    nsqd.handshake().await;
    subscribe(&mut nsqd).await;
    nsqd
}

/// Accepts a connection, and answers IDENTIFY by `answer`.
async fn accept_with(server: &mut MockServer, answer: &str) -> MockConnection {
    let mut nsqd = server.accept().await;
    nsqd.handshake_with(answer).await;
    subscribe(&mut nsqd).await;
    nsqd
}

async fn subscribe(nsqd: &mut MockConnection) {
    nsqd.expect("SUB t c").await;
    nsqd.respond("OK").await;
}

async fn connected(builder: ConsumerBuilder) -> Consumer {
    builder.connect().await.expect("the builder is complete")
}

/// The only server of a consumer, and its connection up to the first RDY.
type Ready = (MockServer, MockConnection, Consumer);

/// A consumer with this `max_in_flight`.
async fn ready(max_in_flight: u32) -> Ready {
    ready_with(max_in_flight, |builder| builder).await
}

/// A consumer with this `max_in_flight`, and with the settings of `set`.
async fn ready_with(
    max_in_flight: u32,
    set: impl FnOnce(ConsumerBuilder) -> ConsumerBuilder,
) -> Ready {
    let network = MockNetwork::new();
    let mut server = network.server("n1:4150");
    let builder = set(builder(&network, max_in_flight).node(server.address()));
    let consumer = connected(builder).await;
    let mut nsqd = accept(&mut server).await;
    nsqd.expect(&format!("RDY {max_in_flight}")).await;
    (server, nsqd, consumer)
}

/// Expects several commands.
async fn expect(nsqd: &mut MockConnection, commands: &[&str]) {
    for command in commands {
        nsqd.expect(command).await;
    }
}

/// Expects that nothing comes for a while.
async fn expect_silence(nsqd: &mut MockConnection, time: Duration) {
    if let Ok(command) = timeout(time, nsqd.command()).await {
        panic!("silence is expected: {command:?}");
    }
}

fn fin(number: u64) -> String {
    format!("FIN {number:016x}")
}

fn req(number: u64, ms: u64) -> String {
    format!("REQ {number:016x} {ms}")
}

/// Takes the next message.
async fn next(consumer: &mut Consumer) -> Message {
    consumer.next().await.expect("the consumer runs")
}

/// Answers CLS, and waits for the end of the connection.
async fn close(nsqd: &mut MockConnection) {
    nsqd.expect("CLS").await;
    nsqd.respond("CLOSE_WAIT").await;
    assert_eq!(nsqd.command().await, None);
}

/// Events as text, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn callback(&self) -> impl Fn(Event) + Send + Sync + 'static {
        let log = self.clone();
        move |event| log.0.lock().push(event.to_string())
    }

    /// Expects that `count` events have this text.
    #[track_caller]
    fn expect(&self, text: &str, count: usize) {
        assert_eq!(self.count(text), count, "{:?}", self.lines());
    }

    fn count(&self, text: &str) -> usize {
        let lines = self.0.lock();
        lines.iter().filter(|line| line.contains(text)).count()
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}
