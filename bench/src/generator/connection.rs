//! [`Connection`]: one connection of a generator thread, from its greeting on.
//!
//! ```text
//!   Closed ─► Greeting(n answers to come) ────────────────► Live
//!         ├─► Upgrading(n done) ─► Greeting(consumer's) ──► │
//!         └─► Opening, HTTP ──────────────────────────────► │
//!   a consumer that is dropped begins anew  ◄───────────────┘
//! ```
//!
//! Without upgrades the connection sends everything at once. With upgrades a daemon drops what comes too
//! early: so IDENTIFY awaits its answer, each upgrade awaits its OK, and SUB comes last.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use wire::encode;
use wire::frame::FrameType;
use wire::name::{ChannelName, TopicName};

use super::GeneratorSettings;
use crate::consumer::{Behaviour, Consumer};
use crate::link::{Link, next_frame};
use crate::producer::Producer;
use crate::upgrades::Upgrades;

/// The way a consumer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The consumer reads as soon as there is something.
    AtOnce,
    /// The consumer reads this many bytes per second.
    Slow(u32),
    /// The consumer reads nothing before publishing ends.
    Stalled,
}

/// The settings of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerSettings {
    /// The topic to subscribe to.
    pub topic: String,
    /// The channel's name, and the number of its ledger.
    pub channel: (String, usize),
    /// The ready count: messages that may be in flight to the consumer.
    pub rdy: u32,
    /// The way the consumer reads.
    pub reading: Reading,
    /// The JSON body of IDENTIFY.
    pub identify: Arc<Vec<u8>>,
    /// The answers that the consumer gives.
    pub behaviour: Arc<Behaviour>,
    /// Seed of the consumer's random choices.
    pub seed: u64,
}

/// The purpose of a connection.
#[derive(Debug)]
pub enum Role {
    /// Publishes.
    Producer(Box<Producer>),
    /// Subscribes and takes messages.
    Consumer(Box<ConsumerSettings>, Box<Consumer>),
}

impl Role {
    /// Makes a consumer's role from its settings.
    pub fn consumer(settings: ConsumerSettings) -> Role {
        let consumer = Consumer::new(settings.channel.1, settings.seed);
        Role::Consumer(Box::new(settings), Box::new(consumer))
    }
}

/// The stage of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Closed,
    /// The socket is connecting, and the protocol has no greeting.
    Opening,
    /// This many upgrades are made. The answer to IDENTIFY, or the OK behind the last upgrade, is to come.
    Upgrading(usize),
    /// This many answers to the greeting are to come.
    Greeting(u32),
    Live,
}

/// One connection of a generator thread.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) role: Role,
    pub(super) stage: Stage,
    pub(super) link: Option<Link>,
    /// The readiness that epoll waits for.
    pub(super) interest: EventFlags,
    /// The connection has an entry in the heap of publishes.
    pub(super) scheduled: bool,
    /// Every message of the producer is sent and answered.
    pub(super) done: bool,
    address: SocketAddr,
    upgrades: Arc<Upgrades>,
    /// RDY was sent on this connection.
    ready_sent: bool,
    /// The present way of reading.
    reading: Reading,
    /// The time up to which a slow reader has used its allowance, in nanoseconds.
    allowed_ns: u64,
}

impl Connection {
    pub(super) fn new(role: Role, settings: &GeneratorSettings) -> Connection {
        let (address, reading) = match &role {
            Role::Producer(producer) if producer.is_http() => (settings.http, Reading::AtOnce),
            Role::Producer(_) => (None, Reading::AtOnce),
            Role::Consumer(consumer, _) => (None, consumer.reading),
        };
        Connection {
            role,
            stage: Stage::Closed,
            link: None,
            interest: EventFlags::empty(),
            scheduled: false,
            done: false,
            address: address.unwrap_or(settings.tcp),
            upgrades: Arc::clone(&settings.upgrades),
            ready_sent: false,
            reading,
            allowed_ns: 0,
        }
    }

    /// Begins to connect and to greet.
    pub(super) fn open(&mut self) -> io::Result<()> {
        let mut link = Link::connect(self.address)?;
        self.stage = match &self.role {
            Role::Producer(producer) if producer.is_http() => Stage::Opening,
            Role::Producer(..) => {
                link.output.extend_from_slice(&wire::decode::MAGIC_V2);
                let identify = self.upgrades.ask(identify_json(0, 0));
                encode::identify(&mut link.output, &identify);
                Stage::Greeting(1)
            }
            Role::Consumer(settings, _) => {
                link.output.extend_from_slice(&wire::decode::MAGIC_V2);
                encode::identify(&mut link.output, &settings.identify);
                if self.upgrades.is_empty() {
                    subscribe(&mut link.output, settings)?;
                }
                Stage::Greeting(2)
            }
        };
        if matches!(self.stage, Stage::Greeting(_)) && !self.upgrades.is_empty() {
            self.stage = Stage::Upgrading(0);
        }
        self.ready_sent = false;
        self.link = Some(link);
        Ok(())
    }

    /// Takes the answers to the greeting at the front of the input, which is the first `length` bytes of
    /// `scratch`. Returns where the rest of the input is when the connection becomes live.
    pub(super) fn greet(
        &mut self,
        scratch: &mut Vec<u8>,
        length: usize,
    ) -> Result<Range<usize>, String> {
        let mut part = 0..length;
        while matches!(self.stage, Stage::Greeting(_) | Stage::Upgrading(_)) {
            let frame = next_frame(&scratch[..part.end], &mut part.start)
                .map_err(|_| format!("{}: answers with no frame: is it NSQ?", self.name()))?;
            let Some((kind, data)) = frame else {
                break;
            };
            match (kind, self.stage) {
                (FrameType::Response, Stage::Greeting(_)) if data == b"_heartbeat_" => {
                    // A SUB may take long where there are many.
                    if let Some(link) = &mut self.link {
                        encode::nop(&mut link.output);
                    }
                }
                (FrameType::Response, Stage::Upgrading(done)) => {
                    let upgraded = self.proceed_upgrading(done, data);
                    if upgraded.map_err(|text| format!("{}: {text}", self.name()))?
                        && let Some(link) = &mut self.link
                    {
                        let opened = link.open_behind_upgrade(scratch, part);
                        part = opened.map_err(|error| self.failure(&error))?;
                    }
                }
                (FrameType::Response, Stage::Greeting(left)) if left > 1 => {
                    self.stage = Stage::Greeting(left - 1);
                }
                (FrameType::Response, _) => self.stage = Stage::Live,
                (FrameType::Error | FrameType::Message, _) => {
                    let text = String::from_utf8_lossy(data);
                    return Err(format!("{}: refused: {text}", self.name()));
                }
            }
        }
        Ok(part)
    }

    /// Takes the answer to IDENTIFY, or to upgrade number `done`, and takes the next step. True when that
    /// step is an upgrade: the input behind the answer is then in the new encoding.
    fn proceed_upgrading(&mut self, done: usize, answer: &[u8]) -> Result<bool, String> {
        if done == 0 {
            self.upgrades.check_granted(answer)?;
        } else if answer != b"OK" {
            let text = String::from_utf8_lossy(answer);
            return Err(format!("answers an upgrade with `{text}`, not OK"));
        }
        let Some(link) = &mut self.link else {
            return Ok(false);
        };
        if let Some(upgrade) = self.upgrades.upgrade(done).map_err(|e| e.to_string())? {
            link.upgrade(upgrade).map_err(|error| error.to_string())?;
            self.stage = Stage::Upgrading(done + 1);
            return Ok(true);
        }
        self.stage = Stage::Live;
        if let Role::Consumer(settings, _) = &self.role {
            subscribe(&mut link.output, settings).map_err(|error| error.to_string())?;
            self.stage = Stage::Greeting(1);
        }
        Ok(false)
    }

    /// Makes a connection without a greeting live: its socket is connected.
    pub(super) fn opened(&mut self) -> io::Result<()> {
        if let Some(error) = self
            .link
            .as_ref()
            .and_then(|link| link.stream().take_error().transpose())
        {
            return Err(error?);
        }
        self.stage = Stage::Live;
        Ok(())
    }

    /// Sends RDY, once per connection; false when RDY was sent before, and for producers.
    pub(super) fn ask_for_messages(&mut self) -> bool {
        let (Role::Consumer(settings, _), Stage::Live, Some(link), false) =
            (&self.role, self.stage, &mut self.link, self.ready_sent)
        else {
            return false;
        };
        encode::rdy(&mut link.output, settings.rdy);
        self.ready_sent = true;
        true
    }

    pub(super) fn is_in_setup(&self) -> bool {
        matches!(
            self.stage,
            Stage::Opening | Stage::Upgrading(_) | Stage::Greeting(_)
        )
    }

    pub(super) fn is_live_consumer(&self) -> bool {
        self.stage == Stage::Live && matches!(self.role, Role::Consumer(..))
    }

    /// Tells whether the daemon may drop the connection: it is one of a slow or stalled reader.
    pub(super) fn may_be_dropped(&self) -> bool {
        let Role::Consumer(settings, _) = &self.role else {
            return false;
        };
        self.stage == Stage::Live && settings.reading != Reading::AtOnce
    }

    /// Tells whether the connection reads as soon as there is something. During the greeting all do.
    pub(super) fn reads_at_once(&self) -> bool {
        self.is_in_setup() || self.reading == Reading::AtOnce
    }

    pub(super) fn is_slow(&self) -> bool {
        matches!(self.reading, Reading::Slow(_))
    }

    /// Lets a stalled reader read again, because publishing has ended.
    pub(super) fn resume_reading(&mut self) {
        if self.reading == Reading::Stalled {
            self.reading = Reading::AtOnce;
        }
    }

    /// Bytes that a slow reader may read now. Zero for other connections.
    pub(super) fn slow_allowance(&mut self, now_ns: u64) -> usize {
        let (Reading::Slow(bytes_per_s), Stage::Live) = (self.reading, self.stage) else {
            return 0;
        };
        // The allowance of at most a tenth of a second is saved up.
        let from_ns = self.allowed_ns.max(now_ns.saturating_sub(100_000_000));
        let bytes = u128::from(now_ns - from_ns) * u128::from(bytes_per_s) / 1_000_000_000;
        if bytes > 0 {
            self.allowed_ns = now_ns;
        }
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// The readiness that epoll should wait for.
    pub(super) fn wanted_interest(&self) -> EventFlags {
        let mut flags = EventFlags::empty();
        if self.reads_at_once() {
            flags |= EventFlags::IN;
        }
        let unsent = self.link.as_ref().is_some_and(|link| link.unsent() > 0);
        if unsent || self.stage == Stage::Opening {
            flags |= EventFlags::OUT;
        }
        flags
    }

    /// The connection's name in messages for the user.
    pub(super) fn name(&self) -> String {
        match &self.role {
            Role::Producer(producer) => {
                format!("producer {} to {}", producer.index(), self.address)
            }
            Role::Consumer(settings, _) => format!(
                "consumer of {}/{} at {}",
                settings.topic, settings.channel.0, self.address
            ),
        }
    }

    /// An I/O error in words for the user.
    pub(super) fn failure(&self, error: &io::Error) -> String {
        let doing = if self.is_in_setup() || self.stage == Stage::Closed {
            "cannot connect"
        } else {
            "the connection broke"
        };
        let cause = match error.kind() {
            io::ErrorKind::UnexpectedEof => "closed by the daemon".to_string(),
            _ => error.to_string(),
        };
        format!("{}: {doing}: {cause}", self.name())
    }
}

fn subscribe(output: &mut Vec<u8>, settings: &ConsumerSettings) -> io::Result<()> {
    let topic = TopicName::new(settings.topic.as_bytes());
    let channel = ChannelName::new(settings.channel.0.as_bytes());
    let names = topic.zip(channel).ok_or(io::ErrorKind::InvalidInput)?;
    encode::sub(output, names.0, names.1);
    Ok(())
}

/// Makes the body of an IDENTIFY. Both times are in milliseconds; zero leaves the value to the daemon.
pub fn identify_json(msg_timeout_ms: u64, output_buffer_timeout_ms: u64) -> serde_json::Value {
    let mut body = serde_json::json!({
        "client_id": "nsq-bench",
        "hostname": "nsq-bench",
        "user_agent": concat!("nsq-bench/", env!("CARGO_PKG_VERSION")),
        "feature_negotiation": true,
    });
    if msg_timeout_ms > 0 {
        body["msg_timeout"] = msg_timeout_ms.into();
    }
    if output_buffer_timeout_ms > 0 {
        body["output_buffer_timeout"] = output_buffer_timeout_ms.into();
    }
    body
}
