//! What is checked before anything starts: that this system lets the shards run, and that the
//! addresses are free. A check that fails says what happened and what to do about it, to a reader
//! who has never heard of io_uring.
//!
//! ```text
//!   descriptors                            soft limits are raised as far as they go
//!   io_uring there, allowed, new enough?   as many rings as shards, once
//!   addresses (bind.rs)                    bound once without SO_REUSEPORT, then given to the shards
//! ```
//!
//! Each check is a question to the system and a pure judgement of its answer; the judgements are
//! tested with the answers of systems that we do not have.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;
use crate::http::Ports;
use crate::net::address::ListenAddress;
use crate::reactor;
use diskq::system_text;

mod bind;

pub use bind::{Bound, BoundProbe, bind, bind_probe};

/// The first kernel that can wait in a ring for a time.
const KERNEL_MIN: Kernel = Kernel {
    major: 5,
    minor: 11,
};

/// Locked memory per shard: what the kernel charges for its ring, before Linux 5.12 and again since
/// 6.13, to processes without CAP_IPC_LOCK.
const MEMLOCK_BYTES_PER_SHARD: u64 = 64 * 1024;

/// Descriptors besides those of clients: listeners, log, metadata, standard streams, some slack.
const DESCRIPTORS_PROCESS: u64 = 64;

/// Descriptors per shard: the ring, the wake-up, listeners, a few segments.
const DESCRIPTORS_PER_SHARD: u64 = 16;

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
    /// RLIMIT_MEMLOCK cannot be raised far enough.
    MemlockTooLow {
        /// The hard limit.
        hard_bytes: u64,
        /// What is needed.
        need_bytes: u64,
        /// For how many shards.
        shard_count: NonZeroUsize,
    },
    /// RLIMIT_NOFILE cannot be raised far enough.
    DescriptorsTooFew {
        /// The hard limit.
        hard_count: u64,
        /// What is needed.
        need_count: u64,
        /// For how many shards.
        shard_count: NonZeroUsize,
    },
    /// An address cannot be listened on.
    Listen {
        /// As the operator wrote it.
        address: String,
        /// In nsqd's words, where it has some.
        why: String,
        /// What to do.
        hint: &'static str,
    },
}

impl fmt::Display for PreflightError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PreflightError::KernelTooOld { kernel } => write!(
                f,
                "this kernel ({}.{}) is too old for io_uring as ringq uses it - use Linux {}.{} \
                 or newer",
                kernel.major, kernel.minor, KERNEL_MIN.major, KERNEL_MIN.minor
            ),
            PreflightError::IoUringDisabled { setting } => write!(
                f,
                "io_uring is switched off on this system (kernel.io_uring_disabled = {setting}) - \
                 allow it with: sysctl -w kernel.io_uring_disabled=0"
            ),
            PreflightError::IoUringForbidden => write!(
                f,
                "this process is not allowed to use io_uring, most likely by the seccomp profile \
                 of its container - run it with a profile that allows io_uring_setup, \
                 io_uring_enter and io_uring_register (docker: --security-opt seccomp=<profile>)"
            ),
            PreflightError::IoUringFailed { source } => {
                write!(f, "io_uring does not work here: {}", system_text(source))?;
                if source.kind() == io::ErrorKind::OutOfMemory {
                    write!(
                        f,
                        " - allow this process more memory (systemd: MemoryMax=; docker: --memory=)"
                    )?;
                }
                Ok(())
            }
            PreflightError::MemlockTooLow {
                hard_bytes,
                need_bytes,
                shard_count,
            } => write!(
                f,
                "the limit on locked memory is {} KiB, but {shard_count} shards need {} KiB - \
                 raise it (ulimit -l {}; systemd: LimitMEMLOCK=; docker: --ulimit memlock=), or \
                 use fewer --shards",
                hard_bytes / 1024,
                need_bytes / 1024,
                need_bytes / 1024
            ),
            PreflightError::DescriptorsTooFew {
                hard_count,
                need_count,
                shard_count,
            } => write!(
                f,
                "the limit on open files is {hard_count}, but {shard_count} shards need at least \
                 {need_count}, and each client one more - raise it (ulimit -n; systemd: \
                 LimitNOFILE=; docker: --ulimit nofile=), or use fewer --shards"
            ),
            PreflightError::Listen { address, why, hint } => {
                write!(f, "listen ({address}) failed - {why}")?;
                if hint.is_empty() {
                    Ok(())
                } else {
                    write!(f, " - {hint}")
                }
            }
        }
    }
}

impl std::error::Error for PreflightError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PreflightError::IoUringFailed { source } => Some(source),
            _ => None,
        }
    }
}

/// What the checks found out.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Where clients are to be listened for, with the port decided.
    pub tcp: ListenAddress,
    /// The same for HTTP; `None` if it is switched off.
    pub http: Option<ListenAddress>,
    /// The same for HTTPS; `None` also without a certificate.
    pub https: Option<ListenAddress>,
}

impl Ready {
    /// The ports of these addresses.
    pub fn ports(&self) -> Ports {
        let port =
            |address: &Option<ListenAddress>| address.as_ref().map_or(0, ListenAddress::port);
        Ports {
            tcp: self.tcp.port(),
            http: port(&self.http),
            https: port(&self.https),
        }
    }
}

/// All checks but those of addresses.
pub fn check_system(shard_count: NonZeroUsize) -> Result<(), PreflightError> {
    check_descriptors(shard_count)?;
    check_io_uring(shard_count, kernel())
}

/// All checks, in the order in which nsqd would fail.
pub fn check(config: &Config) -> Result<Ready, PreflightError> {
    check_system(config.shard_count)?;
    // All are held until all have succeeded: two equal ports are found out.
    let tcp = bind(&config.tcp_address)?;
    let http = match config.http_address.as_str() {
        "" => None,
        address => Some(bind(address)?),
    };
    let https = match config.https_address.as_str() {
        address if config.has_certificate() && !address.is_empty() => Some(bind(address)?),
        _ => None,
    };
    Ok(Ready {
        tcp: tcp.address(),
        http: http.as_ref().map(Bound::address),
        https: https.as_ref().map(Bound::address),
    })
}

/// The running kernel; 0.0 if its name is not understood, which then counts as old only if
/// io_uring fails, too.
fn kernel() -> Kernel {
    parse_kernel(&rustix::system::uname().release().to_string_lossy())
}

fn parse_kernel(release: &str) -> Kernel {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0);
    Kernel {
        major: next(),
        minor: next(),
    }
}

/// Has rings do once what shards have them do.
fn check_io_uring(shard_count: NonZeroUsize, kernel: Kernel) -> Result<(), PreflightError> {
    // Any raise will do that is enough for the kernel, which knows best what it charges.
    let memlock = raise(Resource::Memlock, 0, u64::MAX);
    debug_assert!(memlock.is_ok(), "nothing was demanded");
    match reactor::try_rings(shard_count) {
        Ok(true) => Ok(()),
        Ok(false) => Err(PreflightError::KernelTooOld { kernel }),
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(judge_memory(
            error,
            getrlimit(Resource::Memlock).current,
            shard_count,
        )),
        Err(error) => Err(judge_io_uring(error, io_uring_disabled(), kernel)),
    }
}

fn judge_memory(
    source: io::Error,
    limit_bytes: Option<u64>,
    shard_count: NonZeroUsize,
) -> PreflightError {
    let need_bytes = MEMLOCK_BYTES_PER_SHARD * shard_count.get() as u64;
    match limit_bytes {
        Some(hard_bytes) if hard_bytes < need_bytes => PreflightError::MemlockTooLow {
            hard_bytes,
            need_bytes,
            shard_count,
        },
        _ => PreflightError::IoUringFailed { source },
    }
}

/// The system's switch, where there is one (since Linux 6.6).
fn io_uring_disabled() -> Option<u8> {
    let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    text.trim().parse().ok()
}

fn judge_io_uring(source: io::Error, disabled: Option<u8>, kernel: Kernel) -> PreflightError {
    let errno = Errno::from_io_error(&source);
    match errno {
        Some(Errno::NOSYS) if kernel < KERNEL_MIN => PreflightError::KernelTooOld { kernel },
        // A kernel that has it and says that it has not: some filters answer so.
        Some(Errno::NOSYS) => PreflightError::IoUringForbidden,
        Some(Errno::PERM | Errno::ACCESS) => match disabled {
            Some(setting @ 1..) => PreflightError::IoUringDisabled { setting },
            _ => PreflightError::IoUringForbidden,
        },
        _ => PreflightError::IoUringFailed { source },
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
fn check_descriptors(shard_count: NonZeroUsize) -> Result<(), PreflightError> {
    let need_count = descriptors_need_count(shard_count);
    raise(Resource::Nofile, need_count, u64::MAX).map_err(|hard_count| {
        PreflightError::DescriptorsTooFew {
            hard_count,
            need_count,
            shard_count,
        }
    })
}

fn descriptors_need_count(shard_count: NonZeroUsize) -> u64 {
    DESCRIPTORS_PROCESS + DESCRIPTORS_PER_SHARD * shard_count.get() as u64
}

#[cfg(test)]
mod tests;
