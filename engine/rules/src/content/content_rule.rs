//! [`ContentRule`]: how a topic recognises messages by their content.

use crate::content::key::ContentKey;
use crate::content::plan::{KeyWindow, MEMORY_MAX, Plan};
use std::time::Duration;
use wire::go_value::duration_text;

/// The rule of a topic that recognises messages by their content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentRule {
    key: ContentKey,
    window: KeyWindow,
    plan: Plan,
}

impl ContentRule {
    /// The window of a rule that gives none.
    pub const WINDOW_DEFAULT: KeyWindow = KeyWindow::Time(Duration::from_secs(120));

    /// The most memory of a topic's keys, in bytes.
    pub const MEMORY_MAX: u64 = MEMORY_MAX;

    /// Makes a rule. `memory` is the number of bytes that the keys may take. `None`: as many as a window of messages
    /// needs, or 16 MiB for a window of time.
    ///
    /// # Errors
    /// The memory is too small for the window, or too large. The error is the number of bytes that would do.
    pub fn new(
        key: ContentKey,
        window: KeyWindow,
        memory: Option<u64>,
    ) -> Result<ContentRule, u64> {
        let plan = Plan::new(window, memory)?;
        Ok(ContentRule { key, window, plan })
    }

    /// Returns the words for what a topic remembers.
    pub(crate) fn remembered(&self) -> String {
        let keys = match &self.key {
            ContentKey::Body => "bodies".to_owned(),
            ContentKey::Json(pointer) => format!("values at {pointer}"),
        };
        match self.window {
            KeyWindow::Count(1) => format!("the {keys} of its last message"),
            KeyWindow::Count(count) => format!("the {keys} of its last {count} messages"),
            KeyWindow::Time(time) => format!(
                "the {keys} of the last {}, if these are at most {} messages",
                duration_text(time),
                self.plan.keys_covered()
            ),
        }
    }

    /// The part of a message by which two messages are equal.
    pub(crate) fn key(&self) -> &ContentKey {
        &self.key
    }

    /// The sizes of the tables of keys.
    pub(crate) fn plan(&self) -> Plan {
        self.plan
    }
}
