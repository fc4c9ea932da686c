mod sim_disk;

use std::io::Read;
use std::time::Duration;

use jiff::Span;
use program::log::capture;

use self::sim_disk::SimDisk;
use super::*;
use crate::nsq_to_file::disk::OsDisk;
use crate::nsq_to_file::tests::config;

/// Returns the settings of a command line. No batch is large: see [`World::of_large_batches`].
fn settings(flags: &str) -> Settings {
    let names = "-filename-format=<TOPIC><REV>.<DATETIME>.log -datetime-format=%H%M";
    Settings {
        batch_bytes_max: u64::MAX,
        ..config(&format!("-output-dir=out {names} {flags}")).archive
    }
}

/// An archive with its disk and its clock.
struct World {
    disk: SimDisk,
    now: Now,
    archive: Archive<SimDisk, usize>,
    /// The messages that were taken, and those of them that are finished.
    taken: usize,
    finished: Vec<usize>,
}

impl World {
    fn new(flags: &str) -> World {
        World::on(SimDisk::default(), settings(flags))
    }

    /// Returns a world in which 8 bytes are many for a batch.
    fn of_large_batches(flags: &str) -> World {
        let batch_bytes_max = 8;
        let settings = Settings {
            batch_bytes_max,
            ..settings(flags)
        };
        World::on(SimDisk::default(), settings)
    }

    fn on(disk: SimDisk, settings: Settings) -> World {
        let archive = Archive::new(disk.clone(), Arc::new(settings), "t", "c");
        World {
            disk,
            now: Now {
                wall: "2026-11-21T09:20:47+00:00[UTC]".parse().unwrap(),
                monotonic: Instant::now(),
            },
            archive: archive.unwrap(),
            taken: 0,
            finished: Vec::new(),
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now.monotonic += time;
        let span = Span::new().nanoseconds(time.as_nanos() as i64);
        self.now.wall = self.now.wall.checked_add(span).unwrap();
    }

    /// Takes messages, each a group of its own, and returns the finished ones.
    fn take(&mut self, bodies: &[&str]) -> Vec<usize> {
        for body in bodies {
            let taken = self.archive.take(&self.now, body.as_bytes(), self.taken);
            taken.unwrap();
            self.archive.end_group(false).unwrap();
            self.taken += 1;
        }
        self.finished()
    }

    fn finished(&mut self) -> Vec<usize> {
        let finished: Vec<usize> = self.archive.writer.take_finished().collect();
        self.finished.extend(&finished);
        finished
    }

    fn tick(&mut self) -> Vec<usize> {
        self.archive.tick(&self.now).unwrap();
        self.finished()
    }

    fn end_sync(&mut self) -> Vec<usize> {
        self.archive.writer.end_sync().unwrap();
        self.finished()
    }

    /// Takes a message of the next file.
    fn rotate(&mut self) -> Vec<usize> {
        self.take(&["next"])
    }

    fn close(&mut self) -> Vec<usize> {
        self.archive.close().unwrap();
        self.finished()
    }

    fn expect_files(&self, expected: &[(&str, &str)]) {
        let files = self.disk.files();
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let files: Vec<_> = files
            .iter()
            .map(|(path, bytes)| (&**path, text(bytes)))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(path, text)| (*path, text.to_string()))
            .collect();
        assert_eq!(files, expected);
    }
}

#[test]
fn messages_are_finished_at_the_sync_and_not_before() {
    let mut world = World::new("");
    assert_eq!(
        world.take(&["a"]),
        [0],
        "the first message of a file is synced alone"
    );
    assert_eq!(world.take(&["b", "c"]), [0; 0]);
    // Without compression, a reader sees messages before the sync.
    world.expect_files(&[("out/t.0920.log", "a\nb\nc\n")]);
    assert_eq!(world.archive.writer.batch_len(), 2);
    assert_eq!(world.tick(), [1, 2]);
    let syncs = world.disk.sync_count();
    assert_eq!(world.tick(), [0; 0]);
    assert_eq!(world.disk.sync_count(), syncs, "there is nothing to sync");
}

#[test]
fn a_full_batch_and_a_starved_consumer_are_synced() {
    let mut world = World::new("-max-in-flight=3");
    world.take(&["a"]);
    assert_eq!(world.take(&["b", "c"]), [0; 0]);
    assert_eq!(world.take(&["d", "e"]), [1, 2, 3]);
    world.archive.end_group(true).unwrap();
    assert_eq!(world.finished(), [4]);
}

/// The disk waited for the writes, and the writes for the disk.
#[test]
fn a_batch_of_large_messages_is_synced_beside_the_next_messages() {
    let mut world = World::of_large_batches("");
    world.take(&["first"]);
    assert_eq!(world.take(&["1234567"]), [0; 0]);
    assert!(world.archive.writer.first_sync().is_some());
    assert_eq!(world.take(&["abc"]), [0; 0]);
    world.expect_files(&[("out/t.0920.log", "first\n1234567\nabc\n")]);
    // A starved consumer gets answers from the running sync.
    let syncs = world.disk.sync_count();
    world.archive.end_group(true).unwrap();
    assert_eq!(world.disk.sync_count(), syncs);
    // The message that came meanwhile is not synced.
    assert_eq!(world.end_sync(), [1]);
    assert_eq!(world.end_sync(), [0; 0]);
    assert_eq!(world.archive.writer.batch_len(), 1);
    // Two syncs run at the same time. The third one waits for the first.
    assert_eq!(world.take(&["defg"]), [0; 0]);
    assert_eq!(world.take(&["1234567"]), [0; 0]);
    assert_eq!(world.take(&["7654321"]), [2, 3]);
    assert_eq!(world.take(&["h"]), [0; 0]);
    assert_eq!(world.tick(), [4, 5, 6]);
    assert!(world.archive.writer.first_sync().is_none());
}

#[test]
fn the_end_of_a_file_waits_for_the_running_sync() {
    for ends in [World::close, World::tick, World::rotate] {
        let mut world = World::of_large_batches("-work-dir=work -rotate-interval=1s");
        world.take(&["first", "1234567", "abc"]);
        world.wait(Duration::from_secs(2));
        let finished = ends(&mut world);
        assert!(finished.starts_with(&[1, 2]), "{finished:?}");
        let files = world.disk.files();
        assert_eq!(files["out/t-000000.0920.log"], b"first\n1234567\nabc\n");
    }
}

/// The messages of a sync that fails, and those that were written meanwhile, are not finished.
#[test]
fn a_sync_that_fails_beside_other_messages_finishes_nothing() {
    type End = fn(&mut World) -> Result<(), DiskError>;
    let ends: [End; 4] = [
        |world| world.archive.writer.end_sync(),
        |world| world.archive.tick(&world.now),
        |world| world.archive.close(),
        |world| world.archive.writer.sync(),
    ];
    for end in ends {
        let mut world = World::of_large_batches("");
        world.take(&["first", "1234567", "abc"]);
        world.disk.fail_after(0);
        let error = end(&mut world).unwrap_err().to_string();
        let expected = "cannot sync out/t.0920.log: ";
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(world.finished(), [0; 0]);
        assert_eq!(
            world.archive.writer.into_unfinished().collect::<Vec<_>>(),
            [1, 2]
        );
    }
    // The next sync cannot begin then, and the second one cannot finish its messages.
    let mut world = World::of_large_batches("");
    world.take(&["first", "1234567", "7654321"]);
    world.disk.fail_after(1);
    let error = world.archive.take(&world.now, b"abcdefg", 3).unwrap_err();
    assert_eq!(error.verb, "sync");
    // The disk works again, so the second sync succeeds.
    world.disk.fail_after(9);
    world.archive.writer.end_syncs().unwrap();
    assert_eq!(world.finished(), [0; 0]);
    let unfinished: Vec<usize> = world.archive.writer.into_unfinished().collect();
    assert_eq!(unfinished, [1, 2, 3]);
}

/// A write that fails does not take the messages of the running sync with it.
#[test]
fn the_running_sync_outlives_a_full_disk() {
    let mut world = World::of_large_batches("");
    world.take(&["first", "1234567"]);
    world.disk.fail_after(0);
    let taken = world.archive.take(&world.now, b"abc", 2);
    let written = taken.and_then(|()| world.archive.end_group(false));
    assert_eq!(written.unwrap_err().verb, "write to");
    world.disk.fail_after(1);
    assert_eq!(world.end_sync(), [1]);
    assert_eq!(
        world.archive.writer.into_unfinished().collect::<Vec<_>>(),
        [2]
    );
}

#[test]
fn a_file_that_somebody_removes_during_a_sync_returns_the_messages_that_came_meanwhile() {
    for flag in ["", "-gzip", "-zstd"] {
        let mut world = World::of_large_batches(flag);
        world.take(&["first", "1234567", "7654321"]);
        // This one is written only later.
        world.archive.take(&world.now, b"abc", 3).unwrap();
        let (path, _) = world.disk.files().pop_first().unwrap();
        world.disk.remove(&path);
        capture::start();
        assert_eq!(world.end_sync(), [0; 0]);
        let log = capture::stop();
        let text = "with all messages that it had; the 3 of them";
        assert!(log.iter().any(|line| line.contains(text)), "{log:?}");
        let returned: Vec<usize> = world.archive.writer.take_returned().collect();
        assert_eq!(returned, [1, 2, 3]);
        assert_eq!(world.end_sync(), [0; 0]);
        // The next file begins with the next message.
        world.take(&["next"]);
        world.close();
        let (path, bytes) = world.disk.files().pop_first().unwrap();
        assert_eq!(decode(&path, &bytes), b"next\n", "{path}");
    }
}

#[test]
fn many_messages_are_one_write() {
    let mut world = World::new("");
    for message in 0..100 {
        world.archive.take(&world.now, b"body", message).unwrap();
    }
    world.archive.end_group(false).unwrap();
    assert_eq!(world.disk.write_count(), 2, "the first is synced alone");
    // A large group is written in parts.
    for message in 0..3 {
        let body = vec![b'x'; WRITE_BYTES_MAX];
        world.archive.take(&world.now, &body, message).unwrap();
    }
    assert_eq!(world.disk.write_count(), 5);
}

#[test]
fn files_are_rotated_by_age_and_by_name() {
    let mut world = World::new("-rotate-interval=5s");
    capture::start();
    world.take(&["a"]);
    world.wait(Duration::from_secs(5));
    world.take(&["b"]);
    world.wait(Duration::from_millis(1));
    world.take(&["c"]);
    world.wait(Duration::from_secs(10));
    world.take(&["d"]);
    let lines = capture::stop();
    world.expect_files(&[
        ("out/t-000000.0920.log", "a\nb\n"),
        ("out/t-000000.0921.log", "d\n"),
        ("out/t-000001.0920.log", "c\n"),
    ]);
    let expected = [
        "INFO: [t/c] opening out/t-000000.0920.log",
        "INFO: [t/c] syncing 1 records to disk",
        "INFO: [t/c] 5.001s since last open, rotating...",
        "INFO: [t/c] syncing 1 records to disk",
        "INFO: [t/c] opening out/t-000001.0920.log",
        "INFO: [t/c] syncing 1 records to disk",
        "INFO: [t/c] new filename t<REV>.0921.log, rotating...",
        "INFO: [t/c] opening out/t-000000.0921.log",
        "INFO: [t/c] syncing 1 records to disk",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn an_idle_topic_has_empty_files_unless_they_are_skipped() {
    for skips in [false, true] {
        let flags = format!("-rotate-interval=1s -work-dir=work -skip-empty-files={skips}");
        let mut world = World::new(&flags);
        world.tick();
        world.wait(Duration::from_secs(2));
        world.take(&["a"]);
        world.wait(Duration::from_secs(2));
        assert_eq!(world.tick(), [0; 0]);
        world.wait(Duration::from_secs(2));
        world.tick();
        world.take(&["b"]);
        world.close();
        let files: &[(&str, &str)] = if skips {
            &[
                ("out/t-000000.0920.log", "a\n"),
                ("out/t-000001.0920.log", "b\n"),
            ]
        } else {
            &[
                ("out/t-000000.0920.log", ""),
                ("out/t-000001.0920.log", "a\n"),
                ("out/t-000002.0920.log", ""),
                ("out/t-000003.0920.log", "b\n"),
            ]
        };
        world.expect_files(files);
        assert_eq!(world.finished, [0, 1]);
    }
}

#[test]
fn a_compressed_file_without_messages_can_be_read() {
    for flag in ["-gzip", "-zstd"] {
        let mut world = World::new(flag);
        world.tick();
        world.close();
        let files = world.disk.files();
        assert_eq!(files.len(), 1);
        for (path, bytes) in files {
            // Readers of compressed files refuse a file of 0 bytes.
            assert_ne!(bytes.len(), 0, "{path}");
            assert_eq!(decode(&path, &bytes), b"", "{path}");
        }
    }
}

#[test]
fn a_closed_file_is_forgotten() {
    // The original wrote to a closed file after SIGHUP with a separate work directory.
    let mut world = World::new("-work-dir=work");
    world.take(&["a", "b"]);
    assert_eq!(world.close(), [1]);
    world.take(&["c"]);
    world.tick();
    world.expect_files(&[
        ("out/t-000000.0920.log", "a\nb\n"),
        ("work/t-000001.0920.log", "c\n"),
    ]);
    world.close();
    world.close();
    world.expect_files(&[
        ("out/t-000000.0920.log", "a\nb\n"),
        ("out/t-000001.0920.log", "c\n"),
    ]);
}

/// The messages were finished, although nobody could ever read them.
#[test]
fn a_file_that_somebody_removes_returns_its_messages() {
    for (work, path) in [
        ("out", "out/t.0920.log"),
        ("work", "work/t-000000.0920.log"),
    ] {
        let mut world = World::new(&format!("-work-dir={work}"));
        assert_eq!(world.take(&["a"]), [0]);
        world.take(&["b", "c"]);
        world.disk.remove(path);
        capture::start();
        assert_eq!(world.tick(), [0; 0]);
        let log = capture::stop();
        assert!(world.archive.writer.has_answers());
        let returned: Vec<usize> = world.archive.writer.take_returned().collect();
        assert_eq!(returned, [1, 2]);
        let text = format!(
            "ERROR: [t/c] somebody has removed {path} with all messages that it had; the 2 of them"
        );
        assert!(log.iter().any(|line| line.contains(&text)), "{log:?}");
        assert_eq!(world.take(&["b"]), [3], "another file begins");
        // A removed file without new messages is not moved.
        let next = path.replace("-000000", "-000001");
        world.expect_files(&[(&next, "b\n")]);
        world.disk.remove(&next);
        assert_eq!(world.close(), [0; 0]);
        assert_eq!(world.take(&["c"]), [4]);
    }
}

/// The tool ended with "no such file or directory" when it handed the file over.
#[test]
fn a_file_that_somebody_moves_away_is_not_handed_over() {
    for is_late in [false, true] {
        let mut world = World::new("-work-dir=work");
        assert_eq!(world.take(&["a"]), [0]);
        let path = "work/t-000000.0920.log";
        if is_late {
            world.disk.rename_before_move(path, "work/kept")
        } else {
            world.disk.rename(path, "work/kept")
        }
        assert_eq!(world.take(&["b"]), [0; 0]);
        assert_eq!(world.tick(), [1], "the moved file still takes messages");
        world.take(&["c"]);
        capture::start();
        assert_eq!(world.close(), [2]);
        let log = capture::stop();
        let text = format!(
            "WARNING: [t/c] somebody has moved {path} away, so the file does not go to out; all its messages are synced in \
             the file that was moved, and the next message begins another file"
        );
        assert!(log.iter().any(|line| line.contains(&text)), "{log:?}");
        assert_eq!(world.archive.writer.take_returned().count(), 0);
        world.take(&["d"]);
        world.close();
        world.expect_files(&[("out/t-000001.0920.log", "d\n"), ("work/kept", "a\nb\nc\n")]);
    }
}

/// A file of another program that has the name of the moved file stays where it is.
#[test]
fn a_file_in_the_place_of_a_moved_one_is_not_handed_over() {
    let mut world = World::new("-work-dir=work");
    world.take(&["a"]);
    capture::start();
    world.disk.rename("work/t-000000.0920.log", "work/kept");
    world.disk.put("work/t-000000.0920.log", b"other\n");
    world.close();
    capture::stop();
    world.expect_files(&[("work/kept", "a\n"), ("work/t-000000.0920.log", "other\n")]);
}

/// Cleaners remove empty directories. The tool ended when a file was to move to such a directory.
#[test]
fn a_directory_that_somebody_has_removed_is_made_again() {
    let mut world = World::new("-work-dir=work");
    world.take(&["a"]);
    world.disk.remove_directory("out");
    world.close();
    world.expect_files(&[("out/t-000000.0920.log", "a\n")]);
}

#[test]
fn no_file_is_ever_replaced() {
    let mut world = World::new("-work-dir=work");
    capture::start();
    world.disk.put("out/t-000000.0920.log", b"other\n");
    world.take(&["a"]);
    world.disk.put("out/t-000001.0920.log", b"other\n");
    world.disk.put("out/t-000002.0920.log", b"other\n");
    world.close();
    world.take(&["b"]);
    let lines = capture::stop();
    world.expect_files(&[
        ("out/t-000000.0920.log", "other\n"),
        ("out/t-000001.0920.log", "other\n"),
        ("out/t-000002.0920.log", "other\n"),
        ("out/t-000003.0920.log", "a\n"),
        ("work/t-000004.0920.log", "b\n"),
    ]);
    let moved: Vec<_> = lines
        .iter()
        .filter(|line| !line.contains("syncing"))
        .collect();
    let expected = [
        "WARNING: [t/c] output file already exists: out/t-000000.0920.log",
        "INFO: [t/c] opening work/t-000001.0920.log",
        "INFO: [t/c] moving finished file work/t-000001.0920.log to out/t-000001.0920.log",
        "WARNING: [t/c] destination file already exists: out/t-000001.0920.log",
        "INFO: [t/c] renamed finished file work/t-000001.0920.log to out/t-000003.0920.log to avoid overwrite",
        "WARNING: [t/c] output file already exists: out/t-000002.0920.log",
        "WARNING: [t/c] output file already exists: out/t-000003.0920.log",
        "INFO: [t/c] opening work/t-000004.0920.log",
    ];
    assert_eq!(moved, expected.iter().collect::<Vec<_>>());
}

#[test]
fn a_line_that_was_cut_off_is_ended() {
    let mut world = World::new("");
    world.disk.put("out/t.0920.log", b"whole\nto");
    world.take(&["a"]);
    world.expect_files(&[("out/t.0920.log", "whole\nto\na\n")]);
    // The end of the line does not wait for a message.
    let mut world = World::new("");
    world.disk.put("out/t.0920.log", b"to");
    world.tick();
    world.close();
    world.expect_files(&[("out/t.0920.log", "to\n")]);
}

#[test]
fn a_full_disk_finishes_nothing() {
    let mut world = World::new("");
    world.take(&["a"]);
    world.disk.fail_after(0);
    let error = world.archive.take(&world.now, b"b", 1);
    let error = error
        .and_then(|()| world.archive.end_group(true))
        .unwrap_err();
    test_support::assert_like(error.to_string(), "cannot write to out/t.0920.log: …");
    assert_eq!(world.finished(), [0; 0]);
}

/// Each start on a full disk left one more torn file in `--output-dir`, and no reader came to its end without an error.
#[test]
fn a_failure_leaves_only_what_is_synced() {
    for (flag, suffix) in [("", ""), ("-gzip", ".gz"), ("-zstd", ".zst")] {
        let new = || World::of_large_batches(&format!("-rotate-interval=1h {flag}"));
        let fail = |world: &mut World| {
            capture::start();
            world.disk.fail_after(0);
            let error = world.archive.take(&world.now, b"torn message", 9);
            assert_eq!(error.unwrap_err().verb, "write to");
            // The disk has room again, so that the running syncs succeed.
            world.disk.fail_after(100);
            world.archive.writer.end_syncs().unwrap();
            world.archive.end_after_failure().unwrap();
            capture::stop().pop().unwrap_or_default()
        };
        let mut world = new();
        world.take(&["first", "1234567"]);
        let log = fail(&mut world);
        let (path, bytes) = world.disk.files().pop_first().unwrap();
        let cut = format!(
            "INFO: [t/c] cutting {path} to the {} bytes that are synced",
            bytes.len()
        );
        assert_eq!(log, cut);
        assert_eq!(decode_whole(&path, &bytes), b"first\n1234567\n");
        assert_eq!(world.finished(), [1]);
        // Nothing of this file is synced.
        let mut world = new();
        let path = format!("out/t-000000.0920.log{suffix}");
        world.tick();
        let log = fail(&mut world);
        assert_eq!(
            log,
            format!("INFO: [t/c] removing {path}, which has no message")
        );
        world.expect_files(&[]);
        // Somebody has moved this one.
        let mut world = new();
        world.tick();
        world.disk.rename(&path, "out/kept");
        fail(&mut world);
        assert_eq!(world.disk.files().len(), 1);
        // This one may have other writers.
        if flag.is_empty() {
            let mut world = World::of_large_batches("");
            world.take(&["first"]);
            fail(&mut world);
            world.expect_files(&[("out/t.0920.log", "first\ntorn m")]);
        }
    }
}

/// Returns the messages of a file that must have no torn end.
fn decode_whole(path: &str, bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    reader(path, bytes).read_to_end(&mut text).unwrap();
    text
}

fn reader<'a>(path: &str, bytes: &'a [u8]) -> Box<dyn Read + 'a> {
    match Path::new(path).extension().and_then(|end| end.to_str()) {
        Some("gz") => Box::new(flate2::read::MultiGzDecoder::new(bytes)),
        Some("zst") => Box::new(zstd::Decoder::new(bytes).unwrap()),
        _ => Box::new(bytes),
    }
}

fn decode(path: &str, bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    // The end of a file may be torn. What comes before must be readable.
    let _ = reader(path, bytes).read_to_end(&mut text);
    text
}

/// Plays random events, and ends with a full disk or without, and with a power failure or without.
/// Everything that was finished must be in the files.
fn play(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut flags = format!(
        "{} -skip-empty-files={} -max-in-flight={}",
        ["", "-gzip -gzip-level=1", "-zstd -zstd-level=1"][rng.usize(0..3)],
        rng.bool(),
        rng.usize(1..50)
    );
    for flag in [
        format!(" -rotate-size={}", rng.u64(1..2000)),
        format!(" -rotate-interval={}s", rng.u64(1..100)),
        " -work-dir=work".to_owned(),
    ] {
        if rng.bool() {
            flags += &flag;
        }
    }
    let mut choices = settings(&flags);
    choices.batch_bytes_max = rng.u64(1..4000);
    let disk = SimDisk::default();
    let mut finished = Vec::new();
    let (mut taken, mut moved) = (0, 0);
    for _run in 0..3 {
        let mut world = World::on(disk.clone(), choices.clone());
        if rng.bool() {
            disk.fail_after(rng.usize(0..200));
        }
        let mut events = || -> Result<(), DiskError> {
            for _ in 0..rng.usize(0..200) {
                match rng.u8(0..20) {
                    0 => world.archive.tick(&world.now)?,
                    1 => world.archive.close()?,
                    2 => world.wait(Duration::from_millis(rng.u64(0..70_000))),
                    3 => world.archive.end_group(true)?,
                    4 => world.archive.end_group(false)?,
                    6 => world.archive.writer.end_sync()?,
                    5 => {
                        let file = world.archive.writer.file.as_ref();
                        let path = file.map(|file| file.path.display().to_string());
                        if let Some(path) = path.filter(|path| disk.files().contains_key(path)) {
                            // The end of the name says how the file is compressed.
                            moved += 1;
                            disk.rename(&path, &path.replace("/t", &format!("/moved{moved}-t")));
                        }
                    }
                    _ => {
                        let body = format!("message {taken} {}", "x".repeat(rng.usize(0..300)));
                        world.archive.take(&world.now, body.as_bytes(), taken)?;
                        taken += 1;
                    }
                }
            }
            Ok(())
        };
        let is_full = events().is_err();
        finished.extend(world.archive.writer.take_finished());
        if is_full && rng.bool() {
            disk.fail_after(rng.usize(0..5));
            if world.archive.writer.end_syncs().is_ok() && world.archive.end_after_failure().is_ok()
            {
                finished.extend(world.archive.writer.take_finished());
            }
        }
        if is_full || rng.bool() {
            disk.lose_power(&mut rng);
        } else {
            world.archive.close().ok();
            finished.extend(world.archive.writer.take_finished());
        }
    }
    let mut found = std::collections::BTreeSet::new();
    for (path, bytes) in disk.files() {
        for line in decode(&path, &bytes).split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line).into_owned();
            let number = line
                .strip_prefix("message ")
                .and_then(|rest| rest.split_once(' '));
            found.extend(number.and_then(|(number, _)| number.parse::<usize>().ok()));
        }
    }
    for message in finished {
        assert!(
            found.contains(&message),
            "seed {seed}: message {message} is lost"
        );
    }
}

#[test]
fn no_finished_message_is_lost() {
    capture::start();
    let seed = fastrand::u64(..);
    for seed in (0..300).map(|step| seed.wrapping_add(step)) {
        play(seed);
    }
    capture::stop();
}

/// The first of two processes moved the file that both wrote. The second one then synced messages into the finished
/// file, which its reader may have deleted, and could not move the file.
#[test]
fn two_processes_never_share_a_file_that_moves() {
    let directory = tempfile::tempdir().unwrap();
    let (work, out) = (directory.path().join("work"), directory.path().join("out"));
    let (work_flag, out_flag) = (work.display(), out.display());
    let flags = format!("-work-dir={work_flag} -output-dir={out_flag}");
    let settings = Arc::new(settings(&flags));
    let now = World::new("").now;
    let open = || Archive::new(OsDisk, Arc::clone(&settings), "t", "c").unwrap();
    let (mut first, mut second) = (open(), open());
    let text = |revision: u32| {
        let path = out.join(format!("t-{revision:06}.0920.log"));
        std::fs::read_to_string(path).unwrap_or_default()
    };
    first.take(&now, b"one", 1).unwrap();
    second.take(&now, b"two", 2).unwrap();
    first.close().unwrap();
    second.take(&now, b"three", 3).unwrap();
    second.writer.sync().unwrap();
    assert_eq!(text(0), "one\n");
    second.close().unwrap();
    assert_eq!([text(0), text(1)], ["one\n", "two\nthree\n"]);
    assert_eq!(second.writer.take_finished().collect::<Vec<_>>(), [2, 3]);
    // A file that a killed process left is continued: its lock is gone.
    let mut killed = open();
    killed.take(&now, b"four", 4).unwrap();
    drop(killed);
    let mut next = open();
    next.revision = 1;
    next.name = Some(next.names.at(&now.wall).to_owned());
    next.take(&now, b"five", 5).unwrap();
    next.close().unwrap();
    assert_eq!(text(2), "four\nfive\n");
}
