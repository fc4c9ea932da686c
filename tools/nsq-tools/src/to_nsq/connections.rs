//! [`Connections`]: what the events of the producer say about its connections.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use program::log_warn;
use ringq_client::Event;

/// The state of the producer's connections, as the events tell it.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// The reason why the last connection that ended has ended.
    lost: Mutex<Option<String>>,
    /// True if an nsqd was connected that takes the numbers of the records.
    has_numbers: AtomicBool,
    /// True if an nsqd was connected that takes no numbers, although the records have some.
    lacks_numbers: AtomicBool,
}

impl Connections {
    /// Takes an event. With `numbers_messages`, warns once of an nsqd that takes no numbers.
    pub(super) fn learn(&self, event: &Event, numbers_messages: bool) {
        match event {
            Event::Connected { negotiated, .. } if numbers_messages && negotiated.publisher_id => {
                self.has_numbers.store(true, Ordering::Relaxed);
            }
            Event::Connected { node, .. } if numbers_messages => {
                let is_known = self.lacks_numbers.swap(true, Ordering::Relaxed);
                if !is_known {
                    log_warn!(
                        "{node} takes no numbers, so --number-messages has no effect: start our nsqd with \
                         --dedup=TOPIC=publisher"
                    );
                }
            }
            Event::Disconnected {
                node,
                error: Some(error),
                ..
            } => *self.lost.lock() = Some(format!("{node}: {error}")),
            _ => {}
        }
    }

    /// Returns true if all nsqds that were connected recognise numbered records that they have, and there was one.
    pub(super) fn has_only_numbering_nsqds(&self) -> bool {
        self.has_numbers.load(Ordering::Relaxed) && !self.lacks_numbers.load(Ordering::Relaxed)
    }

    /// Returns the reason why a connection has ended since the last call.
    pub(super) fn take_loss(&self) -> Option<String> {
        self.lost.lock().take()
    }
}
