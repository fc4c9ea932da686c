//! `/metrics` of the real binary, read by Prometheus's own parser for Python.

mod support;

use std::io::Read;
use std::net::TcpStream;
use std::path::Path;

use support::Admin;
use test_support::daemon::Daemon;
use test_support::http_server::{Answer, HttpServer};
use test_support::packages::is_installed;
use test_support::prometheus::{self, Metrics};
use test_support::{TIMEOUT, wait_until};

fn scrape(admin: &Admin) -> Option<[Metrics; 2]> {
    let how = "Python 3.9 or later with venv, such as python3-venv";
    is_installed("python3", how).then(|| {
        let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let python = prometheus::install(&tmp.with_file_name("interop"));
        prometheus::scrape(&python, admin.http, "/metrics")
    })
}

fn wait_for_metric(admin: &Admin, line: &str) {
    let has_line = || admin.get("/metrics").text().contains(line);
    assert!(wait_until(TIMEOUT, has_line), "{line} is missing");
}

#[test]
fn prometheus_reads_what_was_asked_collected_and_done() {
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

    let mut stream = TcpStream::connect(admin.http).expect("nsqadmin listens");
    let head = format!(
        "GET /api/live/events HTTP/1.1\r\nHost: {}\r\n\r\n",
        admin.http
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).expect("nsqadmin reads");
    stream.read_exact(&mut [0; 12]).expect("the stream begins");

    let dead = nsqds[1].http.to_string();
    nsqds[1].kill();
    let gone = format!("nsqadmin_upstream_up{{server=\"nsqd\",address=\"{dead}\"}} 0\n");
    wait_for_metric(&admin, &gone);

    let Some(forms) = scrape(&admin) else {
        return;
    };
    for metrics in &forms {
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
        let failures: f64 = metrics
            .find("nsqadmin_upstream_failures_total", &[("address", &dead)])
            .iter()
            .map(|sample| sample.value.parse::<f64>().expect("a number"))
            .sum();
        assert!(failures >= 1.0);
        let ok = [("result", "ok")];
        assert!(value("nsqadmin_collections_total", &ok) >= 1.0);
        let last = value("nsqadmin_last_collection_seconds", &[]);
        assert!(last > 0.0 && last <= value("nsqadmin_collection_seconds_total", &[]));
        assert!(value("nsqadmin_last_figures_time_seconds", &[]) > 1.7e9);
        // Two nodes, a topic and its channel.
        assert_eq!(value("nsqadmin_history_series", &[]), 4.0);
        assert!(value("nsqadmin_history_bytes", &[]) >= 4.0 * 3.0 * 12.0);
        assert!(value("process_open_fds", &[]) > 5.0);
    }
}

#[test]
fn without_live_figures_their_metrics_are_missing() {
    let admin = Admin::start(&["--nsqd-http-address=127.0.0.1:1", "--live-interval=0"]);
    admin.get("/api/topics").expect_status(502);
    let text = admin.get("/metrics").expect_status(200).text();
    let failed = "nsqadmin_upstream_failures_total{server=\"nsqd\",address=\"127.0.0.1:1\",reason=\"unreachable\"} 1\n";
    assert!(text.contains(failed), "{text}");
    for missing in ["nsqadmin_collection", "nsqadmin_history", "nsqadmin_event"] {
        assert!(!text.contains(missing), "{text}");
    }
}
