//! The rights of every route of the table, with every method, over real sockets: as nobody, as a user who is no
//! admin, from a page of another site, and as an admin.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

use crate::support::{Admin, AuditLog, assert_text};
use serde_json::{Value, json};
use test_support::TIMEOUT;
use test_support::daemon::Daemon;
use test_support::wait_until;

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
const NOBODY: [&str; 0] = [];
const EVE: [&str; 1] = ["X-Forwarded-User: eve"];
const CAROL: [&str; 1] = ["X-Forwarded-User: carol"];
const CAROL_ELSEWHERE: [&str; 2] = ["X-Forwarded-User: carol", "Origin: http://evil.example"];

/// The address whose answer has no end.
const STREAM: &str = "/api/live/events";

/// The body of a message that only admins may read.
const SECRET: &str = "the-secret-body";

/// A request to a route.
struct Request {
    method: &'static str,
    pattern: &'static str,
    target: String,
    body: String,
    topic: String,
    /// True if the table has this method for this pattern.
    is_known: bool,
}

impl Request {
    /// Returns true if the request changes something, so that only admins may send it.
    fn is_act(&self) -> bool {
        self.is_known && self.method != "GET" && !self.is_put_config()
    }

    /// Returns true for the one request of admins that `--allow-config-from-cidr` limits, too.
    fn is_put_config(&self) -> bool {
        (self.method, self.pattern) == ("PUT", "/config/*")
    }

    fn send(&self, admin: &Admin, headers: &[&str]) -> (u16, String) {
        if self.target == STREAM && self.method == "GET" {
            return (status_of_stream(admin, headers), String::new());
        }
        let answer = admin.ask(self.method, &self.target, headers, &self.body);
        (answer.status, answer.text())
    }
}

/// Returns the status of a stream of events, of which only the first line is read.
fn status_of_stream(admin: &Admin, headers: &[&str]) -> u16 {
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let head = format!("GET {STREAM} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    let stream = admin.connect(head.as_bytes());
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

/// One nsqlookupd, one nsqd, and the admin, whose only admin is carol.
struct Cluster {
    admin: Admin,
    nsqd: Daemon,
    lookupd: Daemon,
    audit: AuditLog,
}

impl Cluster {
    fn start() -> Cluster {
        let lookupd = Daemon::nsqlookupd(&[]);
        let nsqd = Daemon::nsqd_at(&[&lookupd], &[]);
        let audit = AuditLog::default();
        let admin = Admin::start_at(&[&lookupd], &["--admin-user=carol", &audit.flag()]);
        Cluster {
            admin,
            nsqd,
            lookupd,
            audit,
        }
    }

    /// Makes a topic with a channel and a message for each request.
    fn prepare(&self, requests: &[Request]) {
        let topics: BTreeSet<&str> = requests.iter().map(|request| &*request.topic).collect();
        for topic in &topics {
            self.nsqd.create_channel(topic, "c");
            self.nsqd.publish(topic, &[SECRET]);
            self.nsqd.wait_for_figure(topic, "c", "depth", 1);
        }
        for topic in &topics {
            let target = format!("/lookup?topic={topic}");
            let is_known = wait_until(TIMEOUT, || {
                let answer = self.lookupd.get(&target).text();
                answer.contains("http_port") && answer.contains("[\"c\"]")
            });
            assert!(is_known, "{target}");
        }
        self.admin.wait_for("/api/live/topics/t0", |_| true);
    }

    /// Returns what acts change: topics, channels, pauses, depths, and tombstones.
    fn state(&self) -> Value {
        let nodes = self.lookupd.get("/nodes").json();
        let stats = self.nsqd.get("/stats?format=json").json();
        let of_topic = |topic: &Value| {
            let of_channel = |channel: &Value| {
                json!([channel["channel_name"], channel["paused"], channel["depth"]])
            };
            let channels = topic["channels"].as_array().unwrap();
            let channels: Vec<Value> = channels.iter().map(of_channel).collect();
            json!([
                topic["topic_name"],
                topic["paused"],
                topic["depth"],
                channels
            ])
        };
        let topics = stats["topics"].as_array().unwrap();
        json!({
            "known": self.lookupd.get("/topics").json(),
            "tombstones": nodes["producers"][0]["tombstones"],
            "topics": topics.iter().map(of_topic).collect::<Vec<_>>(),
        })
    }

    /// Sends a request that must be refused, and checks the line of the audit log.
    fn expect_refusal(&self, request: &Request, headers: &[&str], code: &str) {
        let before = self.audit.lines().len();
        let (method, target) = (request.method, &request.target);
        let (status, text) = request.send(&self.admin, headers);
        let message: Value = serde_json::from_str(&text).unwrap();
        let message = message["message"].as_str().unwrap_or_default();
        // The reason behind the code depends on the headers.
        let found = (status, message.split(": ").next().unwrap_or_default());
        assert_eq!(found, (403, code), "{method} {target} with {headers:?}");
        let lines = self.audit.lines();
        assert_eq!(lines.len(), before + 1, "{method} {target}: {lines:?}");
        let line = &lines[before];
        assert_eq!(line["result"], json!("refused"), "{line}");
        let message = line["message"].as_str().unwrap_or_default();
        assert!(message.starts_with(code), "{line}");
    }
}

/// Returns every request: each method at each pattern. An act has a topic of its own, everything else reads `t0`.
fn requests(nsqd: &Daemon) -> Vec<Request> {
    let table: Vec<_> = nsqadmin::http::routes().collect();
    let mut patterns: Vec<&str> = table.iter().map(|(_, pattern)| *pattern).collect();
    patterns.sort_unstable();
    patterns.dedup();
    let mut requests = Vec::new();
    for pattern in patterns {
        for method in METHODS {
            let is_known = table.contains(&(method, pattern));
            let topic = if is_known && method != "GET" {
                format!("t{}", requests.len())
            } else {
                "t0".to_owned()
            };
            requests.push(Request {
                method,
                pattern,
                target: target(pattern, &topic, nsqd),
                body: if is_known && method != "GET" {
                    body(method, pattern, &topic)
                } else {
                    String::new()
                },
                topic,
                is_known,
            });
        }
    }
    // These acts take the topics of others away.
    requests.sort_by_key(|request| ["/api/acts", "/api/nodes/*"].contains(&request.pattern));
    requests
}

/// Returns a path that the pattern matches.
fn target(pattern: &str, topic: &str, nsqd: &Daemon) -> String {
    let node = nsqd.http.to_string();
    let (first, second) = match pattern
        .rsplit_once("/*")
        .map_or(pattern, |(start, _)| start)
    {
        start if start.contains("/nodes") => (node.as_str(), ""),
        start if start.contains("/topics") || start.contains("/peek") => (topic, "c"),
        start if start.contains("/disk") => (topic, "c"),
        start if start.contains("/static") || start.contains("/fonts") => ("main.js", "x"),
        "/config" => ("log_level", ""),
        _ => {
            assert!(!pattern.contains('*'), "{pattern}: say what * stands for");
            return match pattern {
                "/api/live/history" => format!("{pattern}?topic={topic}"),
                "/api/graphite" => format!("{pattern}?metric=rate&target=x"),
                _ => pattern.to_owned(),
            };
        }
    };
    let path = pattern.replacen('*', first, 1);
    path.replace('*', second)
}

/// Returns a body with which the act succeeds.
fn body(method: &str, pattern: &str, topic: &str) -> String {
    let body = match (method, pattern) {
        ("POST", "/api/topics") => json!({"topic": "new", "channel": "c"}),
        ("POST", "/api/topics/*" | "/api/topics/*/*") => json!({"action": "pause"}),
        ("DELETE", "/api/topics/*" | "/api/topics/*/*") => return String::new(),
        ("DELETE", "/api/nodes/*") => json!({"topic": topic}),
        ("POST", "/api/acts") => json!({"action": "delete", "of": "topics", "topics": [topic]}),
        ("PUT", "/config/*") => return "info".to_owned(),
        _ => panic!("{method} {pattern} is new: say here with which body it succeeds"),
    };
    body.to_string()
}

/// Returns true if a status is neither a refusal nor a failure.
fn is_answer(status: u16) -> bool {
    !matches!(status, 401 | 403 | 405 | 502..)
}

#[test]
fn only_admins_act_and_everybody_reads() {
    let cluster = Cluster::start();
    let requests = requests(&cluster.nsqd);
    cluster.prepare(&requests);
    let before = cluster.state();
    for request in &requests {
        let (method, target) = (request.method, &request.target);
        if request.is_act() || request.is_put_config() {
            cluster.expect_refusal(request, &EVE, "FORBIDDEN");
            cluster.expect_refusal(request, &CAROL_ELSEWHERE, "FORBIDDEN_ORIGIN");
            cluster.expect_refusal(request, &NOBODY, "FORBIDDEN");
            continue;
        }
        for headers in [&NOBODY[..], &EVE] {
            let (status, text) = request.send(&cluster.admin, headers);
            assert!(!text.contains(SECRET), "{method} {target}: {text}");
            match (method, request.is_known) {
                ("GET", true) => assert!(is_answer(status), "{target}: {status} {text}"),
                ("OPTIONS", _) => assert_eq!((status, text.as_str()), (200, ""), "{target}"),
                _ => assert_eq!(status, 405, "{method} {target}: {text}"),
            }
        }
    }
    assert_eq!(cluster.state(), before, "nothing has changed");
}

#[test]
fn admins_do_everything_and_each_act_has_a_line() {
    let cluster = Cluster::start();
    let requests = requests(&cluster.nsqd);
    cluster.prepare(&requests);
    let peek = cluster.admin.ask("GET", "/api/peek/t0/c", &CAROL, "");
    assert_text(&peek, SECRET);
    for request in &requests {
        let (method, target) = (request.method, &request.target);
        let state = cluster.state();
        let lines = cluster.audit.lines().len();
        let (status, text) = request.send(&cluster.admin, &CAROL);
        if !request.is_act() {
            let is_expected = request.is_known && is_answer(status)
                || !request.is_known && status == if method == "OPTIONS" { 200 } else { 405 };
            assert!(is_expected, "{method} {target}: {status} {text}");
            assert_eq!(cluster.state(), state, "{method} {target} changes nothing");
            let count = lines + usize::from(request.is_put_config());
            assert_eq!(cluster.audit.lines().len(), count, "{method} {target}");
            continue;
        }
        assert_eq!(status, 200, "{method} {target}: {text}");
        if let Some(token) = serde_json::from_str::<Value>(&text).unwrap().get("confirm") {
            let mut body: Value = serde_json::from_str(&request.body).unwrap();
            body["confirm"] = token.clone();
            let confirmed = cluster.admin.ask(method, target, &CAROL, &body.to_string());
            confirmed.expect_status(200);
        }
        assert_ne!(cluster.state(), state, "{method} {target} acts");
        if request.pattern == "/api/nodes/*" {
            // nsqd tells its nsqlookupd beside the answer.
            let name = format!("{:?}", request.topic);
            let is_told = || !cluster.lookupd.get("/nodes").text().contains(&name);
            assert!(wait_until(TIMEOUT, is_told), "{name}");
        }
        let lines = &cluster.audit.lines()[lines..];
        assert!(!lines.is_empty(), "{method} {target}");
        for line in lines {
            let found = (&line["user"], &line["result"]);
            assert_eq!(found, (&json!("carol"), &json!("done")), "{line}");
        }
    }
}
