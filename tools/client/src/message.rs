//! [`Message`], and its answer.

pub(crate) mod delivery;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use wire::id::MessageId;

use crate::address::Address;
use crate::backoff::Verdict;
use crate::error::ConnectionLost;
use crate::outbox::{Outbox, Position, Sent};
use delivery::Delivery;

/// A message from nsqd.
///
/// The application answers each message: [`finish`](Message::finish), or [`requeue`](Message::requeue). The first answer
/// counts, and later ones do nothing. A message that is dropped without an answer is requeued as a failure, also when
/// the thread is unwinding or the runtime is gone; if the consumer is stopping, it goes back to nsqd at once.
///
/// # What is guaranteed
///
/// nsqd delivers each message *at least once*. The client adds neither loss nor order:
///
/// * A message that was not finished is never lost by the client. nsqd delivers the message again after its requeue
///   delay, or after the message timeout. nsqd also waits for this timeout if the connection has ended.
/// * A message whose [`finish`](Message::finish) resolved with `Ok` comes again only if nsqd did not get the FIN from the
///   socket (the connection broke, or a process or machine died), if the message had timed out before, or if nsqd itself
///   delivers it again after a crash. nsqd does not confirm a FIN.
/// * A message whose [`finish`](Message::finish) resolved with [`ConnectionLost`] will be delivered again, unless nsqd
///   read the FIN before the connection broke.
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

    /// Returns the published bytes. They share memory with other messages of the same read: copy a small body that is kept
    /// for long.
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
        &self.delivery().source.line.node
    }

    /// Returns the topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.delivery().source.hub.topic
    }

    /// Returns the time at which nsqd gives up waiting for an answer and delivers the message again. A touch defers it, up
    /// to nsqd's `--max-msg-timeout`. The client knows the time of the arrival and not that of the delivery, so nsqd may
    /// be earlier by the time that the message was on its way.
    #[must_use]
    pub fn timeout_at(&self) -> Instant {
        self.delivery().timeout_at()
    }

    /// Tells nsqd that the message is done (FIN). Counts as a success for the backoff.
    ///
    /// The call itself queues the command. The returned future tells when the command has left for the socket; it need not
    /// be awaited.
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

    /// Gives the message back to nsqd, which can deliver it again at once. This is for a message that the application has
    /// not begun to handle. No backoff begins, and one that has begun goes on.
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
    #[inline]
    pub(crate) fn sent(outbox: &Outbox, position: Position) -> Answered {
        Answered(Way::Sent(outbox.sent(position)))
    }

    /// An answer whose command is not queued yet.
    #[cfg(feature = "dedup")]
    pub(crate) fn later(answered: tokio::sync::oneshot::Receiver<Answered>) -> Answered {
        Answered(Way::Later(answered))
    }

    pub(crate) fn nothing() -> Answered {
        Answered(Way::Over(Ok(())))
    }

    pub(crate) fn lost(lost: ConnectionLost) -> Answered {
        Answered(Way::Over(Err(lost)))
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
                *self = answered.unwrap_or_else(|_| Answered::lost(ConnectionLost));
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
