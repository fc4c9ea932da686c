//! An nsqd that sends heartbeats without a pause, so that each read finds some. The clock is real, because a virtual
//! clock stands still while there is something to do.

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{sleep, timeout};

use super::*;

/// A stream that always has heartbeats to read. It takes all output, or none.
struct Flood {
    takes_output: bool,
    breaks: bool,
    /// Bytes that come before the heartbeats.
    first: Vec<u8>,
}

impl AsyncRead for Flood {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            buf.put_slice(&std::mem::take(&mut self.first));
            return Poll::Ready(Ok(()));
        }
        while buf.remaining() >= wire::encode::HEARTBEAT.len() {
            buf.put_slice(wire::encode::HEARTBEAT);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Flood {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.takes_output {
            _ if self.breaks => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            true => Poll::Ready(Ok(bytes.len())),
            false => Poll::Pending,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Limits of 100 ms, the shortest that there are.
fn short_settings() -> Arc<Settings> {
    let config = Config {
        read_timeout: Duration::from_millis(100),
        write_timeout: Duration::from_millis(100),
        heartbeat_interval: Some(Duration::from_millis(50)),
        ..Config::default()
    };
    Arc::new(Settings::new(&config, None).unwrap())
}

async fn dial(flood: Flood) -> Result<Connection, ConnectionError> {
    let connector = OneStream::new(Some(flood));
    let address: Address = "a:1".parse().unwrap();
    let opened = Connection::open(&connector, &address, short_settings());
    timeout(Duration::from_secs(60), opened)
        .await
        .expect("the handshake has a limit")
}

fn accepting() -> Vec<u8> {
    let mut first = Vec::new();
    wire::encode::response(&mut first, b"OK");
    first
}

#[tokio::test]
async fn the_handshake_ends() {
    let flood = Flood {
        takes_output: true,
        breaks: false,
        first: Vec::new(),
    };
    let error = dial(flood).await.err().unwrap();
    assert!(
        matches!(error, ConnectionError::HandshakeTimeout(_)),
        "{error}"
    );
}

#[tokio::test]
async fn a_connection_that_takes_no_output_is_given_up() {
    let mut flood = Flood {
        takes_output: true,
        breaks: false,
        first: accepting(),
    };
    // The handshake is over before the output stops.
    let connection = dial(Flood {
        first: std::mem::take(&mut flood.first),
        ..flood
    });
    let mut connection = connection.await.unwrap();
    connection.stream = Box::new(Flood {
        takes_output: false,
        breaks: false,
        first: Vec::new(),
    });
    let ended = timeout(Duration::from_secs(60), run(connection)).await;
    let (ended, _) = ended.expect("the connection ends");
    assert!(
        matches!(ended, Some(ConnectionError::WriteTimeout(_))),
        "{ended:?}"
    );
}

#[tokio::test]
async fn a_close_ends() {
    let connection = dial(Flood {
        takes_output: true,
        breaks: false,
        first: accepting(),
    });
    let connection = connection.await.unwrap();
    let outbox = connection.outbox();
    let running = tokio::spawn(run(connection));
    sleep(Duration::from_millis(10)).await;
    outbox.close();
    let ended = timeout(Duration::from_secs(60), running).await;
    let (ended, _) = ended.expect("the connection ends").unwrap();
    assert!(ended.is_none(), "{ended:?}");
}

/// The client reads on after a failed write, because nsqd may have said why. It does not read for ever.
#[tokio::test]
async fn a_failed_write_ends_the_connection() {
    let connection = dial(Flood {
        takes_output: true,
        first: accepting(),
        breaks: false,
    });
    let mut connection = connection.await.unwrap();
    connection.stream = Box::new(Flood {
        takes_output: false,
        breaks: true,
        first: Vec::new(),
    });
    let ended = timeout(Duration::from_secs(60), run(connection)).await;
    let (ended, _) = ended.expect("the connection ends");
    assert!(
        matches!(ended, Some(ConnectionError::Write(_))),
        "{ended:?}"
    );
}
