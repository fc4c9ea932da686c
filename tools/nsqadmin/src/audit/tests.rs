use super::*;

fn entry() -> Entry {
    Entry {
        unix_seconds: 1_795_252_474,
        user: "car\"ol".to_owned(),
        remote_address: "10.0.0.7:50142".to_owned(),
        action: "pause_channel".to_owned(),
        topic: "clicks".to_owned(),
        channel: "archive".to_owned(),
        node: String::new(),
        key: String::new(),
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
    tombstone.channel.clear();
    tombstone.node = "n1:4151".to_owned();
    assert!(tombstone.text().contains(" clicks on n1:4151 by "));
    let mut put = entry();
    put.topic.clear();
    put.channel.clear();
    put.key = "log_level".to_owned();
    assert!(put.text().contains(" log_level by user "));
    assert!(put.json().contains(r#","key":"log_level","result":"#));
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
    let audit = Audit::open(path.to_str().unwrap(), Tally::default()).unwrap();
    directory.close().unwrap();
    audit.write(entry()).await;
}
