//! A stream: the messages of a channel, each a line of an endless answer.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use futures_util::FutureExt;
use program::http::Failure;
use program::{log_info, log_warn};
use ringq_client::{Acker, AutoTouch, Config as ClientConfig, Consumer, Event, Requeue};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval_at, timeout};

use super::request::Subscription;
use super::streams::Shared;
use crate::consuming::log_event;
use crate::flags::Sources;
use crate::process::{TOUCH_TIME_MAX, drain, give_one_back};

/// The head of a stream. Old clients compare it byte by byte.
const HEAD: &str =
    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n";

/// The longest wait for the first connection to an nsqd.
const REACH_TIME_MAX: Duration = Duration::from_secs(5);

/// Bytes that the kernel may hold for a client before it takes no more: 16 KiB. These bytes are lost
/// when the client leaves. Without the limit, the kernel's buffer grows to megabytes. The limit does not
/// count the bytes that are on their way to the client, so a distant client gets the full bandwidth.
const UNSENT_BYTES_MAX: u32 = 16 * 1024;

/// The reason why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client has closed the connection, or has sent something.
    Client,
    /// The client has not taken a byte for the time of `--client-timeout`.
    Slow,
    /// nsq_pubsub stops.
    Stop,
    /// The consumer has ended.
    Consumer,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            End::Client => "the client has ended it",
            End::Slow => "the client has taken no bytes for too long",
            End::Stop => "nsq_pubsub stops",
            End::Consumer => "the consumer has ended",
        })
    }
}

/// Answers a request for a stream.
pub(super) async fn serve(mut socket: TcpStream, peer: SocketAddr, query: &str, shared: &Shared) {
    let config = &shared.config;
    let own_channel = config.flags.has_ephemeral_channels.then(own_channel);
    let most = config.consumer.client.max_in_flight;
    let subscription = match Subscription::parse(query, most, own_channel) {
        Ok(subscription) => subscription,
        Err(refused) => return refuse(socket, StatusCode::BAD_REQUEST, &refused.to_string()).await,
    };
    let mut consumer = match reach(&subscription, shared).await {
        Ok(consumer) => consumer,
        Err(why) => {
            log_info!("({peer}) no stream: {why}");
            return refuse(socket, StatusCode::SERVICE_UNAVAILABLE, "NO_NSQD").await;
        }
    };
    if let Err(error) = SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES_MAX) {
        log_warn!("({peer}) the bytes that wait for the client have no limit - {error}");
    }
    let Subscription { topic, channel, .. } = &subscription;
    log_info!("({peer}) stream of {topic}/{channel} begins");
    let listed = shared.streams.open(peer, &subscription, Instant::now());
    let (reader, writer) = socket.split();
    let stream = Stream {
        reader,
        writer,
        lines: Lines::new(),
        stop: shared.stop.clone(),
        shared,
    };
    let end = stream.run(&mut consumer).await;
    drop(listed);
    log_info!("({peer}) stream of {topic}/{channel} ends: {end}");
    // A client that has gone needs no end of the connection.
    let _ = socket.shutdown().await;
    drain(&mut consumer, |message| give_one_back(&message.split().1)).await;
}

/// Refuses a stream to a page of another site.
pub(super) async fn refuse_other_site(socket: TcpStream, peer: SocketAddr) {
    log_info!("({peer}) no stream: a page of another site asks for it");
    let Failure { status, code, .. } = Failure::FORBIDDEN_ORIGIN;
    refuse(socket, status, code).await;
}

/// Sends an answer of one line.
async fn refuse(mut socket: TcpStream, status: StatusCode, text: &str) {
    let answer = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\n\r\n{text}\n",
        text.len() + 1
    );
    // A client that has gone needs no answer.
    let _ = socket.write_all(answer.as_bytes()).await;
    let _ = socket.shutdown().await;
}

/// Returns the name of a channel that nobody else uses, and that disappears with its consumer.
fn own_channel() -> String {
    format!("pubsub{:012}#ephemeral", fastrand::u64(..1_000_000_000_000))
}

/// Makes a consumer that has reached an nsqd. The error is the reason for the log.
async fn reach(subscription: &Subscription, shared: &Shared) -> Result<Consumer, String> {
    let config = &shared.config;
    let client = ClientConfig {
        max_in_flight: subscription.max_in_flight,
        ..config.consumer.client.clone()
    };
    let (sender, mut news) = mpsc::unbounded_channel();
    let touch = AutoTouch {
        limit: TOUCH_TIME_MAX,
    };
    let builder = shared
        .consuming
        .builder(&subscription.topic, &subscription.channel)
        .config(client)
        .give_back_at_shutdown(true)
        .auto_touch(Some(touch))
        .events(move |event| {
            log_event(&event);
            if let Some(news) = News::of(&event) {
                // Nobody listens after the decision.
                let _ = sender.send(news);
            }
        });
    let consumer = builder.connect().await.map_err(|error| error.to_string())?;
    let mut reach = Reach::new(&config.consumer.sources);
    let decided = async {
        while let Some(news) = news.recv().await {
            if let Some(decision) = reach.learn(news) {
                return decision;
            }
        }
        Decision::Unreachable
    };
    match timeout(REACH_TIME_MAX, decided).await {
        Ok(Decision::Reached) => Ok(consumer),
        Ok(Decision::Unreachable) => Err("no nsqd can be reached".to_owned()),
        Err(_) => Err(format!("no nsqd was reached within {REACH_TIME_MAX:?}")),
    }
}

/// A stream and its client.
struct Stream<'a> {
    reader: ReadHalf<'a>,
    writer: WriteHalf<'a>,
    lines: Lines<Acker>,
    stop: watch::Receiver<bool>,
    shared: &'a Shared,
}

impl Stream<'_> {
    /// Writes lines until the stream ends. Messages whose lines have not left go back to nsqd.
    async fn run(mut self, consumer: &mut Consumer) -> End {
        let period = self.shared.config.flags.heartbeat_interval;
        let mut heartbeats = interval_at(tokio::time::Instant::now() + period, period);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = match timeout(period, self.writer.write_all(HEAD.as_bytes())).await {
            Ok(Ok(())) => self.write_lines(consumer, &mut heartbeats).await,
            _ => End::Client,
        };
        for (acker, has_begun) in self.lines.unwritten() {
            if has_begun {
                // The client may have ended because of this line, so this is an attempt.
                drop(acker.requeue_without_backoff(Requeue::After(Duration::ZERO)))
            } else {
                give_one_back(&acker)
            }
        }
        end
    }

    async fn write_lines(&mut self, consumer: &mut Consumer, heartbeats: &mut Interval) -> End {
        loop {
            tokio::select! {
                biased;
                _ = self.stop.wait_for(|stops| *stops) => return End::Stop,
                // Any byte, the end and an error mean the same.
                _ = self.reader.read_u8() => return End::Client,
                _ = heartbeats.tick() => self.lines.push_text(heartbeat().as_bytes()),
                message = consumer.next() => match message {
                    Some(message) => {
                        let (body, acker) = message.split();
                        self.lines.push(&body, acker);
                    }
                    None => return End::Consumer,
                },
            }
            self.gather(consumer);
            if let Err(end) = self.write().await {
                return end;
            }
        }
    }

    /// Adds the messages that are there already, so that one write has many lines.
    fn gather(&mut self, consumer: &mut Consumer) {
        while !self.lines.is_full() {
            match consumer.next().now_or_never().flatten() {
                Some(message) => {
                    let (body, acker) = message.split();
                    self.lines.push(&body, acker);
                }
                None => return,
            }
        }
    }

    /// Writes the lines, and finishes each message when the socket has taken the message's line.
    async fn write(&mut self) -> Result<(), End> {
        let limit = self.shared.config.flags.client_timeout;
        while !self.lines.waiting().is_empty() {
            let written = tokio::select! {
                biased;
                _ = self.stop.wait_for(|stops| *stops) => return Err(End::Stop),
                written = timeout(limit, self.writer.write(self.lines.waiting())) => written,
            };
            let count = match written {
                Ok(Ok(count @ 1..)) => count,
                Ok(Ok(0) | Err(_)) => return Err(End::Client),
                Err(_) => return Err(End::Slow),
            };
            let mut messages = 0;
            for acker in self.lines.take(count) {
                // If the connection to nsqd is lost, the message comes again.
                drop(acker.finish());
                messages += 1;
            }
            self.shared.streams.count_messages(messages);
        }
        Ok(())
    }
}

/// Returns the line that shows that the stream is alive.
fn heartbeat() -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since_1970.unwrap_or_default().as_secs();
    format!("{{\"_heartbeat_\":{seconds}}}")
}

/// Bytes that are gathered before they are written.
const BYTES_MAX: usize = 64 * 1024;

/// Lines that wait for a client. `A` is the means by which a message is answered.
#[derive(Debug)]
struct Lines<A> {
    bytes: Vec<u8>,
    /// The bytes that the socket has taken.
    written: usize,
    /// Each message's line in `bytes`, in order.
    messages: VecDeque<(Range<usize>, A)>,
}

impl<A> Lines<A> {
    fn new() -> Lines<A> {
        Lines {
            bytes: Vec::new(),
            written: 0,
            messages: VecDeque::new(),
        }
    }

    /// Adds the line of a message.
    fn push(&mut self, body: &[u8], acker: A) {
        let start = self.bytes.len();
        self.push_text(body);
        self.messages.push_back((start..self.bytes.len(), acker));
    }

    /// Adds a line that belongs to no message.
    fn push_text(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.bytes.push(b'\n');
    }

    /// Returns true if no more lines should be added before these are written.
    fn is_full(&self) -> bool {
        self.bytes.len() >= BYTES_MAX
    }

    /// Returns the bytes that the socket has not taken yet.
    fn waiting(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// The socket has taken `count` of the waiting bytes. Returns the messages whose lines have left.
    fn take(&mut self, count: usize) -> impl Iterator<Item = A> + use<'_, A> {
        self.written += count;
        let written = self.written;
        if written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
            // A single large message must not keep its memory for the life of the stream.
            self.bytes.shrink_to(2 * BYTES_MAX);
        }
        std::iter::from_fn(move || {
            let (_, acker) = self
                .messages
                .pop_front_if(|(line, _)| line.end <= written)?;
            Some(acker)
        })
    }

    /// Returns the messages whose lines have not left, or not wholly. The second value is true if the line has begun to
    /// leave.
    fn unwritten(self) -> impl Iterator<Item = (A, bool)> {
        let written = self.written;
        let messages = self.messages.into_iter();
        messages.map(move |(line, acker)| (acker, line.start < written))
    }
}

/// The state of the first connections of a consumer.
#[derive(Debug)]
struct Reach {
    /// The nsqds that may still be reached. Those that nsqlookupds name are added.
    nodes: BTreeSet<String>,
    /// The nsqlookupds that may still name an nsqd.
    lookupds: usize,
}

/// The part of an event that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum News {
    /// A connection is open.
    Connected,
    /// An nsqlookupd has named this nsqd.
    Discovered(String),
    /// A connection to this nsqd could not be made.
    ConnectFailed(String),
    /// An nsqlookupd does not answer, or does not know the topic.
    LookupFailed,
}

/// The decision that an event brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// An nsqd is reached.
    Reached,
    /// No nsqd can be reached now.
    Unreachable,
}

impl News {
    /// Returns the part of an event that counts, if there is one.
    fn of(event: &Event) -> Option<News> {
        match event {
            Event::Connected { .. } => Some(News::Connected),
            Event::Discovered { node, .. } => Some(News::Discovered(node.to_string())),
            Event::ConnectFailed { node, .. } => Some(News::ConnectFailed(node.to_string())),
            Event::TopicNotFound { .. } | Event::DiscoveryFailed { .. } => Some(News::LookupFailed),
            _ => None,
        }
    }
}

impl Reach {
    /// Returns the state before the first event.
    fn new(sources: &Sources) -> Reach {
        match sources {
            Sources::Nsqds(addresses) => Reach {
                nodes: addresses.iter().cloned().collect(),
                lookupds: 0,
            },
            Sources::Lookupds(addresses) => Reach {
                nodes: BTreeSet::new(),
                lookupds: addresses.len(),
            },
        }
    }

    /// Takes news. Returns the decision, if there is one now.
    fn learn(&mut self, news: News) -> Option<Decision> {
        match news {
            News::Connected => return Some(Decision::Reached),
            News::Discovered(node) => {
                self.nodes.insert(node);
            }
            News::ConnectFailed(node) => {
                self.nodes.remove(&node);
            }
            News::LookupFailed => self.lookupds = self.lookupds.saturating_sub(1),
        }
        let has_chance = !self.nodes.is_empty() || self.lookupds > 0;
        (!has_chance).then_some(Decision::Unreachable)
    }
}

#[cfg(test)]
mod tests;
