use std::sync::mpsc::channel;

use program::log::capture;

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
        let released = released.lock().expect("the lock is whole");
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
