//! [`Touching`]: the messages of one connection that the library touches until they are answered.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::message::delivery::Delivery;

/// Touches messages for an application that takes longer than the message timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoTouch {
    /// The time after which a message is touched no more, counted from its arrival. nsqd then delivers it again when the
    /// message timeout is over. nsqd has a limit of its own, `--max-msg-timeout`, which is 15 min by default.
    pub limit: Duration,
}

/// The messages to touch, in the order in which they are due. All have the same interval.
#[derive(Debug)]
pub(crate) struct Touching {
    interval: Duration,
    limit: Duration,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<(Instant, Weak<Delivery>)>,
    /// The number of entries at which answered messages are removed.
    sweep_at: usize,
}

/// The fewest entries at which answered messages are removed.
const SWEEP_MIN: usize = 64;

impl Touching {
    /// A message is touched whenever half of `msg_timeout` is over.
    pub(crate) fn new(auto: AutoTouch, msg_timeout: Duration) -> Touching {
        Touching {
            interval: (msg_timeout / 2).max(Duration::from_millis(1)),
            limit: auto.limit,
            queue: Mutex::new(Queue::default()),
        }
    }

    /// Adds a message that has just arrived.
    pub(crate) fn add(&self, delivery: &Arc<Delivery>) {
        let mut queue = self.queue.lock();
        let due = delivery.delivered_at + self.interval;
        queue.entries.push_back((due, Arc::downgrade(delivery)));
        if queue.entries.len() > queue.sweep_at.max(SWEEP_MIN) {
            // Each sweep leaves room for as many messages as it kept, so it costs a constant time per message.
            queue
                .entries
                .retain(|(_, message)| message.strong_count() > 0);
            queue.sweep_at = 2 * queue.entries.len();
        }
    }

    /// Returns the time of the next touch. A message that arrives after `now` is due later than that.
    pub(crate) fn next_timeout(&self, now: Instant) -> Instant {
        let queue = self.queue.lock();
        let first = queue.entries.front().map(|(due, _)| *due);
        first.unwrap_or(now + self.interval)
    }

    /// Touches the messages that are due, and drops those that are answered or older than the limit.
    pub(crate) fn handle_timeout(&self, now: Instant) {
        let mut due = Vec::new();
        let mut queue = self.queue.lock();
        while queue.entries.front().is_some_and(|(at, _)| *at <= now) {
            let (_, message) = queue.entries.pop_front().expect("there is a first");
            let Some(message) = message.upgrade() else {
                continue;
            };
            let is_young = now.duration_since(message.delivered_at) < self.limit;
            if is_young && !message.is_answered() {
                queue
                    .entries
                    .push_back((now + self.interval, Arc::downgrade(&message)));
            }
            // The last reference may be dropped here. Its answer must not come under the lock.
            due.push((message, is_young));
        }
        drop(queue);
        for (message, is_young) in due {
            if is_young {
                // A connection that is lost needs no touch.
                message.touch();
            }
        }
    }
}
