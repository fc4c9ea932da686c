//! Clients that wait, on streams in memory and with a clock that runs as fast as it can.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, duplex};

use super::*;
use crate::database::Lifetimes;

fn shared(stop: watch::Receiver<bool>) -> Shared {
    let minute = Duration::from_secs(60);
    Shared {
        database: Arc::new(RwLock::new(Database::new(Lifetimes {
            inactive: 5 * minute,
            tombstone: minute,
        }))),
        identify_answer: "{}".into(),
        http_timeouts: HttpTimeouts::default(),
        host_names: None,
        started: SystemTime::UNIX_EPOCH,
        stop,
    }
}

fn ends() -> Ends {
    Ends {
        local: None,
        peer: "10.0.0.1:5".parse().unwrap(),
    }
}

/// Each connection takes a descriptor, and without descriptors no nsqd can register.
#[tokio::test(start_paused = true)]
async fn a_client_that_never_speaks_is_closed() {
    for said in [&b""[..], b"  V"] {
        let (_stop, stopped) = watch::channel(false);
        let shared = shared(stopped);
        let (mut client, stream) = duplex(1024);
        client.write_all(said).await.unwrap();
        let served = serve_v1(stream, ends(), &shared);
        let ended = timeout(2 * MAGIC_TIMEOUT, served).await;
        assert!(ended.is_ok(), "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_spoken_may_be_silent() {
    let (_stop, stopped) = watch::channel(false);
    let shared = shared(stopped);
    let (mut client, stream) = duplex(1024);
    client.write_all(b"  V1").await.unwrap();
    let served = serve_v1(stream, ends(), &shared);
    assert!(timeout(100 * MAGIC_TIMEOUT, served).await.is_err());
}

/// A stream whose peer reads nothing, so the end of TLS finds no room.
struct Stuck;

impl AsyncRead for Stuck {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Stuck {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_does_not_wait_for_a_client_that_does_not_read() {
    let ended = timeout(10 * LINGER, close(Stuck)).await;
    assert!(ended.is_ok());
}
