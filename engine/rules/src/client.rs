//! One connection, in four parts: what it said ([`Session`]), what it publishes ([`Producer`]), what it receives
//! ([`Consumer`]), and the answers that it is owed ([`ClientOutput`]). [`Client`] itself has the state that concerns
//! all four parts: whether the broker reads the client's commands, and how the connection ends.

pub(crate) mod consumer;
pub(crate) mod output;
pub(crate) mod producer;
pub(crate) mod session;

use crate::auth::AuthReason;
use crate::dirty_set::Listed;
use crate::ids::{ClientId, ShardId, TopicKey};
use crate::output::Refusal;
use consumer::Consumer;
use diskq_log::Log;
use output::{ClientOutput, Token, Verb};
use producer::Producer;
use session::Session;
use slotmap::SlotMap;
use std::time::Duration;
use wire::decode::ClientState;
use wire::error::WireError;
use wire::identify::ClientSettings;

/// All connections of a shard.
pub(crate) type Clients = SlotMap<ClientId, Client>;

/// A client whose unsent output exceeds this takes no more messages until some of it left: what it
/// cannot read stays in the log for others.
pub(crate) const OUTBOUND_BYTES_MAX: u64 = 256 * 1024;

/// A client with more bytes of unsent answers than this is not read until half of them have left: a
/// client that asks and does not read must not fill the memory. Messages do not count: a consumer
/// that is slow to take them may finish the ones it has.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The reason why a connection reads no further commands for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// Its publish found no room in the log; it is retried when the keeper has made some.
    Room(TopicKey),
    /// Its command waits until a topic has started, or has caught up; then the command is tried again.
    Topic(TopicKey),
    /// The answer to its SUB is not out yet, or waits behind others; no message may overtake it.
    Subscribing,
    /// An auth server is asked what the client may do.
    Authorizing(AuthReason),
    /// Too many bytes of its publishes are on their way to other shards.
    Forwards,
    /// Set while the client is not read because too many bytes of its answers are unsent; see
    /// [`ANSWER_BYTES_MAX`].
    Output,
    /// The connection moves to another shard as soon as all answers are out.
    Moving(ShardId),
    /// The connection waits until all answers are out, and then until its last upgrade is in place.
    Upgrading,
}

/// The end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The connection does not end.
    No,
    /// The connection is closed when all of its output has left.
    AfterOutput,
    /// The connection is closed now. No more output is sent.
    Now,
}

/// One connection. A connection that moves to another shard takes the whole `Client` along.
#[derive(Debug)]
pub struct Client {
    /// `ip:port`, for stats and the log.
    pub address: String,
    /// Unix time of the connect, in seconds.
    pub connected_at: i64,
    pub(crate) session: Session,
    pub(crate) producer: Producer,
    pub(crate) consumer: Consumer,
    pub(crate) output: ClientOutput,
    blocked: Option<Blocked>,
    ending: Ending,
    /// The reason of the end, if it is worth a line in the log.
    end_reason: Option<String>,
    /// The time at which the current wait for a command began.
    pub(crate) waiting_since: Duration,
    /// The times under which the broker's set of timers has the heartbeat and the read deadline of this client.
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
            session: Session::new(ip, settings.clone()),
            producer: Producer::default(),
            consumer: Consumer::new(settings),
            output: ClientOutput::default(),
            blocked: None,
            ending: Ending::No,
            end_reason: None,
            waiting_since: Duration::ZERO,
            heartbeat_at: None,
            deadline_at: None,
        }
    }

    /// Prepares the connection for its new shard. The new shard offers the unread input from the start of the
    /// unfinished command.
    pub(crate) fn change_shard(&mut self) {
        self.blocked = None;
        self.session.decoder.reset();
        self.producer.change_shard();
        self.output.in_to_flush = Listed::default();
    }

    // --- what it reads

    /// Stops reading its commands, until [`Client::unblock`] names the same reason.
    ///
    /// # Panics
    /// If the connection is blocked already. Callers block only a connection that is being read.
    pub(crate) fn block(&mut self, reason: Blocked) {
        assert!(self.blocked.is_none(), "one reason at a time");
        self.blocked = Some(reason);
    }

    /// Lets the broker read commands again if the connection was blocked for this reason. Returns true if it was.
    pub(crate) fn unblock(&mut self, reason: Blocked) -> bool {
        let is_reason = self.blocked == Some(reason);
        if is_reason {
            self.blocked = None;
        }
        is_reason
    }

    /// Returns why its commands are not read.
    pub(crate) fn blocked(&self) -> Option<Blocked> {
        self.blocked
    }

    /// True while no command of it is read.
    pub(crate) fn is_stopped(&self) -> bool {
        self.blocked.is_some() || self.ending != Ending::No
    }

    /// True when input of `bytes` bytes may hold something that can be carried out.
    #[inline]
    pub(crate) fn takes_input(&self, bytes: usize) -> bool {
        !self.is_stopped() && bytes >= self.session.needs().max(1)
    }

    /// Starts the wait for its next command anew.
    #[inline]
    pub(crate) fn heard(&mut self, now: Duration) {
        self.waiting_since = now;
    }

    // --- how it ends

    /// Returns how the connection ends.
    pub(crate) fn ending(&self) -> Ending {
        self.ending
    }

    /// Ends the connection once its output has left, unless it ends already.
    pub(crate) fn end_after_output(&mut self) {
        if self.ending == Ending::No {
            self.ending = Ending::AfterOutput;
        }
    }

    /// Ends the connection now: nothing more is sent.
    pub(crate) fn end_now(&mut self) {
        self.ending = Ending::Now;
    }

    /// Keeps the reason of the end for the log. The first reason counts.
    pub(crate) fn set_end_reason(&mut self, reason: String) {
        self.end_reason.get_or_insert(reason);
    }

    /// Takes the reason of the end.
    pub(crate) fn take_end_reason(&mut self) -> Option<String> {
        self.end_reason.take()
    }

    /// True when every byte of a dying connection has left, or it dies without ceremony.
    pub(crate) fn is_over(&self) -> bool {
        match self.ending {
            Ending::No => false,
            Ending::AfterOutput => self.output.is_empty(),
            Ending::Now => true,
        }
    }

    // --- what it is sent

    /// Returns how many messages it may be sent now.
    pub(crate) fn credit(&self) -> u32 {
        let takes = self.session.state == ClientState::Subscribed
            && self.ending == Ending::No
            && self.output.queue.bytes() < OUTBOUND_BYTES_MAX;
        if takes { self.consumer.credit() } else { 0 }
    }

    /// Replaces the queued runs of the log by copies. Returns false if a copied frame was damaged: then the connection
    /// ends, and its messages are delivered again.
    #[cold]
    #[must_use]
    pub(crate) fn copy_runs(&mut self, log: &mut Log) -> bool {
        let are_whole = self.output.copy_runs(log);
        if !are_whole {
            self.end_now();
            self.set_end_reason("messages on their way were lost to a failed sync".to_owned());
        }
        are_whole
    }

    /// True when the write deadline has passed: too little output has left within a heartbeat interval.
    pub(crate) fn is_overdue(&self, now: Duration) -> bool {
        let interval = self.consumer.settings.heartbeat;
        self.ending != Ending::Now && interval.is_some_and(|time| self.output.is_overdue(now, time))
    }

    /// Answers the current command with a complete frame.
    pub(crate) fn reply(&mut self, frame: &[u8]) {
        self.output.reply(frame);
    }

    /// Answers the current command with a text, such as JSON.
    pub(crate) fn reply_text(&mut self, text: &str) {
        let mut frame = Vec::with_capacity(text.len() + 8);
        wire::encode::response(&mut frame, text.as_bytes());
        self.reply(&frame);
    }

    /// Answers the current command with an error; a fatal one ends the connection once it is out.
    pub(crate) fn reply_error(&mut self, error: WireError) {
        if error.is_fatal() {
            self.end_after_output();
        }
        self.output.reply_error(error);
    }

    /// Promises an answer to the current command.
    pub(crate) fn reply_later(&mut self, verb: Verb) -> Token {
        self.output.reply_later(verb)
    }

    /// Fills in the answer that `reply_later` promised. Returns the text of the error frame if the answer is an error.
    pub(crate) fn resolve(&mut self, token: Token, result: Result<(), &Refusal>) -> Option<String> {
        let resolved = self.output.resolve(token, result);
        if resolved.is_fatal {
            self.end_after_output();
        }
        resolved.error_text
    }

    /// Asserts the invariants that concern several parts of the client.
    pub(crate) fn check(&self) {
        self.output.check();
        let subscription = self.consumer.subscription;
        let subscribed = self.session.state != ClientState::Init && self.ending != Ending::Now;
        assert!(subscription.is_some() == subscribed || self.ending == Ending::Now);
        assert!(subscription.is_some() || self.consumer.in_flight == 0);
        let is_upgrading = self.blocked == Some(Blocked::Upgrading);
        assert!(is_upgrading == self.session.next_upgrade().is_some());
    }
}
