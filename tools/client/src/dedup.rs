//! Deduplication, the recognition of messages that were handled before: [`Dedup`] for
//! [`ConsumerBuilder::dedup`](crate::ConsumerBuilder::dedup).
//!
//! ```text
//!   body ─► Key ─► Filter ─► fresh        the application gets the message; its finish() commits, then sends FIN
//!                        ├─► in progress  the copy waits, with TOUCH, until the first copy is done or has failed
//!                        └─► done         FIN, without the application
//! ```
//!
//! The filters are those of the crate `ringq-dedup`, which this module exports. `docs/explain/deduplication.md` says
//! which filter to choose, and what none of them can promise.

mod claim;
mod error;
mod filter;
mod key;
mod pointer;
mod report;
mod state;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ringq_dedup::KeyHasher;
use tokio::runtime::Handle;

pub(crate) use claim::{Claim, ClaimEnds};
pub use error::SetupError;
use filter::ActiveFilter;
pub use filter::AnyFilter;
pub(crate) use filter::FilterAnswer;
pub(crate) use key::FilterKey;
pub use key::Key;
pub use pointer::{JsonPointer, PointerError};
pub(crate) use report::{Count, Counters, is_power_of_ten};
pub use report::{DedupReport, DedupStats};
pub use ringq_dedup as filters;
pub(crate) use state::SaveResult;
use state::{Saves, StateFile};

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
    before_save: tests::BeforeSave,
}

impl Dedup {
    /// Begins to describe the recognition of messages by a key and a filter.
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

    /// Returns the filter or the store.
    pub(crate) fn filter(&self) -> &ActiveFilter {
        &self.0.filter
    }
}

/// The settings of a [`Dedup`] that is to be made. See [`Dedup::builder`].
#[derive(Debug)]
#[must_use = "a builder does nothing before `build`"]
pub struct DedupBuilder {
    key: Key,
    filter: AnyFilter,
    state_file: Option<PathBuf>,
    save_interval: Option<Duration>,
    #[cfg(feature = "memcached")]
    when_store_unavailable: WhenUnavailable,
    #[cfg(test)]
    before_save: tests::BeforeSave,
}

impl DedupBuilder {
    fn new(key: Key, filter: AnyFilter) -> DedupBuilder {
        DedupBuilder {
            key,
            filter,
            state_file: None,
            save_interval: None,
            #[cfg(feature = "memcached")]
            when_store_unavailable: WhenUnavailable::default(),
            #[cfg(test)]
            before_save: tests::BeforeSave::default(),
        }
    }

    /// Keeps the filter in a file over restarts. The filter is restored from the file if there is one, and saved when a
    /// consumer stops ([`Control::shutdown`](crate::Control::shutdown), or the end of its stream).
    ///
    /// A file belongs to one [`Dedup`] of one process. A lock on a second file, whose name ends in `.lock`, keeps
    /// others from it until the `Dedup` and its consumers are dropped. This second file stays. On a file system without
    /// locks, nothing keeps others from the file: see [`Dedup::state_warning`].
    ///
    /// A crash forgets the messages that were committed after the last save: their duplicates are handled again.
    pub fn state_file(mut self, path: impl Into<PathBuf>) -> DedupBuilder {
        self.state_file = Some(path.into());
        self
    }

    /// Also saves the filter in intervals, while a consumer runs. Each save takes a snapshot of the filter in memory.
    pub fn save_interval(mut self, interval: Duration) -> DedupBuilder {
        self.save_interval = Some(interval);
        self
    }

    /// Sets what happens while a store such as memcached is unavailable. Filters of this process always answer.
    #[cfg(feature = "memcached")]
    pub fn when_store_unavailable(mut self, then: WhenUnavailable) -> DedupBuilder {
        self.when_store_unavailable = then;
        self
    }

    /// Makes the [`Dedup`], and restores the filter from its file. Waits for a second if another process uses the file.
    ///
    /// # Errors
    /// The key does not fit the filter; or the file cannot be read, written or locked, is damaged, has another filter
    /// or other keys, or is used by another process.
    pub fn build(self) -> Result<Dedup, SetupError> {
        let is_wrong = |interval: Duration| interval.is_zero() || self.state_file.is_none();
        if self.save_interval.is_some_and(is_wrong) {
            return Err(SetupError::SaveInterval);
        }
        if matches!(self.filter, AnyFilter::RoaringPair(_)) && !self.key.is_number() {
            return Err(SetupError::KeyIsNoNumber);
        }
        #[cfg(feature = "memcached")]
        if matches!(self.filter, AnyFilter::Memcached(_)) && self.state_file.is_some() {
            return Err(SetupError::StateOfStore);
        }
        let mut state = match self.state_file {
            Some(path) => Some(StateFile::lock(path, &self.key)?),
            None => None,
        };
        let (filter, is_restored) = ActiveFilter::new(self.filter, state.as_mut())?;
        Ok(Dedup(Arc::new(Inner {
            key: self.key,
            hasher: filter.hasher(),
            filter,
            state,
            save_interval: self.save_interval,
            is_restored,
            #[cfg(feature = "memcached")]
            when_store_unavailable: self.when_store_unavailable,
            write_lock: Mutex::new(()),
            saves: Saves::default(),
            #[cfg(test)]
            before_save: self.before_save,
        })))
    }
}

#[cfg(test)]
mod tests;
