//! Starts a broker with nsqd's defaults, sends a million messages through the broker over real
//! sockets, checks each message, and leaves the broker running.
//!
//! ```text
//! cargo run --release -p quickstart --example quickstart            # until Ctrl-C
//! cargo run --release -p quickstart --example quickstart -- --once  # ends after the messages
//! ```
//!
//! With `-p`, cargo looks at this crate's features only, so the broker has no TLS and no SRV records. Without `-p`, the
//! example runs, too, but cargo also builds what the other crates of the workspace need.

use nsqd::config::Config;
use nsqd::daemon::Daemon;
use nsqd::net::address::ListenAddress;
use program::inherited::InheritedSockets;
use program::log;
use signal_hook::consts::SIGINT;
use signal_hook::iterator::{Handle, Signals};
use std::collections::VecDeque;
use std::error::Error;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use wire::encode::{self, FrameDecoded, decode_frame};
use wire::frame::{FrameType, Message};
use wire::name::{ChannelName, TopicName};

const MESSAGES: u64 = 1_000_000;
const BODY_BYTES: usize = 200;
const BATCH: u64 = 200;
/// The number of batches that may wait for their OK.
const WINDOW: usize = 16;
const TOPIC: &str = "quickstart";

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let once = std::env::args().any(|arg| arg == "--once");
    let data_path = tempfile::tempdir()?;
    let mut signals = Signals::new([0; 0])?;
    let daemon = start(data_path.path(), &signals.handle())?;
    let address = loopback(&daemon.addresses.tcp)?;
    let http_address = daemon.addresses.http.as_ref();
    let http_address = loopback(http_address.ok_or("no HTTP address")?)?;
    println!("broker: TCP {address}, HTTP {http_address}");
    println!("moving {MESSAGES} messages of {BODY_BYTES} bytes through topic {TOPIC} ...");

    let began = Instant::now();
    let consumer = thread::spawn(move || consume(address));
    let producer = thread::spawn(move || produce(address));
    let published = producer.join().map_err(|_| "the producer panicked")??;
    let delivered = consumer.join().map_err(|_| "the consumer panicked")??;
    let rate = |took: Duration| MESSAGES as f64 / took.as_secs_f64();
    println!(
        "published  {:>12.0} messages/s, each acknowledged",
        rate(published)
    );
    println!(
        "delivered  {:>12.0} messages/s, each checked and finished",
        rate(delivered)
    );
    println!(
        "all {MESSAGES} arrived exactly once in {:.2?}",
        began.elapsed()
    );

    if !once {
        println!("\nThe broker runs until Ctrl-C. Three things to try next:");
        println!("  curl -d 'hello' 'http://{http_address}/pub?topic=greetings'");
        println!("  curl 'http://{http_address}/stats'");
        println!("  docs/start.md: five minutes with ringq, and with the data of your nsqd");
        signals.add_signal(SIGINT)?;
        signals.forever().next();
    }
    daemon.stop();
    Ok(())
}

/// Starts the broker on nsqd's ports if they are free, otherwise on any ports. A drain ends `signals`.
fn start(data_path: &std::path::Path, signals: &Handle) -> Result<Daemon, Failure> {
    let data_path = format!("--data-path={}", data_path.display());
    let free = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"];
    let config = |extra: &[&str]| {
        let args = extra
            .iter()
            .map(OsString::from)
            .chain([OsString::from(&data_path)]);
        Config::from_args(args).map_err(|exit| Failure::from(exit.stderr))
    };
    let quiet = config(&[])?;
    log::init(log::Level::Warn, quiet.options.log_style())?;
    let end = || {
        let signals = signals.clone();
        move || signals.close()
    };
    match Daemon::start(quiet, InheritedSockets::none(), end()) {
        Ok(daemon) => Ok(daemon),
        Err(error) => {
            println!("{error}\nThe broker starts on free ports instead.");
            Ok(Daemon::start(
                config(&free)?,
                InheritedSockets::none(),
                end(),
            )?)
        }
    }
}

/// The address at which a client on this machine reaches a listener.
fn loopback(address: &ListenAddress) -> Result<SocketAddr, Failure> {
    let address = address.socket_address().ok_or("a unix socket")?;
    Ok(SocketAddr::new([127, 0, 0, 1].into(), address.port()))
}

fn connect(address: SocketAddr) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.write_all(&wire::decode::MAGIC_V2)?;
    Ok(stream)
}

fn topic() -> Result<TopicName<'static>, Failure> {
    Ok(TopicName::new(TOPIC.as_bytes()).ok_or("not a topic name")?)
}

fn produce(address: SocketAddr) -> Result<Duration, Failure> {
    let mut stream = connect(address)?;
    let mut input = Input::default();
    let mut in_flight = VecDeque::new();
    let mut body = vec![b'.'; BODY_BYTES];
    let began = Instant::now();
    let mut command = Vec::new();
    for first in (0..MESSAGES).step_by(BATCH as usize) {
        let bodies: Vec<Vec<u8>> = (first..(first + BATCH).min(MESSAGES))
            .map(|number| {
                body[..8].copy_from_slice(&number.to_be_bytes());
                body.clone()
            })
            .collect();
        command.clear();
        encode::mpub(&mut command, topic()?, &bodies);
        stream.write_all(&command)?;
        in_flight.push_back(first);
        if in_flight.len() >= WINDOW {
            in_flight.pop_front();
            input.expect_ok(&mut stream)?;
        }
    }
    for _ in in_flight {
        input.expect_ok(&mut stream)?;
    }
    Ok(began.elapsed())
}

fn consume(address: SocketAddr) -> Result<Duration, Failure> {
    let mut stream = connect(address)?;
    let mut input = Input::default();
    let mut commands = Vec::new();
    let channel = ChannelName::new(b"first").ok_or("not a channel name")?;
    encode::sub(&mut commands, topic()?, channel);
    encode::rdy(&mut commands, 2500);
    stream.write_all(&commands)?;
    input.expect_ok(&mut stream)?;
    let mut seen = vec![false; MESSAGES as usize];
    let mut left = MESSAGES;
    let began = Instant::now();
    while left > 0 {
        commands.clear();
        input.fill(&mut stream)?;
        while let Some((kind, data)) = input.next_frame()? {
            if kind != FrameType::Message {
                if data == b"_heartbeat_" {
                    encode::nop(&mut commands);
                    continue;
                }
                return Err(String::from_utf8_lossy(data).into_owned().into());
            }
            let message = Message::parse(data).ok_or("a message frame that is too short")?;
            let number = u64::from_be_bytes(message.body[..8].try_into()?);
            if std::mem::replace(&mut seen[number as usize], true) {
                return Err(format!("message {number} came twice").into());
            }
            encode::fin(&mut commands, &message.id);
            left -= 1;
        }
        stream.write_all(&commands)?;
    }
    Ok(began.elapsed())
}

/// The bytes that were received and not decoded yet.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    at: usize,
}

impl Input {
    fn fill(&mut self, stream: &mut TcpStream) -> Result<(), Failure> {
        self.bytes.drain(..self.at);
        self.at = 0;
        let before = self.bytes.len();
        self.bytes.resize(before + 256 * 1024, 0);
        let received = stream.read(&mut self.bytes[before..])?;
        self.bytes.truncate(before + received);
        if received == 0 {
            Err("the broker closed the connection".into())
        } else {
            Ok(())
        }
    }

    fn next_frame(&mut self) -> Result<Option<(FrameType, &[u8])>, Failure> {
        match decode_frame(&self.bytes[self.at..]) {
            FrameDecoded::NeedMore(_) => Ok(None),
            FrameDecoded::Frame {
                kind,
                data,
                consumed,
            } => {
                self.at += consumed;
                Ok(Some((kind, data)))
            }
            FrameDecoded::Bad => Err("not a frame".into()),
        }
    }

    fn expect_ok(&mut self, stream: &mut TcpStream) -> Result<(), Failure> {
        loop {
            if let Some((kind, data)) = self.next_frame()? {
                return match data {
                    b"OK" if kind != FrameType::Error => Ok(()),
                    b"_heartbeat_" => continue,
                    other => Err(String::from_utf8_lossy(other).into_owned().into()),
                };
            }
            self.fill(stream)?;
        }
    }
}
