//! The check of io_uring: it works here, or there is a reason.

use super::limits::raise;
use super::{KERNEL_MIN, Kernel, PreflightError};
use crate::reactor::{self, Engine};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::io;
use std::num::NonZeroUsize;

/// Locked memory per shard: what the kernel charges for its ring, before Linux 5.12 and again since
/// 6.13, to processes without CAP_IPC_LOCK.
const MEMLOCK_BYTES_PER_SHARD: u64 = 64 * 1024;

/// Creates one ring per shard, and has each report one wake-up. Returns whether all rings receive for connections with
/// small requests.
///
/// # Errors
/// Why io_uring cannot be used, and what to do about it.
pub(super) fn check(shard_count: NonZeroUsize, kernel: Kernel) -> Result<bool, PreflightError> {
    // Raised as far as possible: only the kernel knows how much it charges.
    let memlock = raise(Resource::Memlock, 0, u64::MAX);
    debug_assert!(memlock.is_ok(), "nothing was demanded");
    match reactor::try_engine(Engine::IoUring, shard_count) {
        Ok(receives) => Ok(receives),
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(judge_memory(
            error,
            getrlimit(Resource::Memlock).current,
            shard_count,
        )),
        Err(error) => Err(judge(error, disabled(), kernel)),
    }
}

pub(super) fn judge_memory(
    source: io::Error,
    limit_bytes: Option<u64>,
    shard_count: NonZeroUsize,
) -> PreflightError {
    let need_bytes = MEMLOCK_BYTES_PER_SHARD * shard_count.get() as u64;
    match limit_bytes {
        Some(limit_bytes) if limit_bytes < need_bytes => PreflightError::MemlockTooLow {
            limit_bytes,
            need_bytes,
            shard_count,
        },
        _ => PreflightError::IoUringFailed { source },
    }
}

/// The system's switch, where there is one (since Linux 6.6).
fn disabled() -> Option<u8> {
    let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    text.trim().parse().ok()
}

pub(super) fn judge(source: io::Error, disabled: Option<u8>, kernel: Kernel) -> PreflightError {
    let errno = Errno::from_io_error(&source);
    match errno {
        // Kernels before `KERNEL_MIN` have rings from 5.1 on, but refuse a wait with a timeout (EINVAL).
        Some(Errno::NOSYS | Errno::INVAL) if kernel < KERNEL_MIN => {
            PreflightError::KernelTooOld { kernel }
        }
        // A kernel that has it and says that it has not: some filters answer so.
        Some(Errno::NOSYS) => PreflightError::IoUringForbidden,
        Some(Errno::PERM | Errno::ACCESS) => match disabled {
            Some(setting @ 1..) => PreflightError::IoUringDisabled { setting },
            _ => PreflightError::IoUringForbidden,
        },
        None if source.kind() == io::ErrorKind::TimedOut => PreflightError::EngineFailed {
            engine: Engine::IoUring,
            source,
        },
        _ => PreflightError::IoUringFailed { source },
    }
}

/// The running kernel; 0.0 if its name is not understood, which then counts as old only if
/// io_uring fails, too.
pub(crate) fn kernel() -> Kernel {
    parse_kernel(&rustix::system::uname().release().to_string_lossy())
}

pub(super) fn parse_kernel(release: &str) -> Kernel {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0);
    Kernel {
        major: next(),
        minor: next(),
    }
}
