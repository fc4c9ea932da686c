//! The wait of a connection for the answer of an auth server.

use super::Connection;
use crate::auth::Question;
use crate::reactor::{self, Sleep};
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

/// The time before the first look whether the peer of a question is still there, doubled each time up to the maximum:
/// ten thousand questions may wait for a slow auth server.
const GONE_INTERVAL: Duration = Duration::from_millis(100);
const GONE_INTERVAL_MAX: Duration = Duration::from_secs(2);

/// A question to an auth server that waits for its answer.
pub(super) struct Asking {
    question: Question,
    /// The pause before the next look. It doubles with each look, up to [`GONE_INTERVAL_MAX`].
    interval: Duration,
    /// Ends when the connection looks again whether its peer is still there.
    look: Sleep,
}

impl Connection {
    /// Holds a question until its answer is there. The question of a peer that goes meanwhile is dropped.
    pub(crate) fn wait_for_answer(&self, question: Question) {
        *self.question.borrow_mut() = Some(Box::new(Asking {
            question,
            interval: GONE_INTERVAL,
            look: reactor::sleep(GONE_INTERVAL),
        }));
        self.wake_reader();
    }

    /// Forgets the question.
    pub(crate) fn end_wait(&self) {
        drop(self.question.take());
    }

    /// Returns true when the peer has ended its side while its question waits and fewer threads are free than questions
    /// wait. Then no auth server is asked. In all other cases the question is asked and answered, because a peer may
    /// end its side and still listen.
    pub(super) fn poll_gone(&self, cx: &mut Context<'_>) -> bool {
        let mut question = self.question.borrow_mut();
        let Some(asking) = question.as_mut() else {
            return false;
        };
        while Pin::new(&mut asking.look).poll(cx).is_ready() {
            if self.transport.stream().has_hung_up() && asking.question.take_back_if_no_thread() {
                return true;
            }
            asking.interval = (asking.interval * 2).min(GONE_INTERVAL_MAX);
            asking.look = reactor::sleep(asking.interval);
        }
        false
    }
}
