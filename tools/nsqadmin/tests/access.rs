//! Rights, over real sockets: the user's header, pages of other sites, `/config`, and the base path. `routes.rs` has
//! every route with and without rights.

use std::io::Read;

use crate::support::{Admin, AuditLog, assert_text, create_topic};
use serde_json::json;
use test_support::daemon::Daemon;
use test_support::http::{Response, parse};
use test_support::http_server::{Answer, HttpServer};
use test_support::{TIMEOUT, assert_like, wait_until};

/// Returns what an act may change. `/debug` shows no topic without an nsqd.
fn registrations(lookupd: &Daemon) -> String {
    let paths = ["/topics", "/channels?topic=t"];
    paths.map(|path| lookupd.get(path).text()).concat()
}

/// The line said only that the request of an admin was refused.
#[test]
fn a_refusal_of_basic_authentication_says_why_and_shows_no_password() {
    let admin = Admin::start_alone(&["--admin-user=carol"]);
    let why = "FORBIDDEN: basic authentication does not count, because nsqadmin checks no password; a proxy that checks it \
               has to name the user in the header x-forwarded-user";
    let ask = |headers: &[&str]| admin.ask("DELETE", "/api/topics/t", headers, "");
    // carol:secret, and what is no base64.
    for (credentials, claimed) in [
        ("Y2Fyb2w6c2VjcmV0", ", unverified name \"carol\""),
        ("c2VjcmV0!", ""),
    ] {
        let basic = format!("Authorization: Basic {credentials}");
        ask(&[&basic]).expect_error(403, why);
        let line = admin.wait_for_log(&format!("{claimed}): refused - {why}"));
        assert!(line.contains("AUDIT: delete t by user \"\" (127"), "{line}");
        assert!(!admin.log().contains(credentials), "{}", admin.log());
        // The user of the proxy counts, and is no admin.
        ask(&[&basic, "X-Forwarded-User: eve"]).expect_error(403, "FORBIDDEN");
    }
    ask(&["Authorization: Bearer x"]).expect_error(403, "FORBIDDEN");
    assert!(!admin.log().contains("secret"), "{}", admin.log());
}

#[test]
fn a_header_counts_from_the_trusted_proxy_only() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let carol = ["X-Forwarded-User: carol"];
    let check = |proxies: &str, status: u16| {
        let admin = Admin::start_at(&[&lookupd], &["--admin-user=carol", proxies]);
        let answer = admin.ask("POST", "/api/topics", &carol, r#"{"topic":"t"}"#);
        assert_eq!(answer.status, status, "{proxies}");
        admin.log()
    };
    let log = check("--log-level=info", 200);
    let counts = "INFO: the header x-forwarded-user counts from 127.0.0.0/8, ::1/128 only (--trusted-proxy-cidr)";
    assert!(log.contains(counts), "{log}");
    check("--trusted-proxy-cidr=127.0.0.0/8", 200);
    let log = check("--trusted-proxy-cidr=10.0.0.0/8", 403);
    assert_like(
        &log,
        "…INFO: the header x-forwarded-user counts from 10.0.0.0/8 only…",
    );
    let log = check("--trusted-proxy-cidr=0.0.0.0/0,::/0", 200);
    let warning = "WARNING: with --trusted-proxy-cidr=0.0.0.0/0, ::/0, every client that reaches this address can name any user";
    assert!(log.contains(warning), "{log}");
}

fn expect_forbidden_origin(answer: &Response) {
    let text = answer.text();
    assert_eq!(answer.status, 403, "{text}");
    assert_like(&text, r#"{"message":"FORBIDDEN_ORIGIN: …"#);
}

/// An operator behind a proxy that changes `Host` could not act, and no word said which value differs from which.
#[test]
fn a_refused_origin_names_what_differs_and_what_to_do() {
    let admin = Admin::start_alone(&[]);
    let why = |headers: &[&str]| {
        let answer = admin.ask("DELETE", "/api/topics/t", headers, "");
        let json = answer.json();
        let line = admin.wait_for_log("AUDIT: delete t ");
        assert!(line.contains(": refused - FORBIDDEN_ORIGIN: "), "{line}");
        json["message"].as_str().unwrap().to_owned()
    };
    let host = admin.http.to_string();
    assert_eq!(
        why(&["Origin: https://nsq.example.com"]),
        format!(
            "FORBIDDEN_ORIGIN: the page's Origin is \"https://nsq.example.com\" and the request's Host is {host:?}; if the page \
             is nsqadmin's own, have the proxy keep Host or set X-Forwarded-Host, or name the origin with --allowed-origin"
        )
    );
    let of_site = why(&["Origin: https://a.example", "Sec-Fetch-Site: same-site"]);
    let start = "FORBIDDEN_ORIGIN: the browser says that a page of another site has sent the request (Sec-Fetch-Site \"same-site\"";
    assert!(of_site.starts_with(start), "{of_site}");
    assert!(of_site.contains("--allowed-origin"), "{of_site}");
}

#[test]
fn pages_of_other_sites_cannot_act() {
    let lookupd = Daemon::nsqlookupd(&[]);
    create_topic(&lookupd, "t");
    let admin = Admin::start_at(&[&lookupd], &["--allowed-origin=https://nsq.example.com"]);
    let before = registrations(&lookupd);
    for headers in [
        &["Origin: http://evil.example"][..],
        &["Origin: null"],
        &["Sec-Fetch-Site: cross-site"],
        &["Sec-Fetch-Site: same-site", "Origin: https://a.example"],
        &["Origin: http://evil.example", "Content-Type: text/plain"],
    ] {
        let body = r#"{"topic":"t","channel":"c"}"#;
        expect_forbidden_origin(&admin.ask("POST", "/api/topics", headers, body));
    }
    assert_eq!(registrations(&lookupd), before, "nothing has changed");
    let own = format!("Origin: http://{}", admin.http);
    for headers in [
        &[own.as_str()][..],
        &[
            "Sec-Fetch-Site: same-origin",
            "Origin: https://outer.example",
        ],
        &["Origin: https://nsq.example.com"],
        &[
            "Origin: https://outer.example",
            "X-Forwarded-Host: outer.example",
        ],
    ] {
        let answer = admin.ask("POST", "/api/topics", headers, r#"{"topic":"n"}"#);
        assert_eq!(answer.status, 200, "{headers:?}");
    }
    // A browser asks first whether another site may send headers or methods of its own.
    let asked = [
        "Origin: http://evil.example",
        "Access-Control-Request-Method: DELETE",
    ];
    let answer = admin
        .ask("OPTIONS", "/api/topics/t", &asked, "")
        .expect_status(200);
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[test]
fn config_is_changed_by_its_addresses_and_not_by_others() {
    let lookupd = Daemon::nsqlookupd(&[]);
    create_topic(&lookupd, "t");
    let admin = Admin::start(&[
        "--lookupd-http-address=127.0.0.1:1",
        "--admin-user=carol",
        "--graphite-url=http://u:secret@h/",
    ]);
    admin.get("/api/topics").expect_status(502);
    let body = format!("[\"{}\"]", lookupd.http);
    let target = "/config/nsqlookupd_http_addresses";
    for headers in [
        &["X-Forwarded-User: eve"][..],
        &["X-Forwarded-For: 192.0.2.1"],
        &[],
    ] {
        admin
            .ask("PUT", target, headers, &body)
            .expect_error(403, "FORBIDDEN");
    }
    assert_eq!(
        admin
            .ask("PUT", target, &["X-Forwarded-User: carol"], &body)
            .expect_status(200)
            .text(),
        body
    );
    assert_eq!(admin.json("/api/topics")["topics"], json!(["t"]));
    let carol = ["X-Forwarded-User: carol", "X-Forwarded-For: 192.0.2.1"];
    admin
        .ask("PUT", "/config/log_level", &carol, "warn")
        .expect_status(200);
    assert_eq!(admin.get("/config/log_level").text(), "3");
    assert_eq!(
        admin.get("/config/graphite_url").text(),
        "http://u:xxxxx@h/"
    );
    assert!(!admin.get("/api/settings").text().contains("secret"));
    admin
        .ask("PUT", target, &carol, &" ".repeat(1024 * 1024 + 1))
        .expect_error(413, "INVALID_VALUE");
    let closed = Admin::start_at(&[&lookupd], &["--allow-config-from-cidr=10.0.0.0/8"]);
    closed
        .ask("PUT", target, &["X-Forwarded-For: 10.0.0.1"], "[]")
        .expect_error(403, "FORBIDDEN");
    closed
        .get("/config/log_level")
        .expect_error(403, "FORBIDDEN");
}

/// The line about a log level without INFO lines is in the log, because it comes before the change.
#[test]
fn each_put_of_the_configuration_is_in_the_audit_log() {
    let audit = AuditLog::default();
    let flags = ["--admin-user=carol", &audit.flag()];
    let admin = Admin::start_alone(&flags);
    let put = |key: &str, headers: &[&str], body: &str| {
        let target = format!("/config/{key}");
        admin.ask("PUT", &target, headers, body).status
    };
    let eve = ["X-Forwarded-User: eve"];
    let carol = ["X-Forwarded-User: carol"];
    let elsewhere = ["Origin: http://evil.example"];
    assert_eq!(put("log_level", &eve, "error"), 403);
    assert_eq!(put("log_level", &elsewhere, "error"), 403);
    assert_eq!(put("log_level", &carol, "loud"), 400);
    assert_eq!(put("base_path", &carol, "/x"), 400);
    assert_eq!(put("nsqlookupd_http_addresses", &[], "[]"), 403);
    assert_eq!(put("log_level", &carol, "error"), 200);
    admin.get("/config/log_level").expect_status(200);
    let outside = [&flags[..], &["--allow-config-from-cidr=10.0.0.0/8"]].concat();
    let outside = Admin::start_alone(&outside);
    let answer = outside.ask("PUT", "/config/log_level", &carol, "debug");
    answer.expect_error(403, "FORBIDDEN");
    let lines = audit.lines();
    let found = lines.iter().map(|line| {
        let address = line["remote_address"].as_str().unwrap();
        assert!(address.starts_with("127.0.0.1:"), "{line}");
        assert_eq!(line["action"], "put_config", "{line}");
        let found = ["user", "key", "result", "message"].map(|key| line[key].as_str().unwrap());
        found.map(|text| text.split(": ").next().unwrap())
    });
    let expected = [
        ["eve", "log_level", "refused", "FORBIDDEN"],
        ["", "log_level", "refused", "FORBIDDEN_ORIGIN"],
        ["carol", "log_level", "failed", "INVALID_VALUE"],
        ["carol", "base_path", "failed", "INVALID_OPTION"],
        ["", "nsqlookupd_http_addresses", "refused", "FORBIDDEN"],
        ["carol", "log_level", "done", ""],
        ["carol", "log_level", "refused", "FORBIDDEN"],
    ];
    assert_eq!(found.collect::<Vec<_>>(), expected);
    admin.wait_for_log(" INFO: AUDIT: put_config log_level by user \"carol\" (127.0.0.1:");
}

#[test]
fn everything_stays_below_the_base_path() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let graphite =
        HttpServer::start(|_, _| Answer::from("picture").with("Content-Type: image/png"));
    let url = format!("--graphite-url={}", graphite.url("/ignored"));
    let admin = Admin::start_at(&[&lookupd], &["--base-path=x/y/", "--proxy-graphite", &url]);
    // A proxy may have removed the base path, and a probe knows nothing of a proxy. The page's base is that of the browser.
    for path in ["/ping", "/api/topics", "/metrics", "/static/main.js"] {
        admin.get(path).expect_status(200);
    }
    admin.get("/x/yz").expect_error(404, "NOT_FOUND");
    admin
        .post("/api/topics", r#"{"topic":"n"}"#)
        .expect_status(200);
    for path in [
        "/",
        "/topics/t",
        "/x/y",
        "/x/y/",
        "/x/y/topics/t",
        "/x/y/lookup",
    ] {
        let page = admin.get(path).expect_status(200);
        assert_text(&page, "<base href=\"/x/y/\">");
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            policy.contains("default-src 'self'") && policy.contains("frame-ancestors 'self'"),
            "{policy}"
        );
    }
    let picture = admin.ask(
        "GET",
        "/x/y/render?target=a&x=1",
        &["Cookie: s=1", "X-Own: 1"],
        "",
    );
    let picture = picture.expect_status(200);
    assert_eq!(
        (picture.text().as_str(), picture.header("content-type")),
        ("picture", Some("image/png"))
    );
    let head = graphite.wait_for(1)[0].head.to_lowercase();
    assert_like(&head, "get /render?target=a&x=1 http/1.1\r\n…");
    assert!(
        head.contains("x-own: 1\r\n") && head.contains("x-forwarded-for: 127.0.0.1\r\n"),
        "{head}"
    );
    assert!(!head.contains("cookie"), "{head}");
    let redirect = admin.get("/x/y/API/topics/?x").expect_status(301);
    assert_eq!(redirect.header("location"), Some("/x/y/api/topics?x"));
}

/// Behind a proxy that removes a prefix, the page asked for its files above the prefix, and had none.
#[test]
fn without_a_base_path_the_page_finds_its_files_below_any_prefix() {
    let admin = Admin::start_alone(&[]);
    for (path, base) in [
        ("/", "./"),
        ("/lookup", "./"),
        ("/topics/t", "../"),
        ("/topics/t/c", "../../"),
    ] {
        let page = admin.get(path).expect_status(200).text();
        assert!(page.contains(&format!(r#"<base href="{base}">"#)), "{path}");
    }
    // A rule of a proxy for `/api/` must not miss another spelling of it.
    admin.get("//api/topics").expect_status(301);
}

/// A browser showed `{"message":"NOT_FOUND"}`.
#[test]
fn an_address_without_a_page_is_the_page_for_a_browser_and_json_for_programs() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let admin = Admin::start_at(&[&lookupd], &["--base-path=/x", "--live-interval=0"]);
    let browser = ["Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"];
    for path in ["/x/nope", "/x/peek", "/x/topics/a/b/c"] {
        let page = admin.ask("GET", path, &browser, "").expect_status(404);
        assert!(page.text().contains(r#"<base href="/x/">"#), "{path}");
        assert_eq!(
            page.header("content-type"),
            Some("text/html; charset=utf-8")
        );
        admin.get(path).expect_error(404, "NOT_FOUND");
        let json = ["Accept: application/json, */*"];
        admin
            .ask("GET", path, &json, "")
            .expect_error(404, "NOT_FOUND");
        admin
            .ask("POST", path, &browser, "")
            .expect_error(404, "NOT_FOUND");
    }
    for path in ["/x/api/nope", "/x/config/a/b", "/api/nope"] {
        admin
            .ask("GET", path, &browser, "")
            .expect_error(404, "NOT_FOUND");
    }
}

/// A page of graphite, such as that of an error, would have the rights of nsqadmin's page.
#[test]
fn graphite_has_no_page_below_nsqadmins_address() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let graphite = HttpServer::start(|_, before| {
        let kind = ["text/html", "text/javascript", "image/svg+xml"][before];
        Answer::new(400, "<script>act()</script>").with(format!("Content-Type: {kind}"))
    });
    let url = format!("--graphite-url={}", graphite.url(""));
    let admin = Admin::start_at(&[&lookupd], &["--proxy-graphite", &url]);
    for content_type in [
        "text/plain; charset=utf-8",
        "text/plain; charset=utf-8",
        "image/svg+xml",
    ] {
        let answer = admin.get("/render?target=a").expect_status(400);
        assert_eq!(answer.header("content-type"), Some(content_type));
        assert_eq!(
            answer.header("content-security-policy"),
            Some("default-src 'none'; sandbox")
        );
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
}

#[test]
fn the_files_of_the_page_are_cached_and_compressed() {
    let admin = Admin::start_alone(&[]);
    let with = |header: &str| admin.ask("GET", "/static/main.js", &[header], "");
    let script = admin.get("/static/main.js").expect_status(200);
    assert_eq!(
        script.header("content-type"),
        Some("text/javascript; charset=utf-8")
    );
    let etag = script.header("etag").unwrap();
    let again = with(&format!("If-None-Match: {etag}"));
    assert_eq!((again.status, again.body.len()), (304, 0));
    let packed = with("Accept-Encoding: deflate, gzip");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert_eq!(packed.header("vary"), Some("Accept-Encoding"));
    assert!(packed.body.starts_with(&[0x1f, 0x8b]) && packed.body.len() < script.body.len());
    assert_eq!(with("Accept-Encoding: gzip;q=0").body, script.body);
    let missing = admin.get("/static/nope.js").expect_status(404);
    assert_eq!(missing.text(), "NOT_FOUND");
    assert_eq!(admin.get("/static/..%2fCargo.toml").status, 404);
}

/// A client that may not act wrote lines of 64 KB, as many as it wanted.
#[test]
fn requests_that_are_refused_cannot_fill_the_disk() {
    let audit = AuditLog::default();
    let mut admin = Admin::start_alone(&["--admin-user=carol", &audit.flag()]);
    let long = "x".repeat(15_000);
    let target = format!("/api/topics/{long}/{long}");
    let user = format!("X-Forwarded-User: {long}");
    admin
        .ask("DELETE", &target, &[&user], "")
        .expect_error(403, "FORBIDDEN");
    let line = audit.text();
    assert!(line.len() < 1500, "{} bytes: {line}", line.len());
    let entry: serde_json::Value = serde_json::from_str(&line).unwrap();
    for key in ["user", "topic", "channel"] {
        let text = entry[key].as_str().unwrap();
        assert!(text.starts_with("xxx") && text.ends_with('…'), "{text}");
    }
    // Each request has its line in the log, which names only a part of a long address.
    let log = admin.wait_for_log("DELETE /api/topics/xxx");
    assert!(log.len() < 3000, "{} bytes", log.len());
    for _ in 0..300 {
        admin
            .delete("/api/topics/t", "")
            .expect_error(403, "FORBIDDEN");
    }
    let count = audit.lines().len();
    assert!(count < 200, "{count} lines of 301 requests");
    // No request is lost without a word.
    let refused = || {
        let metrics = admin.get("/metrics").text();
        let name = "nsqadmin_acts_total{action=\"delete\",result=\"refused\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::to_owned)
    };
    assert_eq!(refused().as_deref(), Some("301"));
    let is_told = || {
        admin.delete("/api/topics/t", "");
        audit
            .text()
            .contains("refused requests before this line have none")
    };
    assert!(wait_until(TIMEOUT, is_told));
    // Acts that are not refused always have their lines.
    let carol = ["X-Forwarded-User: carol"];
    admin
        .ask("DELETE", "/api/topics/mine", &carol, "")
        .expect_status(502);
    assert_eq!(audit.last()["topic"], "mine");
    // The requests since the last line were lost at the end of the process. One of them may have a line of its own.
    let have_no_line = || {
        let before = audit.lines().len();
        for _ in 0..3 {
            admin.delete("/api/topics/t", "");
        }
        audit.lines().len() == before
    };
    assert!(wait_until(TIMEOUT, have_no_line));
    admin.signal("TERM");
    assert!(admin.wait().success());
    let last = audit.last();
    assert_eq!(last["action"], "left_out");
    let message = last["message"].as_str().unwrap();
    assert!(message.ends_with("before this line have none"), "{message}");
}

/// Sends a request with another `Host` than the address.
fn ask_at(admin: &Admin, host: &str, request: (&str, &str), headers: &[&str]) -> Response {
    let (method, target) = request;
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let text = format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}Content-Length: 0\r\n\r\n"
    );
    let mut answer = Vec::new();
    let mut stream = admin.connect(text.as_bytes());
    stream.read_to_end(&mut answer).expect("an answer");
    parse(&answer, false).expect("HTTP")
}

/// The owner of a name lets it stand for 127.0.0.1. A page of this name was an admin of an nsqadmin on its visitor's
/// machine, also with `--admin-user`.
#[test]
fn a_page_whose_name_stands_for_this_machine_can_do_nothing() {
    let lookupd = Daemon::nsqlookupd(&[]);
    create_topic(&lookupd, "t");
    let admin = Admin::start_at(
        &[&lookupd],
        &["--admin-user=carol", "--allowed-host=nsq.lan"],
    );
    let port = admin.http.port();
    let delete = ("DELETE", "/api/topics/t");
    let settings = ("GET", "/api/settings");
    let carol = "X-Forwarded-User: carol";
    let proxy = "X-Forwarded-For: 192.0.2.1";
    let before = registrations(&lookupd);
    let evil = format!("evil.example:{port}");
    let origin = format!("Origin: http://{evil}");
    for request in [("GET", "/"), settings, ("PUT", "/config/log_level"), delete] {
        for headers in [
            &[][..],
            &[carol],
            &[carol, &origin],
            &[carol, &origin, proxy],
        ] {
            let answer = ask_at(&admin, &evil, request, headers);
            let message = "MISDIRECTED_HOST: evil.example is no name of this server; if it is one, start the server with \
                           --allowed-host=evil.example";
            answer.expect_error(421, message);
        }
    }
    assert_eq!(registrations(&lookupd), before, "nothing has changed");
    // A proxy on this machine that keeps the name, the names of this machine, and the flag.
    for host in [&evil, "nsq.lan", "localhost", "127.0.0.1:1"] {
        let answer = ask_at(&admin, host, settings, &[carol, proxy]);
        assert_eq!(answer.expect_status(200).json()["user"], "carol", "{host}");
    }
    let https = "Sec-Fetch-Site: same-origin";
    ask_at(&admin, &evil, delete, &[carol, &origin, proxy, https]).expect_status(200);
    assert_ne!(registrations(&lookupd), before);
}
