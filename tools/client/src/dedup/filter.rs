//! [`Filter`]: any filter of `ringq-dedup`, and the right to handle a message that it gives.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringq_dedup::saved::copy;
use ringq_dedup::{
    Begin, Deduplicator, ForgetfulBloom, Guard, InverseBloom, KeyHasher, Memory, RoaringPair,
    TimeLimitedBloom, UnixTime,
};
#[cfg(feature = "memcached")]
use ringq_dedup::{Lease, Memcached, SharedBegin, StoreError};

use super::ended::Ended;
use super::error::SetupError;
use super::key::FilterKey;
use super::state_file::{Sizes, StateFile};

/// A filter, or a store, that knows which messages were handled. `docs/deduplication.md` says which to choose.
#[derive(Debug)]
#[non_exhaustive]
pub enum Filter {
    /// Never drops a fresh message. Forgets older messages, with a probability that grows with each further message.
    InverseBloom(InverseBloom),
    /// Forgets by time. **May drop a fresh message**, with the probability of its options.
    ForgetfulBloom(ForgetfulBloom),
    /// Forgets by time, also at changing rates. **May drop a fresh message**, with the probability of its options.
    TimeLimitedBloom(TimeLimitedBloom),
    /// Exact sets of numbers. Needs a key that is a number, as [`Key::json_number`](super::Key::json_number) finds it.
    RoaringPair(RoaringPair),
    /// A store that several consumers of a channel share. Its lease is the message timeout that each connection has
    /// negotiated, unless the options have another one. If handlers touch their messages, choose a longer lease: the most
    /// time that they take.
    #[cfg(feature = "memcached")]
    Memcached(Memcached),
}

macro_rules! filter_from {
    ($($filter:ident),*) => {
        $(impl From<$filter> for Filter {
            fn from(filter: $filter) -> Filter {
                Filter::$filter(filter)
            }
        })*
    };
}
filter_from!(InverseBloom, ForgetfulBloom, TimeLimitedBloom, RoaringPair);
#[cfg(feature = "memcached")]
filter_from!(Memcached);

/// A filter or a store in use.
#[derive(Debug)]
pub(super) enum ActiveFilter {
    Inverse(Deduplicator<InverseBloom>),
    Forgetful(Deduplicator<ForgetfulBloom>),
    TimeLimited(Deduplicator<TimeLimitedBloom>),
    Roaring(Deduplicator<RoaringPair>),
    #[cfg(feature = "memcached")]
    Memcached(Memcached),
}

/// The right to handle a message. Dropped, it is given up.
#[derive(Debug)]
enum Right {
    Inverse(Guard<InverseBloom>),
    Forgetful(Guard<ForgetfulBloom>),
    TimeLimited(Guard<TimeLimitedBloom>),
    Roaring(Guard<RoaringPair>),
    #[cfg(feature = "memcached")]
    Leased(Lease),
}

/// The answer of a filter.
#[derive(Debug)]
pub(crate) enum Answer {
    Fresh(Box<Claim>),
    InProgress,
    Done,
}

/// Returns the present time by the wall clock.
fn unix_now() -> UnixTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO)
}

impl Sizes for InverseBloom {
    fn sizes(&self) -> String {
        format!("{} slots", self.slots())
    }
}

impl Sizes for ForgetfulBloom {
    fn sizes(&self) -> String {
        let options = self.options();
        format!(
            "{} filters for {:?}, {} keys per second and false positives of {}",
            options.filters, options.window, options.rate, options.false_positives_max
        )
    }
}

impl Sizes for TimeLimitedBloom {
    fn sizes(&self) -> String {
        let options = self.options();
        format!(
            "a window of {:?}, {} to {} keys per second and false positives of {}",
            options.window, options.rate, options.rate_max, options.false_positives_max
        )
    }
}

impl Sizes for RoaringPair {
    fn sizes(&self) -> String {
        format!(
            "{} numbers of each of {} sources",
            self.capacity(),
            self.sources_max()
        )
    }
}

/// Returns a deduplicator over this filter, or over the filter that the file has. Also returns true in the second case.
fn in_use<M: Sizes>(
    filter: M,
    state: Option<&StateFile>,
) -> Result<(Deduplicator<M>, bool), SetupError> {
    let saved = match state {
        Some(state) => state.restore(&filter)?,
        None => None,
    };
    Ok(match saved {
        Some(saved) => (Deduplicator::new(saved), true),
        None => (Deduplicator::new(filter), false),
    })
}

impl ActiveFilter {
    /// Makes a store. Returns true if the state was restored from the file.
    pub(super) fn new(
        filter: Filter,
        state: Option<&StateFile>,
    ) -> Result<(ActiveFilter, bool), SetupError> {
        Ok(match filter {
            Filter::InverseBloom(filter) => {
                let (made, is_restored) = in_use(filter, state)?;
                (ActiveFilter::Inverse(made), is_restored)
            }
            Filter::ForgetfulBloom(filter) => {
                let (made, is_restored) = in_use(filter, state)?;
                (ActiveFilter::Forgetful(made), is_restored)
            }
            Filter::TimeLimitedBloom(filter) => {
                let (made, is_restored) = in_use(filter, state)?;
                (ActiveFilter::TimeLimited(made), is_restored)
            }
            Filter::RoaringPair(filter) => {
                let (made, is_restored) = in_use(filter, state)?;
                (ActiveFilter::Roaring(made), is_restored)
            }
            #[cfg(feature = "memcached")]
            Filter::Memcached(store) => (ActiveFilter::Memcached(store), false),
        })
    }

    /// Returns the hasher of a filter of fingerprints, and `None` for a filter of numbers.
    pub(super) fn hasher(&self) -> Option<KeyHasher> {
        match self {
            ActiveFilter::Inverse(filter) => Some(filter.with_memory(|memory| *memory.hasher())),
            ActiveFilter::Forgetful(filter) => Some(filter.with_memory(|memory| *memory.hasher())),
            ActiveFilter::TimeLimited(filter) => {
                Some(filter.with_memory(|memory| *memory.hasher()))
            }
            ActiveFilter::Roaring(_) => None,
            #[cfg(feature = "memcached")]
            ActiveFilter::Memcached(store) => Some(store.options().hasher),
        }
    }

    /// Returns the times for which the filter knows a message, each with its name. A copy may come a whole message timeout
    /// after its twin, so they must not be shorter than that. A filter of messages instead of times has none.
    pub(super) fn times(&self) -> Vec<(&'static str, Duration)> {
        let window = |window| vec![("window", window)];
        match self {
            ActiveFilter::Inverse(_) | ActiveFilter::Roaring(_) => Vec::new(),
            ActiveFilter::Forgetful(filter) => window(filter.with_memory(|it| it.options().window)),
            ActiveFilter::TimeLimited(filter) => {
                window(filter.with_memory(|it| it.options().window))
            }
            #[cfg(feature = "memcached")]
            ActiveFilter::Memcached(store) => {
                let options = store.options();
                let lease = options.lease.map(|lease| ("lease", lease));
                lease.into_iter().chain(window(options.window)).collect()
            }
        }
    }

    /// Returns the bytes of memory that the filter takes in this process.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            ActiveFilter::Inverse(filter) => filter.with_memory(|memory| memory.bytes()),
            ActiveFilter::Forgetful(filter) => filter.with_memory(|memory| memory.bytes()),
            ActiveFilter::TimeLimited(filter) => filter.with_memory(|memory| memory.bytes()),
            ActiveFilter::Roaring(filter) => filter.with_memory(|memory| memory.bytes()),
            #[cfg(feature = "memcached")]
            ActiveFilter::Memcached(_) => 0,
        }
    }

    /// Asks a filter of this process.
    pub(super) fn begin(&self, key: FilterKey, ended: &Arc<Ended>) -> Answer {
        match self {
            ActiveFilter::Inverse(filter) => begin(filter, key, ended, Right::Inverse),
            ActiveFilter::Forgetful(filter) => begin(filter, key, ended, Right::Forgetful),
            ActiveFilter::TimeLimited(filter) => begin(filter, key, ended, Right::TimeLimited),
            ActiveFilter::Roaring(filter) => begin(filter, key, ended, Right::Roaring),
            #[cfg(feature = "memcached")]
            ActiveFilter::Memcached(_) => unreachable!("a shared store is asked by a future"),
        }
    }

    /// Asks the store that several consumers share. The future resolves at once for a filter of this process.
    #[cfg(feature = "memcached")]
    pub(super) async fn begin_shared(
        &self,
        key: FilterKey,
        msg_timeout: Duration,
        ended: &Arc<Ended>,
    ) -> Result<Answer, StoreError> {
        let ActiveFilter::Memcached(store) = self else {
            return Ok(self.begin(key, ended));
        };
        Ok(match store.begin(key.into(), msg_timeout).await? {
            SharedBegin::Fresh(lease) => {
                Answer::Fresh(Claim::boxed(key, Right::Leased(lease), ended))
            }
            SharedBegin::InProgress => Answer::InProgress,
            SharedBegin::Done => Answer::Done,
        })
    }

    /// Saves the filter. Messages wait while the filter is copied, and not while the file is written.
    pub(super) fn save(&self, state: &StateFile) -> io::Result<()> {
        match self {
            ActiveFilter::Inverse(filter) => save(filter, state),
            ActiveFilter::Forgetful(filter) => save(filter, state),
            ActiveFilter::TimeLimited(filter) => save(filter, state),
            ActiveFilter::Roaring(filter) => save(filter, state),
            #[cfg(feature = "memcached")]
            ActiveFilter::Memcached(_) => Ok(()),
        }
    }
}

fn begin<M: Memory>(
    filter: &Deduplicator<M>,
    key: FilterKey,
    ended: &Arc<Ended>,
    right: impl FnOnce(Guard<M>) -> Right,
) -> Answer
where
    M::Key: From<FilterKey>,
{
    match filter.begin(key.into(), unix_now()) {
        Begin::Fresh(guard) => Answer::Fresh(Claim::boxed(key, right(guard), ended)),
        Begin::InProgress => Answer::InProgress,
        Begin::Done => Answer::Done,
    }
}

fn save<M: Sizes>(filter: &Deduplicator<M>, state: &StateFile) -> io::Result<()> {
    let copy = filter.with_memory(|memory| copy(memory))?;
    state.save(&copy)
}

/// The right to handle one message, which lives with the message until its answer. A claim that is dropped gives the
/// message up: its next copy is fresh.
#[derive(Debug)]
pub(crate) struct Claim {
    key: FilterKey,
    /// `None` when the claim has ended.
    right: Option<Right>,
    ended: Arc<Ended>,
}

impl Claim {
    fn boxed(key: FilterKey, right: Right, ended: &Arc<Ended>) -> Box<Claim> {
        Box::new(Claim {
            key,
            right: Some(right),
            ended: Arc::clone(ended),
        })
    }

    /// Returns the destination of the claim's end.
    #[cfg(feature = "memcached")]
    pub(crate) fn ended(&self) -> Arc<Ended> {
        Arc::clone(&self.ended)
    }

    /// Returns true if the end of the claim takes a question to a store.
    pub(crate) fn is_leased(&self) -> bool {
        match &self.right {
            #[cfg(feature = "memcached")]
            Some(Right::Leased(_)) => true,
            _ => false,
        }
    }

    /// Ends the claim of a filter of this process: the message is handled, or is given up.
    pub(crate) fn end(mut self, is_handled: bool) {
        if !is_handled {
            return;
        }
        match self.right.take() {
            Some(Right::Inverse(guard)) => guard.commit(unix_now()),
            Some(Right::Forgetful(guard)) => guard.commit(unix_now()),
            Some(Right::TimeLimited(guard)) => guard.commit(unix_now()),
            Some(Right::Roaring(guard)) => guard.commit(unix_now()),
            // A lease ends by `end_lease`. One that is dropped ends by itself.
            #[cfg(feature = "memcached")]
            Some(Right::Leased(_)) => {}
            None => {}
        }
    }

    /// Ends the claim of a store. The same as [`Claim::end`] for a filter of this process.
    #[cfg(feature = "memcached")]
    pub(crate) async fn end_lease(
        mut self: Box<Claim>,
        is_handled: bool,
    ) -> Result<(), StoreError> {
        match self.right.take() {
            Some(Right::Leased(lease)) => match is_handled {
                true => lease.commit().await,
                false => lease.release().await,
            },
            right => {
                self.right = right;
                self.end(is_handled);
                Ok(())
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The guard first: copies that wait ask again as soon as they hear of the end.
        drop(self.right.take());
        self.ended.push(self.key);
    }
}
