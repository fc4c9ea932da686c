//! [`Delivery`]: one message from its arrival to its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use wire::encode;
use wire::id::MessageId;

use super::{Answered, Requeue};
use crate::backoff::Verdict;
use crate::core::RawMessage;
use crate::hub::{Hub, Phase, now};
use crate::line::Line;

#[cfg(feature = "dedup")]
mod claimed;

/// The origin of a message. One allocation serves all messages of a connection.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) hub: Arc<Hub>,
    pub(crate) line: Arc<Line>,
}

impl Source {
    /// Counts an answer and sends its command.
    #[inline]
    fn send(
        &self,
        verdict: Verdict,
        is_finish: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Answered {
        let Source { hub, line } = self;
        match hub.answer(line, verdict, is_finish, write) {
            Ok(position) => Answered::sent(line.outbox(), position),
            Err(lost) => Answered::lost(lost),
        }
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
        let line = &self.source.line;
        let lifetime = touched.saturating_add(line.msg_timeout);
        self.delivered_at + lifetime.min(line.msg_timeout_max.max(line.msg_timeout))
    }

    /// Returns true if the attempts of the message are over, so that the application is not to have it.
    pub(crate) fn is_given_up(&self) -> bool {
        let attempts_max = self.source.hub.config.max_attempts;
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
        let config = &self.source.hub.config;
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
            if self.source.line.has_uncounted {
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
            self.source.line.count_answered();
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
        if let Some(claim) = self.claim.take() {
            return self.answer_claimed(claim, verdict, is_finish, write);
        }
        self.source.send(verdict, is_finish, write)
    }

    /// Sends TOUCH, unless there has been an answer.
    pub(crate) fn touch(&self) -> Answered {
        if self.is_answered() {
            return Answered::nothing();
        }
        let line = &self.source.line;
        match line.send(|out| encode::touch(out, &self.id)) {
            Ok(position) => {
                let age = now().duration_since(self.delivered_at).as_nanos();
                let age = u64::try_from(age).unwrap_or(u64::MAX);
                self.touched_ns.store(age, Ordering::Relaxed);
                Answered::sent(line.outbox(), position)
            }
            Err(lost) => Answered::lost(lost),
        }
    }
}

/// A delivery without an answer is requeued: after the automatic delay as a failure, or at once if the consumer stops.
impl Drop for Delivery {
    fn drop(&mut self) {
        if *self.is_answered.get_mut() {
            return;
        }
        match self.source.hub.phase() {
            Phase::Running => self.requeue(Requeue::Automatic, Verdict::Failure),
            Phase::Stopping | Phase::Stopped => {
                self.requeue(Requeue::After(Duration::ZERO), Verdict::Neutral)
            }
        };
    }
}
