//! Deduplication by content inside a topic: a message whose key the topic has stored not long ago is answered with OK,
//! and not stored again.
//!
//! ```text
//!   body ──key──► bytes of the key ──fingerprint──► Generations: fingerprint -> seq ──► stored | duplicate
//!                                                             │
//!                                                             └── saved: the file beside the checkpoint
//! ```
//!
//! The modules know no topic and no log. They are functions and state machines of their input.

pub(crate) mod content_rule;
pub(crate) mod fingerprint;
pub(crate) mod generation;
pub(crate) mod generations;
pub(crate) mod json_pointer;
pub(crate) mod json_scanner;
pub(crate) mod json_string;
pub(crate) mod key;
pub(crate) mod lost;
pub(crate) mod plan;
pub(crate) mod restored;
pub(crate) mod saved;
