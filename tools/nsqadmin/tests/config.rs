//! `GET /config/*` of every key of the table of flags. `differential/config.case` compares the keys of the original
//! with its answers.

use crate::support::Admin;
use nsqadmin::config::NSQADMIN;

/// The keys that the original lacks, and their values without flags.
const OWN: [(&str, &str); 21] = [
    ("log_format", "text"),
    ("trusted_proxy_cidr", "[\"127.0.0.0/8\",\"::1/128\"]"),
    ("allowed_origin", "[]"),
    ("allowed_host", "[]"),
    ("peek_bodies", "admins"),
    ("audit_log_file", ""),
    ("nsqd_url_map", "[]"),
    ("max_nodes", "1000"),
    ("max_answer_size", "67108864"),
    ("live_interval", "1000000000"),
    ("history_max_bytes", "268435456"),
    ("history_file", ""),
    ("https_address", ""),
    ("tls_cert", ""),
    ("tls_key", ""),
    ("tls_client_auth_policy", ""),
    ("tls_root_ca_file", ""),
    ("tls_min_version", "tls1.2"),
    ("http_read_timeout", "60000000000"),
    ("http_write_timeout", "60000000000"),
    ("nope", "{\"message\":\"INVALID_OPTION\"}"),
];

#[test]
fn every_key_has_its_value() {
    let admin = Admin::start(&["--nsqd-http-address=127.0.0.1:1"]);
    for key in NSQADMIN.flags.iter().filter_map(|flag| flag.key()) {
        let answer = admin.get(&format!("/config/{key}"));
        let has_value = answer.status == 200 && !answer.text().contains("message");
        // These are no options of the original either.
        let is_option = !["config", "verbose", "version"].contains(&key.as_str());
        assert_eq!(has_value, is_option, "{key}: {}", answer.text());
    }
    for key in NSQADMIN.own_flags.iter().filter_map(|flag| flag.key()) {
        let is_known = OWN.iter().any(|(own, _)| *own == key);
        assert!(is_known, "{key} is new: say here which value it has");
    }
    for (key, value) in OWN {
        assert_eq!(admin.get(&format!("/config/{key}")).text(), value, "{key}");
    }
    let given = Admin::start_alone(&[
        "--allowed-origin=https://a.example",
        "--allowed-origin=https://b.example",
        "--peek-bodies=nobody",
        "--live-interval=1500ms",
        "--max-nodes=7",
    ]);
    for (key, value) in [
        (
            "allowed_origin",
            "[\"https://a.example\",\"https://b.example\"]",
        ),
        ("peek_bodies", "nobody"),
        ("live_interval", "1500000000"),
        ("max_nodes", "7"),
    ] {
        assert_eq!(given.get(&format!("/config/{key}")).text(), value, "{key}");
    }
}

/// The client is at 127.0.0.1 in all cases.
#[test]
fn an_empty_range_lets_every_client_in() {
    for (range, status) in [("", 200), ("127.0.0.0/8", 200), ("10.0.0.0/8", 403)] {
        let flag = format!("--allow-config-from-cidr={range}");
        let admin = Admin::start_alone(&[&flag]);
        admin.get("/config/log_level").expect_status(status);
        let put = admin.ask("PUT", "/config/log_level", &[], "warn");
        put.expect_status(status);
    }
}
