//! The check of io_uring: it works here, or there is a reason.

use super::{Finding, KERNEL_MIN, Kernel, engine_failed};
use crate::preflight::limits::raise;
use crate::reactor::{self, Engine};
use rustix::io::Errno;
use rustix::process::Resource;
use std::io;
use std::num::NonZeroUsize;
use wire::go_error::system_text;

/// Locked memory per shard: what the kernel charges for its ring, before Linux 5.12 and again since
/// 6.13, to processes without CAP_IPC_LOCK.
const MEMLOCK_BYTES_PER_SHARD: u64 = 64 * 1024;

/// Creates one ring per shard, and has each report one wake-up. Returns whether all rings receive for connections with
/// small requests.
///
/// # Errors
/// Why io_uring cannot be used, and what to do about it.
pub(super) fn check(shard_count: NonZeroUsize, kernel: Kernel) -> Result<bool, Finding> {
    // Raised as far as possible: only the kernel knows how much it charges.
    let memlock_bytes = raise(Resource::Memlock);
    match reactor::try_engine(Engine::IoUring, shard_count) {
        Ok(receives) => Ok(receives),
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
            Err(judge_memory(&error, memlock_bytes, shard_count))
        }
        Err(error) => Err(judge(&error, disabled(), kernel)),
    }
}

pub(super) fn judge_memory(
    source: &io::Error,
    limit_bytes: Option<u64>,
    shard_count: NonZeroUsize,
) -> Finding {
    let need_bytes = MEMLOCK_BYTES_PER_SHARD * shard_count.get() as u64;
    match limit_bytes {
        Some(limit_bytes) if limit_bytes < need_bytes => Finding::failure(
            format!(
                "the limit on locked memory is {} KiB, but {shard_count} shards need {} KiB",
                limit_bytes / 1024,
                need_bytes / 1024
            ),
            format!(
                "raise it (ulimit -l {}; systemd: LimitMEMLOCK=; docker: --ulimit memlock=), or use fewer --shards",
                need_bytes / 1024
            ),
        ),
        _ => failed(source),
    }
}

/// The system's switch, where there is one (since Linux 6.6).
fn disabled() -> Option<u8> {
    let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    text.trim().parse().ok()
}

pub(super) fn judge(source: &io::Error, disabled: Option<u8>, kernel: Kernel) -> Finding {
    match Errno::from_io_error(source) {
        // Kernels before `KERNEL_MIN` have rings from 5.1 on, but refuse a wait with a timeout (EINVAL).
        Some(Errno::NOSYS | Errno::INVAL) if kernel < KERNEL_MIN => Finding::failure(
            format!("this kernel ({kernel}) is too old for io_uring as ringq uses it"),
            format!("use Linux {KERNEL_MIN} or newer"),
        ),
        // A kernel that has it and says that it has not: some filters answer so.
        Some(Errno::NOSYS) => forbidden(),
        Some(Errno::PERM | Errno::ACCESS) => match disabled {
            Some(setting @ 1..) => Finding::failure(
                format!(
                    "io_uring is switched off on this system (kernel.io_uring_disabled = {setting})"
                ),
                "allow it with: sysctl -w kernel.io_uring_disabled=0",
            ),
            _ => forbidden(),
        },
        None if source.kind() == io::ErrorKind::TimedOut => engine_failed(Engine::IoUring, source),
        _ => failed(source),
    }
}

/// The kernel would do it, but a filter forbids it: what container runtimes do by default.
pub(super) fn forbidden() -> Finding {
    Finding::failure(
        "this process is not allowed to use io_uring, most likely by the seccomp profile of its container",
        "run it with a profile that allows io_uring_setup, io_uring_enter and io_uring_register (docker: --security-opt \
         seccomp=<profile>)",
    )
}

fn failed(source: &io::Error) -> Finding {
    let advice = match source.kind() {
        io::ErrorKind::OutOfMemory => {
            "allow this process more memory (systemd: MemoryMax=; docker: --memory=)"
        }
        _ => "",
    };
    Finding::failure(
        format!("io_uring does not work here: {}", system_text(source)),
        advice,
    )
}
