//! [`CuttingProxy`]: forwards connections, and cuts them in the middle.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// A proxy in front of a server, until the test process ends.
#[derive(Debug)]
pub struct CuttingProxy {
    /// The address of the proxy.
    pub address: SocketAddr,
    connections: Arc<AtomicU64>,
}

impl CuttingProxy {
    /// Starts a proxy. `limits` gets the number of connections before this one, and returns the most bytes that the
    /// connection forwards to the server and back. When one direction has had its bytes, both break.
    pub fn start(
        server: SocketAddr,
        mut limits: impl FnMut(u64) -> [u64; 2] + Send + 'static,
    ) -> CuttingProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the system has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let connections = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let [to_server, to_client] = limits(count.fetch_add(1, Ordering::Relaxed));
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                let both = [(&client, &server, to_server), (&server, &client, to_client)];
                for (from, to, limit) in both {
                    let copies = from
                        .try_clone()
                        .and_then(|from| Ok((from, to.try_clone()?)));
                    let (from, to) = copies.expect("the system has descriptors");
                    thread::spawn(move || forward(from, to, limit));
                }
            }
        });
        CuttingProxy {
            address,
            connections,
        }
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Forwards at most `limit` bytes. Then both directions break.
fn forward(from: TcpStream, mut to: TcpStream, limit: u64) -> io::Result<()> {
    let copied = io::copy(&mut (&from).take(limit), &mut to);
    let _ = to.flush();
    // The other direction may have closed the sockets already.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    copied.map(drop)
}
