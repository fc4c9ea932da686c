//! [`DedupBuilder`]: from a key, a filter and settings to a [`Dedup`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

#[cfg(feature = "memcached")]
use super::WhenUnavailable;
use super::error::SetupError;
use super::filter::{ActiveFilter, AnyFilter};
use super::key::Key;
use super::saves::Saves;
use super::state_file::StateFile;
use super::{Dedup, Inner};

/// The settings of a [`Dedup`] that is to be made. See [`Dedup::builder`].
#[derive(Debug)]
pub struct DedupBuilder {
    key: Key,
    filter: AnyFilter,
    state_file: Option<PathBuf>,
    save_interval: Option<Duration>,
    #[cfg(feature = "memcached")]
    when_store_unavailable: WhenUnavailable,
    #[cfg(test)]
    before_save: BeforeSave,
}

impl DedupBuilder {
    pub(super) fn new(key: Key, filter: AnyFilter) -> DedupBuilder {
        DedupBuilder {
            key,
            filter,
            state_file: None,
            save_interval: None,
            #[cfg(feature = "memcached")]
            when_store_unavailable: WhenUnavailable::default(),
            #[cfg(test)]
            before_save: BeforeSave::default(),
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
    #[must_use]
    pub fn state_file(mut self, path: impl Into<PathBuf>) -> DedupBuilder {
        self.state_file = Some(path.into());
        self
    }

    /// Also saves the filter in intervals, while a consumer runs. Each save takes a snapshot of the filter in memory.
    #[must_use]
    pub fn save_interval(mut self, interval: Duration) -> DedupBuilder {
        self.save_interval = Some(interval);
        self
    }

    /// Sets what happens while a store such as memcached is unavailable. Filters of this process always answer.
    #[cfg(feature = "memcached")]
    #[must_use]
    pub fn when_store_unavailable(mut self, then: WhenUnavailable) -> DedupBuilder {
        self.when_store_unavailable = then;
        self
    }

    /// Sets the act of a test before each save.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn before_save(mut self, act: impl Fn() + Send + Sync + 'static) -> DedupBuilder {
        self.before_save = BeforeSave(Some(Arc::new(act)));
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

/// The act of a test before each save of a filter.
#[cfg(test)]
#[derive(Clone, Default)]
pub(super) struct BeforeSave(pub(super) Option<Arc<dyn Fn() + Send + Sync>>);

#[cfg(test)]
impl std::fmt::Debug for BeforeSave {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeforeSave")
    }
}
