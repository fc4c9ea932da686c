//! [`Inbox`]: the messages that wait for the application. One wake-up and one lock serve all messages of a read.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;

use super::message::Message;
use super::ready::ConnectionId;

/// The messages that wait for the application, oldest first. Connections add to it, and one task takes from it.
///
/// The inbox counts the messages of each connection, so that the connection can keep a bound (see
/// [`Receiver`](super::node::Receiver)).
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<InboxQueue>);

#[derive(Debug, Default)]
struct InboxQueue {
    queue: VecDeque<Message>,
    /// The number of messages of each connection that has some.
    waiting: BTreeMap<ConnectionId, usize>,
    waker: Option<Waker>,
    /// True when messages go back to nsqd instead of waiting here.
    is_refusing: bool,
    /// True when nothing comes any more.
    is_over: bool,
}

impl Inbox {
    /// Takes over the messages of a connection. If the inbox refuses them, they stay.
    pub(crate) fn push(&self, from: ConnectionId, messages: &mut Vec<Message>) {
        let mut state = self.0.lock();
        if state.is_refusing || messages.is_empty() {
            return;
        }
        *state.waiting.entry(from).or_default() += messages.len();
        state.queue.extend(messages.drain(..));
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the number of messages of a connection.
    pub(crate) fn waiting(&self, from: ConnectionId) -> usize {
        self.0.lock().waiting.get(&from).copied().unwrap_or(0)
    }

    /// Removes the messages whose timeout is over by `now`.
    pub(crate) fn remove_timed_out(&self, now: Instant) -> VecDeque<Message> {
        self.0
            .lock()
            .split(|message| message.delivery().timeout_at() <= now)
    }

    /// Removes the messages of a connection that is over.
    pub(crate) fn remove(&self, from: ConnectionId) -> VecDeque<Message> {
        let mut state = self.0.lock();
        if state.waiting.contains_key(&from) {
            state.split(|message| message.delivery().source.connection.id == from)
        } else {
            VecDeque::new()
        }
    }

    /// Moves all messages into the empty `into`. Ready with false when nothing comes any more.
    pub(crate) fn poll_take(
        &self,
        cx: &mut Context<'_>,
        into: &mut VecDeque<Message>,
    ) -> Poll<bool> {
        let mut state = self.0.lock();
        if !state.queue.is_empty() {
            std::mem::swap(&mut state.queue, into);
            state.waiting.clear();
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
        let mut state = self.0.lock();
        state.is_refusing = true;
        state.waiting.clear();
        std::mem::take(&mut state.queue)
    }

    /// Returns the number of messages.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().queue.len()
    }

    /// Wakes the task that takes messages.
    pub(crate) fn wake(&self) {
        let waker = self.0.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// States that nothing comes any more.
    pub(crate) fn close(&self) {
        self.0.lock().is_over = true;
        self.wake();
    }
}

impl InboxQueue {
    /// Removes the messages for which `is_out` is true, and returns them. They must be dropped without the lock,
    /// because a message that is dropped may be answered.
    fn split(&mut self, is_out: impl Fn(&Message) -> bool) -> VecDeque<Message> {
        let (out, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(is_out);
        self.queue = kept;
        for message in &out {
            let from = message.delivery().source.connection.id;
            if let Some(waiting) = self.waiting.get_mut(&from) {
                *waiting -= 1;
                if *waiting == 0 {
                    self.waiting.remove(&from);
                }
            }
        }
        out
    }
}
