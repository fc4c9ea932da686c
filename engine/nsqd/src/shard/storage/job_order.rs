//! [`JobOrder`]: orders the work of the keeper and of the urgent thread on the same topic.

use super::Duty;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Counts the unfinished jobs of each topic for which a job of the other thread must wait. Topics are told apart by
/// name, because a new topic may have the name of a deleted one. Jobs of segments take this lock, messages do not.
#[derive(Default)]
pub(super) struct JobOrder {
    pub(super) topics: Mutex<HashMap<Arc<str>, Unfinished>>,
    /// A job is finished.
    finished: Condvar,
}

/// The unfinished jobs of one topic.
#[derive(Default)]
pub(super) struct Unfinished {
    /// Jobs of the keeper that no urgent job may overtake.
    barriers: u32,
    urgent: u32,
}

impl JobOrder {
    /// Counts an urgent job of `topic`. Returns false, and counts nothing, if a barrier is in its way.
    pub(super) fn try_add_urgent(&self, topic: &Arc<str>) -> bool {
        let mut topics = self.topics.lock();
        let unfinished = topics.entry(Arc::clone(topic)).or_default();
        let may_overtake = unfinished.barriers == 0;
        unfinished.urgent += u32::from(may_overtake);
        may_overtake
    }

    /// Counts a job of the keeper that no urgent job of `topic` may overtake.
    pub(super) fn add_barrier(&self, topic: &Arc<str>) {
        let mut topics = self.topics.lock();
        topics.entry(Arc::clone(topic)).or_default().barriers += 1;
    }

    /// Ends the count of a job that its thread has finished.
    pub(super) fn finish(&self, topic: &Arc<str>, duty: Duty) {
        let mut topics = self.topics.lock();
        if let Entry::Occupied(mut entry) = topics.entry(Arc::clone(topic)) {
            let unfinished = entry.get_mut();
            unfinished.urgent -= u32::from(duty == Duty::Urgent);
            unfinished.barriers -= u32::from(duty == Duty::Keeper);
            if unfinished.urgent + unfinished.barriers == 0 {
                entry.remove();
            }
        }
        self.finished.notify_all();
    }

    /// Waits until no urgent job of `topic` is left. The topic must have a barrier, so no new one comes.
    pub(super) fn wait_for_urgent(&self, topic: &Arc<str>) {
        let has_urgent = |topics: &mut HashMap<Arc<str>, Unfinished>| {
            topics
                .get(topic)
                .is_some_and(|unfinished| unfinished.urgent > 0)
        };
        let mut topics = self.topics.lock();
        self.finished.wait_while(&mut topics, has_urgent);
    }
}
