//! Secrets in the URLs of flags: neither logs, nor answers, nor the page's commands show them.

use crate::support::Admin;
use test_support::daemon::Daemon;

#[test]
fn no_answer_and_no_line_of_the_log_has_the_password_of_a_url() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqd = Daemon::nsqd_at(&[&lookupd], &["--broadcast-address=nowhere.invalid"]);
    nsqd.create_channel("t", "c");
    nsqd.publish("t", &["x"]);
    let node = format!("nowhere.invalid:{}", nsqd.http.port());
    let map = format!("--nsqd-url-map={node}=http://op:s3cret@{}", nsqd.http);
    // Nobody listens at port 9.
    let hook = "--notification-http-endpoint=http://hook:s3cret@127.0.0.1:9/told?token=s3cret";
    let admin = Admin::start_at(&[&lookupd], &[&map, hook, "--log-level=debug"]);
    admin.wait_for("/api/topics/t/c", |channel| channel["depth"] == 1);
    let peeked = admin.json("/api/peek/t/c?from=oldest");
    let url = peeked["nodes"][0]["url"].as_str().expect("a URL");
    test_support::assert_like(url, &format!("http://{}/channel/peek?…", nsqd.http));
    let shown = admin.json("/config/nsqd_url_map");
    assert_eq!(shown[0], format!("{node}=http://op:xxxxx@{}/", nsqd.http));
    let shown = admin
        .get("/config/notification_http_endpoint")
        .text()
        .to_owned();
    assert_eq!(shown, "http://hook:xxxxx@127.0.0.1:9/told?xxxxx");
    admin
        .post("/api/topics/t", r#"{"action":"pause"}"#)
        .expect_status(200);
    let failed = "connection refused";
    admin.wait_for_log(failed);
    nsqd.signal("KILL");
    let message = |answer: &serde_json::Value| answer["message"].as_str().map(str::to_owned);
    let lost = admin.get("/api/topics/t/c").json();
    assert!(
        !message(&lost).unwrap_or_default().contains("s3cret"),
        "{lost}"
    );
    let log = admin.log();
    assert!(!log.contains("s3cret"), "{log}");
}
