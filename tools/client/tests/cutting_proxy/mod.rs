//! [`CuttingProxy`]: forwards connections, and breaks each one at a random byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

/// A proxy in front of an nsqd. It ends with the test's runtime.
pub(crate) struct CuttingProxy {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicU64>,
}

impl CuttingProxy {
    /// Starts a proxy. Each connection forwards fewer than `sent` bytes to the server, or fewer than `received` bytes back.
    pub(crate) async fn start(
        server: SocketAddr,
        seed: u64,
        [sent, received]: [u64; 2],
    ) -> CuttingProxy {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let connections = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (sent, received) = (random.u64(0..sent), random.u64(0..received));
                if let Ok(server) = TcpStream::connect(server).await {
                    tokio::spawn(forward(client, server, sent, received));
                }
            }
        });
        CuttingProxy {
            address,
            connections,
        }
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Forwards so many bytes to the server, and so many back. When one direction has had its bytes, both break.
async fn forward(mut client: TcpStream, mut server: TcpStream, sent: u64, received: u64) {
    let (from_client, mut to_client) = client.split();
    let (from_server, mut to_server) = server.split();
    let (mut from_client, mut from_server) = (from_client.take(sent), from_server.take(received));
    tokio::select! {
        _ = copy(&mut from_client, &mut to_server) => {
            // The server takes what came before the break.
            let _ = to_server.shutdown().await;
        }
        _ = copy(&mut from_server, &mut to_client) => {}
    }
}
