//! SIGHUP: the configuration file and the certificates are read again.

use std::fs;
use std::path::PathBuf;

use crate::support::{self, Broker, Certificates, TIMEOUT, wait_until};
use tempfile::TempDir;

/// A configuration file that a test changes.
struct File {
    directory: TempDir,
}

impl File {
    fn new(text: &str) -> File {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let file = File { directory };
        file.write(text);
        file
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("nsqd.toml")
    }

    fn write(&self, text: &str) {
        fs::write(self.path(), text).expect("the file can be written");
    }

    fn broker(&self, flags: &[&str]) -> Broker {
        let config = format!("--config={}", self.path().display());
        Broker::start(1, &[&[config.as_str()], flags].concat())
    }
}

fn config(broker: &Broker, key: &str) -> String {
    broker
        .get(&format!("/config/{key}"))
        .expect_status(200)
        .text()
}

fn lines_about(broker: &Broker, key: &str) -> usize {
    let text = format!("SIGHUP: {key} ");
    broker
        .log()
        .lines()
        .filter(|line| line.contains(&text))
        .count()
}

#[test]
fn each_changed_key_takes_effect_or_needs_a_restart() {
    let file = File::new("log_level = \"info\"\nmsg_timeout = \"1m\"\nsnappy = true\n");
    let broker = file.broker(&[]);
    file.write(
        "log_level = \"debug\"\nnsqlookupd_tcp_addresses = [\"127.0.0.1:1\"]\n\
         max_msg_size = 2048\nmsg_timeout = 60000\nsnappy = true\nmistyped = 1\n",
    );
    broker.signal("HUP");
    for line in [
        "INFO: SIGHUP: log_level took effect: debug, before info",
        r#"INFO: SIGHUP: nsqlookupd_tcp_addresses took effect: ["127.0.0.1:1"], before []"#,
        "WARNING: SIGHUP: max_msg_size needs a restart: 2048, until then 1048576",
        "WARNING: SIGHUP: keys in the config file that mean nothing, ignored: mistyped",
    ] {
        broker.wait_for_log(line);
    }
    assert!(wait_until(TIMEOUT, || config(&broker, "log_level") == "1"));
    assert_eq!(
        config(&broker, "nsqlookupd_tcp_addresses"),
        r#"["127.0.0.1:1"]"#
    );
    assert_eq!(config(&broker, "max_msg_size"), "1048576");
    broker
        .post("/pub?topic=t", &[b'x'; 4096])
        .expect_status(200);
    for unchanged in ["msg_timeout", "snappy"] {
        assert_eq!(lines_about(&broker, unchanged), 0);
    }

    // A value that was set by hand gives way to the file. A line about a level that hides it is written.
    support::http(broker.http_addr(), "PUT", "/config/log_level", b"error").expect_status(200);
    broker.signal("HUP");
    broker.wait_for_log("log_level took effect: debug, before error");
    file.write("log_level = \"fatal\"\n");
    broker.signal("HUP");
    broker.wait_for_log("log_level took effect: fatal, before debug");
    assert!(wait_until(TIMEOUT, || config(&broker, "log_level") == "5"));
    assert_eq!(config(&broker, "nsqlookupd_tcp_addresses"), "[]");
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing() {
    let file = File::new("log_level = \"info\"\n");
    let broker = file.broker(&[]);
    for (text, why) in [
        ("log_level = \"debug\"\n[", "toml: line 2"),
        ("log_level = \"loud\"\n", "failed parsing log_level loud"),
        (
            "log_level = \"debug\"\nmax_rdy_count = true\n",
            "MaxRdyCount",
        ),
        (
            "log_level = \"debug\"\nmax_deflate_level = 10\n",
            "--max-deflate-level must be [1,9]",
        ),
        (
            "log_level = \"debug\"\ntls_cert = \"/no/such\"\ntls_key = \"/no/such\"\n",
            "open /no/such: no such file or directory",
        ),
        (
            "log_level = \"debug\"\nunix_socket_mode = \"rw\"\n",
            "--unix-socket-mode must be an octal number",
        ),
    ] {
        file.write(text);
        broker.signal("HUP");
        let line = broker.wait_for_log(why);
        assert!(line.contains("ERROR: SIGHUP: "), "{line}");
        assert!(line.contains("nsqd.toml changes nothing - "), "{line}");
    }
    fs::remove_file(file.path()).expect("it is there");
    broker.signal("HUP");
    broker.wait_for_log("nsqd.toml: no such file or directory");
    assert_eq!(config(&broker, "log_level"), "2");
    assert_eq!(lines_about(&broker, "log_level"), 0);
}

#[test]
fn the_command_line_overrules_the_file() {
    let file = File::new("");
    let broker = file.broker(&["--log-level=debug", "--snappy=false"]);
    file.write("log_level = \"error\"\nsnappy = false\nmax_rdy_count = 7\n");
    broker.signal("HUP");
    broker.wait_for_log(
        "SIGHUP: log_level in the config file has no effect, because the command line has another value",
    );
    broker.wait_for_log("SIGHUP: max_rdy_count needs a restart: 7, until then 2500");
    assert_eq!(config(&broker, "log_level"), "1");
    assert_eq!(lines_about(&broker, "snappy"), 0);
}

#[test]
fn without_a_file_and_certificates_nothing_happens() {
    let broker = Broker::start(1, &[]);
    broker.signal("HUP");
    broker.wait_for_log("SIGHUP: reading the configuration file and the certificates again");
    broker.post("/pub?topic=t", b"x").expect_status(200);
    assert!(!broker.log().contains("ERROR"), "{}", broker.log());
}

#[test]
fn new_connections_get_the_new_certificate() {
    let (old, new) = (Certificates::new(), Certificates::new());
    let broker = old.broker(2, &[]);
    let connect = |certificates: &Certificates| {
        let mut client = broker.client();
        client.try_upgrade(&[certificates.tls()]).map(|_| client)
    };
    let mut before = connect(&old).expect("the certificate is the old one");
    assert!(connect(&new).is_err(), "another authority");

    // Files that do not belong together change nothing.
    fs::copy(new.path("server.pem"), old.path("server.pem")).expect("the files are there");
    broker.signal("HUP");
    let line = broker.wait_for_log("SIGHUP: the certificates stay as they were - ");
    assert!(line.contains("ERROR"), "{line}");
    connect(&old).expect("the certificate is still the old one");

    fs::copy(new.path("server-key.pem"), old.path("server-key.pem")).expect("it is there");
    broker.signal("HUP");
    broker.wait_for_log("SIGHUP: new connections get the certificate that is in ");
    connect(&new).expect("the certificate is the new one");
    assert!(connect(&old).is_err(), "the old certificate is gone");
    support::http(broker.http_addr(), "GET", "/ping", b"").expect_status(200);
    before.publish("t", b"over the old connection");
}
