//! [`Wake`]: how the tasks of a shard wake each other.

use futures_lite::future;
use std::cell::{Cell, RefCell};
use std::task::{Poll, Waker};

/// Tells one task of the same shard that there is something to do.
#[derive(Default)]
pub(super) struct Wake {
    is_set: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Wake {
    pub(super) fn is_set(&self) -> bool {
        self.is_set.get()
    }

    pub(super) fn set(&self) {
        if !self.is_set.replace(true)
            && let Some(waker) = self.waker.borrow_mut().take()
        {
            waker.wake();
        }
    }

    pub(super) async fn wait(&self) {
        future::poll_fn(|cx| self.poll(cx.waker())).await;
    }

    fn poll(&self, waker: &Waker) -> Poll<()> {
        if self.is_set.replace(false) {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(waker.clone());
        Poll::Pending
    }
}
