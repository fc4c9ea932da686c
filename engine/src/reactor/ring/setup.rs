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

/// Makes a ring in the newest mode that the kernel knows. The first two modes deliver completions only when the thread
/// enters the kernel.
pub(super) fn build() -> io::Result<IoUring> {
    let attempts: [fn(&mut Builder) -> &mut Builder; 3] = [
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
    let mut result = Err(io::ErrorKind::Unsupported.into());
    for choose in attempts {
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
