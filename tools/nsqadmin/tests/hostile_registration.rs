//! Registrations in nsqlookupd that lead elsewhere, and redirects: nsqadmin asks the nsqds, and no other server for them.

use crate::support::Admin;
use serde_json::json;
use test_support::http_server::{Answer, HttpServer};

/// A server that must get no request, such as one of an internal network.
fn inner() -> HttpServer {
    HttpServer::start(|_, _| r#"{"topics":[]}"#.into())
}

/// Starts a server that is an nsqlookupd with one nsqd of these fields.
fn lookupd(broadcast_address: &str, http_port: i64) -> HttpServer {
    let producer = json!({
        "remote_address": "192.0.2.1:1", "hostname": "h", "broadcast_address": broadcast_address, "tcp_port": 4150,
        "http_port": http_port, "version": "1.3.0", "topics": ["t"], "tombstones": [false],
    });
    HttpServer::start(move |request, _| match request.path() {
        "/nodes" => json!({"producers": [producer]}).into(),
        "/lookup" => json!({"channels": ["c"], "producers": [producer]}).into(),
        "/topics" => json!({"topics": ["t"]}).into(),
        "/channels" => json!({"channels": ["c"]}).into(),
        _ => Answer::not_found(),
    })
}

/// The answers of an nsqd with the channel `c` of the topic `t`.
const INFO: &str = r#"{"version":"1.3.0","broadcast_address":"n","http_port":1}"#;
const STATS: &str = r#"{"topics":[{"topic_name":"t","channels":[{"channel_name":"c"}]}]}"#;

/// The URL `http://x@127.0.0.1:PORT` went to the host behind the `@`.
#[test]
fn a_registration_that_is_no_host_and_port_is_not_asked() {
    let inner = inner();
    let port = i64::from(inner.address.port());
    for (host, port) in [
        ("x@127.0.0.1", port),
        ("127.0.0.1/x?", port),
        ("127.0.0.1#", port),
        ("127.0.0.1\\", port),
        ("%31%32%37.0.0.1", port),
        ("127.0.0.1", 70_000),
        ("", port),
    ] {
        let lookupd = lookupd(host, port);
        let admin = Admin::start(&[&format!("--lookupd-http-address={}", lookupd.address)]);
        let address = format!("{:?}", format!("{host}:{port}"));
        let sentence = format!("the nsqd {address} is not asked");
        let in_json = json!(sentence).to_string();
        let in_json = in_json.trim_matches('"');
        for target in ["/api/topics/t", "/api/topics/t/c", "/api/peek/t/c"] {
            admin.get(target);
        }
        let paused = admin.post("/api/topics/t", r#"{"action":"pause"}"#).text();
        assert!(paused.contains(in_json), "{paused}");
        let node = admin.get("/api/nodes").expect_status(200).json();
        assert_eq!(
            node["nodes"][0]["broadcast_address"],
            json!(host),
            "the list has it"
        );
        for (method, target, body) in [
            ("DELETE", "/api/topics/t/c", ""),
            ("POST", "/api/topics", r#"{"topic":"t","channel":"c"}"#),
        ] {
            admin.ask(method, target, &[], body);
        }
        // The collector asks beside the page, and also tells it.
        admin.wait_for("/api/live", |answer| {
            answer.to_string().contains("is not asked")
        });
        assert_eq!(inner.connections(), 0, "{host}:{port}");
    }
}

/// An nsqd that answers an act with a redirect chose which server got the POST.
#[test]
fn a_post_follows_no_redirect() {
    for status in [301, 302, 303, 307, 308] {
        let inner = inner();
        let location = format!("Location: {}", inner.url("/delete"));
        let nsqd = HttpServer::start(move |request, _| match request.path() {
            "/info" => INFO.into(),
            "/stats" => STATS.into(),
            "/topic/pause" => Answer::new(status, "").with(&*location),
            _ => Answer::not_found(),
        });
        let admin = Admin::start_direct([nsqd.address], &["--live-interval=0"]);
        let paused = admin.post("/api/topics/t", r#"{"action":"pause"}"#);
        assert_eq!(paused.status, 502, "{}", paused.text());
        let text = paused.text();
        assert!(text.contains(&format!("got response {status} ")), "{text}");
        assert!(text.contains("a POST follows no redirect"), "{text}");
        assert_eq!(inner.connections(), 0, "{status}");
    }
}

/// A registered nsqd chose the host and the path of a question by a redirect. One to another of its ports is followed.
#[test]
fn a_question_follows_no_redirect_to_another_host_or_path() {
    for (host, path, status) in [
        ("localhost", None, 502),
        ("127.0.0.1", Some("/delete"), 502),
        ("127.0.0.1", None, 200),
    ] {
        let inner = HttpServer::start(|_, _| STATS.into());
        let port = inner.address.port();
        let nsqd = HttpServer::start(move |request, _| match request.target() {
            "/info" => INFO.into(),
            asked => {
                let path = path.unwrap_or(asked);
                Answer::new(302, "").with(format!("Location: http://{host}:{port}{path}"))
            }
        });
        let admin = Admin::start_direct([nsqd.address], &["--live-interval=0"]);
        let shown = admin.get("/api/topics/t/c");
        assert_eq!(shown.status, status, "{}", shown.text());
        assert_eq!(inner.connections() > 0, status == 200, "{host} {path:?}");
        if status != 200 {
            let text = shown.text();
            assert!(text.contains("got response 302 "), "{text}");
            test_support::assert_like(&text, "…a GET none to another host or path…");
        }
    }
}

/// The endpoint got a GET without the notification, and the log and the metrics said that it was told.
#[test]
fn a_notification_is_never_sent_on_without_its_body() {
    for (status, count) in [(302, 0), (308, 1)] {
        let nsqd = test_support::daemon::Daemon::nsqd(&[]);
        nsqd.create_channel("t", "c");
        let inner = HttpServer::start(|_, _| Answer::status(200));
        let location = format!("Location: {}", inner.url("/told"));
        let first = HttpServer::start(move |_, _| Answer::new(status, "").with(&*location));
        let endpoint = format!("--notification-http-endpoint={}", first.url("/"));
        let admin = Admin::start_direct([nsqd.http], &["--live-interval=0", &endpoint]);
        let paused = admin.post("/api/topics/t/c", r#"{"action":"pause"}"#);
        paused.expect_status(200);
        if count == 0 {
            admin.wait_for_log(
                "failed to POST notification - the answer 302 Found sends it elsewhere",
            );
            assert_eq!(inner.connections(), 0);
        } else {
            let told = inner.wait_for(count);
            assert!(told[0].text().contains(r#""action":"pause_channel""#));
        }
    }
}
