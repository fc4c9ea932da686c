//! The program `diskq`, on data paths that nsqd wrote.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use diskq::{DataPathLock, LogOptions, OsFiles};
use diskq_import::{Metadata, TakeoverOptions, take_over};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../diskq/import/tests/data/nsqd")
        .join(name)
}

/// Returns a data path of ringq with the messages of a fixture.
fn taken_over(name: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for entry in fs::read_dir(fixture(name)).expect("the fixture is there") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), directory.path().join(entry.file_name())).expect("a copy");
    }
    let metadata = Metadata::load(directory.path()).expect("nsqd.dat");
    let options = TakeoverOptions {
        log: LogOptions::default(),
        message_bytes_max: 1 << 20,
        label: "today".to_owned(),
        wall_ns: 1_760_000_000_000_000_000,
    };
    take_over(&OsFiles, directory.path(), &metadata.topics, &options).expect("taken over");
    directory
}

fn diskq(data_path: &Path, output: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_diskq"))
        .arg("export")
        .arg("--data-path")
        .arg(data_path)
        .arg("--output")
        .arg(output)
        .output()
        .expect("the program runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_stopped_brokers_messages_are_written_for_nsqd() {
    let data_path = taken_over("rolled");
    let place = tempfile::tempdir().expect("a temporary directory");
    let output = place.path().join("new");
    let ended = diskq(data_path.path(), &output);
    assert!(ended.status.success(), "{}", stderr(&ended));
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(
        said.contains("topic orders, channel billing: 17 messages\n"),
        "{said}"
    );
    assert!(said.ends_with("new: complete\n"), "{said}");
    let read = |name: &str| fs::read(output.join(name)).expect("a file");
    assert_eq!(
        read("nsqd.dat"),
        fs::read(fixture("rolled").join("nsqd.dat")).expect("a file")
    );
    assert_eq!(
        read("orders:billing.diskqueue.meta.dat"),
        b"17\n0,0\n0,714\n"
    );
    assert_eq!(read("orders:billing.diskqueue.000000.dat").len(), 714);
    let mode = fs::metadata(output.join("nsqd.dat"))
        .expect("a file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o077, 0, "other users cannot read the messages");
    // An export does not overwrite existing files.
    let ended = diskq(data_path.path(), &output);
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        stderr(&ended).contains("is not empty: choose a new directory"),
        "{}",
        stderr(&ended)
    );
}

#[test]
fn a_running_broker_is_left_alone() {
    let data_path = taken_over("two-channels");
    let place = tempfile::tempdir().expect("a temporary directory");
    let lock = DataPathLock::acquire(data_path.path()).expect("nobody has it");
    let ended = diskq(data_path.path(), &place.path().join("new"));
    drop(lock);
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        stderr(&ended).contains("stop the broker first"),
        "{}",
        stderr(&ended)
    );
    assert!(!place.path().join("new").exists());
    let ended = diskq(&place.path().join("missing"), &place.path().join("new"));
    assert!(
        stderr(&ended).contains("no such file or directory"),
        "{}",
        stderr(&ended)
    );
    assert!(!place.path().join("new").exists());
}

/// Only this program refused `--version`.
#[test]
fn the_program_says_its_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_diskq"))
        .arg("--version")
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let version = concat!("diskq ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), version);
}
