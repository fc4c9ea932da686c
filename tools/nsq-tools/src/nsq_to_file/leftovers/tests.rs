use std::fs;

use program::log::capture;
use tempfile::TempDir;

use super::*;
use crate::nsq_to_file::tests::config;

/// The directories `work` and `out`, and settings for the topic `t`.
struct World {
    directory: TempDir,
    settings: Settings,
}

impl World {
    fn new(format: &str) -> World {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display();
        let args = format!(
            "-output-dir={path}/out -work-dir={path}/work -filename-format={format} -datetime-format=%H"
        );
        let settings = config(&args).archive;
        World {
            directory,
            settings,
        }
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Takes the files up. Returns what is left, and the log.
    fn begin(&self) -> (Leftovers, String) {
        capture::start();
        let mut leftovers = self.leftovers(Stop::default());
        leftovers.take_up().unwrap();
        (leftovers, self.log())
    }

    fn leftovers(&self, stop: Stop) -> Leftovers {
        Leftovers::new(Arc::new(self.settings.clone()), "t", "[t/c]", stop)
    }

    /// Takes the files up. Returns the log.
    fn take_up(&self) -> String {
        self.begin().1
    }

    /// Ends the capture of the log, and returns the lines.
    fn log(&self) -> String {
        let root = format!("{}/", self.directory.path().display());
        capture::stop().join("\n").replace(&root, "")
    }

    /// Returns the paths and sizes of all files.
    fn files(&self) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        let mut unread = vec![self.directory.path().to_path_buf()];
        while let Some(directory) = unread.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    unread.push(path);
                    continue;
                }
                let relative = path.strip_prefix(self.directory.path()).unwrap();
                let size = fs::read(&path).unwrap().len();
                found.push((relative.display().to_string(), size));
            }
        }
        found.sort();
        found
    }
}

fn owned(files: &[(&str, usize)]) -> Vec<(String, usize)> {
    let files = files.iter();
    files
        .map(|(path, size)| ((*path).to_owned(), *size))
        .collect()
}

#[test]
fn files_of_the_topic_move_and_others_stay() {
    let world = World::new("<TOPIC>/<DATETIME><REV>.log");
    for path in [
        "work/t/09-000000.log",
        "work/t/10-000001.log.gz",
        "work/u/09-000000.log",
        "work/t/09-000000.txt",
        "work/09-000000.log",
        "work/t/x/09-000000.log",
    ] {
        world.put(path, b"a\n");
    }
    world.take_up();
    let expected = [
        ("out/t/09-000000.log", 2),
        ("out/t/10-000001.log.gz", 2),
        ("work/09-000000.log", 2),
        ("work/t/09-000000.txt", 2),
        ("work/t/x/09-000000.log", 2),
        ("work/u/09-000000.log", 2),
    ];
    assert_eq!(world.files(), owned(&expected));
    assert_eq!(world.take_up(), "");
}

#[test]
fn no_file_is_replaced() {
    let world = World::new("<TOPIC><REV>");
    world.put("work/t-000000", b"new\n");
    world.put("work/t-000001", b"newer\n");
    world.put("out/t-000000", b"x");
    let log = world.take_up();
    let expected = [
        ("out/t-000000", 1),
        ("out/t-000001", 4),
        ("out/t-000002", 6),
    ];
    assert_eq!(world.files(), owned(&expected));
    assert_eq!(
        log,
        "WARNING: [t/c] destination file already exists: out/t-000000\n\
         INFO: [t/c] moved work/t-000000, which an earlier run left, to out/t-000001\n\
         WARNING: [t/c] destination file already exists: out/t-000001\n\
         INFO: [t/c] moved work/t-000001, which an earlier run left, to out/t-000002"
    );
}

/// The file of a killed process that still had its lock stayed in `--work-dir` for the whole run.
#[test]
fn a_file_that_another_process_writes_stays_until_that_process_ends() {
    let world = World::new("<TOPIC><REV>");
    for name in ["t-000000", "t-000001", "t-000002"] {
        world.put(&format!("work/{name}"), b"a\n");
    }
    let path = |name: &str| world.directory.path().join(name);
    let [first, second] = ["work/t-000000", "work/t-000002"].map(|name| {
        let writer = File::open(path(name)).unwrap();
        writer.lock().unwrap();
        writer
    });
    let (mut leftovers, log) = world.begin();
    let stays = "another process writes NAME: it stays there, and moves if that process ends without moving it";
    let stays = |name: &str| format!("WARNING: [t/c] {}", stays.replace("NAME", name));
    let moved = |name: &str| {
        format!("INFO: [t/c] moved work/{name}, which an earlier run left, to out/{name}")
    };
    let expected = [
        stays("work/t-000000"),
        moved("t-000001"),
        stays("work/t-000002"),
    ];
    assert_eq!(log, expected.join("\n"));
    let mut look_again = || {
        capture::start();
        leftovers.look_again();
        (leftovers.are_left(), world.log())
    };
    assert_eq!(look_again(), (true, String::new()), "no line each time");
    // A process that another test starts may have a copy of the handle for a moment, so a drop is not enough.
    first.unlock().unwrap();
    assert_eq!(look_again(), (true, moved("t-000000")));
    // This one is moved by its writer.
    fs::rename(path("work/t-000002"), path("out/t-000002")).unwrap();
    second.unlock().unwrap();
    assert_eq!(look_again(), (false, String::new()));
    let files = ["out/t-000000", "out/t-000001", "out/t-000002"];
    assert_eq!(world.files(), owned(&files.map(|name| (name, 2))));
}

/// The failure of a later look does not end the tool, which would find the file at its next start.
#[test]
fn a_file_that_cannot_be_moved_later_stays_for_the_next_run() {
    let world = World::new("<TOPIC><REV>");
    world.put("work/t-000000", b"a\n");
    let writer = File::open(world.directory.path().join("work/t-000000")).unwrap();
    writer.lock().unwrap();
    let (mut leftovers, _) = world.begin();
    writer.unlock().unwrap();
    world.put("out", b"no directory");
    capture::start();
    leftovers.look_again();
    let log = world.log();
    let start = "ERROR: [t/c] cannot make the directory out: ";
    assert!(log.starts_with(start), "{log}");
    assert!(!leftovers.are_left());
    assert_eq!(world.files(), owned(&[("out", 12), ("work/t-000000", 2)]));
}

/// The tool ended with "no such file or directory" at its start.
#[test]
fn a_file_that_somebody_moves_meanwhile_is_left_alone() {
    for body in [&b"a\n"[..], b""] {
        let world = World::new("<TOPIC><REV>");
        world.put("work/t-000000", body);
        let path = world.directory.path().join("work/t-000000");
        let Lock::Taken(file) = lock(&path, "[t/c]").unwrap() else {
            panic!("no other process has locked the file");
        };
        fs::rename(&path, world.directory.path().join("kept")).unwrap();
        capture::start();
        let leftovers = world.leftovers(Stop::default());
        leftovers.take_locked(Path::new("t-000000"), file).unwrap();
        let log = capture::stop().join("\n");
        assert_eq!(
            log.contains("WARNING: [t/c] somebody has moved "),
            !body.is_empty(),
            "{log}"
        );
        assert_eq!(world.files(), owned(&[("kept", body.len())]));
    }
}

#[test]
fn torn_ends_are_mended_and_empty_files_disappear() {
    let world = World::new("<TOPIC><REV>");
    let mut gzip = Vec::new();
    let mut encoder = Encoder::new(GZIP).unwrap();
    for part in ["one\n", "two\n"] {
        encoder.encode(part.as_bytes(), &mut gzip).unwrap();
        encoder.end(&mut gzip).unwrap();
    }
    world.put("work/t-000000", b"one\ntw");
    world.put("work/t-000001", b"");
    world.put("work/t-000002.gz", &gzip[..gzip.len() - 1]);
    world.put("work/t-000003.gz", b"no gzip\n");
    let log = world.take_up();
    let again = "its unfinished messages come again";
    for line in [
        format!("WARNING: [t/c] the end of work/t-000000 was cut off, mended it; {again}"),
        "INFO: [t/c] removing work/t-000001, which an earlier run left empty".to_owned(),
        format!("WARNING: [t/c] the end of work/t-000002.gz was cut off, mended it; {again}"),
        "WARNING: [t/c] the end of work/t-000003.gz is damaged and cannot be read, keeping it"
            .to_owned(),
    ] {
        assert!(log.contains(&line), "{log}");
    }
    let out = world.directory.path().join("out");
    assert_eq!(fs::read(out.join("t-000000")).unwrap(), b"one\ntw\n");
    assert_eq!(fs::read(out.join("t-000003.gz")).unwrap(), b"no gzip\n");
    let file = File::open(out.join("t-000002.gz")).unwrap();
    let text = io::read_to_string(flate2::read::MultiGzDecoder::new(file)).unwrap();
    assert_eq!(text, "one\ntwo\n");
}

#[test]
fn finished_files_below_the_work_directory_stay() {
    let mut world = World::new("<TOPIC>/<REV>");
    world.settings.output_dir = world.settings.work_dir.join("t");
    world.put("work/t/-000000", b"finished\n");
    assert_eq!(world.take_up(), "");
}

/// A stop began to copy files, and the end of the process left parts of them, or the files at both places.
#[test]
fn after_a_stop_each_file_stays_for_the_next_run() {
    let world = World::new("<TOPIC><REV>");
    world.put("work/t-000000", b"a\n");
    let stop = Stop::default();
    stop.set();
    world.leftovers(stop).take_up().unwrap();
    assert_eq!(world.files(), owned(&[("work/t-000000", 2)]));
}

/// The stop waited until a large compressed file was read.
#[test]
fn a_stop_ends_the_mending_of_a_file() {
    let world = World::new("<TOPIC><REV>");
    let mut gzip = Vec::new();
    let mut encoder = Encoder::new(GZIP).unwrap();
    encoder.encode(b"one\n", &mut gzip).unwrap();
    encoder.end(&mut gzip).unwrap();
    world.put("work/t-000000.gz", &gzip);
    let path = world.directory.path().join("work/t-000000.gz");
    let Lock::Taken(file) = lock(&path, "[t/c]").unwrap() else {
        panic!("no other process has locked the file");
    };
    let stop = Stop::default();
    stop.set();
    let leftovers = world.leftovers(stop.clone());
    let taken = leftovers.take_locked(Path::new("t-000000.gz"), file);
    assert!(stop.has_ended(&taken.unwrap_err().source));
    assert_eq!(world.files(), owned(&[("work/t-000000.gz", gzip.len())]));
}

fn encoded(compression: Compression, members: &[&[u8]]) -> Vec<u8> {
    let mut encoder = Encoder::new(compression).unwrap();
    let mut bytes = Vec::new();
    for member in members {
        encoder.encode(member, &mut bytes).unwrap();
        encoder.end(&mut bytes).unwrap();
    }
    bytes
}

/// Mends a file with these bytes. Returns its end and its text. Panics if the file is not whole then.
fn mended(compression: Compression, bytes: &[u8]) -> (End, String) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let end = mend(&mut file, compression, &Stop::default()).unwrap();
    if file.metadata().unwrap().len() == 0 {
        return (end, String::new());
    }
    file.rewind().unwrap();
    let mut text = String::new();
    let read = match compression {
        Compression::None => file.read_to_string(&mut text),
        Compression::Gzip(_) => flate2::read::MultiGzDecoder::new(&file).read_to_string(&mut text),
        Compression::Zstd(_) => zstd::Decoder::new(&file).unwrap().read_to_string(&mut text),
    };
    assert!(read.is_ok() || end == End::Damaged, "{read:?}");
    (end, text)
}

#[test]
fn a_torn_line_gets_its_end() {
    let check = |bytes: &str, end, text: &str| {
        let found = mended(Compression::None, bytes.as_bytes());
        assert_eq!(found, (end, text.to_owned()));
    };
    check("", End::Whole, "");
    check("a\nb\n", End::Whole, "a\nb\n");
    check("a\nb", End::Torn, "a\nb\n");
}

#[test]
fn a_file_that_was_cut_anywhere_is_whole_afterwards_and_keeps_its_members() {
    for compression in [Compression::Gzip(6), Compression::Zstd(3)] {
        let first = encoded(compression, &[b"one\ntwo\n"]);
        let all = encoded(compression, &[b"one\ntwo\n", b"three\nfour\n"]);
        assert_eq!(
            mended(compression, &all),
            (End::Whole, "one\ntwo\nthree\nfour\n".to_owned())
        );
        for length in 0..all.len() {
            let (end, text) = mended(compression, &all[..length]);
            let is_whole = length == 0 || length == first.len();
            assert_eq!(end == End::Whole, is_whole, "{compression:?} {length}");
            let kept = if length < first.len() {
                ""
            } else {
                "one\ntwo\n"
            };
            assert!(text.starts_with(kept), "{compression:?} {length}: {text:?}");
            assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
        }
    }
}

#[test]
fn the_readable_part_of_a_torn_member_stays() {
    let mut rng = fastrand::Rng::with_seed(1);
    let lines: String = (0..50_000).map(|_| format!("{}\n", rng.u64(..))).collect();
    for compression in [Compression::Gzip(6), Compression::Zstd(3)] {
        let all = encoded(compression, &[b"one\n", lines.as_bytes()]);
        let (end, text) = mended(compression, &all[..all.len() / 2]);
        assert_eq!(end, End::Torn);
        let rest = text.strip_prefix("one\n").unwrap();
        assert!(rest.len() > lines.len() / 10, "{}", rest.len());
        assert!(lines.starts_with(rest.strip_suffix('\n').unwrap()));
    }
}

#[test]
fn a_damaged_file_stays_as_it_is() {
    for compression in [Compression::Gzip(6), Compression::Zstd(3)] {
        let mut bytes = encoded(compression, &[b"one\n"]);
        bytes.extend_from_slice(b"something else");
        let (end, text) = mended(compression, &bytes);
        assert_eq!((end, &*text), (End::Damaged, "one\n"), "{compression:?}");
        let (end, _) = mended(compression, b"short");
        assert_eq!(end, End::Damaged, "{compression:?}");
    }
}
