//! [`Fences`]: what the keeper and the thread for urgent jobs do for each other's sake in their order.

use super::Duty;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Which jobs of a topic are not done yet, as far as those of the other thread must wait for them. By
/// name: its log may be that of a topic of the same name, deleted before. Looked at a few times for each
/// segment, not for each message.
#[derive(Default)]
pub(super) struct Fences {
    topics: Mutex<HashMap<Arc<str>, Undone>>,
    /// A job is done.
    done: Condvar,
}

/// Of a topic.
#[derive(Default)]
pub(super) struct Undone {
    /// Jobs that no urgent one may overtake.
    fences: u32,
    urgent: u32,
}

impl Fences {
    /// An urgent job of `topic` is to be done. False: something is in its way.
    pub(super) fn admit(&self, topic: &Arc<str>) -> bool {
        let mut topics = self.topics();
        let undone = topics.entry(Arc::clone(topic)).or_default();
        let may_overtake = undone.fences == 0;
        undone.urgent += u32::from(may_overtake);
        may_overtake
    }

    pub(super) fn put(&self, topic: &Arc<str>) {
        let mut topics = self.topics();
        topics.entry(Arc::clone(topic)).or_default().fences += 1;
    }

    /// A job that was admitted or put is done by its thread.
    pub(super) fn note_done(&self, topic: &Arc<str>, duty: Duty) {
        let mut topics = self.topics();
        if let Entry::Occupied(mut entry) = topics.entry(Arc::clone(topic)) {
            let undone = entry.get_mut();
            undone.urgent -= u32::from(duty == Duty::Urgent);
            undone.fences -= u32::from(duty == Duty::Keeper);
            if undone.urgent + undone.fences == 0 {
                entry.remove();
            }
        }
        self.done.notify_all();
    }

    /// Waits until no urgent job of `topic` is left. The topic must have a fence: no new one comes.
    pub(super) fn wait_for_urgent(&self, topic: &Arc<str>) {
        let has_urgent = |topics: &mut HashMap<Arc<str>, Undone>| {
            topics.get(topic).is_some_and(|undone| undone.urgent > 0)
        };
        let waited = self.done.wait_while(self.topics(), has_urgent);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn topics(&self) -> MutexGuard<'_, HashMap<Arc<str>, Undone>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
