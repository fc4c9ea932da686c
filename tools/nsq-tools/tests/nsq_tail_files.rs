//! `nsq_tail --output-dir` with a real nsqd and real files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::tool::{self, Tool, files};
use test_support::daemon::Daemon;
use test_support::packages::is_installed;
use test_support::process::{Exit, run};
use test_support::tmpfs::Tmpfs;
use test_support::{TIMEOUT, wait_until};

fn command(nsqd: &Daemon, directory: &Path, args: &str) -> Command {
    let (address, directory) = (nsqd.tcp, directory.display());
    tool::command(
        "nsq_tail",
        format!("-nsqd-tcp-address={address} -output-dir={directory} -topic=t -channel=c {args}"),
    )
}

fn nsq_tail(nsqd: &Daemon, directory: &Path, args: &str) -> Exit {
    run(&mut command(nsqd, directory, args), TIMEOUT)
}

fn start(nsqd: &Daemon, directory: &Path, args: &str) -> Tool {
    Tool::quiet(&mut command(nsqd, directory, args))
}

fn nsqd_with(bodies: &[&str]) -> Daemon {
    Daemon::nsqd(&[]).with_messages("t", "c", bodies)
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory can be made")
}

/// Returns the texts of the files, in the order of their names.
fn texts(directory: &Path) -> Vec<String> {
    files::texts(directory).into_values().collect()
}

/// Waits until the channel has this many messages, and none in flight.
fn wait_for_depth(nsqd: &Daemon, depth: i64) {
    nsqd.wait_for_figure("t", "c", "in_flight_count", 0);
    nsqd.wait_for_figure("t", "c", "depth", depth);
}

#[test]
fn each_message_becomes_a_file_and_a_number_ends_the_tool() {
    let bodies = ["one", "two\nlines\n", "three", "four", "five"];
    let (nsqd, directory) = (nsqd_with(&bodies), directory());
    let directory = directory.path();
    let exit = nsq_tail(&nsqd, directory, "-n=3");
    assert_eq!((exit.code(), &*exit.stdout), (0, ""), "{exit}");
    // Exactly the messages with files are finished.
    wait_for_depth(&nsqd, 2);
    assert_eq!(texts(directory), bodies[..3]);
    let form = regex::Regex::new("^t-[0-9]{19}-[0-9a-f]{16}$").expect("a pattern");
    for name in files::texts(directory).keys() {
        assert!(form.is_match(name), "{name}");
    }
    // The names of later messages sort behind those of earlier ones, and no file is replaced.
    let exit = nsq_tail(&nsqd, directory, "-n=2 -max-in-flight=1");
    assert_eq!((exit.code(), &*exit.stdout), (0, ""), "{exit}");
    wait_for_depth(&nsqd, 0);
    assert_eq!(texts(directory), bodies);
}

#[test]
fn topics_share_the_directory_and_a_signal_ends_the_tool() {
    let (nsqd, directory) = (nsqd_with(&["t1"]), directory());
    let nsqd = nsqd.with_messages("-u", "c", &["u1"]);
    let directory = directory.path();
    let mut tool = start(&nsqd, directory, "-topic=-u");
    let made = || files::paths(directory).len() == 2;
    assert!(wait_until(TIMEOUT, made), "{}", tool.log());
    nsqd.publish("t", &["t2", "t3"]);
    for topic in ["t", "-u"] {
        nsqd.wait_for_answers(topic, "c");
    }
    tool.stop();
    let found = files::texts(directory);
    // The hyphen would make the name look like a flag.
    assert!(
        found
            .keys()
            .next()
            .is_some_and(|name| name.starts_with("_-u-")),
        "{found:?}"
    );
    assert_eq!(texts(directory), ["u1", "t1", "t2", "t3"]);
}

#[test]
fn a_message_that_comes_again_has_one_file() {
    let (nsqd, directory) = (nsqd_with(&["one"]), directory());
    nsqd.create_channel("t", "d");
    let directory = directory.path();
    nsqd.publish("t", &["two"]);
    // The channel `d` has a copy of `two`, with its id and its time.
    let exit = nsq_tail(&nsqd, directory, "-n=2");
    assert_eq!(exit.code(), 0, "{exit}");
    let exit = nsq_tail(&nsqd, directory, "-channel=d -n=1");
    assert_eq!(exit.code(), 0, "{exit}");
    nsqd.wait_for_answers("t", "d");
    assert_eq!(texts(directory), ["one", "two"]);
}

/// Blocks everybody who opens a file for 6 s from the first attempt on, as a disk does that does not answer. A write
/// lease of the kernel does this, and no crate without `unsafe` takes one.
const SLOW_DISK: &str = "\
import fcntl, os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('slow', flush=True)
signal.sigwait({signal.SIGIO})
time.sleep(12)
print('over', flush=True)
";

/// nsqd had timed the messages out before their FINs came, so they came again and again.
#[test]
fn messages_do_not_time_out_while_they_wait_for_a_slow_disk() {
    if !is_installed("python3", "apt install python3") {
        return;
    }
    let nsqd = Daemon::nsqd(&["--msg-timeout=10s"]).with_messages("t", "c", &["one", "two"]);
    let directory = directory();
    let directory = directory.path();
    // The channel `d` has copies of the messages, with their ids and times, so their files are there already.
    nsqd.create_channel("t", "d");
    nsqd.publish("t", &["three"]);
    let exit = nsq_tail(&nsqd, directory, "-n=3");
    assert_eq!(exit.code(), 0, "{exit}");
    let found = files::texts(directory);
    let (name, _) = found
        .iter()
        .find(|(_, text)| *text == "three")
        .expect("the message has a file");
    let mut disk = Command::new("python3")
        .args(["-c", SLOW_DISK])
        .arg(directory.join(name))
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 can be run");
    let mut lines = BufReader::new(disk.stdout.take().expect("stdout is piped")).lines();
    let mut line = || lines.next().map(|line| line.expect("the line is a text"));
    assert_eq!(line().as_deref(), Some("slow"));
    nsqd.publish("t", &["four"]);
    let args = "-channel=d -n=2 -consumer-opt=max_attempts,1";
    let exit = nsq_tail(&nsqd, directory, args);
    assert_eq!(exit.code(), 0, "{exit}");
    assert_eq!(
        line().as_deref(),
        Some("over"),
        "the tool met the slow disk"
    );
    assert!(disk.wait().expect("a child can be waited for").success());
    nsqd.wait_for_answers("t", "d");
    for figure in ["timeout_count", "requeue_count", "depth"] {
        assert_eq!(nsqd.figure("t", "d", figure), 0, "{figure}");
    }
    assert_eq!(texts(directory), ["one", "two", "three", "four"]);
}

#[test]
fn a_directory_that_takes_no_files_ends_the_tool_at_its_start() {
    let (nsqd, directory) = (nsqd_with(&["one"]), directory());
    let check = |path: &Path, why: &str| {
        let exit = nsq_tail(&nsqd, path, "");
        assert_eq!((exit.code(), &*exit.stdout), (1, ""), "{exit}");
        let text = format!(
            "ERROR: cannot make a file in {}: {why}, or choose another directory (--output-dir). ",
            path.display()
        );
        assert!(exit.stderr.contains(&text), "{exit}");
        wait_for_depth(&nsqd, 1);
        assert_eq!(nsqd.figure("t", "c", "requeue_count"), 0);
    };
    let missing = directory.path().join("missing");
    check(&missing, "no such file or directory; make the directory");
    assert!(!missing.exists());
    let file = directory.path().join("file");
    fs::write(&file, "x").expect("the directory is writable");
    check(&file, "not a directory; move the file that is in the way");
    if let Some(disk) = Tmpfs::mount("1m") {
        disk.make_read_only();
        check(
            &disk.path(),
            "read-only file system; mount the file system for writing",
        );
    }
}

/// The file that did not fit leaves no part behind.
#[test]
fn a_full_disk_ends_the_tool_and_the_message_goes_back() {
    let Some(disk) = Tmpfs::mount("1m") else {
        return;
    };
    let large = "x".repeat(400_000);
    let (nsqd, directory) = (nsqd_with(&["1", &large, &large, &large, "5"]), disk.path());
    let exit = nsq_tail(&nsqd, &directory, "");
    assert_eq!((exit.code(), &*exit.stdout), (1, ""), "{exit}");
    let text = ": no space left on device; free some space, or choose another directory (--output-dir). \
                Messages without a file are not finished, and come again\n";
    let begin = format!("ERROR: cannot write {}/t-", directory.display());
    assert!(
        exit.stderr.contains(&begin) && exit.stderr.ends_with(text),
        "{exit}"
    );
    // The messages with files are finished, and the others can be delivered at once.
    wait_for_depth(&nsqd, 2);
    assert_eq!(texts(&directory), ["1", &large, &large]);
    let other = tempfile::tempdir().expect("a temporary directory can be made");
    let exit = nsq_tail(&nsqd, other.path(), "-n=2");
    assert_eq!(exit.code(), 0, "{exit}");
    let mut found = BTreeMap::new();
    for text in texts(other.path()) {
        *found.entry(text.len()).or_insert(0) += 1;
    }
    assert_eq!(found, BTreeMap::from([(1, 1), (large.len(), 1)]));
}

/// A kill leaves no part of a message under its name, and no message has two files.
#[test]
fn every_message_has_one_whole_file_although_the_tool_is_killed() {
    const MESSAGES: usize = 1000;
    // nsqd gives the messages of a dead consumer to another one when they time out.
    let nsqd = Daemon::nsqd(&["--msg-timeout=500ms"]);
    nsqd.create_channel("t", "c");
    let padding = "x".repeat(5000);
    let bodies: BTreeSet<String> = (0..MESSAGES)
        .map(|number| format!("{number} {padding} end"))
        .collect();
    nsqd.publish("t", &bodies.iter().collect::<Vec<_>>());
    let directory = directory();
    let directory = directory.path();
    // Returns the texts of the files but for temporary ones, which a kill may leave.
    let whole = || {
        let found = files::texts(directory).into_iter();
        let found = found.filter(|(name, _)| !name.starts_with('.'));
        let texts: Vec<String> = found.map(|(_, text)| text).collect();
        for text in &texts {
            assert!(bodies.contains(text), "{} bytes: {text:.20}", text.len());
        }
        texts
    };
    let mut kills_in_time = 0;
    for _ in 0..3 {
        let before = whole().len();
        let mut tool = start(&nsqd, directory, "");
        let is_writing = || {
            let written = files::paths(directory).len();
            written > before + 50 || written >= MESSAGES
        };
        assert!(wait_until(TIMEOUT, is_writing), "{}", tool.log());
        tool.signal("KILL");
        assert_eq!(tool.wait().code(), None, "{}", tool.log());
        kills_in_time += u32::from(whole().len() < MESSAGES);
    }
    assert!(kills_in_time > 0, "the kills came too late");
    let mut tool = start(&nsqd, directory, "");
    nsqd.wait_for_answers("t", "c");
    tool.stop();
    let texts = whole();
    assert_eq!(texts.len(), MESSAGES);
    assert!(texts.into_iter().collect::<BTreeSet<_>>() == bodies);
}
