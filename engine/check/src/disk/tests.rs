use super::*;
use program::check::State;

const PLENTY: Space = Space {
    free_bytes: 100 << 30,
    total_bytes: 200 << 30,
    free_files: 1_000_000,
    total_files: 2_000_000,
};

#[test]
fn room_is_bytes_and_files() {
    let check = |space: Space, state, found: &str| {
        let finding = judge_space(&space);
        assert_eq!(finding.state, state, "{finding:?}");
        assert!(finding.found.contains(found), "{finding:?}");
        assert_eq!(finding.advice.is_empty(), state == State::Ok, "{finding:?}");
    };
    check(PLENTY, State::Ok, "100 GiB of 200 GiB are free");
    let bytes = |free_bytes| Space {
        free_bytes,
        ..PLENTY
    };
    check(bytes(FREE_BYTES_FEW), State::Ok, "1.0 GiB");
    let few = "1024 MiB of 200 GiB are free: publishes are refused when";
    check(bytes(FREE_BYTES_FEW - 1), State::Warning, few);
    check(bytes(FREE_BYTES_MIN), State::Warning, "1.0 MiB");
    check(bytes(1000), State::Failure, "1000 bytes of");
    let files = |free_files| Space {
        free_files,
        ..PLENTY
    };
    check(files(5), State::Warning, "only 5 files more");
    check(files(0), State::Failure, "all 2000000 inodes");
    // btrfs counts none.
    let uncounted = Space {
        free_files: 0,
        total_files: 0,
        ..PLENTY
    };
    check(uncounted, State::Ok, "100 GiB");
}

#[test]
fn files_that_cannot_be_made_reserved_or_mapped_say_which() {
    let check = |usable: Usable, state, found: &str, advice: &str| {
        let finding = judge_segments(&usable);
        assert_eq!(finding.state, state, "{finding:?}");
        assert!(finding.found.contains(found), "{finding:?}");
        assert!(finding.advice.contains(advice), "{finding:?}");
    };
    let system = |code| io::Error::from_raw_os_error(code);
    check(Ok(true), State::Ok, "reserved", "");
    check(Ok(false), State::Warning, "fallocate", "ext4");
    let full = Err(("reserved", system(libc::ENOSPC)));
    let text = "64 KiB cannot be reserved there: no space left on device";
    check(full, State::Failure, text, "free some room");
    let quota = Err(("made", system(libc::EDQUOT)));
    check(quota, State::Failure, "cannot be made", "quota");
    let unmapped = Err(("mapped", system(libc::ENODEV)));
    check(
        unmapped,
        State::Failure,
        "cannot be mapped",
        "local file system",
    );
    let broken = Err(("made", system(libc::EIO)));
    check(broken, State::Failure, "cannot be made", "dmesg");
}

#[test]
fn slow_syncs_are_told_by_what_they_cost() {
    let flags = |before_each_ok| Syncs {
        before_each_ok,
        timeout: Duration::from_secs(2),
    };
    let check = |ms: &[u64], before_each_ok, state, found: &str, advice: &str| {
        let times = ms.iter().map(|ms| Duration::from_millis(*ms)).collect();
        let finding = judge_syncs(Ok(times), flags(before_each_ok));
        assert_eq!(finding.state, state, "{finding:?}");
        assert!(finding.found.contains(found), "{finding:?}");
        assert!(finding.advice.contains(advice), "{finding:?}");
    };
    let fast = "a sync of 4 KiB takes 2.0 ms: --sync-every=1 would make each OK wait that long, at most 500 publishes";
    check(&[1, 2, 90], false, State::Ok, fast, "");
    let topics = "; the disk can sync about 25 topics a second, and each topic with new messages is synced every 2.0 s";
    check(
        &[1, 40, 50],
        false,
        State::Warning,
        topics,
        "--sync-timeout",
    );
    let publishes = "--sync-every=1 makes each OK wait that long, at most 25 publishes a second";
    check(&[40], true, State::Warning, publishes, "MPUB");
    check(&[10], true, State::Ok, "10 ms", "");
    let broken = judge_syncs(Err(io::Error::from_raw_os_error(libc::EIO)), flags(false));
    assert_eq!(broken.state, State::Failure);
    assert!(broken.found.contains("nput/output error"), "{broken:?}");
    assert_eq!(time_text(Duration::from_micros(81)), "0.081 ms");
}

#[test]
fn a_directory_that_goes_away_is_a_finding() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let flags = Syncs {
        before_each_ok: false,
        timeout: Duration::from_secs(2),
    };
    let (segments, syncs) = trial(&missing, flags);
    assert_eq!(segments.state, State::Failure);
    assert_eq!(syncs, None);
    assert_eq!(space(&missing).state, State::Warning);
}
