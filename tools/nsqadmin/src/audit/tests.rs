use std::fs::{Permissions, metadata, set_permissions};
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::access::CLAIMED_CHARS_MAX;

fn entry() -> Entry {
    Entry {
        unix_seconds: 1_795_252_474,
        actor: Actor {
            user: "car\"ol".to_owned(),
            remote_address: "10.0.0.7:50142".to_owned(),
            ..Actor::default()
        },
        action: "pause_channel".to_owned(),
        subject: Subject {
            topic: "clicks".to_owned(),
            channel: "archive".to_owned(),
            ..Subject::default()
        },
        outcome: Outcome::Partly,
        message: "WARNING: x".to_owned(),
    }
}

const LINE: &str = r#"{"time":"2026-11-21T09:14:34Z","user":"car\"ol","remote_address":"10.0.0.7:50142","action":"pause_channel","topic":"clicks","channel":"archive","result":"partly","message":"WARNING: x"}"#;

#[test]
fn a_line_says_who_did_what_where_and_with_which_result() {
    assert_eq!(entry().json(), LINE);
    let text = r#"AUDIT: pause_channel clicks/archive by user "car\"ol" (10.0.0.7:50142): partly - WARNING: x"#;
    assert_eq!(entry().text(), text);
    let mut tombstone = entry();
    tombstone.subject.channel.clear();
    tombstone.subject.node = "n1:4151".to_owned();
    assert!(tombstone.text().contains(" clicks on n1:4151 by "));
    let mut put = entry();
    put.subject.topic.clear();
    put.subject.channel.clear();
    put.subject.key = "log_level".to_owned();
    assert!(put.text().contains(" log_level by user "));
    assert!(put.json().contains(r#","key":"log_level","result":"#));
    let mut with_details = entry();
    with_details.subject.details = Details {
        limit: "10m".to_owned(),
        note: "a \"b\"".to_owned(),
        undo: "1h".to_owned(),
        messages: Some(0),
    };
    let text = with_details.text();
    let end = r#": partly - WARNING: x [for 10m, note "a \"b\"", undo 1h, messages 0]"#;
    assert!(text.ends_with(end), "{text}");
    let json = with_details.json();
    let end = r#","message":"WARNING: x","for":"10m","note":"a \"b\"","undo":"1h","messages":0}"#;
    assert!(json.ends_with(end), "{json}");
    let mut claimed = entry();
    claimed.actor.user.clear();
    claimed.actor.claimed_user = "an\"n".to_owned();
    let text = r#" by user "" (10.0.0.7:50142, unverified name "an\"n"): partly"#;
    assert!(claimed.text().contains(text), "{}", claimed.text());
    let json = r#","user":"","claimed_user":"an\"n","remote_address":"#;
    assert!(claimed.json().contains(json), "{}", claimed.json());
}

#[tokio::test]
async fn lines_are_appended_and_the_file_may_be_moved_away() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let audit = Audit::open(path.to_str().unwrap(), Tally::default()).unwrap();
    audit.write(entry()).await;
    audit.write(entry()).await;
    let expected = format!("{LINE}\n{LINE}\n");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    // Other users see the file only if the administrator says so.
    let mode = || metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    audit.write(entry()).await;
    assert_eq!(mode(), 0o640);
    std::fs::rename(&path, directory.path().join("old")).unwrap();
    audit.write(entry()).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{LINE}\n"));
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_an_error_of_the_start_and_later_a_log_line() {
    let error = Audit::open("/nonexistent/audit.log", Tally::default()).unwrap_err();
    assert_eq!(
        error,
        "failed to open --audit-log-file (/nonexistent/audit.log) - no such file or directory"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let tally = Tally::default();
    let audit = Audit::open(path.to_str().unwrap(), tally.clone()).unwrap();
    directory.close().unwrap();
    audit.write(entry()).await;
    assert_eq!(tally.audit_failures(), 1, "nobody may read the log");
}

/// Each line took a thread of the runtime. Without a free one, no long answer of a server was read, and no name was resolved.
#[test]
fn a_disk_that_hangs_takes_one_thread() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let audit = Audit::open(path.to_str().unwrap(), Tally::default()).unwrap();
    std::fs::remove_file(&path).unwrap();
    // A pipe that nobody reads cannot be opened for writing.
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("there is mkfifo").success());
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.max_blocking_threads(2).enable_time().build();
    let runtime = runtime.expect("the system has threads");
    let is_free = runtime.block_on(async {
        for _ in 0..3 {
            let audit = audit.clone();
            tokio::spawn(async move { audit.write(entry()).await });
        }
        tokio::task::yield_now().await;
        let other = tokio::task::spawn_blocking(|| {});
        let limit = std::time::Duration::from_secs(60);
        tokio::time::timeout(limit, other).await.is_ok()
    });
    let reads = OpenOptions::new().read(true).write(true).open(&path);
    drop(runtime);
    drop(reads.expect("a pipe can be opened for both"));
    assert!(is_free);
}

#[tokio::test]
async fn refused_requests_without_a_line_are_told_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let audit = Audit::open(path.to_str().unwrap(), Tally::default()).unwrap();
    for _ in 0..107 {
        let refused = Entry {
            outcome: Outcome::Refused,
            ..entry()
        };
        audit.write(refused).await;
    }
    let text = || std::fs::read_to_string(&path).unwrap();
    assert_eq!(text().lines().count(), 100);
    // Nothing is told twice.
    audit.write_left_out();
    audit.write_left_out();
    assert_eq!(text().lines().count(), 101);
    let end = r#""action":"left_out","result":"refused","message":"7 refused requests before this line have none"}"#;
    assert!(text().trim_end().ends_with(end), "{}", text());
}

#[test]
fn after_a_burst_few_lines_are_written() {
    let refusals = Refusals::default();
    let start = Instant::now();
    let count = |now| (0..1000).filter(|_| refusals.clone().admit(now)).count();
    assert_eq!(count(start), 100);
    assert_eq!(count(start + ONE_EVERY / 2), 0);
    assert_eq!(count(start + ONE_EVERY), 1);
    assert_eq!(count(start + ONE_EVERY * 5), 4);
    assert_eq!(count(start + ONE_EVERY * 1000), 100);
}

#[test]
fn nsqd_takes_the_longest_name_with_its_mark() {
    let mut actor = Actor {
        claimed_user: "é".repeat(CLAIMED_CHARS_MAX),
        ..Actor::default()
    };
    let by = actor.by();
    assert!(by.ends_with("é (unverified)"), "{by}");
    assert!(by.chars().count() <= BY_MAX);
    actor.claimed_user.clear();
    assert_eq!(actor.by(), "");
    // The rest of the line ran from right to left, and could not be read.
    actor.user = "an\u{202e}n\u{200b}\n".to_owned();
    assert_eq!(actor.by(), "ann");
    actor.user = "é".repeat(100);
    assert_eq!(actor.by(), "é".repeat(BY_MAX));
}
