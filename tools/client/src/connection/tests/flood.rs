//! An nsqd that sends heartbeats without a pause, so that each read finds some. The clock is real, because a virtual
//! clock stands still while there is something to do.

use tokio::time::{sleep, timeout};

use super::*;

/// A stream that always has heartbeats to read. It takes all output, or none.
struct Flood {
    takes_output: bool,
    breaks: bool,
    /// Bytes that come before the heartbeats.
    first: Vec<u8>,
}

impl Flood {
    fn new(first: Vec<u8>) -> Flood {
        Flood {
            takes_output: true,
            breaks: false,
            first,
        }
    }
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

/// Opens a connection. Then its stream takes output, or breaks, or neither.
async fn opened(takes_output: bool, breaks: bool) -> Connection {
    let mut first = Vec::new();
    wire::encode::response(&mut first, b"OK");
    let mut connection = dial(Flood::new(first)).await.unwrap();
    connection.stream = Box::new(Flood {
        takes_output,
        breaks,
        first: Vec::new(),
    });
    connection
}

/// Waits for the end of a connection. Returns the reason.
async fn ended(running: impl Future<Output = Ended>) -> Option<ConnectionError> {
    let ended = timeout(Duration::from_secs(60), running).await;
    ended.expect("the connection ends").0
}

type Ended = (Option<ConnectionError>, Vec<String>);

#[tokio::test]
async fn the_handshake_ends() {
    let error = dial(Flood::new(Vec::new())).await.err().unwrap();
    assert!(
        matches!(error, ConnectionError::HandshakeTimeout(_)),
        "{error}"
    );
}

#[tokio::test]
async fn a_connection_that_takes_no_output_is_given_up() {
    let ended = ended(run(opened(false, false).await)).await;
    assert!(
        matches!(ended, Some(ConnectionError::WriteTimeout(_))),
        "{ended:?}"
    );
}

#[tokio::test]
async fn a_close_ends() {
    let connection = opened(true, false).await;
    let outbox = connection.outbox();
    let running = tokio::spawn(run(connection));
    sleep(Duration::from_millis(10)).await;
    outbox.close();
    let ended = ended(async { running.await.unwrap() }).await;
    assert!(ended.is_none(), "{ended:?}");
}

/// The client reads on after a failed write, because nsqd may have said why. It does not read for ever.
#[tokio::test]
async fn a_failed_write_ends_the_connection() {
    let ended = ended(run(opened(false, true).await)).await;
    assert!(
        matches!(ended, Some(ConnectionError::Write(_))),
        "{ended:?}"
    );
}
