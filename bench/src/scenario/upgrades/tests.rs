#[path = "../../../../wire/upgrade/tests/certificates/mod.rs"]
mod certificates;

use std::io::IoSlice;
use std::path::Path;

use super::*;
use crate::generator::link::Link;

/// The OK frame of a daemon.
const OK: &[u8] = b"\x00\x00\x00\x06\x00\x00\x00\x00OK";

fn tls_scenario(directory: &Path) -> Scenario {
    Scenario {
        tls: true,
        tls_ca: directory.join("ca.pem"),
        ..Scenario::default()
    }
}

/// Hands over what one side wants to send.
fn carry(from: &mut upgrade::Upgrades, to: &mut upgrade::Upgrades) -> Result<(), UpgradeError> {
    let wire = std::mem::take(&mut from.wire);
    let opened = to.open(&mut &wire[..], &mut [0; 4096])?;
    assert_eq!(opened, 0, "a handshake is no text");
    Ok(())
}

#[test]
fn a_link_is_upgraded_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut link = Link::new(stream);
    link.output.extend_from_slice(OK);
    assert!(!link.is_upgraded());
    link.upgrade(Upgrade::snappy()).unwrap();
    assert!(link.is_upgraded());
    // The bytes that were there wait as they were.
    assert_eq!((link.unsent(), link.output.len()), (OK.len(), 0));
    let mut sealed = upgrade::Upgrades::default();
    sealed.push(Upgrade::snappy());
    sealed.seal(&[IoSlice::new(b"behind")]).unwrap();
    let mut scratch = [b"answer", &sealed.wire[..]].concat();
    let part = 6..scratch.len();
    let opened = link.open_behind_upgrade(&mut scratch, part).unwrap();
    assert_eq!(&scratch[opened], b"behind");
}

#[test]
fn a_certificate_that_is_not_for_the_daemon_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    certificates::write(directory.path());
    certificates::write(other.path());
    let path = |name: &str| directory.path().join(name);
    let server_config = server_config(&path("server.pem"), &path("server-key.pem"), None).unwrap();
    let check = |scenario: &Scenario, address: &str| {
        let upgrades = Upgrades::new(scenario, address.parse().unwrap()).unwrap();
        let (mut client, mut server) = (upgrade::Upgrades::default(), upgrade::Upgrades::default());
        client.push(upgrades.upgrade(0).unwrap().unwrap());
        server.push(Upgrade::tls_server(&server_config).unwrap());
        carry(&mut client, &mut server).unwrap();
        let outcome = carry(&mut server, &mut client);
        if outcome.is_err() {
            // The alert tells the daemon.
            assert!(!client.wire.is_empty());
            assert!(carry(&mut client, &mut server).is_err());
        }
        outcome.map_err(|error| error.to_string())
    };
    let scenario = tls_scenario(directory.path());
    assert_eq!(check(&scenario, "127.0.0.1:1"), Ok(()));
    let refused = check(&scenario, "127.0.0.2:1").unwrap_err();
    assert!(refused.contains("not valid for name"), "{refused}");
    let named = Scenario {
        tls_name: "127.0.0.1".into(),
        ..scenario.clone()
    };
    assert_eq!(check(&named, "127.0.0.2:1"), Ok(()));
    let stranger = tls_scenario(other.path());
    let refused = check(&stranger, "127.0.0.1:1").unwrap_err();
    assert!(
        refused.contains("TLS: invalid peer certificate"),
        "{refused}"
    );
    let insecure = Scenario {
        tls: true,
        tls_insecure: true,
        ..Scenario::default()
    };
    assert_eq!(check(&insecure, "127.0.0.2:1"), Ok(()));
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    certificates::write(directory.path());
    let check = |change: &dyn Fn(&mut Scenario), words: &str| {
        let mut scenario = tls_scenario(directory.path());
        change(&mut scenario);
        let address = "127.0.0.1:4150".parse().unwrap();
        let error = Upgrades::new(&scenario, address).unwrap_err();
        assert!(error.contains(words), "{error}");
    };
    let path = |name: &str| directory.path().join(name);
    check(&|s| s.tls_ca = path("none.pem"), "none.pem");
    check(&|s| s.tls_ca = path("server-key.pem"), "no certificate");
    check(
        &|s| (s.tls_cert, s.tls_key) = (path("server.pem"), path("server.pem")),
        "private key",
    );
    check(&|s| s.tls_name = "not a name".into(), "--tls-name");
}

#[test]
fn what_is_granted_is_what_was_asked_for() {
    let scenario = |snappy, deflate| Scenario {
        snappy,
        deflate,
        ..Scenario::default()
    };
    let check = |scenario: &Scenario, asks: &str, answer: &str, words: &str| {
        let address = "127.0.0.1:4150".parse().unwrap();
        let upgrades = Upgrades::new(scenario, address).unwrap();
        let asked = upgrades.ask(serde_json::json!({"a": 1}));
        let [asked, asks] = [&asked[..], asks.as_bytes()]
            .map(|json| serde_json::from_slice::<serde_json::Value>(json).unwrap());
        assert_eq!(asked, asks);
        let outcome = upgrades.check_granted(answer.as_bytes());
        match outcome {
            Ok(()) => assert_eq!(words, "", "{answer}"),
            Err(error) => assert!(error.contains(words) && !words.is_empty(), "{error}"),
        }
    };
    let (plain, snappy, deflate) = (scenario(false, 0), scenario(true, 0), scenario(false, 7));
    check(&plain, "{\"a\":1}", "OK", "");
    check(&plain, "{\"a\":1}", "{\"snappy\":true}", "not asked for");
    let asks = "{\"a\":1,\"snappy\":true}";
    check(&snappy, asks, "{\"snappy\":true}", "");
    check(&snappy, asks, "{\"snappy\":false}", "does not grant snappy");
    check(&snappy, asks, "{}", "does not grant snappy");
    check(&snappy, asks, "OK", "does not grant snappy");
    check(&snappy, asks, "{", "not understood");
    let asks = "{\"a\":1,\"deflate\":true,\"deflate_level\":7}";
    check(&deflate, asks, "{\"deflate\":true,\"deflate_level\":7}", "");
    check(
        &deflate,
        asks,
        "{\"deflate\":false}",
        "does not grant deflate",
    );
    check(
        &deflate,
        asks,
        "{\"deflate\":true,\"deflate_level\":6}",
        "level 6, not 7",
    );
    let insecure = Scenario {
        tls: true,
        tls_insecure: true,
        ..snappy
    };
    let asks = "{\"a\":1,\"tls_v1\":true,\"snappy\":true}";
    check(&insecure, asks, "{\"snappy\":true}", "does not grant TLS");
    check(&insecure, asks, "{\"snappy\":true,\"tls_v1\":true}", "");
}
