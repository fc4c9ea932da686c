//! [`AnyFilter`]: any filter of `ringq-dedup`, and its use by a consumer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ringq_dedup::saved::snapshot;
use ringq_dedup::{
    Begin, Deduplicator, Filter, ForgetfulBloom, Guard, InverseBloom, KeyHasher, RoaringPair,
};
#[cfg(feature = "memcached")]
use ringq_dedup::{Memcached, SharedBegin, StoreError};

use super::claim::{Claim, ClaimEnds, GuardOrLease, unix_now};
use super::error::SetupError;
use super::key::FilterKey;
use super::state::{Sizes, StateFile};

/// A filter, or a store, that knows which messages were handled. `docs/explain/deduplication.md` says which to choose.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyFilter {
    /// Never drops a fresh message. Forgets older messages, with a probability that grows with each further message.
    InverseBloom(InverseBloom),
    /// Forgets by time. **May drop a fresh message**, with the probability of its options.
    ForgetfulBloom(ForgetfulBloom),
    /// Exact sets of numbers. Needs a key that is a number, as [`Key::json_number`](super::Key::json_number) finds it.
    RoaringPair(RoaringPair),
    /// A store that several consumers of a channel share. Its lease is the message timeout that each connection has
    /// negotiated, unless the options have another one. If handlers touch their messages, choose a longer lease: the
    /// most time that they take.
    #[cfg(feature = "memcached")]
    Memcached(Memcached),
}

macro_rules! filter_from {
    ($($filter:ident),*) => {
        $(impl From<$filter> for AnyFilter {
            fn from(filter: $filter) -> AnyFilter {
                AnyFilter::$filter(filter)
            }
        })*
    };
}
filter_from!(InverseBloom, ForgetfulBloom, RoaringPair);
#[cfg(feature = "memcached")]
filter_from!(Memcached);

/// A filter or a store in use.
#[derive(Debug)]
pub(crate) enum ActiveFilter {
    Inverse(Deduplicator<InverseBloom>),
    Forgetful(Deduplicator<ForgetfulBloom>),
    Roaring(Deduplicator<RoaringPair>),
    #[cfg(feature = "memcached")]
    Memcached(Memcached),
}

/// The bytes of memory that a filter takes in this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterBytes {
    pub(super) now: u64,
    /// The most that the filter ever takes.
    pub(super) max: u64,
}

impl FilterBytes {
    fn of(filter: &mut impl Filter) -> FilterBytes {
        FilterBytes {
            now: filter.bytes(),
            max: filter.bytes_max(),
        }
    }
}

/// The answer of a filter.
#[derive(Debug)]
pub(crate) enum FilterAnswer {
    Fresh(Box<Claim>),
    InProgress,
    Done,
}

/// Puts this filter to use, or the filter that the file has. Also returns true in the second case.
fn activate<M: Sizes>(
    filter: M,
    state: Option<&mut StateFile>,
    active: fn(Deduplicator<M>) -> ActiveFilter,
) -> Result<(ActiveFilter, bool), SetupError> {
    let saved = match state {
        Some(state) => state.restore(&filter)?,
        None => None,
    };
    let is_restored = saved.is_some();
    let filter = Deduplicator::new(saved.unwrap_or(filter));
    Ok((active(filter), is_restored))
}

impl ActiveFilter {
    /// Puts the filter to use, with its saved state if there is one. Returns true if the state was restored from the
    /// file.
    pub(super) fn new(
        filter: AnyFilter,
        state: Option<&mut StateFile>,
    ) -> Result<(ActiveFilter, bool), SetupError> {
        Ok(match filter {
            AnyFilter::InverseBloom(filter) => activate(filter, state, ActiveFilter::Inverse)?,
            AnyFilter::ForgetfulBloom(filter) => activate(filter, state, ActiveFilter::Forgetful)?,
            AnyFilter::RoaringPair(filter) => activate(filter, state, ActiveFilter::Roaring)?,
            #[cfg(feature = "memcached")]
            AnyFilter::Memcached(store) => (ActiveFilter::Memcached(store), false),
        })
    }

    /// Returns the hasher of a filter of fingerprints, and `None` for a filter of numbers.
    pub(super) fn hasher(&self) -> Option<KeyHasher> {
        match self {
            ActiveFilter::Inverse(filter) => Some(filter.with_filter(|it| *it.hasher())),
            ActiveFilter::Forgetful(filter) => Some(filter.with_filter(|it| *it.hasher())),
            ActiveFilter::Roaring(_) => None,
            #[cfg(feature = "memcached")]
            ActiveFilter::Memcached(store) => Some(store.options().hasher),
        }
    }

    /// Returns the times for which the filter knows a message, each with its name. Each must be at least the message
    /// timeout, because a copy may come that much later. The inverse Bloom filter and the Roaring pair have none.
    pub(super) fn times(&self) -> Vec<(&'static str, Duration)> {
        let window = |window| vec![("window", window)];
        match self {
            ActiveFilter::Inverse(_) | ActiveFilter::Roaring(_) => Vec::new(),
            ActiveFilter::Forgetful(filter) => window(filter.with_filter(|it| it.options().window)),
            #[cfg(feature = "memcached")]
            ActiveFilter::Memcached(store) => {
                let options = store.options();
                let lease = options.lease.map(|lease| ("lease", lease));
                lease.into_iter().chain(window(options.window)).collect()
            }
        }
    }

    /// Returns the bytes of memory that the filter takes in this process.
    pub(super) fn bytes(&self) -> FilterBytes {
        match self {
            ActiveFilter::Inverse(filter) => filter.with_filter(FilterBytes::of),
            ActiveFilter::Forgetful(filter) => filter.with_filter(FilterBytes::of),
            ActiveFilter::Roaring(filter) => filter.with_filter(FilterBytes::of),
            #[cfg(feature = "memcached")]
            ActiveFilter::Memcached(_) => FilterBytes { now: 0, max: 0 },
        }
    }

    /// Asks a filter of this process.
    pub(crate) fn begin(&self, key: FilterKey, ends: &Arc<ClaimEnds>) -> FilterAnswer {
        match self {
            ActiveFilter::Inverse(filter) => begin(filter, key, ends, GuardOrLease::Inverse),
            ActiveFilter::Forgetful(filter) => begin(filter, key, ends, GuardOrLease::Forgetful),
            ActiveFilter::Roaring(filter) => begin(filter, key, ends, GuardOrLease::Roaring),
            #[cfg(feature = "memcached")]
            ActiveFilter::Memcached(_) => unreachable!("a shared store is asked by a future"),
        }
    }

    /// Asks the store that several consumers share. The future resolves at once for a filter of this process.
    #[cfg(feature = "memcached")]
    pub(crate) async fn begin_shared(
        &self,
        key: FilterKey,
        msg_timeout: Duration,
        ends: &Arc<ClaimEnds>,
    ) -> Result<FilterAnswer, StoreError> {
        let ActiveFilter::Memcached(store) = self else {
            return Ok(self.begin(key, ends));
        };
        Ok(match store.begin(key.into(), msg_timeout).await? {
            SharedBegin::Fresh(lease) => {
                FilterAnswer::Fresh(Claim::boxed(key, GuardOrLease::Leased(lease), ends))
            }
            SharedBegin::InProgress => FilterAnswer::InProgress,
            SharedBegin::Done => FilterAnswer::Done,
        })
    }

    /// Saves the filter. Messages wait while the snapshot is taken, and not while the file is written.
    pub(super) fn save(&self, state: &StateFile) -> io::Result<()> {
        match self {
            ActiveFilter::Inverse(filter) => save(filter, state),
            ActiveFilter::Forgetful(filter) => save(filter, state),
            ActiveFilter::Roaring(filter) => save(filter, state),
            #[cfg(feature = "memcached")]
            ActiveFilter::Memcached(_) => Ok(()),
        }
    }
}

fn begin<F: Filter>(
    filter: &Deduplicator<F>,
    key: FilterKey,
    ends: &Arc<ClaimEnds>,
    claim: impl FnOnce(Guard<F>) -> GuardOrLease,
) -> FilterAnswer
where
    F::Key: From<FilterKey>,
{
    match filter.begin(key.into(), unix_now()) {
        Begin::Fresh(guard) => FilterAnswer::Fresh(Claim::boxed(key, claim(guard), ends)),
        Begin::InProgress => FilterAnswer::InProgress,
        Begin::Done => FilterAnswer::Done,
    }
}

fn save<M: Sizes>(filter: &Deduplicator<M>, state: &StateFile) -> io::Result<()> {
    let snapshot = filter.with_filter(|it| snapshot(it))?;
    state.save(&snapshot)
}
