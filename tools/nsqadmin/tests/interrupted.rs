//! Acts whose client goes before the answer: they are carried out to the end, and have their line in the audit log.

use std::time::Duration;

use crate::support::Admin;
use test_support::http_server::{Answer, HttpServer};
use test_support::{TIMEOUT, wait_until};

#[test]
fn an_act_goes_on_without_its_client() {
    let nsqd = HttpServer::start(|request, _| {
        if request.target().starts_with("/topic/pause") {
            std::thread::sleep(Duration::from_millis(500));
        }
        match request.path() {
            "/info" => r#"{"broadcast_address":"n","http_port":1}"#.into(),
            "/stats" => r#"{"topics":[{"topic_name":"t","channels":[]}]}"#.into(),
            _ => "".into(),
        }
    });
    let endpoint = HttpServer::start(|_, _| Answer::status(200));
    let told = format!("--notification-http-endpoint={}", endpoint.url("/told"));
    let admin = Admin::start_direct([nsqd.address], &[&told, "--live-interval=0"]);
    let client = admin.connect(
        b"POST /api/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18\r\n\r\n{\"action\":\"pause\"}",
    );
    let is_paused = || {
        let requests = nsqd.requests();
        requests
            .iter()
            .any(|request| request.target().starts_with("/topic/pause"))
    };
    assert!(wait_until(TIMEOUT, is_paused));
    drop(client);
    let line = "AUDIT: pause_topic t by user";
    admin.wait_for_log(line);
    let told = endpoint.wait_for(1);
    assert!(told[0].text().contains("pause_topic"), "{told:?}");
}
