//! How the tasks of a shard wait: [`Task`] for the broker, such as HTTP requests, [`Wake`] for another task, and
//! [`Gathering`] for more input.

use crate::reactor;
use crate::shard::Clock;
use engine_rules::{TaskId, Wakeup};
use futures_channel::oneshot;
use futures_lite::future;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::mem;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// The waiting tasks of a shard, by the number under which the broker knows them.
#[derive(Default)]
pub(crate) struct Tasks {
    waiting: RefCell<HashMap<TaskId, oneshot::Sender<Wakeup>>>,
    next: Cell<u64>,
}

impl Tasks {
    /// Starts a task with a number of its own.
    pub(crate) fn start(self: &Rc<Self>) -> Task {
        let id = TaskId(self.next.get());
        self.next.set(id.0 + 1);
        let (sender, woken) = oneshot::channel();
        self.waiting.borrow_mut().insert(id, sender);
        Task {
            id,
            woken,
            tasks: self.clone(),
        }
    }

    /// Lets a task go on. Does nothing for a task that was dropped.
    pub(crate) fn wake(&self, id: TaskId, wakeup: Wakeup) {
        if let Some(sender) = self.waiting.borrow_mut().remove(&id) {
            let _ = sender.send(wakeup);
        }
    }
}

/// A task that the broker can wake once. Dropping the task forgets it: there was nothing to wait for, or
/// no HTTP client waits any more.
pub(crate) struct Task {
    pub(crate) id: TaskId,
    woken: oneshot::Receiver<Wakeup>,
    tasks: Rc<Tasks>,
}

impl Task {
    /// Waits until the broker wakes the task. `None`: the broker will not wake it any more.
    pub(crate) async fn woken(mut self) -> Option<Wakeup> {
        (&mut self.woken).await.ok()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.tasks.waiting.borrow_mut().remove(&self.id);
    }
}

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
        future::poll_fn(|cx| {
            if self.is_set.replace(false) {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};

    #[test]
    fn a_task_is_woken_by_its_number_and_forgotten_however_it_ends() {
        let tasks = Rc::new(Tasks::default());
        let (first, second) = (tasks.start(), tasks.start());
        let (first_id, second_id) = (first.id, second.id);
        tasks.wake(second_id, Wakeup::Retry);
        assert_eq!(block_on(second.woken()), Some(Wakeup::Retry));
        assert!(tasks.waiting.borrow().contains_key(&first_id));
        // Its future is dropped while it waits: the HTTP client hung up.
        assert_eq!(block_on(poll_once(first.woken())), None);
        // It had nothing to wait for: a topic that is not there.
        drop(tasks.start());
        assert!(tasks.waiting.borrow().is_empty());
        tasks.wake(first_id, Wakeup::Retry);
    }
}
