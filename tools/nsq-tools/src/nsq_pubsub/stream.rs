//! A stream: the messages of a channel, each a line of an endless answer.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use futures_util::FutureExt;
use program::http::Failure;
use program::{log_info, log_warn};
use ringq_client::{Acker, AutoTouch, Consumer, Requeue};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval_at, timeout};

use super::lines::Lines;
use super::reach::{Decision, News, Reach};
use super::request::Subscription;
use super::shared::Shared;
use crate::consuming::{Consuming, log_event};
use crate::stopping::{TOUCH_TIME_MAX, drain, give_one_back};

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
    let most = config.consumer.max_in_flight;
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
    let mut client = config.consumer.clone();
    client.max_in_flight = subscription.max_in_flight;
    let consuming = Consuming::new(&config.sources, client)?.recognising(shared.dedup.clone());
    let (sender, mut news) = mpsc::unbounded_channel();
    let touch = AutoTouch {
        limit: TOUCH_TIME_MAX,
    };
    let builder = consuming
        .builder(&subscription.topic, &subscription.channel)
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
    let mut reach = Reach::new(&config.sources);
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
