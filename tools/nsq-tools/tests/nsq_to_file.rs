//! `nsq_to_file` with real daemons, real files and real signals.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::tool::{self, Tool, expect_exit, files};
use tempfile::TempDir;
use test_support::daemon::Daemon;
use test_support::{TIMEOUT, rows, wait_until};

/// A directory of the tool, and the flags that every run has.
struct Run<'a> {
    nsqd: &'a Daemon,
    directory: TempDir,
    flags: String,
}

impl<'a> Run<'a> {
    /// Returns a run for topic `t` and channel `c`, which is there already. Files are `out/t<REV>`.
    fn new(nsqd: &'a Daemon, flags: &str) -> Run<'a> {
        nsqd.create_channel("t", "c");
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        // `DIR` in a flag is the directory.
        let flags = format!(
            "-topic=t -channel=c -nsqd-tcp-address={} -output-dir=DIR/out -filename-format=<TOPIC><REV> {flags}",
            nsqd.tcp
        );
        Run {
            nsqd,
            flags: flags.replace("DIR", &directory.path().display().to_string()),
            directory,
        }
    }

    fn start(&self) -> Tool {
        Tool::start("nsq_to_file", &self.flags)
    }

    /// Publishes messages, and waits until they are finished.
    fn archive(&self, bodies: &[&str]) {
        self.nsqd.publish("t", bodies);
        self.wait_for_in_flight(0);
    }

    /// Waits until the channel has this many messages in flight, and no others.
    fn wait_for_in_flight(&self, count: i64) {
        self.nsqd.wait_for_figure("t", "c", "depth", 0);
        self.nsqd
            .wait_for_figure("t", "c", "in_flight_count", count);
    }

    /// Waits until a file below the directory has this text.
    fn wait_for_text(&self, path: &str, text: &str) {
        let path = self.directory.path().join(path);
        let has_text = || fs::read_to_string(&path).is_ok_and(|found| found == text);
        assert!(wait_until(TIMEOUT, has_text), "{}", path.display());
    }

    /// Returns the texts of the files below the directory, by their relative paths.
    fn files(&self) -> BTreeMap<String, String> {
        files::texts(self.directory.path())
    }

    fn expect_files(&self, expected: &[(&str, &str)]) {
        files::expect_texts(self.directory.path(), expected);
    }
}

#[test]
fn messages_are_in_flight_until_they_are_synced() {
    let nsqd = Daemon::nsqd(&[]);
    let run = Run::new(&nsqd, "-sync-interval=1h");
    nsqd.publish("t", &["a", "b\nb", "c"]);
    let mut tool = run.start();
    // The first message of a file is synced alone, and the others are written then.
    run.wait_for_in_flight(2);
    run.wait_for_text("out/t", "a\nb\nb\nc\n");
    run.wait_for_in_flight(2);
    run.expect_files(&[("out/t", "a\nb\nb\nc\n")]);
    tool.stop();
    run.wait_for_in_flight(0);
    // Plain files are continued.
    let mut tool = run.start();
    run.archive(&["d"]);
    tool.stop();
    run.expect_files(&[("out/t", "a\nb\nb\nc\nd\n")]);
}

#[test]
fn messages_are_synced_before_they_time_out() {
    let nsqd = Daemon::nsqd(&["--msg-timeout=10s"]);
    let run = Run::new(&nsqd, "-sync-interval=1h");
    nsqd.publish("t", &["a", "b", "c"]);
    let mut tool = run.start();
    run.wait_for_in_flight(0);
    let channel = nsqd.channel("t", "c").expect("the channel is there");
    assert_eq!(channel["timeout_count"], 0, "{channel}");
    tool.stop();
    run.expect_files(&[("out/t", "a\nb\nc\n")]);
}

/// The killed process still had its lock when the next one started, so its file stayed in `--work-dir` for the whole run.
#[test]
fn a_file_whose_writer_ends_later_is_moved_in_the_same_run() {
    let nsqd = Daemon::nsqd(&[]);
    let run = Run::new(&nsqd, "-work-dir=DIR/work -sync-interval=100ms");
    let work = run.directory.path().join("work");
    fs::create_dir(&work).expect("a new directory");
    fs::write(work.join("t-000007"), "left\n").expect("writable");
    let writer = fs::File::open(work.join("t-000007")).expect("the file is there");
    writer.lock().expect("no other process has locked the file");
    let mut tool = run.start();
    let line = tool.wait_for_log("another process writes ");
    assert!(line.contains(" WARNING: [t/c] "), "{line}");
    run.archive(&["a"]);
    drop(writer);
    tool.wait_for_log(" which an earlier run left, to ");
    tool.stop();
    run.expect_files(&[("out/t-000000", "a\n"), ("out/t-000007", "left\n")]);
}

/// Directories have the mode 0770 and files 0666, as far as the umask permits.
#[test]
fn directories_and_files_have_the_modes_of_the_original() {
    use std::os::unix::fs::PermissionsExt;
    let nsqd = Daemon::nsqd(&[]);
    for (umask, directory_mode, file_mode) in [("000", 0o770, 0o666), ("027", 0o750, 0o640)] {
        for flag in ["-gzip=false", "-gzip", "-work-dir=DIR/work/er"] {
            let run = Run::new(&nsqd, &format!("{flag} -filename-format=<TOPIC>/<REV>"));
            let script = format!("umask {umask}; exec \"$0\" \"$@\"");
            let mut tool = Tool::quiet(&mut tool::script(&script, "nsq_to_file", &run.flags));
            run.archive(&["a"]);
            tool.stop();
            let mode = |path: &Path| {
                let found = fs::metadata(path).expect("the path is there");
                found.permissions().mode() & 0o777
            };
            for path in files::paths(run.directory.path()) {
                assert_eq!(mode(&path), file_mode, "{umask} {flag} {path:?}");
                let own = |above: &&Path| *above != run.directory.path();
                for above in path.ancestors().skip(1).take_while(own) {
                    assert_eq!(mode(above), directory_mode, "{umask} {flag} {above:?}");
                }
            }
            assert_eq!(run.files().len(), 1, "{:?}", run.files());
        }
    }
}

#[test]
fn the_end_of_nsqlookupd_or_nsqd_is_no_error() {
    let mut lookupd = Daemon::nsqlookupd(&[]);
    let mut nsqd = Daemon::nsqd_at(&[&lookupd], &[]);
    nsqd.create_channel("t", "c");
    nsqd.kill();
    lookupd.kill();
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let flags = format!(
        "-topic=t -channel=c -sync-interval=100ms -consumer-opt=lookupd_poll_interval,200ms -filename-format=<TOPIC> -output-dir={} -lookupd-http-address={}",
        directory.path().display(),
        lookupd.http
    );
    let mut tool = Tool::start("nsq_to_file", &flags);
    tool.wait_for_log("error");
    for body in ["a", "b"] {
        lookupd.restart();
        nsqd.restart();
        nsqd.publish("t", &[body]);
        nsqd.wait_for_answers("t", "c");
        nsqd.kill();
        lookupd.kill();
    }
    tool.stop();
    let text = fs::read_to_string(directory.path().join("t")).expect("the file is there");
    assert!(text.starts_with("a\n") && text.ends_with("b\n"), "{text}");
}

#[test]
fn a_failure_of_the_disk_ends_the_tool_and_finishes_nothing() {
    let check = |prepare: &dyn Fn(&Path), expected: &str| {
        let nsqd = Daemon::nsqd(&[]);
        let run = Run::new(&nsqd, "");
        prepare(run.directory.path());
        nsqd.publish("t", &["a", "b"]);
        let mut tool = run.start();
        assert_eq!(tool.wait().code(), Some(1), "{}", tool.log());
        let line = tool.wait_for_log("FATAL: [t/c] ");
        let expected = expected.replace("DIR", &run.directory.path().display().to_string());
        assert!(line.ends_with(&expected), "{line}");
        // The messages can be delivered at once.
        nsqd.wait_for_figure("t", "c", "depth", 2);
    };
    let again = "Messages that were not synced are not finished, and come again";
    let full = |path: &Path| {
        fs::create_dir(path.join("out")).expect("the directory is new");
        symlink("/dev/full", path.join("out/t")).expect("the name is free");
    };
    check(
        &full,
        &format!(
            "cannot write to DIR/out/t: no space left on device; free some space, or choose another directory (--output-dir, --work-dir). {again}"
        ),
    );
}

/// The tool found a directory that takes no files only with the first message.
#[test]
fn a_directory_that_takes_no_files_is_an_error_at_the_start() {
    let nsqd = Daemon::nsqd(&[]);
    let check = |flags: &str, expected: &str| {
        let run = Run::new(&nsqd, flags);
        fs::write(run.directory.path().join("file"), "").expect("the name is free");
        // There is no message that could make the tool write.
        let mut tool = run.start();
        assert_eq!(tool.wait().code(), Some(1), "{}", tool.log());
        let line = tool.wait_for_log("FATAL: ");
        let expected = expected.replace("DIR", &run.directory.path().display().to_string());
        assert!(line.contains(&format!("FATAL: {expected}")), "{line}");
    };
    let in_the_way =
        "move the file that is in the way, or choose another directory (--output-dir, --work-dir)";
    let in_the_way = format!("cannot make a file in DIR/file: not a directory; {in_the_way}");
    check("-output-dir=DIR/file", &in_the_way);
    check("-work-dir=DIR/file", &in_the_way);
    check(
        "-output-dir=DIR/file/deeper",
        &in_the_way.replace("DIR/file", "DIR/file/deeper"),
    );
    // The system lets nobody make files there, not even root.
    let nobody = "-output-dir=/proc/self";
    check(nobody, "cannot make a file in /proc/self: ");
    // Directories that are not there yet are made with the first message.
    let run = Run::new(&nsqd, "-output-dir=DIR/new/er");
    let mut tool = run.start();
    tool.wait_for_log("connected");
    tool.stop();
    assert!(!run.directory.path().join("new").exists());
    run.expect_files(&[]);
}

#[test]
fn a_wrong_command_line_ends_the_tool() {
    let check = |args: &str, code, text: &str| expect_exit("nsq_to_file", args, code, text);
    check("-h", 0, "Usage of nsq_to_file:\n  -channel string\n");
    // These end the tool after its log has started.
    for [args, why] in rows(
        "-topic=bad·name -nsqd-tcp-address=127.0.0.1:4150            | couldn't create logger for new topic bad name: invalid topic name
         -topic=t -channel=bad·name -nsqd-tcp-address=127.0.0.1:4150 | couldn't create logger for new topic t: invalid channel name
         -topic=t -lookupd-http-address=127.0.0.1                    | --lookupd-http-address: nsqlookupd 127.0.0.1: missing port: write host:port, as in
         -topic=t -nsqd-tcp-address=127.0.0.1                        | --nsqd-tcp-address: address \"127.0.0.1\": missing port: write host:port, as in",
    ) {
        check(args, 1, &format!(" FATAL: {why}"));
    }
    let version = concat!(
        "nsq_to_file v1.3.0\nringq ",
        env!("CARGO_PKG_VERSION"),
        "\n"
    );
    check("-version", 0, version);
}

/// The original warns of a topic that the pattern excludes, and takes unknown tokens as text without a word.
#[test]
fn values_that_are_probably_mistakes_have_warnings() {
    let nsqd = Daemon::nsqd(&[]);
    let args = "-topic=other -topic-pattern=^t -filename-format=<TOPIC>.<TOPC>.<DATETIME> -datetime-format=%Q";
    let run = Run::new(&nsqd, args);
    let mut tool = run.start();
    nsqd.publish("t", &["one"]);
    tool.wait_for_log("syncing 1 records");
    tool.stop();
    let log = tool.log();
    for line in [
        " WARNING: skipping topic other (doesn't match pattern ^t)\n",
        " WARNING: --filename-format has \"<TOPC>\", which is none of the tokens and stays as it is: \
         <TOPIC> <HOST> <PID> <DATETIME> <REV>\n",
        " WARNING: --datetime-format has \"%Q\", which is none of the directives and stays as it is: %Y ",
    ] {
        assert_eq!(log.matches(line).count(), 1, "{line:?}\n{log}");
    }
    run.expect_files(&[("out/t.<TOPC>.%Q", "one\n")]);
}
