//! [`Connection`]: one connection of a generator thread, from its greeting on.
//!
//! ```text
//!   connect ─► Greeting(n answers to come) ────────────────► Live
//!          ├─► Upgrading(n done) ─► Greeting(consumer's) ──► │
//!          └─► Opening, HTTP ──────────────────────────────► │
//!   a consumer that is dropped begins anew  ◄────────────────┘
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
use crate::generator::consumer::Consumer;
use crate::generator::link::{Link, next_frame};
use crate::generator::producer::Producer;
use crate::scenario::upgrades::Upgrades;

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
    /// The channel's name.
    pub channel: String,
    /// The way the consumer reads.
    pub reading: Reading,
}

/// The purpose of a connection.
#[derive(Debug)]
pub enum Role {
    /// Publishes.
    Producer(Box<Producer>),
    /// Subscribes and takes messages.
    Consumer(Box<ConsumerSettings>, Box<Consumer>),
}

/// The stage of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
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
    pub(super) link: Link,
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
    /// Begins to connect and to greet.
    pub(super) fn new(role: Role, settings: &GeneratorSettings) -> Result<Connection, String> {
        let (address, reading) = match &role {
            Role::Producer(producer) if producer.is_http() => (settings.http, Reading::AtOnce),
            Role::Producer(_) => (None, Reading::AtOnce),
            Role::Consumer(consumer, _) => (None, consumer.reading),
        };
        let address = address.unwrap_or(settings.tcp);
        let link = Link::connect(address)
            .map_err(|error| format!("{}: cannot connect: {error}", name(&role, address)))?;
        let mut connection = Connection {
            role,
            stage: Stage::Opening,
            link,
            interest: EventFlags::empty(),
            scheduled: false,
            done: false,
            address,
            upgrades: Arc::clone(&settings.upgrades),
            ready_sent: false,
            reading,
            allowed_ns: 0,
        };
        connection.begin();
        Ok(connection)
    }

    /// Begins anew with a socket of its own.
    pub(super) fn open_again(&mut self) -> Result<(), String> {
        self.link = Link::connect(self.address).map_err(|error| self.failure(&error))?;
        self.begin();
        Ok(())
    }

    /// Begins to greet.
    fn begin(&mut self) {
        self.interest = EventFlags::IN | EventFlags::OUT;
        self.ready_sent = false;
        let identify = match &self.role {
            Role::Producer(producer) if producer.is_http() => {
                self.stage = Stage::Opening;
                return;
            }
            Role::Producer(..) => identify_json(0, 0),
            Role::Consumer(_, consumer) => {
                let scenario = &consumer.behaviour.scenario;
                let holds_ms = scenario.output_buffer_timeout.as_millis();
                identify_json(scenario.msg_timeout.as_millis(), holds_ms)
            }
        };
        let output = &mut self.link.output;
        output.extend_from_slice(&wire::decode::MAGIC_V2);
        encode::identify(output, &self.upgrades.ask(identify));
        self.stage = match &self.role {
            _ if !self.upgrades.is_empty() => Stage::Upgrading(0),
            Role::Producer(..) => Stage::Greeting(1),
            Role::Consumer(settings, _) => {
                subscribe(output, settings);
                Stage::Greeting(2)
            }
        };
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
                    encode::nop(&mut self.link.output);
                }
                (FrameType::Response, Stage::Upgrading(done)) => {
                    let upgraded = self.proceed_upgrading(done, data);
                    if upgraded.map_err(|text| format!("{}: {text}", self.name()))? {
                        let opened = self.link.open_behind_upgrade(scratch, part);
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
        let link = &mut self.link;
        if let Some(upgrade) = self.upgrades.upgrade(done).map_err(|e| e.to_string())? {
            link.upgrade(upgrade).map_err(|error| error.to_string())?;
            self.stage = Stage::Upgrading(done + 1);
            return Ok(true);
        }
        self.stage = Stage::Live;
        if let Role::Consumer(settings, _) = &self.role {
            subscribe(&mut link.output, settings);
            self.stage = Stage::Greeting(1);
        }
        Ok(false)
    }

    /// Makes a connection without a greeting live: its socket is connected.
    pub(super) fn opened(&mut self) -> io::Result<()> {
        if let Some(error) = self.link.stream.take_error()? {
            return Err(error);
        }
        self.stage = Stage::Live;
        Ok(())
    }

    /// Sends RDY, once per connection; false when RDY was sent before, and for producers.
    pub(super) fn ask_for_messages(&mut self) -> bool {
        let (Role::Consumer(_, consumer), Stage::Live, false) =
            (&self.role, self.stage, self.ready_sent)
        else {
            return false;
        };
        encode::rdy(&mut self.link.output, consumer.behaviour.scenario.rdy);
        self.ready_sent = true;
        true
    }

    pub(super) fn is_in_setup(&self) -> bool {
        self.stage != Stage::Live
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
        if self.link.unsent() > 0 || self.stage == Stage::Opening {
            flags |= EventFlags::OUT;
        }
        flags
    }

    /// The connection's name in messages for the user.
    pub(super) fn name(&self) -> String {
        name(&self.role, self.address)
    }

    /// An I/O error in words for the user.
    pub(super) fn failure(&self, error: &io::Error) -> String {
        let cause = match error.kind() {
            io::ErrorKind::UnexpectedEof => "closed by the daemon".to_string(),
            _ => error.to_string(),
        };
        if self.is_in_setup() {
            return format!("{}: cannot connect: {cause}", self.name());
        }
        format!("{}: the connection broke: {cause}", self.name())
    }
}

fn name(role: &Role, address: SocketAddr) -> String {
    match role {
        Role::Producer(producer) => format!("producer {} to {address}", producer.index()),
        Role::Consumer(settings, _) => {
            let ConsumerSettings { topic, channel, .. } = &**settings;
            format!("consumer of {topic}/{channel} at {address}")
        }
    }
}

fn subscribe(output: &mut Vec<u8>, settings: &ConsumerSettings) {
    let topic = TopicName::new(settings.topic.as_bytes());
    let channel = ChannelName::new(settings.channel.as_bytes());
    let (topic, channel) = topic.zip(channel).expect("`prepare` has checked the names");
    encode::sub(output, topic, channel);
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
