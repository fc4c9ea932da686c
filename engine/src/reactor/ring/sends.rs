//! [`Sends`]: small outputs of several connections, which go to the kernel with one system call.
//!
//! A thread that returns from a system call may lose its core to a client that the call has woken. So one call for 32
//! answers costs less than 32 calls, although the kernel does the same work for each answer
//! (docs/decisions/0012-small-requests.md).

use crate::reactor::{SENDS_MAX, Sent};
use io_uring::types::Fd;
use io_uring::{opcode, squeue};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// The longest output that is staged. Copying a longer one costs more than its system call saves.
const BYTES_MAX: usize = 512;

/// The outputs that are staged, in the order of staging.
pub(super) struct Sends {
    /// [`BYTES_MAX`] bytes for each output.
    bytes: Box<[u8]>,
    staged: Vec<Staged>,
    /// The number of outputs whose completion is not there yet.
    left: usize,
}

struct Staged {
    descriptor: RawFd,
    bytes: usize,
    /// The number of bytes that have left, or the negative number of an error.
    result: i32,
}

impl Default for Sends {
    fn default() -> Sends {
        Sends {
            bytes: vec![0; SENDS_MAX * BYTES_MAX].into_boxed_slice(),
            staged: Vec::with_capacity(SENDS_MAX),
            left: 0,
        }
    }
}

impl Sends {
    /// Copies an output. Returns false if it is too long, or too many are staged.
    pub(super) fn stage(&mut self, descriptor: BorrowedFd<'_>, output: &[IoSlice<'_>]) -> bool {
        let bytes = output.iter().map(|slice| slice.len()).sum();
        if bytes > BYTES_MAX || self.staged.len() == SENDS_MAX {
            return false;
        }
        let mut at = self.staged.len() * BYTES_MAX;
        for slice in output {
            self.bytes[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        self.staged.push(Staged {
            descriptor: descriptor.as_raw_fd(),
            bytes,
            result: -libc::EAGAIN,
        });
        true
    }

    /// Returns the number of outputs, all of which are about to be submitted.
    pub(super) fn begin(&mut self) -> usize {
        self.left = self.staged.len();
        self.left
    }

    /// Returns the request for an output. The bytes that it points to stay where they are as long as `self` lives, and
    /// are not written before [`Sends::clear`].
    pub(super) fn request(&self, index: usize) -> squeue::Entry {
        let Staged {
            descriptor, bytes, ..
        } = self.staged[index];
        let bytes = &self.bytes[index * BYTES_MAX..][..bytes];
        opcode::Send::new(Fd(descriptor), bytes.as_ptr(), bytes.len() as u32)
            // A request that cannot be carried out at once completes with an error and does not wait in the kernel.
            .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
            .build()
    }

    /// Records the completion of an output.
    pub(super) fn complete(&mut self, index: usize, result: i32) {
        self.staged[index].result = result;
        self.left -= 1;
    }

    /// Returns whether completions are missing.
    pub(super) fn is_under_way(&self) -> bool {
        self.left > 0
    }

    /// The result of an output.
    pub(super) fn sent(&self, index: usize) -> Sent {
        let staged = &self.staged[index];
        Sent {
            offered: staged.bytes,
            result: match staged.result {
                bytes @ 0.. => Ok(Some(bytes as usize)),
                error if [libc::EAGAIN, libc::EINTR].contains(&-error) => Ok(None),
                error => Err(io::Error::from_raw_os_error(-error)),
            },
        }
    }

    /// Forgets all outputs.
    pub(super) fn clear(&mut self) {
        self.staged.clear();
    }
}
