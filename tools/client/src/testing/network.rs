//! [`MockNetwork`]: connections in memory, by address. [`MockServer`] and [`MockBroker`]: the nsqds that listen there.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::duplex;
use tokio::sync::mpsc;
use tokio::time::sleep;
use wire::encode;

use super::connection::{ANSWER, MockConnection, NUMBERED_ANSWER, Received, error_frame};
use super::stored::BrokerState;
use super::stream::{Cut, CutStream};
use crate::address::Address;
use crate::connector::{Connecting, Connector, Transport};

/// The bytes that are on their way in each direction, at most.
const BUFFER_BYTES: usize = 64 * 1024;

/// A network in memory. Clones are the same network. Nothing listens at an address without a server: a connection there
/// is refused.
#[derive(Clone, Debug, Default)]
pub struct MockNetwork(Arc<Mutex<HashMap<Address, Listener>>>);

/// The treatment of connections to an address.
#[derive(Debug)]
struct Listener {
    accepts: Accepts,
    is_refusing: bool,
    connections: u64,
    /// The cuts of the next connections.
    cuts: VecDeque<Cut>,
}

#[derive(Debug)]
enum Accepts {
    Script(mpsc::UnboundedSender<MockConnection>),
    Broker(MockBroker),
}

impl MockNetwork {
    /// Makes an empty network.
    #[must_use]
    pub fn new() -> MockNetwork {
        MockNetwork::default()
    }

    /// Adds a server that does what the test says.
    ///
    /// # Panics
    /// If `address` is no address.
    #[must_use]
    pub fn server(&self, address: &str) -> MockServer {
        let (accepted, accepting) = mpsc::unbounded_channel();
        let address = parse(address);
        self.listen(&address, Accepts::Script(accepted));
        MockServer {
            network: self.clone(),
            address,
            accepting,
        }
    }

    /// Adds a small nsqd.
    ///
    /// # Panics
    /// If `address` is no address.
    #[must_use]
    pub fn broker(&self, address: &str) -> MockBroker {
        let broker = MockBroker {
            network: self.clone(),
            address: parse(address),
            state: Arc::default(),
        };
        self.listen(&broker.address, Accepts::Broker(broker.clone()));
        broker
    }

    fn listen(&self, address: &Address, accepts: Accepts) {
        let listener = Listener {
            accepts,
            is_refusing: false,
            connections: 0,
            cuts: Default::default(),
        };
        self.0.lock().insert(address.clone(), listener);
    }

    /// Refuses further connections to `address`, or accepts them again.
    pub fn refuse(&self, address: &Address, is_refusing: bool) {
        if let Some(listener) = self.0.lock().get_mut(address) {
            listener.is_refusing = is_refusing;
        }
    }

    /// Breaks a further connection to `address`. Each call counts for one connection.
    pub fn cut_next(&self, address: &Address, cut: Cut) {
        if let Some(listener) = self.0.lock().get_mut(address) {
            listener.cuts.push_back(cut);
        }
    }

    /// Returns the number of connections that were made to `address`.
    #[must_use]
    pub fn connections(&self, address: &Address) -> u64 {
        let listeners = self.0.lock();
        listeners.get(address).map_or(0, |found| found.connections)
    }

    fn dial(&self, address: &Address) -> io::Result<Box<dyn Transport>> {
        let mut listeners = self.0.lock();
        let listener = listeners
            .get_mut(address)
            .filter(|listener| !listener.is_refusing)
            .ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        let (client, server) = duplex(BUFFER_BYTES);
        let connection = MockConnection::new(server);
        match &listener.accepts {
            Accepts::Script(accepted) => accepted
                .send(connection)
                .map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?,
            Accepts::Broker(broker) => {
                tokio::spawn(broker.clone().serve(connection));
            }
        }
        listener.connections += 1;
        let cut = listener.cuts.pop_front().unwrap_or_default();
        Ok(Box::new(CutStream::new(client, cut)))
    }
}

impl Connector for MockNetwork {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        Box::pin(async move { self.dial(address) })
    }
}

fn parse(address: &str) -> Address {
    address
        .parse()
        .unwrap_or_else(|error| panic!("a mock server needs an address: {error}"))
}

/// A scripted nsqd. The test accepts its connections one by one, reads their commands, and answers.
#[derive(Debug)]
pub struct MockServer {
    network: MockNetwork,
    address: Address,
    accepting: mpsc::UnboundedReceiver<MockConnection>,
}

impl MockServer {
    /// Returns the address of the server.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address.clone()
    }

    /// Waits for the next connection.
    ///
    /// # Panics
    /// If another server has taken the address.
    pub async fn accept(&mut self) -> MockConnection {
        let accepted = self.accepting.recv().await;
        accepted.expect("another server has taken the address of this one")
    }

    /// Refuses further connections, or accepts them again.
    pub fn refuse(&self, is_refusing: bool) {
        self.network.refuse(&self.address, is_refusing);
    }

    /// Breaks the next connection. Each call counts for one connection.
    pub fn cut_next(&self, cut: Cut) {
        self.network.cut_next(&self.address, cut);
    }
}

/// A small nsqd. It stores messages in memory, delivers them to consumers as far as their RDY allows, requeues them,
/// and delivers what a lost consumer had. Messages never time out, and there are no heartbeats. With
/// [`take_numbers`](MockBroker::take_numbers), it recognises numbered messages that come again.
#[derive(Clone, Debug)]
pub struct MockBroker {
    network: MockNetwork,
    address: Address,
    state: Arc<Mutex<BrokerState>>,
}

impl MockBroker {
    /// Returns the address of the broker.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address.clone()
    }

    /// Returns the bodies of all messages of a topic, in the order in which they were stored.
    #[must_use]
    pub fn published(&self, topic: &str) -> Vec<Bytes> {
        self.state.lock().published(topic)
    }

    /// Stores a message, as a producer would.
    pub fn publish(&self, topic: &str, body: impl Into<Bytes>) {
        self.state.lock().store(topic, body.into());
    }

    /// Returns the number of messages of a channel that wait, and of those in flight.
    #[must_use]
    pub fn depth(&self, topic: &str, channel: &str) -> (usize, usize) {
        self.state.lock().depth(topic, channel)
    }

    /// Answers the next publish by an error, such as `E_PUB_FAILED PUB failed exiting`, and closes its connection. As
    /// with nsqd, the commands that the client has sent behind this publish are not carried out.
    pub fn refuse_publish(&self, error: &str) {
        self.state.lock().refusals.push_back(error.to_owned());
    }

    /// Takes the numbers of messages on further connections, as an nsqd with a rule `--dedup=*=publisher` does, or
    /// does not. All numbers are remembered.
    pub fn take_numbers(&self, takes_numbers: bool) {
        self.state.lock().takes_numbers = takes_numbers;
    }

    /// Returns the number of messages that came again and were not stored.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.state.lock().duplicates
    }

    /// Refuses further connections, or accepts them again.
    pub fn refuse(&self, is_refusing: bool) {
        self.network.refuse(&self.address, is_refusing);
    }

    /// Breaks the next connection. Each call counts for one connection.
    pub fn cut_next(&self, cut: Cut) {
        self.network.cut_next(&self.address, cut);
    }

    /// Returns the number of connections that were made.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.network.connections(&self.address)
    }

    /// Serves one connection to its end.
    async fn serve(self, mut connection: MockConnection) {
        let (frames, mut outgoing) = mpsc::unbounded_channel::<Vec<u8>>();
        let number = {
            let mut state = self.state.lock();
            state.next_connection += 1;
            state.next_connection
        };
        loop {
            let command = tokio::select! {
                command = connection.command() => command,
                Some(frame) = outgoing.recv() => {
                    connection.send(&frame).await;
                    continue;
                }
            };
            let Some(command) = command else { break };
            if let Received::Identify(body) = &command {
                let answer = self.identify(number, body);
                connection.agree(body, answer);
                connection.respond(answer).await;
            } else if self.handle(number, command, &frames).is_break() {
                // Earlier answers and the error leave. The commands behind are lost, as in nsqd.
                while let Ok(frame) = outgoing.try_recv() {
                    connection.send(&frame).await;
                }
                break;
            }
        }
        self.state.lock().disconnect(number);
    }

    /// Carries an IDENTIFY out. Returns the answer.
    fn identify(&self, number: u64, body: &serde_json::Value) -> &'static str {
        let mut state = self.state.lock();
        match body["publisher_id"].as_str() {
            Some(id) if state.takes_numbers => {
                let id = id.to_owned();
                state.publishers.insert(number, id);
                NUMBERED_ANSWER
            }
            _ => ANSWER,
        }
    }

    /// Carries a command out. The answers go to `frames`. `Break` means an error after which nsqd closes the
    /// connection.
    fn handle(
        &self,
        number: u64,
        command: Received,
        frames: &mpsc::UnboundedSender<Vec<u8>>,
    ) -> ControlFlow<()> {
        let send = |frame: Vec<u8>| {
            // The receiver lives in the task that calls this function.
            let _ = frames.send(frame);
        };
        let respond = |data: &[u8]| {
            let mut frame = Vec::new();
            encode::response(&mut frame, data);
            send(frame);
        };
        let mut state = self.state.lock();
        match command {
            Received::Identify(_) => unreachable!("the caller answers it"),
            Received::Auth(_) => {
                respond(br#"{"identity":"","identity_url":"","permission_count":1}"#)
            }
            Received::Sub { topic, channel } => {
                state.subscribe(number, topic, channel, frames.clone());
                respond(b"OK");
            }
            Received::Pub { .. } | Received::Mpub { .. } | Received::Dpub { .. } => {
                if let Some(text) = state.refusals.pop_front() {
                    send(error_frame(&text));
                    return ControlFlow::Break(());
                }
                self.store(&mut state, number, command);
                respond(b"OK");
            }
            Received::Rdy(count) => state.set_ready(number, count),
            Received::Fin(id) => {
                if !state.finish(number, &id) {
                    send(error_frame("E_FIN_FAILED FIN failed ID not in flight"));
                }
            }
            Received::Req { id, delay, .. } => match state.take_in_flight(number, &id) {
                Some((topic, channel, stored)) => self.later(delay, move |state| {
                    state.requeue(&topic, &channel, stored);
                }),
                None => send(error_frame("E_REQ_FAILED REQ failed ID not in flight")),
            },
            Received::Touch(_) | Received::Nop => {}
            Received::Cls => {
                state.set_ready(number, 0);
                respond(b"CLOSE_WAIT");
            }
        }
        ControlFlow::Continue(())
    }

    /// Stores the messages of a publish, but for those that were stored before.
    fn store(&self, state: &mut BrokerState, number: u64, publish: Received) {
        let (topic, first, bodies, delay) = match publish {
            Received::Pub {
                topic,
                number,
                body,
            } => (topic, number, vec![body], None),
            Received::Mpub {
                topic,
                number,
                bodies,
            } => (topic, number, bodies, None),
            Received::Dpub {
                topic,
                delay,
                number,
                body,
            } => (topic, number, vec![body], Some(delay)),
            _ => unreachable!("the command publishes"),
        };
        for (index, body) in (0_u64..).zip(bodies) {
            if !state.is_fresh(number, &topic, first.map(|first| first + index)) {
                continue;
            }
            let Some(delay) = delay else {
                state.store(&topic, body);
                continue;
            };
            let topic = topic.clone();
            self.later(delay, move |state| state.store(&topic, body));
        }
    }

    /// Changes the state after `delay`.
    fn later(&self, delay: Duration, change: impl FnOnce(&mut BrokerState) + Send + 'static) {
        let broker = self.clone();
        tokio::spawn(async move {
            sleep(delay).await;
            change(&mut broker.state.lock());
        });
    }
}

#[cfg(test)]
mod tests;
