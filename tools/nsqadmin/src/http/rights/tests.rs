use std::ffi::OsString;

use http_body_util::{BodyExt, Full};
use program::log::capture;
use serde_json::{Value, json};

use crate::config::Config;
use crate::http::{App, Request};
use crate::server;

/// Returns nsqadmin with these flags. It has no listener, so that a request can come from any address.
fn app(flags: &[&str]) -> App {
    let always = ["--nsqd-http-address=127.0.0.1:1", "--live-interval=0"];
    let args = always.iter().chain(flags).map(OsString::from);
    let config = Config::from_args(args).unwrap();
    let checked = config.check().unwrap();
    server::app(config, checked).unwrap()
}

/// Asks in the name of carol, and returns the status and the body.
async fn ask_as_carol(app: &App, peer: &str, method: &str, target: &str) -> (u16, Value) {
    let body = Full::new("".into()).map_err(|never| match never {});
    let request = http::Request::builder()
        .method(method)
        .uri(target)
        .header("X-Forwarded-User", "carol")
        .body(body.boxed())
        .unwrap();
    let answer = app.answer(Request::new(request, peer.parse().unwrap(), false));
    let (head, body) = answer.await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (
        head.status.as_u16(),
        serde_json::from_slice(&body).unwrap_or_default(),
    )
}

/// The header counted from every address without `--trusted-proxy-cidr`, so any client could name itself an admin.
#[tokio::test]
async fn a_user_counts_from_this_machine_only_unless_flags_name_other_proxies() {
    let check = async |flags: &[&str], peer: &str, is_trusted: bool| {
        let app = app(&[flags, &["--admin-user=carol"]].concat());
        let (_, settings) = ask_as_carol(&app, peer, "GET", "/api/settings").await;
        let expected = if is_trusted { "carol" } else { "" };
        assert_eq!(settings["user"], json!(expected), "{flags:?} {peer}");
        assert_eq!(settings["is_admin"], json!(is_trusted), "{flags:?} {peer}");
        let (status, _) = ask_as_carol(&app, peer, "DELETE", "/api/topics/t").await;
        // An admin's request reaches the nsqd, which does not answer.
        let expected = if is_trusted { 502 } else { 403 };
        assert_eq!(status, expected, "{flags:?} {peer}");
    };
    for peer in ["127.0.0.1:5", "127.9.9.9:5", "[::1]:5"] {
        check(&[], peer, true).await;
    }
    for peer in ["192.0.2.1:5", "10.0.0.1:5", "[2001:db8::1]:5"] {
        check(&[], peer, false).await;
        check(&["--trusted-proxy-cidr=0.0.0.0/0,::/0"], peer, true).await;
    }
    let own = ["--trusted-proxy-cidr=10.0.0.0/8"];
    check(&own, "10.0.0.1:5", true).await;
    check(&own, "127.0.0.1:5", false).await;
}

#[tokio::test]
async fn a_user_of_an_unknown_proxy_is_told_what_to_do_and_logged_once() {
    let app = app(&["--admin-user=carol"]);
    let reason = "the header x-forwarded-user from 192.0.2.1 does not count, because this address is no trusted \
                  proxy; if it is your proxy, add 192.0.2.1/32 to --trusted-proxy-cidr, beside 127.0.0.0/8,::1/128 if a \
                  proxy on this machine also counts";
    capture::start();
    for port in [5, 6] {
        let peer = format!("192.0.2.1:{port}");
        let (_, refused) = ask_as_carol(&app, &peer, "DELETE", "/api/topics/t").await;
        assert_eq!(refused["message"], json!(format!("FORBIDDEN: {reason}")));
        let (_, settings) = ask_as_carol(&app, &peer, "GET", "/api/settings").await;
        assert_eq!(settings["ignored_user"], json!(reason));
    }
    let log = capture::stop();
    let told = log
        .iter()
        .filter(|line| **line == format!("WARNING: {reason}"));
    assert_eq!(told.count(), 1, "{log:?}");
    let (_, settings) = ask_as_carol(&app, "127.0.0.1:5", "GET", "/api/settings").await;
    assert_eq!(settings["ignored_user"], json!(""));
}
