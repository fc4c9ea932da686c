//! One connection's state: what it negotiated, what it subscribed to, what it may still receive,
//! and the answers it is owed.

use crate::auth::{Auth, AuthReason};
use crate::ids::{ChannelId, ShardId, TopicKey};
use crate::outbound::Outbound;
use crate::patience::Patience;
use crate::slab::Slab;
use crate::tls::TlsSession;
use crate::topology::Locality;
use diskq_log::Log;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::decode::{ClientState, Decoder};
use wire::error::WireError;
use wire::identify::{ClientSettings, Upgrade};
use wire::name::TopicName;

/// All connections of a shard.
pub(crate) type Clients = Slab<Client>;

/// A client whose unsent output exceeds this takes no more messages until some of it left: what it
/// cannot read stays in the log for others.
pub(crate) const OUTBOUND_BYTES_MAX: u64 = 256 * 1024;

/// A client with more bytes of unsent answers than this is not read until half of them have left: a
/// client that asks and does not read must not fill the memory. Messages do not count: a consumer
/// that is slow to take them may finish the ones it has.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The bytes that an answer counts for while it is held back, besides its frame: its place in the
/// queue. It bounds the publishes of a client that wait for a sync.
const HELD_REPLY_BYTES: usize = 32;

/// A connection whose socket is full has one heartbeat interval for these bytes, or for all of its
/// output if that is less. They are nsqd's default `output_buffer_size`, which nsqd writes under one
/// deadline of the same length. Fewer bytes do not extend the deadline. Kernels free room in pieces (up to 128 KiB on the
/// loopback interface), so a consumer may have to read that much before any bytes leave.
const PROGRESS_BYTES: u64 = 16 * 1024;

/// A publish command, for the names of its errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// PUB
    Pub,
    /// MPUB
    Mpub,
    /// DPUB
    Dpub,
    /// SUB: its answer waits for the new channel to be recorded.
    Sub,
}

impl Verb {
    /// As it is sent.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Pub => "PUB",
            Verb::Mpub => "MPUB",
            Verb::Dpub => "DPUB",
            Verb::Sub => "SUB",
        }
    }

    /// The error frame for a command that could not be carried out.
    pub(crate) fn failed(self, cause: &str) -> WireError {
        match self {
            Verb::Pub | Verb::Mpub | Verb::Dpub => WireError::pub_failed(self.name(), cause),
            Verb::Sub => WireError::sub_failed(cause),
        }
    }
}

/// Names one answer of a connection that is not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token(u64);

impl Token {
    /// Names no answer.
    pub(crate) const NONE: Token = Token(u64::MAX);
}

/// An answer in the order of its commands.
#[derive(Debug)]
enum Reply {
    Waiting(Verb),
    Ready(Vec<u8>),
    Failed(WireError),
}

impl Reply {
    fn is_known(&self) -> bool {
        !matches!(self, Reply::Waiting(_))
    }

    /// The bytes that this reply counts for while it is held back.
    fn bytes(&self) -> usize {
        HELD_REPLY_BYTES
            + match self {
                Reply::Waiting(_) => 0,
                Reply::Ready(frame) => frame.len(),
                Reply::Failed(error) => error.text.len(),
            }
    }
}

/// Why a connection reads no further commands for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// Its publish found no room in the log; it is retried when the keeper has made some.
    Room(TopicKey),
    /// Its command waits until a topic has started, or has caught up; then the command is tried again.
    Topic(TopicKey),
    /// The answer to its SUB is not out yet, or waits behind others; no message may overtake it.
    Subscribing,
    /// An auth server is asked what it may do.
    Authorizing(AuthReason),
    /// Too much of what it published is on its way to other shards.
    Forwards,
    /// Set while the client is not read because too many bytes of its answers are unsent; see
    /// [`ANSWER_BYTES_MAX`].
    Output,
    /// It moves to another shard as soon as all answers are out.
    Moving(ShardId),
    /// Its encoding changes: as soon as all answers are out, and until the last layer is there.
    Upgrading,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It does not.
    No,
    /// Closed when its output, an error frame at the end of it, has left.
    AfterOutput,
    /// Closed now; no farewell.
    Now,
}

/// Output that the socket has not taken, and its deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stuck {
    /// When the current deadline began.
    pub(crate) since: Duration,
    /// The bytes that have to leave before the deadline.
    bytes_due: u64,
}

/// One connection. It can leave its shard (SUB to a topic elsewhere) with all of this.
///
/// Invariants: `in_flight` is what the channel's window holds for it; `in_ready` is true exactly
/// when the channel's ready list names it; replies leave in the order of their commands, and
/// `reply_bytes` is what those held back count for.
#[derive(Debug)]
pub struct Client {
    /// `ip:port`, for stats and the log.
    pub address: String,
    /// Unix time of the connect, in seconds.
    pub connected_at: i64,
    /// False until the magic was read.
    pub(crate) magic_seen: bool,
    pub(crate) decoder: Decoder,
    /// Bytes of input before which nothing can be decoded.
    pub(crate) needs: usize,
    pub(crate) state: ClientState,
    /// What IDENTIFY says, the latest one.
    pub(crate) settings: ClientSettings,
    /// What the first IDENTIFY said: only that one reaches delivery (protocol-v2 §9.6).
    pub(crate) delivery: ClientSettings,
    pub(crate) identified: bool,
    pub(crate) client_id: String,
    pub(crate) hostname: String,
    pub(crate) user_agent: String,
    pub(crate) topology_region: String,
    pub(crate) topology_zone: String,
    /// Upgrades that were granted and are not there yet.
    pub(crate) upgrades_left: VecDeque<Upgrade>,
    /// With TLS.
    pub(crate) tls: Option<Box<TlsSession>>,
    pub(crate) compression: Option<Upgrade>,
    pub(crate) locality: Locality,
    /// What it is authorised for; `None` before AUTH.
    pub(crate) auth: Option<Box<Auth>>,
    pub(crate) subscription: Option<(TopicKey, ChannelId)>,
    pub(crate) ready_count: u32,
    pub(crate) in_flight: u32,
    pub(crate) in_ready: bool,
    /// Waits in its channel until it has credit for more than a few messages.
    pub(crate) in_refills: bool,
    pub(crate) patience: Patience,
    pub(crate) message_count: u64,
    pub(crate) finish_count: u64,
    pub(crate) requeue_count: u64,
    /// Messages published, by the bytes of the topic's name.
    pub(crate) pub_counts: BTreeMap<Box<[u8]>, u64>,
    /// Where it published last; checked by name before use.
    pub(crate) topic_hint: Option<TopicKey>,
    /// Publishes in a row that went to the same other shard.
    pub(crate) remote_streak: (ShardId, u32),
    /// Bytes on their way to other shards.
    pub(crate) forwarded_bytes: usize,
    pub(crate) outbound: Outbound,
    pub(crate) in_to_flush: bool,
    replies: VecDeque<Reply>,
    replies_gone: u64,
    /// The bytes that `replies` count for; see [`ANSWER_BYTES_MAX`].
    reply_bytes: usize,
    pub(crate) blocked: Option<Blocked>,
    pub(crate) ending: Ending,
    /// Why it ends, if that is worth a line in the log.
    pub(crate) complaint: Option<String>,
    /// When the current wait for a command began.
    pub(crate) waiting_since: Duration,
    pub(crate) stuck: Option<Stuck>,
    /// Where its timers stand among the broker's.
    pub(crate) heartbeat_at: Option<Duration>,
    pub(crate) deadline_at: Option<Duration>,
}

impl Client {
    /// A connection that has said nothing yet. `address` is `ip:port`; until IDENTIFY, stats show
    /// the ip as its id and host name.
    pub fn new(address: String, ip: String, connected_at: i64, settings: ClientSettings) -> Client {
        Client {
            address,
            connected_at,
            magic_seen: false,
            decoder: Decoder::default(),
            needs: 0,
            state: ClientState::Init,
            delivery: settings.clone(),
            settings,
            identified: false,
            client_id: ip.clone(),
            hostname: ip,
            user_agent: String::new(),
            topology_region: String::new(),
            topology_zone: String::new(),
            upgrades_left: VecDeque::new(),
            tls: None,
            compression: None,
            locality: Locality::default(),
            auth: None,
            subscription: None,
            ready_count: 0,
            in_flight: 0,
            in_ready: false,
            in_refills: false,
            patience: Patience::default(),
            message_count: 0,
            finish_count: 0,
            requeue_count: 0,
            pub_counts: BTreeMap::new(),
            topic_hint: None,
            remote_streak: (ShardId(0), 0),
            forwarded_bytes: 0,
            outbound: Outbound::default(),
            in_to_flush: false,
            replies: VecDeque::new(),
            replies_gone: 0,
            reply_bytes: 0,
            blocked: None,
            ending: Ending::No,
            complaint: None,
            waiting_since: Duration::ZERO,
            stuck: None,
            heartbeat_at: None,
            deadline_at: None,
        }
    }

    /// How many messages it may be sent now.
    pub(crate) fn credit(&self) -> u32 {
        let takes = self.state == ClientState::Subscribed
            && self.ending == Ending::No
            && self.outbound.bytes() < OUTBOUND_BYTES_MAX;
        if takes {
            self.ready_count.saturating_sub(self.in_flight)
        } else {
            0
        }
    }

    /// True when its encoding is not that of a new connection.
    pub(crate) fn is_upgraded(&self) -> bool {
        self.tls.is_some() || self.compression.is_some()
    }

    /// True while no command of it is read.
    pub(crate) fn is_stopped(&self) -> bool {
        self.blocked.is_some() || self.ending != Ending::No
    }

    /// True when input of `bytes` bytes may hold something that can be carried out.
    #[inline]
    pub(crate) fn takes_input(&self, bytes: usize) -> bool {
        !self.is_stopped() && bytes >= self.needs.max(1)
    }

    /// Bytes of answers that have not left, including those that an earlier answer holds back.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.outbound.answer_bytes() + self.reply_bytes
    }

    /// Has nothing of the log lent to it any more. False if that was not whole: the connection ends, and its
    /// messages come again.
    #[cold]
    #[must_use]
    pub(crate) fn copy_runs(&mut self, log: &mut Log) -> bool {
        let are_whole = self.outbound.copy_runs(log);
        if !are_whole {
            self.stuck = None;
            self.ending = Ending::Now;
            self.complaint.get_or_insert_with(|| {
                "messages on their way were lost to a failed sync".to_owned()
            });
        }
        are_whole
    }

    /// Notes that the socket took `bytes` bytes, and sets the deadline of what is left.
    pub(crate) fn note_sent(&mut self, now: Duration, bytes: u64) {
        self.stuck = match self.stuck {
            _ if self.outbound.is_empty() => None,
            Some(Stuck { since, bytes_due }) if bytes < bytes_due => Some(Stuck {
                since,
                bytes_due: bytes_due - bytes,
            }),
            _ => Some(Stuck {
                since: now,
                bytes_due: self.outbound.bytes().min(PROGRESS_BYTES),
            }),
        };
    }

    /// True when the write deadline has passed: too little output has left within a heartbeat interval.
    pub(crate) fn is_overdue(&self, now: Duration) -> bool {
        let (Some(stuck), Some(interval)) = (self.stuck, self.delivery.heartbeat) else {
            return false;
        };
        self.ending != Ending::Now && now.saturating_sub(stuck.since) >= interval
    }

    /// True when no answer is outstanding.
    pub(crate) fn all_answered(&self) -> bool {
        self.replies.is_empty()
    }

    /// Answers the current command with a complete frame.
    pub(crate) fn reply(&mut self, frame: &[u8]) {
        if self.replies.is_empty() {
            self.outbound.push_bytes(frame);
        } else {
            self.hold_back(Reply::Ready(frame.to_vec()));
        }
    }

    /// Answers the current command with an error; a fatal one ends the connection once it is out.
    pub(crate) fn reply_error(&mut self, error: WireError) {
        if error.fatal && self.ending == Ending::No {
            self.ending = Ending::AfterOutput;
        }
        if self.replies.is_empty() {
            self.outbound
                .push_with(|out| wire::encode::error(out, &error));
        } else {
            self.hold_back(Reply::Failed(error));
        }
    }

    fn hold_back(&mut self, reply: Reply) {
        self.reply_bytes += reply.bytes();
        self.replies.push_back(reply);
    }

    /// Promises an answer to the current command.
    pub(crate) fn reply_later(&mut self, verb: Verb) -> Token {
        self.hold_back(Reply::Waiting(verb));
        Token(self.replies_gone + self.replies.len() as u64 - 1)
    }

    /// Keeps the promise; what follows in order leaves with it. Returns the text of an error frame
    /// that this produced.
    pub(crate) fn resolve(&mut self, token: Token, result: Result<(), &str>) -> Option<String> {
        let at = token.0.checked_sub(self.replies_gone)? as usize;
        let Some(Reply::Waiting(verb)) = self.replies.get(at) else {
            panic!("a token is resolved once, while its reply waits");
        };
        let mut error_text = None;
        let reply = match result {
            Ok(()) => Reply::Ready(wire::encode::OK.to_vec()),
            Err(cause) => {
                let error = verb.failed(cause);
                error_text = Some(error.text.clone());
                Reply::Failed(error)
            }
        };
        self.reply_bytes += reply.bytes() - self.replies[at].bytes();
        self.replies[at] = reply;
        while let Some(reply) = self.replies.pop_front_if(|reply| reply.is_known()) {
            self.replies_gone += 1;
            self.reply_bytes -= reply.bytes();
            match reply {
                Reply::Ready(frame) => self.outbound.push_bytes(&frame),
                Reply::Failed(error) => {
                    self.outbound
                        .push_with(|out| wire::encode::error(out, &error));
                    if error.fatal {
                        // Later commands were carried out, but nothing follows a fatal error.
                        self.replies_gone += self.replies.len() as u64;
                        self.replies.clear();
                        self.reply_bytes = 0;
                        if self.ending == Ending::No {
                            self.ending = Ending::AfterOutput;
                        }
                    }
                }
                Reply::Waiting(_) => unreachable!("its answer is not known"),
            }
        }
        error_text
    }

    /// Counts `messages` published to `topic`.
    pub(crate) fn count_published(&mut self, topic: TopicName<'_>, messages: u64) {
        match self.pub_counts.get_mut(topic.as_bytes()) {
            Some(count) => *count += messages,
            None => {
                self.pub_counts.insert(topic.as_bytes().into(), messages);
            }
        }
    }

    /// Whether anything is on its way to the client, or held back.
    pub(crate) fn has_output(&self) -> bool {
        !self.outbound.is_empty() || !self.replies.is_empty()
    }

    /// True when every byte of a dying connection has left, or it dies without ceremony.
    pub(crate) fn is_over(&self) -> bool {
        match self.ending {
            Ending::No => false,
            Ending::AfterOutput => !self.has_output(),
            Ending::Now => true,
        }
    }

    /// Asserts what can be seen from here.
    pub(crate) fn check(&self) {
        self.outbound.check();
        assert!(!self.replies.front().is_some_and(Reply::is_known));
        let held: usize = self.replies.iter().map(Reply::bytes).sum();
        assert_eq!(held, self.reply_bytes);
        assert!(self.stuck.is_none_or(|stuck| stuck.bytes_due > 0));
        let subscribed = self.state != ClientState::Init && self.ending != Ending::Now;
        assert!(self.subscription.is_some() == subscribed || self.ending == Ending::Now);
        assert!(self.subscription.is_some() || self.in_flight == 0);
        let is_upgrading = self.blocked == Some(Blocked::Upgrading);
        assert!(is_upgrading != self.upgrades_left.is_empty());
    }
}
