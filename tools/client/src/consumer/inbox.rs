//! [`Inbox`]: the messages that wait for the application. One wake-up and one lock serve all messages of a read.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::message::Message;

/// The messages that wait for the application, oldest first. Connections add to it, and one task takes from it.
///
/// RDY bounds it to `max_in_flight` messages while the application takes them. If the application takes none for longer
/// than the message timeout, nsqd sends messages that have timed out again, and the inbox grows by up to `max_in_flight`
/// messages per timeout. The inbox has no bound of its own against an nsqd that ignores RDY.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Message>,
    waker: Option<Waker>,
    /// True when messages go back to nsqd instead of waiting here.
    is_refusing: bool,
    /// True when nothing comes any more.
    is_over: bool,
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        // No section of the lock can be left half done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the messages. If the inbox refuses them, they stay.
    pub(crate) fn push(&self, messages: &mut Vec<Message>) {
        let mut state = self.state();
        if state.is_refusing {
            return;
        }
        state.queue.extend(messages.drain(..));
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Moves all messages into the empty `into`. Ready with false when nothing comes any more.
    pub(crate) fn poll_take(
        &self,
        cx: &mut Context<'_>,
        into: &mut VecDeque<Message>,
    ) -> Poll<bool> {
        let mut state = self.state();
        if !state.queue.is_empty() {
            std::mem::swap(&mut state.queue, into);
            return Poll::Ready(true);
        }
        if state.is_over {
            return Poll::Ready(false);
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => state.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Returns all messages. From now on the inbox refuses messages.
    pub(crate) fn refuse(&self) -> VecDeque<Message> {
        let mut state = self.state();
        state.is_refusing = true;
        std::mem::take(&mut state.queue)
    }

    /// Wakes the task that takes messages.
    pub(crate) fn wake(&self) {
        let waker = self.state().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// States that nothing comes any more.
    pub(crate) fn close(&self) {
        self.state().is_over = true;
        self.wake();
    }
}
