//! The gate of a topic with a rule of `--dedup`, without I/O.
//!
//! This crate owns the decision which messages of a publish a topic has stored before, by their publishers and numbers
//! or by their content, and what has to be remembered for this decision, saved and restored. It refuses I/O, clocks,
//! unseeded random numbers, and whatever a topic does with the messages that pass: the topic appends them, and tells the
//! [`Gate`] how that went. A topic without a rule has no gate.
//!
//! Start with `gate.rs`, then read `publisher_numbers.rs` (a rule with the key `publisher`) or `keys.rs` (the keys `body`
//! and `json:`). A new kind of rule is a variant in `rules.rs` and one in `gate.rs`. A figure of /stats is a field in
//! `stats.rs`. The bytes of the saved files are drawn in `publishers.rs` and `saved_keys.rs`, and in
//! docs/reference/format.md.

#![forbid(unsafe_code)]

mod content_key;
mod fingerprint;
mod gate;
mod json_pointer;
mod key_table;
mod key_tables;
mod keys;
mod plan;
mod publication;
mod publisher_numbers;
mod publishers;
mod restored_keys;
mod rules;
mod saved_keys;
mod stats;
mod table;

pub use content_key::ContentKey;
pub use gate::Gate;
pub use json_pointer::{JsonPointer, JsonPointerError};
pub use plan::KeyWindow;
pub use publication::{Fates, Publication};
pub use restored_keys::RestoredKeys;
pub use rules::{
    ContentRule, DedupRule, DedupRules, PublisherRule, RuleMemory, has_publishers, rule_memory,
};
pub use saved_keys::{SavedKeys, SavedKeysError};
pub use stats::{KeyStats, NumberStats};
