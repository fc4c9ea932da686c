//! [`PreflightError`]: what was found, and what to do about it.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;

use super::limits::RAISE_DESCRIPTORS;
use super::{KERNEL_MIN, Kernel};
use crate::reactor::Engine;
use wire::go_error::system_text;

/// The reason why the program cannot start here. Its text is for the FATAL line.
#[derive(Debug)]
pub enum PreflightError {
    /// The kernel has no io_uring, or lacks operations.
    KernelTooOld {
        /// The running kernel.
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
        /// The limit that is needed.
        need_bytes: u64,
        /// The number of shards.
        shard_count: NonZeroUsize,
    },
    /// RLIMIT_NOFILE cannot be raised far enough.
    DescriptorsTooFew {
        /// The limit that is too low: the hard limit, or the soft limit if the system refuses to raise it.
        hard_count: u64,
        /// The limit that is needed.
        need_count: u64,
        /// The number of shards.
        shard_count: NonZeroUsize,
    },
    /// An address cannot be listened on.
    Listen {
        /// The address in the operator's spelling.
        address: String,
        /// The cause, in nsqd's words where nsqd has some.
        why: String,
        /// The advice to the operator.
        hint: String,
    },
}

impl PreflightError {
    /// Returns what to do. The text is empty where there is nothing to say.
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
            PreflightError::Listen { hint, .. } => hint.clone(),
        }
    }

    /// Returns what was found.
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
