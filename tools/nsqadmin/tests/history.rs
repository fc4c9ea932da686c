//! The past of figures in `--history-file`, with the real binary: restarts, kills and damage.

use std::time::Instant;

use crate::support::{Admin, assert_has, cluster};
use serde_json::{Value, json};
use test_support::daemon::Daemon;

/// Returns the data of the next event of a stream.
fn next_event(stream: &mut impl std::io::BufRead) -> Value {
    let mut line = String::new();
    loop {
        line.clear();
        let count = std::io::BufRead::read_line(stream, &mut line).expect("events come");
        assert!(count > 0, "the stream has ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data).expect("data is JSON");
        }
    }
}

#[test]
fn live_figures_come_as_events_and_have_a_past_that_outlives_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history");
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqds = cluster(&[&lookupd], 2);
    let flags = [
        format!("--history-file={}", file.display()),
        "--live-interval=50ms".to_owned(),
    ];
    let mut admin = Admin::start_at(&[&lookupd], &[&flags[0], &flags[1]]);
    let has_both = |live: &Value| live["topics"][0]["node_count"] == json!(2);
    let live = admin.wait_for("/api/live", has_both);
    let topic = &live["topics"][0];
    assert_has(topic, &json!({"topic": "clicks", "channel_depth": 2}));
    assert_eq!(live["nodes"].as_array().map(Vec::len), Some(2));

    let stream = admin.connect(b"GET /api/live/events HTTP/1.0\r\n\r\n");
    let mut stream = std::io::BufReader::new(stream);
    let first = next_event(&mut stream);
    assert_eq!(first["is_complete"], json!(true));
    nsqds[0].publish("clicks", &["y"]);
    let deadline = Instant::now() + test_support::TIMEOUT;
    loop {
        let event = next_event(&mut stream);
        assert_eq!(event["is_complete"], json!(false));
        let topic = event["topics"].as_array().unwrap().first();
        if topic.is_some_and(|topic| topic["channel_depth"] == json!(3)) {
            break;
        }
        assert!(Instant::now() < deadline, "{event}");
    }
    let detail = admin.wait_for("/api/live/topics/clicks", |detail| {
        detail["topic"]["message_count"] == json!(3)
    });
    assert_has(&detail["channels"][0], &json!({"channel": "a", "depth": 3}));
    admin.get_error("/api/live/topics/nope", 404, "TOPIC_NOT_FOUND");
    let has_depth = |past: &Value| {
        past["depth"]
            .as_array()
            .is_some_and(|depth| depth.last() == Some(&json!(3)))
    };
    for key in ["topic=clicks", "topic=clicks&channel=a"] {
        let past = admin.wait_for(&format!("/api/live/history?{key}"), has_depth);
        assert_eq!(past["step"], json!(1));
    }
    admin.wait_for("/api/live/history?all=true", |past| {
        past["depth"]
            .as_array()
            .is_some_and(|depth| depth.last().and_then(Value::as_f64) > Some(0.0))
    });
    let node = format!("/api/live/history?node={}&step=60", nsqds[0].http);
    admin.wait_for(&node, |past| {
        past["rate"].as_array().is_some_and(|rate| !rate.is_empty())
    });
    admin.get_error("/api/live/history?topic=nope", 404, "HISTORY_NOT_FOUND");
    admin.get_error(
        "/api/live/history?topic=clicks&step=7",
        400,
        "INVALID_ARG_STEP",
    );
    admin.get_error("/api/live/history", 400, "MISSING_ARG_TOPIC_OR_NODE");
    assert!(
        !admin.log().contains("CI: querying nsqd http"),
        "live figures are no line of the log"
    );

    admin.stop();
    drop((nsqds, lookupd));
    let flags = [flags[0].as_str(), "--lookupd-http-address=127.0.0.1:1"];
    let later = Admin::start(&flags);
    later.wait_for("/api/live/history?topic=clicks", has_depth);
    later
        .get("/api/live/history?all=true&step=60")
        .expect_status(200);
    drop(later);

    std::fs::write(&file, "nonsense").unwrap();
    // Files of a user, which were overwritten.
    let path = |name: &str| directory.path().join(name);
    for name in ["history.bad", "history.new"] {
        std::fs::write(path(name), "other").unwrap();
    }
    let mut anew = Admin::start(&flags);
    anew.wait_for_log("cannot be read and is moved to");
    anew.stop();
    let text = |name: &str| std::fs::read(path(name)).unwrap();
    for name in ["history.bad", "history.new"] {
        assert_eq!(text(name), b"other");
    }
    assert_eq!(text("history.bad-1"), b"nonsense");
    assert_ne!(text("history"), b"nonsense");
    let off = Admin::start_alone(&[]);
    off.get("/api/live").expect_error(404, "LIVE_DISABLED");
}

/// `kill -9` gives no time for a save.
#[test]
fn the_past_up_to_the_last_save_survives_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history");
    let lookupd = Daemon::nsqlookupd(&[]);
    let _nsqds = cluster(&[&lookupd], 1);
    lookupd.wait_for_producers("clicks", 1);
    let flags = [
        format!("--history-file={}", file.display()),
        "--live-interval=50ms".to_owned(),
    ];
    let mut admin = Admin::start_at(&[&lookupd], &[&flags[0], &flags[1]]);
    // The first figures are saved at once, and the next ones after a minute.
    assert!(test_support::wait_until(test_support::TIMEOUT, || file.exists()));
    admin.signal("KILL");
    assert_eq!(admin.wait().code(), None);
    // A kill in the middle of a save leaves a part of the new file.
    let saved = std::fs::read(&file).unwrap();
    std::fs::write(
        directory.path().join("history.new"),
        &saved[..saved.len() / 2],
    )
    .unwrap();

    let flags = [flags[0].as_str(), "--lookupd-http-address=127.0.0.1:1"];
    let later = Admin::start(&flags);
    for key in ["topic=clicks", "topic=clicks&channel=a"] {
        let past = later.json(&format!("/api/live/history?{key}"));
        let depths = past["depth"].as_array().unwrap();
        assert!(depths.contains(&json!(1)), "{past}");
    }
    drop(later);

    // A disk that lost a part of the file does not stop the start.
    for length in [0, 5, saved.len() / 2, saved.len() - 1] {
        std::fs::write(&file, &saved[..length]).unwrap();
        let anew = Admin::start(&flags);
        anew.wait_for_log("cannot be read and is moved to");
        anew.get("/api/live/history?topic=clicks")
            .expect_error(404, "HISTORY_NOT_FOUND");
    }
}

/// Two processes with one file overwrote each other's past.
#[test]
fn a_history_file_belongs_to_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history");
    let flags = [
        "--nsqd-http-address=127.0.0.1:1".to_owned(),
        format!("--history-file={}", file.display()),
    ];
    let mut first = Admin::start(&[&flags[0], &flags[1]]);
    let stderr = Admin::try_start(&flags, None).err();
    let stderr = stderr.expect("the second one does not start");
    let expected = format!(
        "--history-file: {} is used by process {}, and two processes would overwrite each other's state",
        file.display(),
        first.pid()
    );
    assert!(stderr.contains(&expected), "{stderr}");
    // The kernel gives up the lock of a process that is killed.
    first.signal("KILL");
    first.wait();
    Admin::start(&[&flags[0], &flags[1]]);
}

/// A directory was renamed, and a new history begun. Without its directory, nsqadmin started and had no past for ever.
#[test]
fn a_history_that_cannot_be_read_stays_and_refuses_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::create_dir(path("history")).unwrap();
    std::fs::write(path("history/other"), "other").unwrap();
    std::fs::write(path("file"), "text").unwrap();
    let missing = format!(
        "the directory {} is missing: make it, or choose another path",
        path("missing").display()
    );
    for (name, why) in [
        ("history", "is no regular file"),
        ("file/history", "not a directory"),
        ("missing/history", &missing),
    ] {
        let flags = [
            "--nsqd-http-address=127.0.0.1:1".to_owned(),
            format!("--history-file={}", path(name).display()),
        ];
        let refused = Admin::try_start(&flags, None).err();
        let stderr = refused.expect("nsqadmin does not start");
        let shown = path(name).display().to_string();
        let expected = format!("failed to read --history-file ({shown}) - ");
        assert!(
            stderr.contains(&expected) && stderr.contains(why),
            "{stderr}"
        );
    }
    assert_eq!(std::fs::read(path("history/other")).unwrap(), b"other");
    assert!(!path("history.bad").exists());
}

/// The file was never written, and nothing said so.
#[test]
fn a_history_file_without_live_figures_is_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history");
    std::fs::write(&file, "old").unwrap();
    let flag = format!("--history-file={}", file.display());
    let mut admin = Admin::start_alone(&[&flag]);
    admin.wait_for_log(
        "WARNING: with --live-interval=0, no figures are collected, so --history-file is neither read nor written",
    );
    admin.stop();
    assert_eq!(std::fs::read(&file).unwrap(), b"old");
}
