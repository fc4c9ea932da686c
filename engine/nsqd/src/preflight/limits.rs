//! The limits of this process on resources, which are raised as far as they go.

use super::PreflightError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::num::NonZeroUsize;

/// Descriptors besides those of clients: listeners, log, metadata, standard streams, some slack.
const DESCRIPTORS_PROCESS: u64 = 64;

/// Descriptors per shard: the ring, the wake-up, listeners, a few segments.
const DESCRIPTORS_PER_SHARD: u64 = 16;

/// The places where the limit on open files can be raised.
pub(crate) const RAISE_DESCRIPTORS: &str =
    "ulimit -n; systemd: LimitNOFILE=; docker: --ulimit nofile=";

/// The decision about a resource limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Keep,
    RaiseTo(u64),
    /// Even the hard limit, given here, is too low.
    Refuse(u64),
}

/// `None` is no limit.
pub(super) fn judge_limit(limit: &Rlimit, need: u64, wanted: u64) -> Limit {
    let soft = limit.current.unwrap_or(u64::MAX);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if hard < need {
        Limit::Refuse(hard)
    } else if soft < wanted.min(hard) {
        Limit::RaiseTo(wanted.min(hard))
    } else {
        Limit::Keep
    }
}

/// Raises a soft limit. Returns the limit that is too low, if it is.
pub(super) fn raise(resource: Resource, need: u64, wanted: u64) -> Result<(), u64> {
    let limit = getrlimit(resource);
    match judge_limit(&limit, need, wanted) {
        Limit::Keep => Ok(()),
        Limit::Refuse(hard) => Err(hard),
        Limit::RaiseTo(soft) => {
            let raised = Rlimit {
                current: Some(soft),
                maximum: limit.maximum,
            };
            match setrlimit(resource, raised) {
                Ok(()) => Ok(()),
                // Raising within the hard limit is always allowed; a sandbox may disagree, and
                // what we have may still be enough.
                Err(_) => {
                    let current = limit.current.unwrap_or(u64::MAX);
                    if current < need { Err(current) } else { Ok(()) }
                }
            }
        }
    }
}

/// Raises the limit as far as it goes: clients take one each.
pub(crate) fn raise_descriptors(shard_count: NonZeroUsize) -> Result<(), PreflightError> {
    let need_count = descriptors_need_count(shard_count);
    raise(Resource::Nofile, need_count, u64::MAX).map_err(|hard_count| {
        PreflightError::DescriptorsTooFew {
            hard_count,
            need_count,
            shard_count,
        }
    })
}

/// Descriptors that a broker needs without a client.
pub(crate) fn descriptors_need_count(shard_count: NonZeroUsize) -> u64 {
    DESCRIPTORS_PROCESS + DESCRIPTORS_PER_SHARD * shard_count.get() as u64
}
