use std::sync::mpsc::channel;

use program::log::capture;

use crate::history::{Key, Point};

use super::*;

const LONG: Duration = Duration::from_secs(30);

/// Live figures stood still while the history was saved.
#[tokio::test]
async fn a_save_that_hangs_holds_up_nobody_and_no_second_one_begins() {
    let (begun, begins) = channel();
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let mut saves = Saves::new(move || {
        begun.send(()).expect("the test waits");
        let released = released.lock();
        released.recv().expect("the test releases it");
    });
    let start = Instant::now();
    let minutes = |count: u32| start + count * SAVE_INTERVAL;
    saves.start_if_due(start);
    begins.recv_timeout(LONG).expect("the first save begins");
    capture::start();
    saves.start_if_due(minutes(1) - Duration::from_millis(1));
    assert!(capture::stop().is_empty(), "it is not due");
    capture::start();
    saves.start_if_due(minutes(1));
    saves.start_if_due(minutes(1));
    let log = capture::stop();
    assert!(
        matches!(&log[..], [line] if line.contains("has not ended yet")),
        "{log:?}"
    );
    assert!(begins.try_recv().is_err(), "one save at a time");

    release.send(()).expect("the save waits");
    let running = saves.running.take().expect("there was a save");
    running.await.expect("the save does not panic");
    saves.start_if_due(minutes(2));
    begins.recv_timeout(LONG).expect("the second save begins");
    release.send(()).expect("the save waits");
}

/// A hung disk kept a process alive that was to end.
#[test]
fn the_last_save_has_a_limit() {
    let (release, released) = channel::<()>();
    let hangs = move || released.recv().expect("the test releases it");
    assert!(!ends_within(Duration::from_millis(20), hangs).expect("there is a thread"));
    release.send(()).expect("the work goes on");
    assert!(ends_within(LONG, || {}).expect("there is a thread"));
}

/// The lock was that of the link, and the first save replaced the link, so a second process by the name of the target wrote
/// to the same file.
#[test]
fn a_link_and_its_target_are_one_file() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("data")).expect("the directory takes directories");
    std::os::unix::fs::symlink("other", at("link")).expect("the directory takes links");
    std::os::unix::fs::symlink("data/history", at("other")).expect("the directory takes links");
    let read = |name: &str| HistoryFile::read(&at(name), 1 << 20);
    let is_link = || std::fs::read_link(at("link")).is_ok();
    // First the target is not there, and then it is.
    for round in 0..2 {
        let file = read("link").expect("no other process has it");
        assert_eq!(
            file.history.lock().points(&Key::All, 0, 7).is_some(),
            round > 0
        );
        let sample = (Key::All, Point::default());
        file.history.lock().add(7, [sample]);
        file.save();
        assert!(is_link(), "round {round}");
        let saved = std::fs::read(at("data/history")).expect("the target is there");
        assert!(saved.starts_with(b"nsqadmin history"), "round {round}");
        let refused = read("data/history").expect_err("one file at a time");
        assert!(refused.contains("data/history is used by"), "{refused}");
    }
    let file = read("data/history").expect("no other process has it");
    let refused = read("link").expect_err("one file at a time");
    assert!(refused.contains("data/history is used by"), "{refused}");
    drop(file);
    std::os::unix::fs::symlink("missing/history", at("lost")).expect("the directory takes links");
    let refused = read("lost").expect_err("the directory is missing");
    assert!(refused.contains("missing is missing: make it"), "{refused}");
    std::os::unix::fs::symlink("circle", at("circle")).expect("the directory takes links");
    let refused = read("circle").expect_err("there is no file");
    assert!(refused.contains("too many levels"), "{refused}");
}
