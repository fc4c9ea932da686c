//! [`Plan`]: the sizes of a topic's tables of keys, by the window and the memory of its rule.

use crate::key_table::{SLOT_BYTES, keys_max, slots_for};
use std::time::Duration;

/// The tables of a topic.
pub(crate) const TABLES: usize = 8;
/// The tables that cover the window, while the other one is being filled.
pub(crate) const COVERING: u64 = TABLES as u64 - 1;

/// The least memory of a topic's keys. Each table then has 64 slots.
pub(crate) const MEMORY_MIN: u64 = (TABLES * SLOT_BYTES * 64) as u64;
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

/// The sizes that follow from a window and its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Slots of a table.
    pub(crate) slots: usize,
    /// Keys of a table.
    pub(crate) keys: usize,
    /// The time after which keys are forgotten, in milliseconds. `None`: time does not count.
    pub(crate) window_ms: Option<u64>,
}

impl Plan {
    /// Plans a window. `memory` is the number of bytes of all tables: `None` chooses them by the window.
    ///
    /// # Errors
    /// The memory is too small for the window's count, or outside of [`MEMORY_MIN`] to [`MEMORY_MAX`]. The error is the
    /// number of bytes that would do.
    pub(crate) fn new(window: KeyWindow, memory: Option<u64>) -> Result<Plan, u64> {
        if let Some(memory) = memory
            && !(MEMORY_MIN..=MEMORY_MAX).contains(&memory)
        {
            return Err(memory.clamp(MEMORY_MIN, MEMORY_MAX));
        }
        let plan = match window {
            KeyWindow::Count(count) => {
                let keys = usize::try_from(count.div_ceil(COVERING)).unwrap_or(usize::MAX);
                let keys = keys.max(1);
                Plan {
                    slots: slots_for(keys),
                    keys,
                    window_ms: None,
                }
            }
            KeyWindow::Time(time) => {
                let slots = memory.unwrap_or(MEMORY_DEFAULT) as usize / TABLES / SLOT_BYTES;
                Plan {
                    slots,
                    keys: keys_max(slots),
                    window_ms: Some((time.as_millis() as u64).max(1)),
                }
            }
        };
        let needed = plan.memory();
        if needed > memory.unwrap_or(MEMORY_MAX) {
            return Err(needed);
        }
        Ok(plan)
    }

    /// Bytes of all tables.
    pub(crate) fn memory(&self) -> u64 {
        (self.slots as u64).saturating_mul((TABLES * SLOT_BYTES) as u64)
    }

    /// The keys that are remembered at least, before the oldest ones must be forgotten.
    pub(crate) fn keys_covered(&self) -> u64 {
        self.keys as u64 * COVERING
    }

    /// The most keys that are remembered.
    pub(crate) fn keys(&self) -> u64 {
        (self.keys * TABLES) as u64
    }
}
