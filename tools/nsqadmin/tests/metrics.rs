//! `/metrics` of the real binary, read by Prometheus's own parser for Python.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::Admin;
use serde_json::{Value, json};
use test_support::daemon::Daemon;
use test_support::http_server::{Answer, HttpServer};
use test_support::packages::is_installed;
use test_support::prometheus;
use test_support::{TIMEOUT, wait_until};

/// Returns the path of the Python that has the parser.
fn python() -> Option<PathBuf> {
    let how = "Python 3.9 or later with venv, such as python3-venv";
    is_installed("python3", how).then(|| {
        let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
        prometheus::install(&tmp.with_file_name("interop"))
    })
}

fn wait_for_metric(admin: &Admin, line: &str) {
    let has_line = || admin.get("/metrics").text().contains(line);
    assert!(wait_until(TIMEOUT, has_line), "{line} is missing");
}

#[test]
fn prometheus_reads_what_was_asked_collected_and_done() {
    // The first installation may take minutes, and a stream that nobody reads for so long ends.
    let python = python();
    let lookupd = Daemon::nsqlookupd(&[]);
    let mut nsqds: Vec<Daemon> = (0..2).map(|_| Daemon::nsqd_at(&[&lookupd], &[])).collect();
    for nsqd in &nsqds {
        nsqd.create_channel("clicks", "a");
    }
    let endpoint = HttpServer::start(|_, _| Answer::status(200));
    let endpoint_flag = format!("--notification-http-endpoint={}", endpoint.url("/told"));
    let flags = ["--admin-user=carol", "--live-interval=50ms", &endpoint_flag];
    let admin = Admin::start_at(&[&lookupd], &flags);
    wait_for_metric(&admin, "nsqadmin_nodes 2\n");
    wait_for_metric(&admin, "nsqadmin_channels 1\n");

    let pause = r#"{"action":"pause"}"#;
    let carol = ["X-Forwarded-User: carol"];
    let paused = admin.ask("POST", "/api/topics/clicks", &carol, pause);
    paused.expect_status(200);
    let refused = admin.post("/api/topics/clicks", pause);
    refused.expect_error(403, "FORBIDDEN");
    admin.get("/nope").expect_status(404);
    endpoint.wait_for(1);
    wait_for_metric(&admin, "nsqadmin_notifications_total{result=\"sent\"} 1\n");

    let mut stream = admin.connect(b"GET /api/live/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.read_exact(&mut [0; 12]).expect("the stream begins");

    let dead = nsqds[1].http.to_string();
    nsqds[1].kill();
    let gone = format!("nsqadmin_upstream_up{{server=\"nsqd\",address=\"{dead}\"}} 0\n");
    wait_for_metric(&admin, &gone);

    let Some(python) = python else {
        return;
    };
    let metrics = &prometheus::scrape(&python, admin.http, "/metrics");
    let value = |name: &str, labels: &[(&str, &str)]| metrics.value(name, labels);
    assert_eq!(value("nsqadmin_build_info", &[("version", "1.3.0")]), 1.0);
    assert_eq!(value("nsqadmin_event_streams", &[]), 1.0);
    assert_eq!(value("nsqadmin_event_streams_max", &[]), 256.0);
    let requests = |method, code| {
        value(
            "nsqadmin_http_requests_total",
            &[("method", method), ("code", code)],
        )
    };
    assert_eq!(requests("POST", "200"), 1.0);
    assert_eq!(requests("POST", "403"), 1.0);
    assert_eq!(requests("GET", "404"), 1.0);
    let acts = |action, result| {
        value(
            "nsqadmin_acts_total",
            &[("action", action), ("result", result)],
        )
    };
    assert_eq!(acts("pause_topic", "done"), 1.0);
    assert_eq!(acts("act", "refused"), 1.0);
    let of = |name: &str, address: &str| value(name, &[("address", address)]);
    assert_eq!(of("nsqadmin_upstream_up", &nsqds[0].http.to_string()), 1.0);
    assert_eq!(of("nsqadmin_upstream_up", &lookupd.http.to_string()), 1.0);
    assert_eq!(of("nsqadmin_upstream_up", &dead), 0.0);
    assert!(of("nsqadmin_upstream_requests_total", &dead) >= 2.0);
    let ok = [("result", "ok")];
    assert!(value("nsqadmin_collections_total", &ok) >= 1.0);
    let last = value("nsqadmin_last_collection_seconds", &[]);
    assert!(last > 0.0 && last <= value("nsqadmin_collection_seconds_total", &[]));
    assert!(value("nsqadmin_last_figures_time_seconds", &[]) > 1.7e9);
    // Two nodes, a topic and its channel.
    assert_eq!(value("nsqadmin_history_series", &[]), 4.0);
    let bytes = value("nsqadmin_history_bytes", &[]);
    assert!((1_000.0..20_000.0).contains(&bytes), "{bytes}");
    assert_eq!(value("nsqadmin_history_bytes_max", &[]), 268_435_456.0);
    assert_eq!(value("nsqadmin_history_room_seconds", &[]), 604_800.0);
    assert!(value("process_open_fds", &[]) > 5.0);
}

/// An nsqlookupd forgets a node that dies at once, so nobody asks the node afterwards, and its last answer counted.
#[test]
fn a_node_that_the_nsqlookupds_have_dropped_is_down() {
    let nsqd = HttpServer::start(|request, _| match request.path() {
        "/stats" => r#"{"health":"OK","topics":[]}"#.into(),
        _ => "{}".into(),
    });
    let port = nsqd.address.port();
    let is_known = Arc::new(AtomicBool::new(true));
    let lookupd = HttpServer::start({
        let is_known = Arc::clone(&is_known);
        move |_, _| {
            let node = json!({"broadcast_address": "127.0.0.1", "http_port": port, "tcp_port": 1, "version": "1.3.0"});
            let known = is_known.load(Ordering::Relaxed).then_some(node);
            let nodes: Vec<_> = known.into_iter().collect();
            json!({"producers": nodes}).into()
        }
    });
    let flag = format!("--lookupd-http-address={}", lookupd.address);
    let admin = Admin::start(&[&flag, "--live-interval=50ms"]);
    let is_up = |up: u8| {
        format!("nsqadmin_upstream_up{{server=\"nsqd\",address=\"127.0.0.1:{port}\"}} {up}\n")
    };
    wait_for_metric(&admin, &is_up(1));
    let attention =
        |is_wanted: fn(&Value) -> bool| admin.wait_for("/api/live/attention", is_wanted);
    attention(|told| told["time"] != 0);
    is_known.store(false, Ordering::Relaxed);
    attention(|told| told["gone_nodes"] != json!([]));
    wait_for_metric(&admin, &is_up(0));
    is_known.store(true, Ordering::Relaxed);
    wait_for_metric(&admin, &is_up(1));
}

#[test]
fn without_live_figures_their_metrics_are_missing() {
    let admin = Admin::start_alone(&[]);
    admin.get("/api/topics").expect_status(502);
    let text = admin.get("/metrics").expect_status(200).text();
    let failed = "nsqadmin_upstream_failures_total{server=\"nsqd\",address=\"127.0.0.1:1\",reason=\"unreachable\"} 1\n";
    assert!(text.contains(failed), "{text}");
    for missing in ["nsqadmin_collection", "nsqadmin_history", "nsqadmin_event"] {
        assert!(!text.contains(missing), "{text}");
    }
}
