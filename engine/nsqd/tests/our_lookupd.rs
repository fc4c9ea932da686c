//! Our nsqd with our nsqlookupd, which runs inside the test.

use crate::ringq_lookupd::Lookupd;
use crate::support::{Broker, Certificates, PATIENT, TIMEOUT, http, wait_until};

impl Lookupd {
    /// Waits until `/lookup` shows these channels and as many producers as `ports`, each with one
    /// of these TCP ports.
    fn wait_for(&self, topic: &str, channels: &[&str], ports: &[u16]) {
        let target = format!("/lookup?topic={topic}");
        let mut text = String::new();
        let is_shown = || {
            let answer = http(self.server.http_address(), "GET", &target, b"");
            text = answer.text();
            if answer.status != 200 {
                return false;
            }
            let found = answer.json();
            let producers = found["producers"].as_array().expect("a list");
            let mut shown: Vec<u64> = producers
                .iter()
                .filter_map(|producer| producer["tcp_port"].as_u64())
                .collect();
            let mut wanted: Vec<u64> = ports.iter().map(|port| u64::from(*port)).collect();
            shown.sort_unstable();
            wanted.sort_unstable();
            found["channels"] == serde_json::json!(channels) && shown == wanted
        };
        assert!(wait_until(TIMEOUT, is_shown), "{topic}: {text}");
    }
}

#[test]
fn a_broker_is_found_as_long_as_it_lives() {
    let lookupd = Lookupd::local(&[]);
    let flag = lookupd.flag();
    let mut broker = Broker::start(2, &[&flag, "--broadcast-address=b1"]);
    let mut client = broker.client();
    client.publish("orders", b"x");
    client.subscribe("orders", "billing");
    lookupd.wait_for("orders", &["billing"], &[broker.tcp_addr().port()]);
    broker.kill9();
    lookupd.wait_for("orders", &["billing"], &[]);
    broker.restart();
    lookupd.wait_for("orders", &["billing"], &[broker.tcp_addr().port()]);

    // A new nsqlookupd hears everything again, at the next event or ping.
    let lookupd = lookupd.restart();
    broker.admin("/topic/create?topic=more");
    lookupd.wait_for("more", &[], &[broker.tcp_addr().port()]);
    lookupd.wait_for("orders", &["billing"], &[broker.tcp_addr().port()]);

    // A second broker makes the channels that the topic has elsewhere.
    let second = Broker::start(1, &[&flag, "--broadcast-address=b2"]);
    second.wait_for_log("): peer info {TCPPort:");
    second.admin("/topic/create?topic=orders");
    let both = [broker.tcp_addr().port(), second.tcp_addr().port()];
    lookupd.wait_for("orders", &["billing"], &both);
    assert!(second.channel_stats("orders", "billing").is_some());
    second.admin("/topic/delete?topic=orders");
    lookupd.wait_for("orders", &["billing"], &[broker.tcp_addr().port()]);
}

/// Registrations go over TLS if nsqd knows who signs the certificate of nsqlookupd. Each side
/// refuses a peer whose certificate nobody signed whom it knows.
#[test]
fn a_broker_registers_over_tls() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let lookupd = Lookupd::local(&[
        "--tls-tcp-address=127.0.0.1:0".to_owned(),
        "--tls-client-auth-policy=require-verify".to_owned(),
        certificates.flag("tls-root-ca-file", "ca.pem"),
        certificates.flag("tls-cert", "server.pem"),
        certificates.flag("tls-key", "server-key.pem"),
    ]);
    let address = lookupd.server.tls_tcp_address().expect("it listens");
    let broker = |roots: &Certificates, own: &Certificates, topic: &str| {
        let broker = Broker::start(
            1,
            &[
                &format!("--lookupd-tcp-address={address}"),
                "--https-address=",
                &roots.flag("lookupd-tls-root-ca-file", "ca.pem"),
                &own.flag("tls-cert", "client.pem"),
                &own.flag("tls-key", "client-key.pem"),
            ],
        );
        broker.admin(&format!("/topic/create?topic={topic}"));
        broker
    };
    let good = broker(&certificates, &certificates, "good");
    lookupd.wait_for("good", &[], &[good.tcp_addr().port()]);
    let deceived = broker(&others, &certificates, "deceived");
    deceived.wait_for_log(" - write tcp 127.0.0.1:");
    let stranger = broker(&certificates, &others, "stranger");
    stranger.wait_for_log("ERROR: LOOKUPD(");
    for topic in ["deceived", "stranger"] {
        let target = format!("/lookup?topic={topic}");
        http(lookupd.server.http_address(), "GET", &target, b"").expect_status(404);
    }
}

/// nsqlookupd tells its port of HTTPS, and an nsqd that registers over TLS asks there. One of the two nsqlookupds has a
/// certificate that is its own root.
#[test]
fn a_broker_that_registers_over_tls_asks_over_https() {
    let certificates = Certificates::new();
    let tls = [
        "--tls-tcp-address=127.0.0.1:0".to_owned(),
        "--tls-client-auth-policy=require-verify".to_owned(),
        certificates.flag("tls-root-ca-file", "ca.pem"),
        certificates.flag("tls-cert", "server.pem"),
        certificates.flag("tls-key", "server-key.pem"),
    ];
    let both = [
        &tls[..3],
        &[
            certificates.flag("tls-cert", "ca.pem"),
            certificates.flag("tls-key", "ca-key.pem"),
            "--https-address=127.0.0.1:0".to_owned(),
        ],
    ]
    .concat();
    let lookupd = Lookupd::local(&both);
    let without_https = Lookupd::local(&tls);
    for (lookupd, channel) in [(&lookupd, "safe"), (&without_https, "plain")] {
        let target = format!("/channel/create?topic=t&channel={channel}");
        // nsqlookupd makes the topic, too.
        http(lookupd.server.http_address(), "POST", &target, b"").expect_status(200);
    }
    let address = |lookupd: &Lookupd| lookupd.server.tls_tcp_address().expect("it listens");
    let broker = Broker::start(
        1,
        &[
            &format!("--lookupd-tcp-address={}", address(&lookupd)),
            &format!("--lookupd-tcp-address={}", address(&without_https)),
            "--https-address=",
            &certificates.flag("lookupd-tls-root-ca-file", "ca.pem"),
            &certificates.flag("tls-cert", "client.pem"),
            &certificates.flag("tls-key", "client-key.pem"),
            PATIENT[0],
            PATIENT[1],
        ],
    );
    for lookupd in [&lookupd, &without_https] {
        broker.wait_for_log(&format!("LOOKUPD({}): peer info", address(lookupd)));
    }
    let port = address(&without_https);
    broker.wait_for_log(&format!("WARNING: LOOKUPD({port}): tells no HTTPS port"));
    assert!(
        !broker
            .log()
            .contains(&format!("LOOKUPD({}): tells", address(&lookupd))),
        "{}",
        broker.log()
    );
    broker.admin("/topic/create?topic=t");
    for channel in ["safe", "plain"] {
        assert!(
            broker.channel_stats("t", channel).is_some(),
            "{}",
            broker.log()
        );
    }
    let https = lookupd.server.https_address().expect("it listens");
    broker.wait_for_log(&format!(
        "querying nsqlookupd https://{https}/channels?topic=t"
    ));
    let http = without_https.server.http_address();
    broker.wait_for_log(&format!(
        "querying nsqlookupd http://{http}/channels?topic=t"
    ));
}

/// nsqadmin takes a topic off a node with a tombstone and a deletion. If the topic is made again, consumers find it at
/// once.
#[test]
fn a_topic_that_is_made_again_has_no_tombstone() {
    let lookupds = [0; 2].map(|_| Lookupd::local(&[]));
    let flags = lookupds.each_ref().map(Lookupd::flag);
    let broker = Broker::start(2, &[&flags[0], &flags[1], "--broadcast-address=b1"]);
    let port = broker.tcp_addr().port();
    let node = format!("b1:{}", broker.http_addr().port());
    broker.admin("/topic/create?topic=t");
    for lookupd in &lookupds {
        lookupd.wait_for("t", &[], &[port]);
        let target = format!("/topic/tombstone?topic=t&node={node}");
        http(lookupd.server.http_address(), "POST", &target, b"").expect_status(200);
        lookupd.wait_for("t", &[], &[]);
    }
    broker.admin("/topic/delete?topic=t");
    broker.admin("/topic/create?topic=t");
    for lookupd in &lookupds {
        lookupd.wait_for("t", &[], &[port]);
        let nodes = http(lookupd.server.http_address(), "GET", "/nodes", b"").json();
        let producer = &nodes["producers"][0];
        assert_eq!(producer["topics"], serde_json::json!(["t"]));
        assert_eq!(producer["tombstones"], serde_json::json!([false]));
    }
}

/// The name can have two addresses, and nsqlookupd listens on one of them. The certificate has the name.
#[test]
fn a_broker_registers_at_a_name_over_tls() {
    let certificates = Certificates::new();
    let lookupd = Lookupd::local(&[
        "--tls-tcp-address=127.0.0.1:0".to_owned(),
        certificates.flag("tls-cert", "server.pem"),
        certificates.flag("tls-key", "server-key.pem"),
    ]);
    let address = lookupd.server.tls_tcp_address().expect("it listens");
    let broker = Broker::start(
        1,
        &[
            &format!("--lookupd-tcp-address=localhost:{}", address.port()),
            &certificates.flag("lookupd-tls-root-ca-file", "ca.pem"),
        ],
    );
    broker.admin("/topic/create?topic=t");
    lookupd.wait_for("t", &[], &[broker.tcp_addr().port()]);
}
