use super::io_uring::{judge, judge_memory};
use super::*;
use crate::preflight::limits::{descriptors_need, judge_open_files};
use program::check::State;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::io;
use test_support::assert_like;

const NEW: Kernel = Kernel(6, 18);
const OLD: Kernel = Kernel(5, 4);
/// Has rings, but no wait with a timeout.
const WITHOUT_TIMEOUT: Kernel = Kernel(5, 10);

fn shards(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

#[test]
fn kernels_are_read_from_their_release() {
    let check = |release: &str, major, minor| {
        assert_eq!(parse_kernel(release), Kernel(major, minor), "{release}");
    };
    check("6.18.44-cloud-amd64", 6, 18);
    check("5.15.0-1051-aws", 5, 15);
    check("5.10", 5, 10);
    check("4.4-rc1", 4, 4);
    check("", 0, 0);
    check("odd", 0, 0);
}

#[test]
fn each_way_of_having_no_io_uring_has_its_own_text() {
    let check = |errno: Errno, disabled, kernel, text: &str| {
        let error = judge(&errno.into(), disabled, kernel).to_string();
        assert!(error.contains(text), "{error}");
    };
    check(Errno::NOSYS, None, OLD, "this kernel (5.4) is too old");
    check(Errno::NOSYS, None, OLD, "use Linux 5.11 or newer");
    let text = "this kernel (5.10) is too old";
    check(Errno::INVAL, None, WITHOUT_TIMEOUT, text);
    check(
        Errno::INVAL,
        Some(0),
        NEW,
        "io_uring does not work here: invalid argument",
    );
    check(Errno::NOSYS, Some(0), NEW, "seccomp profile");
    check(Errno::PERM, None, NEW, "seccomp profile");
    check(Errno::PERM, Some(0), NEW, "seccomp profile");
    check(Errno::PERM, Some(1), NEW, "kernel.io_uring_disabled = 1");
    check(
        Errno::PERM,
        Some(2),
        NEW,
        "sysctl -w kernel.io_uring_disabled=0",
    );
    check(Errno::ACCESS, None, NEW, "not allowed to use io_uring");
    check(
        Errno::NOMEM,
        Some(0),
        NEW,
        "io_uring does not work here: cannot allocate memory - allow this process more memory",
    );
}

/// A new kernel was called too old. Opened by a ring that reports no wake-up.
#[test]
fn a_ring_that_does_not_answer_is_no_old_kernel() {
    let silent = || io::Error::from(io::ErrorKind::TimedOut);
    for kernel in [NEW, OLD] {
        let error = judge(&silent(), Some(0), kernel).to_string();
        let text =
            "io_uring does not work here: timed out - look for the cause in the kernel's log";
        assert!(error.starts_with(text), "{error}");
    }
}

#[test]
fn the_log_says_which_engine_is_used_instead_and_what_that_costs() {
    let check = |error: Finding, text: &str| {
        assert_eq!(fallback_text(Engine::IoUring, &error, Engine::Epoll), text);
    };
    check(
        judge(&Errno::NOSYS.into(), None, OLD),
        "io_uring cannot be used: this kernel (5.4) is too old for io_uring as ringq uses it. nsqd uses epoll instead; it \
         takes more processor time for many small requests, and no more in other measured loads. What to do: use Linux 5.11 \
         or newer",
    );
    check(
        judge(&Errno::IO.into(), None, NEW),
        "io_uring cannot be used: io_uring does not work here: input/output error. nsqd uses epoll instead; it takes \
         more processor time for many small requests, and no more in other measured loads.",
    );
}

#[test]
fn several_rings_can_exist_at_once() {
    if is_usable(Engine::IoUring) {
        io_uring::check(shards(3), kernel()).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn needs_grow_with_shards() {
    assert_eq!(descriptors_need(shards(4)), 128);
    let error = judge_memory(&Errno::NOMEM.into(), Some(64 * 1024), shards(2));
    let text = error.to_string();
    assert_like(&text, "…is 64 KiB, but 2 shards need 128 KiB…");
    assert!(text.contains("ulimit -l 128;"), "{text}");
    // Locked memory is not what there is too little of.
    for limit in [Some(1 << 20), None] {
        let text = judge_memory(&Errno::NOMEM.into(), limit, shards(2)).to_string();
        assert!(text.contains("allow this process more memory"), "{text}");
    }
    let text = judge_open_files(Some(100), shards(4)).to_string();
    assert_like(&text, "…open files is 100, but 4 shards need at least 128…");
}

#[test]
fn the_system_is_checked_as_a_whole() {
    prepare_system("auto", shards(1)).unwrap_or_else(|error| panic!("{error}"));
    let limit = getrlimit(Resource::Nofile);
    assert_eq!(limit.current, limit.maximum, "raised as far as it goes");
}

#[cfg(target_os = "linux")]
#[test]
fn a_ring_that_does_not_receive_is_noticed() {
    use crate::reactor::REFUSES_RECEIVING;
    if !is_usable(Engine::IoUring) {
        return;
    }
    let lacks_receiving = |io| {
        let chosen = choose_engine(io, shards(2)).unwrap_or_else(|error| panic!("{error}"));
        chosen.lacks_receiving()
    };
    REFUSES_RECEIVING.set(true);
    assert!(lacks_receiving("io_uring"));
    assert!(!lacks_receiving("epoll"));
}

const SYSTEM: &str = "Linux 6.18.1";

#[cfg(target_os = "linux")]
#[test]
fn the_engine_is_told_with_its_price() {
    let works = |engine, passed_over| {
        Ok(Chosen {
            engine,
            receives: engine.is_io_uring(),
            passed_over,
        })
    };
    let best = super::judge(works(Engine::IoUring, vec![]), SYSTEM, "2 shards", "auto");
    let text = "io_uring works for 2 shards on Linux 6.18.1";
    let why = "; --io=auto takes the best engine that works";
    assert_eq!(best, Finding::ok(format!("{text}{why}")));
    let refused = Ok(Chosen {
        engine: Engine::IoUring,
        receives: false,
        passed_over: vec![],
    });
    let text = format!("{text}; {}{why}", LACKS_RECEIVING);
    let refused = super::judge(refused, SYSTEM, "2 shards", "auto");
    assert_eq!(refused, Finding::ok(text));
    // The engine is the one that was asked for.
    let asked = super::judge(works(Engine::Epoll, vec![]), SYSTEM, "2 shards", "epoll");
    let text = "epoll works for 2 shards on Linux 6.18.1; --io asks for this engine";
    assert_eq!(asked, Finding::ok(text));
    let forbidden = io_uring::forbidden;
    let passed_over = vec![(Engine::IoUring, forbidden())];
    let works = works(Engine::Epoll, passed_over);
    let second = super::judge(works, SYSTEM, "2 shards", "auto");
    assert_eq!(second.state, State::Warning);
    for part in [
        "not allowed to use io_uring",
        "2 shards will wait for sockets with epoll; it takes more processor time for many small",
    ] {
        assert!(second.found.contains(part), "{second:?}");
    }
    assert!(second.advice.contains("seccomp=<profile>"), "{second:?}");
    let none = super::judge(Err(forbidden()), SYSTEM, "2 shards", "auto");
    assert_eq!(none.state, State::Failure);
    assert_eq!(none.advice, second.advice);
}
