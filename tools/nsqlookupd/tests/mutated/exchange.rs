//! The rule for any bytes of an HTTP client: cut anywhere, they get the answers that they get in one piece; nothing
//! panics, and the database stays sound.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::future::{self, block_on};
use futures_lite::{AsyncRead, AsyncWrite};
use nsqlookupd::database::{Database, Lifetimes, Now};
use nsqlookupd::http::Api;
use parking_lot::RwLock;
use program::http::{Awaited, Connection, Io, serve_connection};

/// Checks an input that is cut at `cut`, and every `step` bytes.
pub(crate) fn check(input: &[u8], cut: usize, step: usize) {
    let whole = run([input]);
    let shown = input.escape_ascii();
    let (front, back) = input.split_at(cut.min(input.len()));
    assert_eq!(run([front, back]), whole, "cut at {cut}: {shown}");
    assert_eq!(
        run(input.chunks(step)),
        whole,
        "every {step} bytes: {shown}"
    );
}

/// A client that sends its pieces and ends. The output is kept.
struct Client {
    pieces: VecDeque<Vec<u8>>,
    output: Vec<u8>,
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        target: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Some(piece) = self.pieces.front_mut() else {
            return Poll::Ready(Ok(0));
        };
        let count = target.len().min(piece.len());
        target[..count].copy_from_slice(&piece[..count]);
        piece.drain(..count);
        if piece.is_empty() {
            self.pieces.pop_front();
        }
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Io for Client {
    fn begin(&mut self, _: Awaited) {}
}

/// Returns the answers without their dates, and the topics that are left.
fn run<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (String, Vec<String>) {
    let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
    let client = Client {
        pieces: pieces.map(<[u8]>::to_vec).collect(),
        output: Vec::new(),
    };
    let database = Arc::new(RwLock::new(Database::new(Lifetimes {
        inactive: Duration::from_secs(300),
        tombstone: Duration::from_secs(45),
    })));
    let api = Api {
        started: std::time::SystemTime::UNIX_EPOCH,
        database: database.clone(),
        now: Now::default,
        host_names: None,
    };
    let mut connection = Connection::new(client, b"");
    let served = serve_connection(&mut connection, &"1.2.3.4:5", &api, future::pending());
    block_on(served);
    let (client, _) = connection.into_parts();
    let output = String::from_utf8_lossy(&client.output).into_owned();
    let lines = output.split("\r\n");
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with("Date: ")).collect();
    let mut output = lines.join("\n");
    // Only the answer to something that is no request has no length. An input with several faults is refused for the one
    // that comes first.
    if let Some(at) = output.rfind("HTTP/1.1 ") {
        let is_refusal = !output[at..].contains("\nContent-Length: ");
        output.truncate(if is_refusal { at } else { output.len() });
        output.push_str(if is_refusal { "a refusal" } else { "" });
    }
    let database = database.read();
    database.check();
    (output, database.topics().map(str::to_string).collect())
}
