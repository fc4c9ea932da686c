//! Filters that recognise messages that have been handled before.
//!
//! NSQ delivers each message at least once. A message comes again if a consumer fails, if a FIN is lost, if a producer
//! repeats a publish, or if a producer publishes to several nodes. This crate lets a consumer handle such a message
//! once, as far as its filter remembers.
//!
//! ```text
//!   message ── key ──► Deduplicator::begin ──► Fresh(guard)   handle it, guard.commit(), FIN
//!                          │                   InProgress     a copy is being handled: wait, then ask again
//!                          │                   Done           FIN
//!                          ▼
//!                    Filter: what was done     InverseBloom | ForgetfulBloom | RoaringPair
//! ```
//!
//! # Three states, not two
//!
//! A filter that only knows *seen* and *not seen* loses messages. The consumer asks about copy 1 of a message, and the
//! filter records the message as seen. While copy 1 is being handled, copy 2 comes, is found to be seen, and is
//! finished. Then the handler of copy 1 fails, and the node with copy 1 dies. Both copies are gone. So [`Deduplicator`]
//! knows the keys that are in progress. A key enters the filter only with [`Guard::commit`], after the message has been
//! handled. If the guard is dropped without a commit, the message has failed, and its next copy is fresh.
//!
//! # Two kinds of errors
//!
//! | filter | may forget, so a duplicate is handled again | may drop a fresh message |
//! |---|---|---|
//! | [`InverseBloom`] | yes, as later keys overwrite older ones | only if two keys have equal 128-bit hashes |
//! | [`ForgetfulBloom`] | yes, after its window | **yes**, with a stated probability |
//! | [`RoaringPair`] | yes, after its window | no |
//!
//! A message that is dropped although it is fresh is lost. Choose a filter that may drop fresh messages only where that
//! is acceptable.
//!
//! This crate owns the filters, their arithmetic ([`arithmetic`]) and their saved form ([`saved`]). It has no clock and
//! no threads of its own: time is an argument. It knows no topics, channels and connections of NSQ. Only the feature
//! `memcached` reaches out of the process.
#![forbid(unsafe_code)]

pub mod arithmetic;
mod bits;
mod deduplicator;
mod error;
mod filter;
mod forgetful;
mod inverse;
mod key;
#[cfg(feature = "memcached")]
mod memcached;
mod roaring_pair;
pub mod saved;

pub use deduplicator::{Begin, Deduplicator, Guard};
pub use error::{FilterOptionError, StateError};
pub use filter::{Filter, UnixTime};
pub use forgetful::{ForgetfulBloom, ForgetfulOptions};
pub use inverse::InverseBloom;
pub use key::{Fingerprint, KeyHasher, MessageNumber};
#[cfg(feature = "memcached")]
pub use memcached::{
    Lease, Memcached, MemcachedOptionError, MemcachedOptions, SharedBegin, StoreError,
};
pub use roaring_pair::RoaringPair;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
