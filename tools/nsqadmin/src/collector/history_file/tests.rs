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

const MONTH: i64 = 30 * 24 * 3_600;

/// Returns a file with this content, which is no history, and a history of one sample.
fn file_in(directory: &Path, content: &str) -> HistoryFile {
    let path = directory.join("history");
    let file = HistoryFile::read(&path, 1 << 20).expect("there is no file");
    add(&file, 0);
    std::fs::write(path, content).expect("the directory takes files");
    file
}

fn add(file: &HistoryFile, unix_seconds: i64) {
    let sample = (Key::All, Point::default());
    file.history.lock().add(unix_seconds, [sample]);
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

/// A machine whose clock is wrong at each start kept one more file each time.
#[test]
fn old_files_do_not_fill_the_disk() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    for _ in 0..2 * KEPT_MAX {
        let file = file_in(directory.path(), "old");
        add(&file, MONTH);
        file.save();
    }
    let kept = std::fs::read_dir(directory.path()).expect("the directory is there");
    let names = kept.map(|entry| entry.expect("an entry").file_name());
    let kept = names.filter(|name| name.to_string_lossy().contains(".bad"));
    assert_eq!(kept.count(), KEPT_MAX as usize);
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
        add(&file, 7);
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
