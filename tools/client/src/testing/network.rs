//! [`MockNetwork`]: connections in memory, by address.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::duplex;
use tokio::sync::mpsc;

use super::broker::MockBroker;
use super::server::{MockConnection, MockServer};
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
    cuts: std::collections::VecDeque<Cut>,
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
        let address = self.listen(address, Accepts::Script(accepted));
        MockServer::new(self.clone(), address, accepting)
    }

    /// Adds a small nsqd.
    ///
    /// # Panics
    /// If `address` is no address.
    #[must_use]
    pub fn broker(&self, address: &str) -> MockBroker {
        let parsed: Address = parse(address);
        let broker = MockBroker::new(self.clone(), parsed);
        self.listen(address, Accepts::Broker(broker.clone()));
        broker
    }

    fn listen(&self, address: &str, accepts: Accepts) -> Address {
        let address = parse(address);
        let listener = Listener {
            accepts,
            is_refusing: false,
            connections: 0,
            cuts: Default::default(),
        };
        self.0.lock().insert(address.clone(), listener);
        address
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
