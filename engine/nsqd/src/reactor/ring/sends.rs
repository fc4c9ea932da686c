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

/// The errors of a request that say nothing about the connection. The caller writes to the socket itself.
const UNTRIED: [i32; 5] = [
    // The socket has no room.
    libc::EAGAIN,
    libc::EINTR,
    // The kernel has no memory for the request, or does not carry it out.
    libc::ENOMEM,
    libc::ENOBUFS,
    libc::ECANCELED,
];

/// The outputs that are staged, in the order of staging.
pub(super) struct Sends {
    /// [`BYTES_MAX`] bytes for each output.
    bytes: Box<[u8]>,
    staged: Vec<Staged>,
    /// The outputs are leaving, or their results are being told. No output is staged meanwhile: it would be cleared with
    /// the others.
    is_leaving: bool,
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
            is_leaving: false,
            left: 0,
        }
    }
}

impl Sends {
    /// Copies an output. Returns false if it is too long, too many are staged, or the staged ones are leaving.
    pub(super) fn stage(&mut self, descriptor: BorrowedFd<'_>, output: &[IoSlice<'_>]) -> bool {
        let bytes = output.iter().map(|slice| slice.len()).sum();
        if self.is_leaving || bytes > BYTES_MAX || self.staged.len() == SENDS_MAX {
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
        self.is_leaving = true;
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
                error if UNTRIED.contains(&-error) => Ok(None),
                error => Err(io::Error::from_raw_os_error(-error)),
            },
        }
    }

    /// Forgets all outputs.
    pub(super) fn clear(&mut self) {
        self.is_leaving = false;
        self.staged.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// A kernel without memory for a request ended the connection.
    #[test]
    fn an_error_of_the_ring_says_nothing_about_the_connection() {
        let mut sends = Sends::default();
        let stdin = io::stdin();
        let results = [5, -libc::ENOMEM, -libc::ENOBUFS, -libc::ECANCELED];
        let results = results.into_iter().chain([-libc::EAGAIN, -libc::EPIPE]);
        for _ in results.clone() {
            assert!(sends.stage(stdin.as_fd(), &[IoSlice::new(b"hello")]));
        }
        sends.begin();
        let told: Vec<_> = results
            .enumerate()
            .map(|(index, result)| {
                sends.complete(index, result);
                sends.sent(index).result.map_err(|error| error.kind())
            })
            .collect();
        let mut expected = vec![Ok(None); 6];
        expected[0] = Ok(Some(5));
        expected[5] = Err(io::ErrorKind::BrokenPipe);
        assert_eq!(told, expected);
        assert!(!sends.is_under_way());
    }
}
