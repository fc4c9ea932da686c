//! [`MockLookupd`]: an nsqlookupd for the tests of this crate, over real sockets.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::address::Address;

/// An nsqlookupd that knows one node. It keeps connections open, and sends each answer in parts. A drop ends it.
pub(crate) struct MockLookupd {
    address: String,
    /// The nodes, as JSON.
    nodes: Arc<Mutex<String>>,
    seen: Arc<Mutex<Seen>>,
    serving: tokio::task::JoinHandle<()>,
}

/// The connections and the targets of the requests so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) connections: usize,
    /// The connections that have not ended.
    pub(crate) open: usize,
    pub(crate) targets: Vec<String>,
}

impl MockLookupd {
    /// Starts an nsqlookupd that names this node for each topic.
    pub(crate) async fn start(node: &Address) -> MockLookupd {
        MockLookupd::start_at("127.0.0.1:0", node).await
    }

    /// Starts an nsqlookupd at this address.
    pub(crate) async fn start_at(address: &str, node: &Address) -> MockLookupd {
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let seen = Arc::<Mutex<Seen>>::default();
        let nodes = Arc::<Mutex<String>>::default();
        let serving = tokio::spawn({
            let (nodes, seen) = (Arc::clone(&nodes), Arc::clone(&seen));
            async move {
                let mut connections = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    connections.spawn(serve(stream, Arc::clone(&nodes), Arc::clone(&seen)));
                }
            }
        });
        let started = MockLookupd {
            address,
            nodes,
            seen,
            serving,
        };
        started.set_node(Some(node));
        started
    }

    /// Changes the node that the further answers name.
    pub(crate) fn set_node(&self, node: Option<&Address>) {
        let node = node.map(|node| {
            let node = node.to_string();
            let (host, port) = node.rsplit_once(':').expect("a TCP address");
            format!(r#"{{"broadcast_address":"{host}","tcp_port":{port}}}"#)
        });
        *self.nodes.lock() = format!("[{}]", node.unwrap_or_default());
    }

    /// Returns the address: `host:port`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns what has come so far.
    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }
}

impl Drop for MockLookupd {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Answers the requests of one connection.
async fn serve(stream: TcpStream, nodes: Arc<Mutex<String>>, seen: Arc<Mutex<Seen>>) {
    let change = |change: &dyn Fn(&mut Seen)| {
        change(&mut seen.lock());
    };
    change(&|seen| {
        seen.connections += 1;
        seen.open += 1;
    });
    let mut stream = BufReader::new(stream);
    while let Some(target) = next_target(&mut stream).await {
        let nodes = nodes.lock().clone();
        change(&|seen| seen.targets.push(target.clone()));
        let body = match target.split_once("?topic=") {
            // The name of the topic tells which request the answer belongs to.
            Some((_, topic)) => format!(r#"{{"channels":["{topic}"],"producers":{nodes}}}"#),
            None if target == "/topics" => r#"{"topics":["t"]}"#.to_owned(),
            None => format!(r#"{{"producers":{nodes}}}"#),
        };
        // A proxy adds lines, and an old one folds them. Go's client takes that.
        let lines = "X-Proxy: 1\r\n".repeat(200);
        let head = format!(
            "HTTP/1.1 200 OK\r\n{lines}X-NSQ-Content-Type:\r\n nsq; version=1.0\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let (first, second) = body.split_at(body.len() / 2);
        let mut is_sent = true;
        for part in [&*head, first, second] {
            tokio::time::sleep(Duration::from_millis(1)).await;
            is_sent &= stream.write_all(part.as_bytes()).await.is_ok();
        }
        if !is_sent {
            break;
        }
    }
    change(&|seen| seen.open -= 1);
}

/// Reads a request. Returns its target, or `None` at the end of the connection.
async fn next_target(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut target = None;
    loop {
        let mut line = String::new();
        let length = stream.read_line(&mut line).await.ok()?;
        match (length, line.trim_end()) {
            (0, _) => return None,
            (_, "") => return target,
            (_, line) if target.is_none() => target = line.split(' ').nth(1).map(str::to_owned),
            _ => {}
        }
    }
}
