//! [`Gathering`]: lets the input of several connections gather, so that one turn serves all of it.

use crate::reactor;
use crate::shard::clock::Clock;
use futures_lite::future;
use std::cell::{Cell, RefCell};
use std::mem;
use std::task::{Poll, Waker};
use std::time::Duration;

/// The tasks of a shard whose sockets may be read a little later. Tasks that may wait are woken together.
#[derive(Default)]
pub(super) struct Gathering {
    /// The time at which the waiting tasks go on, all together.
    until: Cell<Option<Duration>>,
    waiting: RefCell<Vec<Waker>>,
}

impl Gathering {
    /// Waits for `time` at most.
    pub(super) async fn wait(&self, clock: Clock, time: Duration) {
        let end = clock.now().mono + time;
        match self.until.get() {
            Some(until) if until <= end => {
                let mut is_over = false;
                future::poll_fn(|cx| {
                    if mem::replace(&mut is_over, true) {
                        return Poll::Ready(());
                    }
                    self.waiting.borrow_mut().push(cx.waker().clone());
                    Poll::Pending
                })
                .await;
            }
            // The others wait for longer than this task may.
            Some(_) => reactor::sleep(time).await,
            None => {
                self.until.set(Some(end));
                reactor::sleep(time).await;
                self.until.set(None);
                self.waiting.borrow_mut().drain(..).for_each(Waker::wake);
            }
        }
    }
}
