//! `nsq_to_file` without `--topic`: the topics that nsqlookupds name.

use std::fs;
use std::process::Command;

use crate::tool::{Tool, certificate, files};
use tempfile::TempDir;
use test_support::daemon::Daemon;
use test_support::{TIMEOUT, wait_until};

/// An nsqlookupd with an nsqd, and the directory of a tool.
struct Cluster {
    lookupd: Daemon,
    nsqd: Daemon,
    directory: TempDir,
}

impl Cluster {
    /// Returns an nsqd with these topics, each with a channel and this message.
    fn new(messages: &[(&str, &str)]) -> Cluster {
        let lookupd = Daemon::nsqlookupd(&[]);
        let mut nsqd = Daemon::nsqd_at(&[&lookupd], &[]);
        for (topic, body) in messages {
            nsqd = nsqd.with_messages(topic, "c", &[body]);
        }
        Cluster {
            lookupd,
            nsqd,
            directory: tempfile::tempdir().expect("a temporary directory can be made"),
        }
    }

    fn start(&self, flags: &str) -> Tool {
        let (http, directory) = (self.lookupd.http, self.directory.path().display());
        Tool::start(
            "nsq_to_file",
            format!(
                "-topic-refresh=200ms -channel=c -sync-interval=100ms -filename-format=<TOPIC> \
             -consumer-opt=lookupd_poll_interval,200ms -lookupd-http-address={http} -output-dir={directory} {flags}"
            ),
        )
    }
}

#[test]
fn matching_topics_are_found_through_the_nsqlookupds_that_answer() {
    let cluster = Cluster::new(&[("logs_a", "a"), ("other", "a")]);
    let (nsqd, directory) = (&cluster.nsqd, &cluster.directory);
    // Nobody listens on port 1.
    let flags = "-topic-pattern=^logs_ -lookupd-http-address=127.0.0.1:1";
    let mut tool = cluster.start(flags);
    tool.wait_for_log("skipping topic other (doesn't match pattern ^logs_)");
    tool.wait_for_log("an nsqlookupd did not name its topics, those of the others count: ");
    nsqd.wait_for_answers("logs_a", "c");
    // A topic that comes later is found, too.
    nsqd.create_channel("logs_b", "c");
    nsqd.publish("logs_b", &["b"]);
    nsqd.wait_for_answers("logs_b", "c");
    tool.stop();
    let expected = [("logs_a", "a\n"), ("logs_b", "b\n")];
    files::expect_texts(directory.path(), &expected);
}

/// One message to the topic `..` ended the archives of all topics, or made files outside of `--output-dir`.
#[test]
fn a_topic_of_dots_has_a_directory_of_its_own() {
    let cluster = Cluster::new(&[(".", "."), ("..", ".."), ("t", "t")]);
    let (nsqd, directory) = (&cluster.nsqd, &cluster.directory);
    let output = format!("-output-dir={}/a/b", directory.path().display());
    let mut tool = cluster.start(&format!(
        "-topic-pattern=. -filename-format=<TOPIC>/x {output}"
    ));
    for topic in [".", "..", "t"] {
        nsqd.wait_for_answers(topic, "c");
    }
    tool.stop();
    let expected = [
        ("a/b/%2E%2E/x", "..\n"),
        ("a/b/%2E/x", ".\n"),
        ("a/b/t/x", "t\n"),
    ];
    files::expect_texts(directory.path(), &expected);
}

/// One topic whose file could not be written ended the tool, and so the archives of all topics.
#[test]
fn a_topic_whose_disk_fails_ends_no_other_topic() {
    let cluster = Cluster::new(&[("a", "one"), ("b", "one")]);
    let (nsqd, directory) = (&cluster.nsqd, &cluster.directory);
    let check = |topics: &str| {
        // A directory has the name of the file.
        fs::create_dir(directory.path().join("a")).expect("the name is free");
        let mut tool = cluster.start(topics);
        let is_tried_again = || tool.log().matches("ERROR: [a/c] cannot open ").count() >= 2;
        assert!(wait_until(TIMEOUT, is_tried_again), "{}", tool.log());
        nsqd.publish("b", &["two"]);
        nsqd.wait_for_answers("b", "c");
        fs::remove_dir(directory.path().join("a")).expect("it is empty");
        nsqd.wait_for_answers("a", "c");
        tool.stop();
    };
    check("-topic-pattern=.");
    files::expect_texts(directory.path(), &[("a", "one\n"), ("b", "one\ntwo\n")]);
    fs::remove_file(directory.path().join("a")).expect("the file is there");
    nsqd.publish("a", &["three"]);
    check("-topic=a -topic=b");
    let expected = [("a", "three\n"), ("b", "one\ntwo\ntwo\n")];
    files::expect_texts(directory.path(), &expected);
}

/// The list of topics trusted the authorities of the system only, whatever `--consumer-opt` said.
#[test]
fn topics_are_found_through_an_nsqlookupd_with_tls() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let [certificate, key] = certificate(directory.path());
    let lookupd = Daemon::nsqlookupd(&[
        "--https-address=127.0.0.1:0",
        &format!("--tls-cert={certificate}"),
        &format!("--tls-key={key}"),
    ]);
    let https = lookupd.wait_for_address(" HTTPS: listening on ");
    let https = https.expect("the line ends with an address");
    let nsqd = Daemon::nsqd_at(&[&lookupd], &[]).with_messages("logs", "c", &["a"]);
    let flags = format!(
        "-topic-pattern=^logs$ -topic-refresh=200ms -channel=c -sync-interval=100ms -filename-format=<TOPIC> -consumer-opt=tls_root_ca_file,{certificate} -consumer-opt=lookupd_poll_interval,200ms -lookupd-http-address=https://{https} -output-dir={}",
        directory.path().join("out").display()
    );
    let mut tool = Tool::start("nsq_to_file", &flags);
    nsqd.wait_for_answers("logs", "c");
    tool.stop();
    let texts = files::texts(&directory.path().join("out"));
    assert_eq!(
        texts.get("logs").map(String::as_str),
        Some("a\n"),
        "{texts:?}"
    );
}

/// The tool ended, and with it the archives of all topics. Before that, the stop waited 30 s for the thread that had never
/// started.
#[test]
fn a_thread_that_cannot_be_started_is_tried_again() {
    let cluster = Cluster::new(&[("other", "a")]);
    let nsqd = &cluster.nsqd;
    let mut tool = cluster.start("-topic-pattern=^logs$ -channel=nsq_to_file");
    tool.wait_for_log("skipping topic other ");
    // There is memory for little things, and none for the stack of a thread.
    let status = fs::read_to_string(format!("/proc/{}/status", tool.pid()));
    let status = status.expect("the tool is running");
    let mut words = status.split_whitespace();
    words.find(|word| *word == "VmSize:").expect("a size");
    let used_kib: u64 = words
        .next()
        .and_then(|size| size.parse().ok())
        .expect("KiB");
    let limit = |bytes: &str| {
        let limited = Command::new("prlimit")
            .arg(format!("--pid={}", tool.pid()))
            .arg(format!("--as={bytes}:"))
            .status();
        assert!(limited.is_ok_and(|status| status.success()));
    };
    limit(&((used_kib + 1024) << 10).to_string());
    nsqd.create_channel("logs", "c");
    tool.wait_for_log("new topic logs: cannot start a thread: ");
    limit("unlimited");
    nsqd.wait_for_figure("logs", "nsq_to_file", "client_count", 1);
    nsqd.publish("logs", &["a"]);
    nsqd.wait_for_figure("logs", "nsq_to_file", "message_count", 1);
    nsqd.wait_for_answers("logs", "nsq_to_file");
    tool.stop();
    assert!(
        !tool.log().contains("ending without them"),
        "{}",
        tool.log()
    );
}
