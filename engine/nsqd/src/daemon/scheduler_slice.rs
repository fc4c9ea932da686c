//! Scheduler slices: how long a thread asks Linux to run at a time.
//!
//! Linux lets a running thread finish its slice of 3 ms and more before a thread that wakes up gets its turn. Since
//! Linux 6.12, a thread that asks for a shorter slice gets its turn earlier (EEVDF: the earlier deadline runs;
//! sched(7)). A shard that wakes up has some microseconds of work, for which peers wait. The shorter slice gives the
//! shard no larger share of the processor, and asking for it needs no rights.

use std::io;
use std::mem;
use std::time::Duration;

/// The shortest slice that Linux grants.
const SLICE: Duration = Duration::from_micros(100);

const SIZE: u32 = mem::size_of::<libc::sched_attr>() as u32;

/// Asks for short slices for this thread. Does nothing if the thread was given a policy without slices, for example by
/// chrt(1). Older kernels ignore the request.
///
/// # Errors
/// The system does not allow it.
pub(super) fn request_short() -> io::Result<()> {
    let mut attributes = attributes()?;
    let policy = i32::try_from(attributes.sched_policy);
    if policy != Ok(libc::SCHED_OTHER) && policy != Ok(libc::SCHED_BATCH) {
        return Ok(());
    }
    attributes.sched_runtime = SLICE.as_nanos() as u64;
    set_attributes(&attributes)
}

/// Returns this thread's scheduling attributes.
#[allow(unsafe_code)]
fn attributes() -> io::Result<libc::sched_attr> {
    let mut attributes = libc::sched_attr {
        size: SIZE,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes SIZE bytes at most, which `attributes` has, all of them numbers.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    answered(answer).map(|()| attributes)
}

#[allow(unsafe_code)]
fn set_attributes(attributes: &libc::sched_attr) -> io::Result<()> {
    let mut attributes = libc::sched_attr {
        size: SIZE,
        ..*attributes
    };
    // SAFETY: the kernel reads as much as the first field says, which is what there is, and may write that
    // field.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw mut attributes, 0) };
    answered(answer)
}

fn answered(answer: libc::c_long) -> io::Result<()> {
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn ask_and_look(policy: libc::c_int, nice: i32) -> libc::sched_attr {
        let act = move || {
            let mut before = attributes().expect("a thread has attributes");
            before.sched_policy = policy as u32;
            before.sched_nice = nice;
            set_attributes(&before).expect("anybody may be nicer");
            request_short().expect("anybody may ask for less");
            attributes().expect("a thread has attributes")
        };
        thread::spawn(act).join().expect("no panic")
    }

    /// Returns whether the kernel tells a thread its slice.
    fn knows_slices() -> bool {
        attributes().expect("a thread has attributes").sched_runtime > 0
    }

    #[test]
    fn a_thread_gets_short_slices_and_keeps_what_else_it_was_given() {
        for policy in [libc::SCHED_OTHER, libc::SCHED_BATCH] {
            let after = ask_and_look(policy, 7);
            assert_eq!((after.sched_policy, after.sched_nice), (policy as u32, 7));
            let slice = if knows_slices() { SLICE.as_nanos() } else { 0 };
            assert_eq!(u128::from(after.sched_runtime), slice);
        }
    }

    #[test]
    fn another_policy_is_left_alone() {
        let after = ask_and_look(libc::SCHED_IDLE, 0);
        assert_eq!(after.sched_policy, libc::SCHED_IDLE as u32);
        assert_ne!(u128::from(after.sched_runtime), SLICE.as_nanos());
    }
}
