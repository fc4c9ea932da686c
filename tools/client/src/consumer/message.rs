//! [`Message`], and its answer. [`Delivery`]: one message from its arrival to its answer.

#[cfg(feature = "dedup")]
mod claimed;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use wire::encode;
use wire::id::MessageId;

use super::backoff::Verdict;
use super::connection::ConsumerConnection;
use super::state::{ConsumerState, Phase, now};
use crate::address::Address;
use crate::connection::{Position, RawMessage, Sent};
use crate::error::ConnectionLost;
use crate::event::{Client, Event};

/// A message from nsqd.
///
/// The application answers each message: [`finish`](Message::finish), or [`requeue`](Message::requeue). The first
/// answer counts, and later ones do nothing. A message that is dropped without an answer is requeued as a failure, also
/// when the thread is unwinding or the runtime is gone; if the consumer is stopping, it goes back to nsqd at once.
///
/// # What is guaranteed
///
/// nsqd delivers each message *at least once*. The client adds neither loss nor order:
///
/// * A message that was not finished is never lost by the client. nsqd delivers the message again after its requeue
///   delay, or after the message timeout. nsqd also waits for this timeout if the connection has ended.
/// * [`finish`](Message::finish) resolved with `Ok`: the FIN has left for the socket, and nsqd does not confirm a FIN. The
///   message comes again only in three cases. nsqd did not get the FIN, because the connection broke, or a process or
///   machine died. The message had timed out before. Or nsqd itself delivers the message again after a crash.
/// * [`finish`](Message::finish) resolved with [`ConnectionLost`]: the message will be delivered again, unless nsqd read
///   the FIN before the connection broke.
#[derive(Debug)]
pub struct Message {
    body: Bytes,
    acker: Acker,
}

impl Message {
    pub(crate) fn new(body: Bytes, delivery: Delivery) -> Message {
        let acker = Acker(Held::Alone(delivery));
        Message { body, acker }
    }

    pub(crate) fn shared(body: Bytes, delivery: Arc<Delivery>) -> Message {
        let acker = Acker(Held::Shared(delivery));
        Message { body, acker }
    }

    /// Returns the message, and its delivery for somebody who observes the answer.
    pub(crate) fn share(self) -> (Message, Arc<Delivery>) {
        let delivery = match self.acker.0 {
            Held::Alone(delivery) => Arc::new(delivery),
            Held::Shared(delivery) => delivery,
        };
        (Message::shared(self.body, Arc::clone(&delivery)), delivery)
    }

    pub(crate) fn delivery(&self) -> &Delivery {
        self.acker.delivery()
    }

    /// Returns the id, which is unique within the topic of a node.
    #[must_use]
    pub fn id(&self) -> MessageId {
        self.delivery().id
    }

    /// Returns the published bytes. They share memory with other messages of the same read: copy a small body that is
    /// kept for long.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the time at which nsqd received the message, by nsqd's clock.
    #[must_use]
    pub fn timestamp(&self) -> SystemTime {
        let ns = self.delivery().timestamp_ns;
        let distance = Duration::from_nanos(ns.unsigned_abs());
        if ns < 0 {
            UNIX_EPOCH - distance
        } else {
            UNIX_EPOCH + distance
        }
    }

    /// Returns the number of deliveries, this one included: 1 for the first.
    #[must_use]
    pub fn attempts(&self) -> u16 {
        self.delivery().attempts
    }

    /// Returns the nsqd that has the message.
    #[must_use]
    pub fn node(&self) -> &Address {
        &self.delivery().source.connection.node
    }

    /// Returns the topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.delivery().source.state.topic
    }

    /// Returns the time at which nsqd gives up waiting for an answer and delivers the message again. A touch defers it,
    /// up to nsqd's `--max-msg-timeout`. The client knows the time of the arrival and not that of the delivery, so nsqd
    /// may be earlier by the time that the message was on its way.
    #[must_use]
    pub fn timeout_at(&self) -> Instant {
        self.delivery().timeout_at()
    }

    /// Tells nsqd that the message is done (FIN). Counts as a success for the backoff.
    ///
    /// The call itself queues the command. The returned future tells when the command has left for the socket; it need
    /// not be awaited.
    pub fn finish(&self) -> Answered {
        self.acker.finish()
    }

    /// Asks nsqd to deliver the message again later (REQ). Counts as a failure for the backoff.
    pub fn requeue(&self, requeue: Requeue) -> Answered {
        self.acker.requeue(requeue)
    }

    /// Asks nsqd to deliver the message again later (REQ). No backoff begins, and one that has begun goes on.
    pub fn requeue_without_backoff(&self, requeue: Requeue) -> Answered {
        self.acker.requeue_without_backoff(requeue)
    }

    /// Gives the message back to nsqd, which can deliver it again at once. This is for a message that the application
    /// has not begun to handle. No backoff begins, and one that has begun goes on.
    ///
    /// With ringq's nsqd (`req_uncounted`), this delivery is no attempt: the next one has the same
    /// [`attempts`](Self::attempts). With NSQ's nsqd, it is one.
    pub fn give_back(&self) -> Answered {
        self.acker.give_back()
    }

    /// Asks nsqd for more time (TOUCH): the message timeout begins again. Does nothing after an answer.
    pub fn touch(&self) -> Answered {
        self.acker.touch()
    }

    /// Returns true if the message has been answered.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.acker.is_answered()
    }

    /// Lets the result of the handler of [`Consumer::run`](crate::Consumer::run) count for nothing: the application
    /// answers the message itself, then or later. Outside of `run` this changes nothing.
    pub fn disable_auto_response(&self) {
        self.delivery().set_manual();
    }

    /// Separates the body from the answer, which can then be given elsewhere.
    #[must_use]
    pub fn split(self) -> (Bytes, Acker) {
        (self.body, self.acker)
    }
}

/// The answer to a [`Message`], without its body. Dropped without an answer, it requeues the message as a failure.
#[derive(Debug)]
pub struct Acker(Held);

#[derive(Debug)]
enum Held {
    Alone(Delivery),
    Shared(Arc<Delivery>),
}

impl Acker {
    #[inline]
    fn delivery(&self) -> &Delivery {
        match &self.0 {
            Held::Alone(delivery) => delivery,
            Held::Shared(delivery) => delivery,
        }
    }

    /// Returns the id of the message.
    #[must_use]
    pub fn id(&self) -> MessageId {
        self.delivery().id
    }

    /// Returns the number of deliveries, this one included.
    #[must_use]
    pub fn attempts(&self) -> u16 {
        self.delivery().attempts
    }

    /// See [`Message::finish`].
    #[inline]
    pub fn finish(&self) -> Answered {
        self.delivery().finish()
    }

    /// See [`Message::requeue`].
    pub fn requeue(&self, requeue: Requeue) -> Answered {
        self.delivery().requeue(requeue, Verdict::Failure)
    }

    /// See [`Message::requeue_without_backoff`].
    pub fn requeue_without_backoff(&self, requeue: Requeue) -> Answered {
        self.delivery().requeue(requeue, Verdict::Neutral)
    }

    /// See [`Message::give_back`].
    pub fn give_back(&self) -> Answered {
        self.delivery().give_back()
    }

    /// See [`Message::touch`].
    pub fn touch(&self) -> Answered {
        self.delivery().touch()
    }

    /// Returns true if the message has been answered.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.delivery().is_answered()
    }
}

/// The time after which nsqd delivers a requeued message again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Requeue {
    /// `default_requeue_delay` times the attempts, at most `max_requeue_delay`.
    Automatic,
    /// This delay, in whole milliseconds. Zero means at once. nsqd shortens it to its own `--max-req-timeout`.
    After(Duration),
}

/// A future that says whether an answer has left for the socket.
///
/// The future resolves with `Ok` when the command has left for the socket. nsqd does not confirm the command. The
/// future may be dropped and need not be awaited, because the command is queued already. The future of a second answer
/// resolves at once, because nothing is sent.
#[derive(Debug)]
pub struct Answered(Way);

#[derive(Debug)]
enum Way {
    Sent(Sent),
    /// The answer waits until a store has heard of it.
    #[cfg(feature = "dedup")]
    Later(tokio::sync::oneshot::Receiver<Answered>),
    Over(Result<(), ConnectionLost>),
}

impl Answered {
    /// Makes the future of a command that is queued for `connection`, or that the connection has refused.
    #[inline]
    fn of(connection: &ConsumerConnection, queued: Result<Position, ConnectionLost>) -> Answered {
        Answered(match queued {
            Ok(position) => Way::Sent(connection.outbox.sent(position)),
            Err(lost) => Way::Over(Err(lost)),
        })
    }

    fn nothing() -> Answered {
        Answered(Way::Over(Ok(())))
    }
}

impl Future for Answered {
    type Output = Result<(), ConnectionLost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Way::Sent(sent) => Pin::new(sent).poll(cx),
            Way::Over(result) => Poll::Ready(*result),
            #[cfg(feature = "dedup")]
            Way::Later(answered) => {
                let answered = std::task::ready!(Pin::new(answered).poll(cx));
                // A runtime that ends takes the connection with it.
                *self = answered.unwrap_or(Answered(Way::Over(Err(ConnectionLost))));
                self.poll(cx)
            }
        }
    }
}

/// A message that the consumer gives up, because its attempts exceed `max_attempts`. After the callback, the message is
/// finished.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GivenUp {
    /// The id of the message.
    pub id: MessageId,
    /// The published bytes.
    pub body: Bytes,
    /// The number of deliveries, this one included.
    pub attempts: u16,
    /// The time at which nsqd received the message, by nsqd's clock.
    pub timestamp: SystemTime,
    /// The topic.
    pub topic: String,
    /// The nsqd that has the message.
    pub node: Address,
}

impl From<&Message> for GivenUp {
    fn from(message: &Message) -> GivenUp {
        GivenUp {
            id: message.id(),
            body: message.body().clone(),
            attempts: message.attempts(),
            timestamp: message.timestamp(),
            topic: message.topic().to_owned(),
            node: message.node().clone(),
        }
    }
}

/// Displays the message as log lines of NSQ's client name it: by its id.
impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GivenUp { id, attempts, .. } = self;
        write!(f, "msg {id} attempted {attempts} times, giving up")
    }
}

/// The origin of a message. One allocation serves all messages of a connection.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) state: Arc<ConsumerState>,
    pub(crate) connection: Arc<ConsumerConnection>,
}

impl Source {
    /// Reports an event of the connection.
    pub(crate) fn emit(&self, event: impl FnOnce(Client, Address) -> Event) {
        let events = &self.state.events;
        events.emit(|client| event(client, self.connection.node.clone()));
    }

    /// Counts an answer and sends its command.
    #[inline]
    fn send(
        &self,
        verdict: Verdict,
        is_finish: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Answered {
        let Source { state, connection } = self;
        let queued = state.answer(connection, verdict, is_finish, write);
        Answered::of(connection, queued)
    }
}

/// One message that nsqd waits for. The first answer counts. A delivery that is dropped without an answer is requeued.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) source: Arc<Source>,
    pub(crate) id: MessageId,
    pub(crate) attempts: u16,
    pub(crate) timestamp_ns: i64,
    pub(crate) delivered_at: Instant,
    /// The time of the last touch, in nanoseconds since the delivery.
    touched_ns: AtomicU64,
    is_answered: AtomicBool,
    /// True when the result of a handler is no answer.
    is_manual: AtomicBool,
    /// The claim on the message's key, if messages are recognised. The answer takes the claim.
    #[cfg(feature = "dedup")]
    claim: claimed::ClaimCell,
    /// True when the message waited, because a copy was being handled.
    #[cfg(feature = "dedup")]
    has_waited: AtomicBool,
}

impl Delivery {
    pub(crate) fn new(
        source: &Arc<Source>,
        delivered_at: Instant,
        message: &RawMessage,
    ) -> Delivery {
        Delivery {
            source: Arc::clone(source),
            id: message.id,
            attempts: message.attempts,
            timestamp_ns: message.timestamp_ns,
            delivered_at,
            touched_ns: AtomicU64::new(0),
            is_answered: AtomicBool::new(false),
            is_manual: AtomicBool::new(false),
            #[cfg(feature = "dedup")]
            claim: claimed::ClaimCell::default(),
            #[cfg(feature = "dedup")]
            has_waited: AtomicBool::new(false),
        }
    }

    /// Returns true if there has been an answer.
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Acquire)
    }

    /// Lets the result of the handler count for nothing.
    pub(crate) fn set_manual(&self) {
        self.is_manual.store(true, Ordering::Release);
    }

    /// Returns true if the result of the handler counts for nothing.
    pub(crate) fn is_manual(&self) -> bool {
        self.is_manual.load(Ordering::Acquire)
    }

    /// Returns the time at which the timeout of the message is over, unless it is touched.
    pub(crate) fn timeout_at(&self) -> Instant {
        let touched = Duration::from_nanos(self.touched_ns.load(Ordering::Relaxed));
        let connection = &self.source.connection;
        let lifetime = touched.saturating_add(connection.msg_timeout);
        self.delivered_at + lifetime.min(connection.msg_timeout_max.max(connection.msg_timeout))
    }

    /// Returns true if the attempts of the message are over, so that the application is not to have it.
    pub(crate) fn is_given_up(&self) -> bool {
        let attempts_max = self.source.state.config.max_attempts;
        #[cfg(feature = "dedup")]
        let attempts_max = self.attempts_max(attempts_max);
        attempts_max != 0 && self.attempts > attempts_max
    }

    /// Sends FIN. Each answer of this type queues its command at once, and its future only tells when the command has
    /// left. So the caller may drop the future.
    #[inline]
    pub(crate) fn finish(&self) -> Answered {
        self.answer(Verdict::Success, true, |out| encode::fin(out, &self.id))
    }

    /// Sends REQ.
    pub(crate) fn requeue(&self, requeue: Requeue, verdict: Verdict) -> Answered {
        let config = &self.source.state.config;
        let delay = match requeue {
            Requeue::After(delay) => delay,
            Requeue::Automatic => config
                .default_requeue_delay
                .saturating_mul(u32::from(self.attempts))
                .min(config.max_requeue_delay),
        };
        self.answer(verdict, false, |out| encode::req(out, &self.id, delay))
    }

    /// Gives a message that no application has handled back to nsqd at once, for other consumers. If nsqd has agreed,
    /// this delivery does not count as an attempt.
    pub(crate) fn give_back(&self) -> Answered {
        self.give_back_after(Duration::ZERO)
    }

    /// Gives a message that no application has handled back to nsqd, which delivers it again after `delay`.
    pub(crate) fn give_back_after(&self, delay: Duration) -> Answered {
        self.answer(Verdict::Neutral, false, |out| {
            if self.source.connection.has_uncounted {
                encode::req_uncounted(out, &self.id, delay)
            } else {
                encode::req(out, &self.id, delay)
            }
        })
    }

    /// Counts the message as answered without a command: its connection is over.
    pub(crate) fn forget(&self) {
        self.is_answered.store(true, Ordering::Release);
        #[cfg(feature = "dedup")]
        self.release_claim();
    }

    /// Counts the message as answered without a command: its timeout is over.
    pub(crate) fn time_out(&self) {
        if !self.is_answered.swap(true, Ordering::AcqRel) {
            #[cfg(feature = "dedup")]
            self.release_claim();
            self.source.connection.count_answered();
        }
    }

    #[inline]
    fn answer(
        &self,
        verdict: Verdict,
        is_finish: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Answered {
        if self.is_answered.swap(true, Ordering::AcqRel) {
            return Answered::nothing();
        }
        #[cfg(feature = "dedup")]
        let claim = self.claim.lock().take();
        #[cfg(feature = "dedup")]
        if let Some(claim) = claim {
            return self.answer_claimed(claim, verdict, is_finish, write);
        }
        self.source.send(verdict, is_finish, write)
    }

    /// Sends TOUCH, unless there has been an answer.
    pub(crate) fn touch(&self) -> Answered {
        if self.is_answered() {
            return Answered::nothing();
        }
        let connection = &self.source.connection;
        let queued = connection.send(|out| encode::touch(out, &self.id));
        if queued.is_ok() {
            let age = now().duration_since(self.delivered_at).as_nanos();
            let age = u64::try_from(age).unwrap_or(u64::MAX);
            self.touched_ns.store(age, Ordering::Relaxed);
        }
        Answered::of(connection, queued)
    }
}

/// A delivery without an answer is requeued: after the automatic delay as a failure, or at once if the consumer stops.
impl Drop for Delivery {
    fn drop(&mut self) {
        if *self.is_answered.get_mut() {
            return;
        }
        match self.source.state.phase() {
            Phase::Running => self.requeue(Requeue::Automatic, Verdict::Failure),
            Phase::Stopping | Phase::Stopped => {
                self.requeue(Requeue::After(Duration::ZERO), Verdict::Neutral)
            }
        };
    }
}
