//! What is checked before anything starts: that this system lets the shards run, and that the
//! addresses are free. A check that fails says what happened and what to do about it, to a reader
//! who has never heard of io_uring.
//!
//! ```text
//!   descriptors                            soft limits are raised as far as they go
//!   io_uring there, allowed, new enough?   one ring per shard reports one wake-up
//!   addresses (bind.rs)                    reserved until the shards listen on them
//! ```
//!
//! Each check is a question to the system and a pure judgement of its answer; the judgements are
//! tested with the answers of systems that we do not have.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;
use crate::net::address::Addresses;
use crate::reactor::{self, Engine};
use program::log_warn;
use wire::go_error::system_text;

mod bind;
#[cfg(target_os = "linux")]
mod io_uring;

#[cfg(target_os = "linux")]
pub(crate) use io_uring::kernel;

pub use bind::{Reserved, ReservedAddress, reserve, reserve_tcp};

/// The first kernel whose `io_uring_enter` takes a timeout.
const KERNEL_MIN: Kernel = Kernel {
    major: 5,
    minor: 11,
};

/// Descriptors besides those of clients: listeners, log, metadata, standard streams, some slack.
const DESCRIPTORS_PROCESS: u64 = 64;

/// Descriptors per shard: the ring, the wake-up, listeners, a few segments.
const DESCRIPTORS_PER_SHARD: u64 = 16;

/// Where the limit on open files is raised.
pub(crate) const RAISE_DESCRIPTORS: &str =
    "ulimit -n; systemd: LimitNOFILE=; docker: --ulimit nofile=";

/// A kernel's version, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kernel {
    /// 6 of 6.18.44
    pub major: u32,
    /// 18 of 6.18.44
    pub minor: u32,
}

/// Why the program cannot start here. The text is meant for the FATAL line.
#[derive(Debug)]
pub enum PreflightError {
    /// The kernel has no io_uring, or lacks operations.
    KernelTooOld {
        /// What runs.
        kernel: Kernel,
    },
    /// `kernel.io_uring_disabled` is 1 (and we are not in the group) or 2.
    IoUringDisabled {
        /// The setting.
        setting: u8,
    },
    /// The kernel would do it, but a filter forbids it: what container runtimes do by default.
    IoUringForbidden,
    /// io_uring failed for another reason.
    IoUringFailed {
        /// The reason.
        source: io::Error,
    },
    /// The system does not give what an engine other than io_uring needs, or an engine does not report a wake-up.
    EngineFailed {
        /// The engine.
        engine: Engine,
        /// The system's answer.
        source: io::Error,
    },
    /// RLIMIT_MEMLOCK cannot be raised far enough.
    MemlockTooLow {
        /// The limit in force.
        limit_bytes: u64,
        /// What is needed.
        need_bytes: u64,
        /// For how many shards.
        shard_count: NonZeroUsize,
    },
    /// RLIMIT_NOFILE cannot be raised far enough.
    DescriptorsTooFew {
        /// The limit that is too low: the hard limit, or the soft limit if the system refuses to raise it.
        hard_count: u64,
        /// What is needed.
        need_count: u64,
        /// For how many shards.
        shard_count: NonZeroUsize,
    },
    /// An address cannot be listened on.
    Listen {
        /// The address in the operator's spelling.
        address: String,
        /// In nsqd's words, where it has some.
        why: String,
        /// What to do.
        hint: &'static str,
    },
}

impl PreflightError {
    /// What to do; empty where there is nothing to say.
    pub(crate) fn advice(&self) -> String {
        match self {
            PreflightError::KernelTooOld { .. } => {
                format!(
                    "use Linux {}.{} or newer",
                    KERNEL_MIN.major, KERNEL_MIN.minor
                )
            }
            PreflightError::IoUringDisabled { .. } => {
                "allow it with: sysctl -w kernel.io_uring_disabled=0".to_owned()
            }
            PreflightError::IoUringForbidden => {
                "run it with a profile that allows io_uring_setup, io_uring_enter and \
                 io_uring_register (docker: --security-opt seccomp=<profile>)"
                    .to_owned()
            }
            PreflightError::IoUringFailed { source }
                if source.kind() == io::ErrorKind::OutOfMemory =>
            {
                "allow this process more memory (systemd: MemoryMax=; docker: --memory=)".to_owned()
            }
            PreflightError::IoUringFailed { .. } => String::new(),
            PreflightError::EngineFailed { .. } => {
                "look for the cause in the kernel's log (dmesg) and report it".to_owned()
            }
            PreflightError::MemlockTooLow { need_bytes, .. } => format!(
                "raise it (ulimit -l {}; systemd: LimitMEMLOCK=; docker: --ulimit memlock=), or \
                 use fewer --shards",
                need_bytes / 1024
            ),
            PreflightError::DescriptorsTooFew { .. } => {
                format!("raise it ({RAISE_DESCRIPTORS}), or use fewer --shards")
            }
            PreflightError::Listen { hint, .. } => (*hint).to_owned(),
        }
    }

    /// What was found.
    pub(crate) fn found(&self) -> String {
        match self {
            PreflightError::KernelTooOld { kernel } => format!(
                "this kernel ({}.{}) is too old for io_uring as ringq uses it",
                kernel.major, kernel.minor
            ),
            PreflightError::IoUringDisabled { setting } => format!(
                "io_uring is switched off on this system (kernel.io_uring_disabled = {setting})"
            ),
            PreflightError::IoUringForbidden => {
                "this process is not allowed to use io_uring, most likely by the seccomp profile \
                 of its container"
                    .to_owned()
            }
            PreflightError::IoUringFailed { source } => {
                format!("io_uring does not work here: {}", system_text(source))
            }
            PreflightError::EngineFailed { engine, source } => {
                format!(
                    "{} does not work here: {}",
                    engine.name(),
                    system_text(source)
                )
            }
            PreflightError::MemlockTooLow {
                limit_bytes,
                need_bytes,
                shard_count,
            } => format!(
                "the limit on locked memory is {} KiB, but {shard_count} shards need {} KiB",
                limit_bytes / 1024,
                need_bytes / 1024
            ),
            PreflightError::DescriptorsTooFew {
                hard_count,
                need_count,
                shard_count,
            } => format!(
                "the limit on open files is {hard_count}, but {shard_count} shards need at least \
                 {need_count}, and each client one more"
            ),
            PreflightError::Listen { address, why, .. } => {
                format!("listen ({address}) failed - {why}")
            }
        }
    }
}

impl fmt::Display for PreflightError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.found())?;
        match self.advice() {
            advice if advice.is_empty() => Ok(()),
            advice => write!(f, " - {advice}"),
        }
    }
}

impl std::error::Error for PreflightError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PreflightError::IoUringFailed { source }
            | PreflightError::EngineFailed { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// What the shards start with.
#[derive(Debug)]
pub struct StartPlan {
    /// How the shards wait for their sockets.
    pub engine: Engine,
    /// The addresses to listen at, with each port decided. Without a certificate there is none for HTTPS.
    pub addresses: Addresses,
    /// Keeps other processes from these addresses until the shards listen.
    pub reserved: Vec<Reserved>,
}

/// How the shards will wait for their sockets.
#[derive(Debug)]
pub struct Chosen {
    /// The engine that was tried and works.
    pub engine: Engine,
    /// The better engines, the best first, and why they cannot be used. Only where the choice was free.
    pub passed_over: Vec<(Engine, PreflightError)>,
}

/// Prepares the system: raises limits, and tries the engine.
///
/// Returns the engine that `--io` asks for. With `auto` that is io_uring, or epoll where io_uring cannot be
/// used, which is logged.
pub fn prepare_system(io: &str, shard_count: NonZeroUsize) -> Result<Engine, PreflightError> {
    raise_descriptors(shard_count)?;
    let Chosen {
        engine,
        passed_over,
    } = choose_engine(io, shard_count)?;
    for (better, error) in passed_over {
        log_warn!("{}", fallback_text(better, &error, engine));
    }
    Ok(engine)
}

/// The log line of a start that uses `engine`, because a better one failed.
fn fallback_text(better: Engine, error: &PreflightError, engine: Engine) -> String {
    let text = format!(
        "{} cannot be used: {}. nsqd uses {} instead; {}.",
        better.name(),
        error.found(),
        engine.name(),
        engine.cost_text()
    );
    match error.advice() {
        advice if advice.is_empty() => text,
        advice => format!("{text} What to do: {advice}"),
    }
}

/// Tries the engine that `--io` names, or with `auto` one after the other until one works.
pub(crate) fn choose_engine(io: &str, shard_count: NonZeroUsize) -> Result<Chosen, PreflightError> {
    let named = Engine::named(io);
    let engines = match &named {
        Some(engine) => std::slice::from_ref(engine),
        None => Engine::ALL,
    };
    let mut best_first = engines.iter().copied().peekable();
    let mut passed_over = Vec::new();
    loop {
        let engine = best_first.next().expect("there is an engine");
        match try_engines(engine, shard_count) {
            Err(error) if best_first.peek().is_some() => passed_over.push((engine, error)),
            result => {
                return result.map(|()| Chosen {
                    engine,
                    passed_over,
                });
            }
        }
    }
}

/// Prepares the system and the addresses for a start, in the order in which nsqd would fail.
pub fn prepare(config: &Config) -> Result<StartPlan, PreflightError> {
    let engine = prepare_system(&config.io, config.shard_count)?;
    let mut reserved = Vec::new();
    let mut take = |address: &str| {
        let place = reserve(address)?;
        let found = place.address();
        reserved.push(place);
        Ok(found)
    };
    let tcp = take(&config.tcp_address)?;
    let http = match config.http_address.as_str() {
        "" => None,
        address => Some(take(address)?),
    };
    let https = match config.https_address.as_str() {
        address if config.has_certificate() && !address.is_empty() => Some(take(address)?),
        _ => None,
    };
    Ok(StartPlan {
        engine,
        addresses: Addresses { tcp, http, https },
        reserved,
    })
}

/// Creates one engine per shard, and has each report one wake-up.
fn try_engines(engine: Engine, shard_count: NonZeroUsize) -> Result<(), PreflightError> {
    match engine {
        #[cfg(target_os = "linux")]
        Engine::IoUring => io_uring::check(shard_count, io_uring::kernel()),
        _ => reactor::try_engine(engine, shard_count)
            .map_err(|source| PreflightError::EngineFailed { engine, source }),
    }
}

/// What to do about a resource limit.
#[derive(Debug, PartialEq, Eq)]
enum Limit {
    Keep,
    RaiseTo(u64),
    /// Even the hard limit, given here, is too low.
    Refuse(u64),
}

/// `None` is no limit.
fn judge_limit(limit: &Rlimit, need: u64, wanted: u64) -> Limit {
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
fn raise(resource: Resource, need: u64, wanted: u64) -> Result<(), u64> {
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

#[cfg(test)]
#[allow(dead_code, unreachable_pub)]
#[path = "../tests/support/skip.rs"]
mod skip;

/// Returns whether this machine lets an engine run. If not, says loudly that a test is left out.
#[cfg(test)]
pub(crate) fn is_usable(engine: Engine) -> bool {
    match try_engines(engine, NonZeroUsize::MIN) {
        Ok(()) => return true,
        Err(error @ PreflightError::KernelTooOld { .. }) => skip::kernel_lacks(&error.to_string()),
        Err(error) => skip::not_tested(&error.to_string()),
    }
    false
}

#[cfg(test)]
mod tests;
