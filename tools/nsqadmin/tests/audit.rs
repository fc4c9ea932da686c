//! The audit lines of the log: they do not depend on the level of the log.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::support::{Admin, PATIENT};
use test_support::daemon::{Daemon, send_signal, wait_for_end};
use test_support::http::http_with_headers;
use test_support::{TIMEOUT, wait_until};

/// A running nsqadmin that does not log where it listens. A drop kills it.
struct Silent {
    child: Child,
    log: tempfile::NamedTempFile,
    http: SocketAddr,
}

impl Silent {
    fn start(lookupd: &Daemon, level: &str) -> Silent {
        // Each test process has an address of its own, so the port is free.
        let [.., high, low] = std::process::id().to_be_bytes();
        let http = SocketAddr::from(([127, 71, high, low], 4171));
        let log = tempfile::NamedTempFile::new().expect("a temporary file");
        let stderr: File = log.reopen().expect("the file is there");
        let child = Command::new(env!("CARGO_BIN_EXE_nsqadmin"))
            .arg(format!("--http-address={http}"))
            .arg(format!("--lookupd-http-address={}", lookupd.http))
            .arg(format!("--log-level={level}"))
            .args([
                "--admin-user=carol",
                "--trusted-proxy-cidr=127.0.0.0/8",
                "--live-interval=0",
            ])
            .args(PATIENT)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .expect("nsqadmin can be run");
        let silent = Silent { child, log, http };
        let is_there = wait_until(TIMEOUT, || TcpStream::connect(http).is_ok());
        assert!(is_there, "{}", silent.text());
        silent
    }

    fn text(&self) -> String {
        fs::read_to_string(self.log.path()).expect("the log is text")
    }

    /// Ends the process and returns its log.
    fn end(mut self) -> String {
        send_signal(self.child.id(), "TERM");
        assert_eq!(wait_for_end(&mut self.child).code(), Some(0));
        self.text()
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Both calls fail only if the process has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An act that succeeded had no line at `--log-level=warn`, and no act had one at `error`.
#[test]
fn an_act_has_its_line_at_every_log_level() {
    for level in ["warn", "error", "fatal"] {
        let lookupd = Daemon::nsqlookupd(&[]);
        let admin = Silent::start(&lookupd, level);
        let ask = |method: &str, target: &str, user: &str, body: &str| {
            let header = format!("X-Forwarded-User: {user}");
            http_with_headers(admin.http, method, target, &[&header], body.as_bytes()).status
        };
        let topic = r#"{"topic":"t"}"#;
        assert_eq!(ask("POST", "/api/topics", "carol", topic), 200);
        assert_eq!(ask("DELETE", "/api/topics/nope", "carol", ""), 404);
        assert_eq!(ask("DELETE", "/api/topics/t", "eve", ""), 403);
        let log = admin.end();
        let found: Vec<(&str, &str)> = log
            .lines()
            .filter_map(|line| line.split_once(": AUDIT: "))
            .map(|(front, text)| (front.rsplit(' ').next().unwrap_or_default(), text))
            .collect();
        for (index, (word, begin, end)) in [
            ("INFO", r#"create_topic t by user "carol" (127."#, "): done"),
            (
                "WARNING",
                r#"delete_topic nope by user "carol" (127."#,
                "): failed - TOPIC_NOT_FOUND",
            ),
            (
                "WARNING",
                r#"delete t by user "eve" (127."#,
                "): refused - FORBIDDEN",
            ),
        ]
        .into_iter()
        .enumerate()
        {
            let (level, text) = found.get(index).copied().unwrap_or_default();
            assert_eq!(level, word, "{log}");
            assert!(text.starts_with(begin) && text.contains(end), "{log}");
        }
        assert_eq!(found.len(), 3, "{log}");
        // The level counts for all other lines.
        let others = log.lines().filter(|line| !line.contains(" AUDIT: "));
        let info: Vec<&str> = others.filter(|line| line.contains(" INFO: ")).collect();
        assert_eq!(info, Vec::<&str>::new());
    }
}

/// An admin could switch the lines off.
#[test]
fn an_admin_who_changes_the_log_level_hides_no_act() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let admin = Admin::start_at(&[&lookupd], &["--live-interval=0"]);
    let put = admin.ask("PUT", "/config/log_level", &[], "fatal");
    put.expect_status(200);
    let create = admin.post("/api/topics", r#"{"topic":"t"}"#);
    create.expect_status(200);
    admin.wait_for_log(r#" INFO: AUDIT: put_config log_level by user "" (127."#);
    admin.wait_for_log(r#" INFO: AUDIT: create_topic t by user "" (127."#);
    let asked = admin
        .log()
        .lines()
        .any(|line| line.contains("/topic/create"));
    assert!(!asked, "the level counts for other lines: {}", admin.log());
}
