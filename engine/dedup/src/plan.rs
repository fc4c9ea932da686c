//! [`Plan`]: the sizes of a topic's tables of keys, by the window and the memory of its rule.

use crate::generation::{SLOT_BYTES, keys_max, slots_for};
use std::time::Duration;

/// Generations of a topic.
pub(crate) const GENERATIONS: usize = 8;

/// The least memory of a topic's keys. Each generation then has 64 slots.
pub(crate) const MEMORY_MIN: u64 = (GENERATIONS * SLOT_BYTES * 64) as u64;
/// The most memory of a topic's keys, 64 GiB.
pub(crate) const MEMORY_MAX: u64 = 1 << 36;
/// The memory of a topic's keys, if the window has no length in messages: 16 MiB, for 734,000 to 838,000 keys.
pub(crate) const MEMORY_DEFAULT: u64 = 16 << 20;

/// The window in which a topic remembers keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyWindow {
    /// This number of stored messages.
    Count(u64),
    /// This time since a message was stored.
    Time(Duration),
}

/// The times of a window in time, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// The time after which a generation ends.
    pub(crate) generation_ms: u64,
    /// The time after which the keys of a generation are forgotten.
    pub(crate) window_ms: u64,
}

/// The sizes that follow from a window and its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Slots of a generation's table.
    pub(crate) slots: usize,
    /// Keys of a generation.
    pub(crate) keys: usize,
    /// The times of a window in time. `None`: time does not count.
    pub(crate) times: Option<Times>,
}

impl Plan {
    /// Plans a window. `memory` is the number of bytes of all tables: `None` chooses them by the window.
    ///
    /// # Errors
    /// The memory is too small for the window's count, or outside of [`MEMORY_MIN`] to [`MEMORY_MAX`]. The error is the
    /// number of bytes that would do.
    pub(crate) fn new(window: KeyWindow, memory: Option<u64>) -> Result<Plan, u64> {
        let covering = GENERATIONS as u64 - 1;
        if let Some(memory) = memory
            && !(MEMORY_MIN..=MEMORY_MAX).contains(&memory)
        {
            return Err(memory.clamp(MEMORY_MIN, MEMORY_MAX));
        }
        let slots_of = |memory: u64| memory as usize / GENERATIONS / SLOT_BYTES;
        match window {
            KeyWindow::Count(count) => {
                let keys = usize::try_from(count.div_ceil(covering))
                    .unwrap_or(usize::MAX)
                    .max(1);
                let slots = slots_for(keys);
                let needed = (slots as u64).saturating_mul((GENERATIONS * SLOT_BYTES) as u64);
                if needed > memory.unwrap_or(MEMORY_MAX) {
                    return Err(needed);
                }
                Ok(Plan {
                    slots,
                    keys,
                    times: None,
                })
            }
            KeyWindow::Time(time) => {
                let slots = slots_of(memory.unwrap_or(MEMORY_DEFAULT));
                let ms = (time.as_millis() as u64).max(1);
                Ok(Plan {
                    slots,
                    keys: keys_max(slots),
                    times: Some(Times {
                        generation_ms: ms.div_ceil(covering),
                        window_ms: ms,
                    }),
                })
            }
        }
    }

    /// Bytes of all tables.
    pub(crate) fn memory(&self) -> u64 {
        (self.slots * SLOT_BYTES * GENERATIONS) as u64
    }

    /// The keys that are remembered at least, before the oldest ones must be forgotten.
    pub(crate) fn keys_covered(&self) -> u64 {
        (self.keys * (GENERATIONS - 1)) as u64
    }

    /// The most keys that are remembered.
    pub(crate) fn keys(&self) -> u64 {
        (self.keys * GENERATIONS) as u64
    }
}
