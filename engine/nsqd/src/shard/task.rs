//! Tasks of the shell that wait for the broker, for example HTTP requests.

use engine_rules::{TaskId, Wakeup};
use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

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
