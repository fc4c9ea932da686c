//! Making a ring, in the newest mode that the kernel knows.

use io_uring::{Builder, IoUring};
use std::io;
use std::time::{Duration, Instant};

/// Requests that go to the kernel together. More wait for the next time.
const SUBMISSIONS: u32 = 256;
/// Completions that fit before the kernel has to keep them itself.
const COMPLETIONS: u32 = 2048;

const PAUSE: Duration = Duration::from_millis(10);

/// Tries again while memory is missing. The kernel gives the locked memory of an earlier ring back a little later: the
/// memory of [`crate::reactor::try_engine`], or of a process that was killed.
pub(super) fn with_retries<T>(time: Duration, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + time;
    loop {
        match make() {
            Err(error)
                if error.kind() == io::ErrorKind::OutOfMemory && Instant::now() < deadline =>
            {
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

/// The mode of a ring.
type Mode = fn(&mut Builder) -> &mut Builder;

/// The modes of rings, the newest first. The first two deliver completions only when the thread enters the kernel.
const MODES: [Mode; 3] = [
    // Linux 6.1.
    |builder| {
        builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
    },
    // Linux 5.19.
    |builder| builder.setup_coop_taskrun().setup_taskrun_flag(),
    |builder| builder,
];

/// Makes a ring in the newest mode that the kernel knows.
pub(super) fn build() -> io::Result<IoUring> {
    build_newest(&MODES)
}

/// Makes a ring as on Linux 6.0.
#[cfg(test)]
pub(super) fn build_older() -> io::Result<IoUring> {
    build_newest(&MODES[1..])
}

fn build_newest(modes: &[Mode]) -> io::Result<IoUring> {
    let mut result = Err(io::ErrorKind::Unsupported.into());
    for choose in modes {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS);
        result = choose(&mut builder).build(SUBMISSIONS);
        let is_unknown = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
        if !result.as_ref().is_err_and(is_unknown) {
            break;
        }
    }
    result
}

/// Returns whether the kernel carries on with the ring's requests only when the thread enters the ring, and not in any
/// other system call. This is so in the first mode, which alone has a single issuer.
pub(super) fn is_deferring(ring: &IoUring) -> bool {
    ring.params().is_setup_single_issuer()
}
