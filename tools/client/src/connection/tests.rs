//! The link over streams in memory, with a virtual clock.

mod flood;
mod sealed;
mod versions;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::config::Config;
use crate::connector::Connecting;
use crate::error::ConnectionError;
use crate::testing::{Cut, MockConnection, MockNetwork, MockServer};
use crate::tests::tls::{Certificates, TlsStream};

/// Keeps what nsqd sends, as text.
#[derive(Debug, Default)]
struct Heard(Vec<String>);

impl Recipient for Heard {
    fn messages(&mut self, batch: Batch) -> Result<(), ConnectionError> {
        self.0
            .extend(batch.map(|message| format!("{:?}", message.body)));
        Ok(())
    }

    fn response(&mut self, data: Bytes) -> Result<(), ConnectionError> {
        self.0.push(String::from_utf8_lossy(&data).into_owned());
        Ok(())
    }

    fn error(&mut self, error: ErrorFrame) -> Result<(), ConnectionError> {
        self.0.push(error.to_string());
        Ok(())
    }

    fn read_done(&mut self) -> Result<(), ConnectionError> {
        self.0.push("done".to_owned());
        Ok(())
    }
}

type Running = JoinHandle<(Option<ConnectionError>, Vec<String>)>;

async fn run(connection: Connection) -> (Option<ConnectionError>, Vec<String>) {
    let mut heard = Heard::default();
    let ended = connection.run(&mut heard).await;
    (ended, heard.0)
}

fn settings() -> Arc<Settings> {
    Arc::new(Settings::new(&Config::default(), None).unwrap())
}

/// The settings of a client that asks for TLS.
fn tls_settings(certificates: &Certificates) -> Arc<Settings> {
    let config = Config {
        tls_v1: true,
        tls: crate::config::TlsSettings {
            root_certificates: Some(certificates.authorities()),
            ..Default::default()
        },
        ..Config::default()
    };
    Arc::new(Settings::new(&config, None).unwrap())
}

/// Reads a client's IDENTIFY, and agrees to TLS.
async fn agree_on_tls(server: &mut DuplexStream) {
    let mut hello = vec![0; 1 << 16];
    let length = server.read(&mut hello).await.unwrap();
    assert!(hello[..length].starts_with(b"  V2IDENTIFY\n"));
    let mut answer = Vec::new();
    wire::encode::response(&mut answer, br#"{"tls_v1":true}"#);
    server.write_all(&answer).await.unwrap();
}

/// Opens a link to a scripted nsqd, and runs it.
async fn open(cut: Cut) -> (Outbox, Running, MockConnection) {
    let network = MockNetwork::new();
    let mut server: MockServer = network.server("a:1");
    server.cut_next(cut);
    let address = server.address();
    let opening = tokio::spawn(async move {
        let opened = Connection::open(&network, &address, settings()).await;
        opened.expect("the handshake succeeds")
    });
    let mut nsqd = server.accept().await;
    nsqd.handshake().await;
    let connection = opening.await.unwrap();
    (connection.outbox(), tokio::spawn(run(connection)), nsqd)
}

fn nop(outbox: &Outbox) {
    outbox
        .append(wire::encode::nop)
        .expect("the connection runs");
}

#[tokio::test(start_paused = true)]
async fn everything_of_one_read_is_delivered_before_read_done() {
    let (outbox, running, mut nsqd) = open(Cut::default()).await;
    let mut frames = Vec::new();
    wire::encode::response(&mut frames, b"OK");
    frames.extend_from_slice(wire::encode::HEARTBEAT);
    wire::encode::response(&mut frames, b"CLOSE_WAIT");
    nsqd.send(&frames).await;
    nsqd.expect("NOP").await;
    outbox.close();
    assert_eq!(nsqd.command().await, None);
    nsqd.close();
    let (ended, heard) = running.await.unwrap();
    assert!(ended.is_none(), "{ended:?}");
    assert_eq!(heard, ["OK", "CLOSE_WAIT", "done"]);
}

#[tokio::test(start_paused = true)]
async fn a_close_sends_the_output_first_and_reads_on_for_a_while() {
    let (outbox, running, mut nsqd) = open(Cut::default()).await;
    nop(&outbox);
    let sent = outbox.sent(
        outbox
            .append(|out| out.extend_from_slice(b"NOP\n"))
            .unwrap(),
    );
    outbox.close();
    nsqd.expect("NOP").await;
    nsqd.expect("NOP").await;
    sent.await.unwrap();
    assert_eq!(nsqd.command().await, None);
    // nsqd still answers what came before the end.
    nsqd.respond("OK").await;
    let start = Instant::now();
    let (ended, heard) = running.await.unwrap();
    assert!(ended.is_none(), "{ended:?}");
    assert_eq!(heard, ["OK", "done"]);
    assert_eq!(start.elapsed().as_secs(), LINGER.as_secs());
    assert!(outbox.append(wire::encode::nop).is_err());
}

#[tokio::test(start_paused = true)]
async fn an_abort_ends_the_link_at_once_even_if_nsqd_takes_nothing() {
    let (outbox, running, _nsqd) = open(Cut::default()).await;
    outbox.append(|out| out.resize(1 << 20, b'\n')).unwrap();
    tokio::task::yield_now().await;
    outbox.abort();
    let start = Instant::now();
    assert!(running.await.unwrap().0.is_none());
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_nsqd_that_takes_nothing_is_given_up() {
    let (outbox, running, _nsqd) = open(Cut::default()).await;
    let position = outbox.append(|out| out.resize(1 << 20, b'\n')).unwrap();
    let start = Instant::now();
    let ended = running.await.unwrap().0;
    assert!(
        matches!(ended, Some(ConnectionError::WriteTimeout(_))),
        "{ended:?}"
    );
    // The heartbeat that is due after 30 s does not come, and the write timeout is 1 s.
    assert_eq!(start.elapsed().as_secs(), 31);
    assert!(outbox.sent(position).await.is_err());
}

/// The process stood still for longer than the read timeout. A command that waited was given to the dead connection.
#[tokio::test(start_paused = true)]
async fn a_connection_that_was_silent_for_too_long_takes_no_command() {
    let (outbox, running, _nsqd) = open(Cut::default()).await;
    tokio::task::yield_now().await;
    // One poll sets the clock, and no other task runs.
    let mut standing_still = pin!(tokio::time::advance(Duration::from_secs(61)));
    let is_pending = poll_fn(|cx| Poll::Ready(standing_still.as_mut().poll(cx).is_pending()));
    assert!(is_pending.await);
    nop(&outbox);
    let ended = running.await.unwrap().0;
    assert!(
        matches!(ended, Some(ConnectionError::ReadTimeout(_))),
        "{ended:?}"
    );
    assert_eq!(outbox.taken(), crate::connection::Position(0));
}

/// nsqd had closed the connection, and a command was still given to it.
#[tokio::test(start_paused = true)]
async fn a_connection_that_nsqd_has_closed_takes_no_command() {
    let (outbox, running, mut nsqd) = open(Cut::default()).await;
    tokio::task::yield_now().await;
    // The response that nsqd sent before is read first, too.
    nsqd.respond("OK").await;
    nsqd.close();
    nop(&outbox);
    let (ended, heard) = running.await.unwrap();
    assert!(matches!(ended, Some(ConnectionError::Closed)), "{ended:?}");
    assert_eq!(heard, ["OK", "done"]);
    assert_eq!(outbox.taken(), crate::connection::Position(0));
}

/// nsqd sends an error and closes. The next write fails, but the error is still read.
#[tokio::test(start_paused = true)]
async fn what_nsqd_said_before_a_failed_write_is_heard() {
    let (stream, mut server) = duplex(1 << 16);
    let output = Arc::new(Mutex::new(Output::Writes(usize::MAX)));
    let gate = Gate {
        stream,
        output: Arc::clone(&output),
    };
    let connector = OneStream::new(Some(gate));
    let mut frames = Vec::new();
    wire::encode::response(&mut frames, b"OK");
    server.write_all(&frames).await.unwrap();
    let address: Address = "a:1".parse().unwrap();
    let connection = Connection::open(&connector, &address, settings())
        .await
        .unwrap();
    let outbox = connection.outbox();
    nop(&outbox);
    *output.lock() = Output::Breaks;
    // The runtime learns of the words after the write has failed.
    let later = tokio::spawn(async move {
        sleep(Duration::from_millis(10)).await;
        wire::encode::response(&mut frames, b"last words");
        server.write_all(&frames).await.unwrap();
    });
    let start = Instant::now();
    let (ended, heard) = run(connection).await;
    assert!(start.elapsed() < Duration::from_secs(1), "{start:?}");
    later.await.unwrap();
    assert!(
        matches!(ended, Some(ConnectionError::Write(_))),
        "{ended:?}"
    );
    assert_eq!(heard, ["OK", "last words", "done"]);
}

/// What a [`Gate`] does with output.
#[derive(Clone, Copy)]
enum Output {
    /// It takes so many writes.
    Writes(usize),
    Breaks,
}

/// A stream whose output the test controls.
struct Gate {
    stream: DuplexStream,
    output: Arc<Mutex<Output>>,
}

impl AsyncRead for Gate {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gate {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self.output.lock() {
            Output::Breaks => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            // The test sends a heartbeat, which wakes the task up, when more may be written.
            Output::Writes(0) => return Poll::Pending,
            Output::Writes(left) => *left -= 1,
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Gives out one stream, and then none.
struct OneStream(Mutex<Option<Box<dyn Transport>>>);

impl OneStream {
    fn new(stream: Option<impl Transport + 'static>) -> OneStream {
        OneStream(Mutex::new(stream.map(|stream| Box::new(stream) as _)))
    }
}

impl Connector for OneStream {
    fn connect<'a>(&'a self, _address: &'a Address) -> Connecting<'a> {
        let stream = self.0.lock().take();
        Box::pin(async move {
            match stream {
                Some(stream) => Ok(stream),
                None => std::future::pending().await,
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn dialling_and_the_handshake_have_limits() {
    let address: Address = "a:1".parse().unwrap();
    let connector = OneStream::new(None::<DuplexStream>);
    let start = Instant::now();
    let error = Connection::open(&connector, &address, settings())
        .await
        .err()
        .unwrap();
    assert!(matches!(error, ConnectionError::DialTimeout(_)), "{error}");
    assert_eq!(start.elapsed().as_secs(), 1);

    let (client, mut server) = duplex(1 << 16);
    let connector = OneStream::new(Some(client));
    let start = Instant::now();
    let error = Connection::open(&connector, &address, settings())
        .await
        .err()
        .unwrap();
    assert!(matches!(error, ConnectionError::ReadTimeout(_)), "{error}");
    assert_eq!(start.elapsed().as_secs(), 60);
    // The client's side is closed.
    assert!(server.write_all(&[0; 1 << 17]).await.is_err());
}
