//! Deduplication, the recognition of messages that were handled before: [`Dedup`] for
//! [`ConsumerBuilder::dedup`](crate::ConsumerBuilder::dedup).
//!
//! ```text
//!   body ─► Key ─► Filter ─► fresh        the application gets the message; its finish() commits, then sends FIN
//!                        ├─► in progress  the copy waits, with TOUCH, until the first copy is done or has failed
//!                        └─► done         FIN, without the application
//! ```
//!
//! The filters are those of the crate `ringq-dedup`, which this module exports. `docs/deduplication.md` says which
//! filter to choose, and what none of them can promise.

mod builder;
mod claim;
mod claim_ends;
mod counters;
mod error;
mod filter;
mod key;
mod pointer;
mod report;
mod saves;
mod state_file;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use builder::DedupBuilder;
pub use counters::DedupStats;
pub use error::SetupError;
pub use filter::AnyFilter;
pub use key::Key;
pub use pointer::{JsonPointer, PointerError};
pub use report::DedupReport;
pub use ringq_dedup as filters;

pub(crate) use claim::Claim;
pub(crate) use claim_ends::ClaimEnds;
pub(crate) use counters::{Count, Counters};
pub(crate) use filter::FilterAnswer;
pub(crate) use key::FilterKey;
pub(crate) use report::is_power_of_ten;
pub(crate) use saves::SaveResult;

use filter::ActiveFilter;
use parking_lot::Mutex;
use ringq_dedup::KeyHasher;
use saves::Saves;
use state_file::StateFile;
use tokio::runtime::Handle;

/// The treatment of messages while a store such as memcached is unavailable.
#[cfg(feature = "memcached")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenUnavailable {
    /// The messages wait, with TOUCH, until the store answers. Consuming stands still. This is the default.
    #[default]
    Wait,
    /// The application gets the messages. Duplicates may be handled.
    Handle,
}

/// The recognition of messages that were handled before. Clones share the filter, so several consumers of one process
/// can use one filter.
///
/// ```
/// use ringq_client::dedup::filters::{InverseBloom, KeyHasher};
/// use ringq_client::dedup::{Dedup, Key};
/// # use ringq_client::testing::MockNetwork;
/// use ringq_client::Consumer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let network = MockNetwork::new();
/// # let nsqd = network.broker("nsqd-1:4150");
/// # for body in [r#"{"id":7}"#, r#"{"id":8}"#, r#"{"id":7,"copy":true}"#] { nsqd.publish("orders", body); }
/// # let node = nsqd.address();
/// # let random = || [7; 16];
/// // A million slots of 16 bytes, and a secret from the application's source of randomness.
/// let filter = InverseBloom::with_hasher(1_000_000, KeyHasher::new(random()))?;
/// let dedup = Dedup::builder(Key::json("/id")?, filter).build()?;
/// let mut consumer = Consumer::builder("orders", "billing")
///     .node(node)
/// #    .connector(network)
///     .dedup(dedup)
///     .connect()
///     .await?;
/// # for _ in 0..2 {
/// while let Some(message) = consumer.next().await {
///     // Only messages that were not handled before come here.
///     message.finish(); // commits, and then sends FIN
/// #    break;
/// }
/// # }
/// # while consumer.control().stats().dedup.unwrap().done == 0 { tokio::task::yield_now().await; }
/// # assert_eq!(consumer.control().stats().dedup.unwrap().fresh, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Dedup(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    key: Key,
    filter: ActiveFilter,
    /// The hasher of a filter of fingerprints. `None` for a filter of numbers.
    hasher: Option<KeyHasher>,
    state: Option<StateFile>,
    save_interval: Option<Duration>,
    is_restored: bool,
    #[cfg(feature = "memcached")]
    when_store_unavailable: WhenUnavailable,
    /// Locked while the file is written, because consumers and the application may save at the same time.
    write_lock: Mutex<()>,
    /// The saves by consumers.
    saves: Saves,
    #[cfg(test)]
    before_save: builder::BeforeSave,
}

impl Dedup {
    /// Begins to describe the recognition of messages by a key and a filter.
    #[must_use]
    pub fn builder(key: Key, filter: impl Into<AnyFilter>) -> DedupBuilder {
        DedupBuilder::new(key, filter.into())
    }

    /// Returns the bytes of memory that the filter takes now, in this process.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.filter.bytes().now
    }

    /// Returns the most bytes of memory that the filter ever takes in this process. They are known at the start. A save
    /// takes as much again for its time.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.0.filter.bytes().max
    }

    /// Returns true if the filter was restored from its file.
    #[must_use]
    pub fn is_restored(&self) -> bool {
        self.0.is_restored
    }

    /// Returns the warning for the user if the state file is on a file system without locks, so that a second process
    /// could use the file and overwrite its filter. Also warns if the file has a filter that was removed from ringq: then
    /// the filter begins empty.
    #[must_use]
    pub fn state_warning(&self) -> Option<&str> {
        self.0.state.as_ref().and_then(StateFile::warning)
    }

    /// Saves the filter in its file now. Does nothing without a file. The call blocks its thread while the file is
    /// written and synced.
    ///
    /// # Errors
    /// The file cannot be written or synced.
    pub fn save(&self) -> io::Result<()> {
        let Some(state) = &self.0.state else {
            return Ok(());
        };
        let _writing = self.0.write_lock.lock();
        #[cfg(test)]
        if let Some(act) = &self.0.before_save.0 {
            act();
        }
        self.0.filter.save(state)
    }

    /// Saves the filter on a thread of the runtime that may block. Everything that was committed before this call is in
    /// the file then. Consumers that wait behind a running save share the next one.
    pub(crate) async fn save_or_join(&self, runtime: &Handle) -> SaveResult {
        let dedup = self.clone();
        let saves = &self.0.saves;
        saves.save_or_join(runtime, move || dedup.save()).await
    }

    /// Saves the filter in the same way, unless it is being saved already, or a save began less than half of the
    /// interval ago. Returns `None` if it was not saved.
    pub(crate) async fn save_if_due(&self, runtime: &Handle) -> Option<SaveResult> {
        // The interval of each consumer has another phase. With half of it, no clock lets a consumer miss its own turn.
        let age = self.0.save_interval? / 2;
        let dedup = self.clone();
        let saves = &self.0.saves;
        saves
            .save_if_older(age, runtime, move || dedup.save())
            .await
    }

    /// Finds out if the shared store answers. A filter of this process always does.
    ///
    /// # Errors
    /// The store is unavailable.
    #[cfg(feature = "memcached")]
    pub async fn check_store(&self) -> Result<(), ringq_dedup::StoreError> {
        match &self.0.filter {
            ActiveFilter::Memcached(store) => store.check().await,
            _ => Ok(()),
        }
    }

    pub(crate) fn state_file(&self) -> Option<&Path> {
        self.0.state.as_ref().map(StateFile::path)
    }

    pub(crate) fn save_interval(&self) -> Option<Duration> {
        self.0.save_interval
    }

    #[cfg(feature = "memcached")]
    pub(crate) fn when_store_unavailable(&self) -> WhenUnavailable {
        self.0.when_store_unavailable
    }

    /// Returns the times of the filter that are shorter than this message timeout, each with its name.
    pub(crate) fn shorter_than(&self, msg_timeout: Duration) -> Vec<(&'static str, Duration)> {
        let mut times = self.0.filter.times();
        times.retain(|(_, time)| *time < msg_timeout);
        times
    }

    /// Returns true if the filter is a store outside of this process.
    pub(crate) fn is_shared(&self) -> bool {
        match &self.0.filter {
            #[cfg(feature = "memcached")]
            ActiveFilter::Memcached(_) => true,
            _ => false,
        }
    }

    /// Returns the key of a message of `topic/channel`.
    pub(crate) fn key(&self, scope: &str, body: &[u8]) -> Option<FilterKey> {
        match &self.0.hasher {
            Some(hasher) => self.0.key.fingerprint(hasher, scope, body),
            None => self.0.key.number(scope, body),
        }
    }

    /// Asks a filter of this process.
    pub(crate) fn begin(&self, key: FilterKey, ends: &Arc<ClaimEnds>) -> FilterAnswer {
        self.0.filter.begin(key, ends)
    }

    /// Asks the shared store about a message that came over a connection with this message timeout.
    #[cfg(feature = "memcached")]
    pub(crate) async fn begin_shared(
        &self,
        key: FilterKey,
        msg_timeout: Duration,
        ends: &Arc<ClaimEnds>,
    ) -> Result<FilterAnswer, ringq_dedup::StoreError> {
        let filter = &self.0.filter;
        filter.begin_shared(key, msg_timeout, ends).await
    }
}
