//! Accepting connections on one shard, and what to do when there are no descriptors left.

use crate::net::{connection, socket};
use crate::shard::Shard;
use crate::{http, log_info, log_warn};
use diskq::system_text;
use glommio::net::{TcpListener, TcpStream};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// The wait after a failed accept, doubled each time up to the maximum: without descriptors there
/// is nothing to gain by asking at once. Existing connections go on meanwhile.
const BACK_OFF: Duration = Duration::from_millis(5);
const BACK_OFF_MAX: Duration = Duration::from_millis(500);

/// How long what an HTTP client still sends is taken, after an answer that did not need it: as long
/// as Go's server, and so nsqd, does.
const LINGER: Duration = Duration::from_millis(500);

/// Serves NSQ clients until the task is dropped.
pub(crate) async fn serve_clients(shard: Rc<Shard>, listener: TcpListener) {
    loop {
        let (stream, peer) = accept(&listener).await;
        log_info!("TCP: new client({peer})");
        connection::start(&shard, stream, peer);
    }
}

/// Serves HTTP requests until the task is dropped.
pub(crate) async fn serve_http(shard: Rc<Shard>, listener: TcpListener) {
    loop {
        let (stream, peer) = accept(&listener).await;
        let broker = Rc::new(crate::shard::http_broker::HttpBroker::new(shard.clone()));
        glommio::spawn_local(http::serve_connection(
            http::HttpIo::new(stream),
            peer,
            broker,
            glommio::timer::sleep(LINGER),
        ))
        .detach();
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let mut back_off = BACK_OFF;
    loop {
        let failure = match listener.accept().await {
            Ok(stream) => match (socket::set_options(&stream), stream.peer_addr()) {
                (Ok(()), Ok(peer)) => return (stream, plain(peer)),
                // The peer was gone before we looked.
                (Err(error), _) if error.raw_os_error() == Some(libc::EINVAL) => continue,
                (Ok(()), Err(_)) => continue,
                (Err(error), _) => system_text(&error),
            },
            Err(error) => system_text(&error.into()),
        };
        log_warn!("temporary Accept() failure - {failure}");
        glommio::timer::sleep(back_off).await;
        back_off = (back_off * 2).min(BACK_OFF_MAX);
    }
}

/// An IPv4 peer on a dual-stack listener is shown as what it is.
fn plain(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}
