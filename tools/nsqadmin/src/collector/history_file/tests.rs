use std::sync::atomic::{AtomicBool, Ordering};
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

const MONTH: i64 = 30 * 24 * 3_600;

/// Returns a file with this content, which is no history, and a history of one sample.
fn file_in(directory: &Path, content: &str) -> HistoryFile {
    let path = directory.join("history");
    let file = HistoryFile::read(path.clone(), 10).expect("there is no file");
    add(&file, 0);
    std::fs::write(path, content).expect("the directory takes files");
    file
}

fn add(file: &HistoryFile, unix_seconds: i64) {
    let sample = (Key::All, Point::GAP);
    file.lock_history().add(unix_seconds, [sample]);
}

/// Writes nothing. The clock moves during the write.
struct ClockMoves<'a>(&'a HistoryFile);

impl Write for ClockMoves<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        add(self.0, MONTH);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_loss_during_a_save_keeps_the_old_file() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = file_in(directory.path(), "old");
    let mut old_past = OldPast::default();
    let saved = file.save_to(ClockMoves(&file), &mut old_past);
    saved.expect("the save succeeds");
    let aside = std::fs::read(directory.path().join("history.bad"));
    assert_eq!(aside.expect("the file is kept"), b"old");
}

/// Regression: a save cleared the mark of a loss that came while the save ended. The next save replaced the past.
#[test]
fn no_loss_is_forgotten_at_the_end_of_a_save() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = file_in(directory.path(), "old");
    for round in 1..=300 {
        let (has_begun, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let saves = scope.spawn(|| {
                let mut old_past = OldPast::default();
                while !is_over.load(Ordering::SeqCst) && !old_past.is_kept {
                    let saved = file.save_to(io::sink(), &mut old_past);
                    saved.expect("the save succeeds");
                    has_begun.store(true, Ordering::SeqCst);
                }
                old_past.is_kept
            });
            while !has_begun.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            add(&file, round * MONTH);
            let limit = Instant::now() + LONG;
            while !saves.is_finished() && Instant::now() < limit {
                thread::yield_now();
            }
            is_over.store(true, Ordering::SeqCst);
            assert!(
                saves.join().expect("no panic"),
                "round {round}: the loss is forgotten"
            );
        });
        let aside = directory.path().join("history.bad");
        std::fs::rename(aside, &file.path).expect("the file is kept");
    }
}
