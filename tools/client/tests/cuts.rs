//! A consumer whose connections to a real nsqd break at random bytes. No message may be lost, and a message whose
//! `finish` resolved comes again only if its connection broke soon after.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ringq_client::{Address, Config, Connecting, Connector, Consumer, SystemConnector, Transport};
use test_support::TIMEOUT;
use test_support::daemon::Daemon;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

/// The number of messages.
const MESSAGES: usize = 3000;
/// The most messages in flight.
const IN_FLIGHT: usize = 50;

/// Connects to nsqd over connections that break.
struct CutConnector {
    system: SystemConnector,
    cuts: Arc<AtomicUsize>,
}

impl Connector for CutConnector {
    fn connect<'a>(&'a self, nsqd: &'a Address) -> Connecting<'a> {
        Box::pin(async move {
            let stream = self.system.connect(nsqd).await?;
            let stream = CutStream {
                stream,
                // A handshake takes about 500 bytes and an answered message about 60.
                left: fastrand::usize(..30_000),
                cuts: Arc::clone(&self.cuts),
            };
            Ok(Box::new(stream) as Box<dyn Transport>)
        })
    }
}

/// A stream that breaks after some bytes, read and written together. Bytes before the break arrive.
struct CutStream {
    stream: Box<dyn Transport>,
    left: usize,
    cuts: Arc<AtomicUsize>,
}

impl CutStream {
    /// Counts bytes. Returns the error of a broken stream when there are none left.
    fn check(&mut self) -> io::Result<()> {
        if self.left > 0 {
            return Ok(());
        }
        self.cuts.fetch_add(1, Ordering::Relaxed);
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

impl AsyncRead for CutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        let limit = self.left;
        let mut part = buffer.take(limit);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut part);
        let bytes = part.filled().to_vec();
        buffer.put_slice(&bytes);
        self.left -= bytes.len();
        polled
    }
}

impl AsyncWrite for CutStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let end = bytes.len().min(self.left);
        let polled = Pin::new(&mut self.stream).poll_write(cx, &bytes[..end]);
        if let Poll::Ready(Ok(written)) = polled {
            self.left -= written;
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[derive(Default)]
struct Seen {
    deliveries: usize,
    /// True when a `finish` of this message resolved with success.
    is_confirmed: bool,
    deliveries_after_confirmation: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_lose_nothing_and_repeat_little() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::seed(seed);
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    let bodies: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
    nsqd.post("/mpub?topic=t", bodies.join("\n").as_bytes())
        .expect_status(200);
    let cuts = Arc::new(AtomicUsize::new(0));
    let config = Config {
        max_in_flight: IN_FLIGHT as u32,
        max_attempts: 0,
        // nsqd delivers the messages of a broken connection again after this time.
        msg_timeout: Duration::from_secs(1),
        lookupd_poll_interval: Duration::from_millis(10),
        ..Config::default()
    };
    let mut consumer = Consumer::builder("t", "c")
        .config(config)
        .node(nsqd.tcp)
        .connector(CutConnector {
            system: SystemConnector::default(),
            cuts: Arc::clone(&cuts),
        })
        .connect()
        .await
        .expect("complete");
    let mut seen: HashMap<String, Seen> = HashMap::new();
    let mut unconfirmed = MESSAGES;
    while unconfirmed > 0 {
        let message = timeout(TIMEOUT, consumer.next())
            .await
            .expect("messages come");
        let message = message.expect("the consumer runs");
        let body = String::from_utf8_lossy(message.body()).into_owned();
        let entry = seen.entry(body).or_default();
        entry.deliveries += 1;
        entry.deliveries_after_confirmation += usize::from(entry.is_confirmed);
        if message.finish().await.is_ok() && !entry.is_confirmed {
            entry.is_confirmed = true;
            unconfirmed -= 1;
        }
    }
    let finishing = tokio::spawn(async move {
        while let Some(message) = consumer.next().await {
            message.finish();
        }
    });
    // nsqd agrees that nothing is left.
    for figure in ["depth", "in_flight_count", "deferred_count"] {
        nsqd.wait_for_figure("t", "c", figure, 0);
    }
    finishing.abort();
    assert_eq!(seen.len(), MESSAGES);
    let cuts = cuts.load(Ordering::Relaxed);
    let repeated: usize = seen
        .values()
        .map(|seen| seen.deliveries_after_confirmation)
        .sum();
    println!("{cuts} cuts, {repeated} repetitions after a confirmation");
    assert!(cuts > 3, "{cuts} cuts");
    assert!(
        repeated <= cuts * IN_FLIGHT,
        "{repeated} repetitions after {cuts} cuts"
    );
}
