use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::*;

/// The OK frame of a daemon.
const OK: &[u8] = b"\x00\x00\x00\x06\x00\x00\x00\x00OK";

/// Data that compress well, data that do not, and a piece longer than a snappy block.
fn pieces() -> Vec<Vec<u8>> {
    let mut random = crate::random::Random::new(7);
    let noise: Vec<u8> = (0..300).map(|_| random.bits() as u8).collect();
    vec![
        OK.to_vec(),
        b"the same again ".repeat(20),
        noise,
        vec![b'x'],
        Vec::new(),
    ]
}

fn sealed(mut layer: Layers, pieces: &[Vec<u8>]) -> Vec<u8> {
    for piece in pieces {
        layer.seal(piece).unwrap();
    }
    layer.wire
}

fn of(layer: Layer) -> Layers {
    let mut layers = Layers::default();
    layers.push(layer);
    layers
}

/// Everything that comes out when the parts go in.
fn opened(mut layers: Layers, parts: &[&[u8]]) -> Result<Vec<u8>, UpgradeError> {
    let (mut buffer, mut filled) = (Vec::new(), 0);
    for part in parts {
        let mut room = Room::behind(&mut buffer, filled);
        layers.open(part, &mut room)?;
        filled = room.filled;
    }
    buffer.truncate(filled);
    Ok(buffer)
}

/// Whatever the cut, the same comes out; and nothing before its cut waits for what comes later.
fn check_cuts(make: impl Fn() -> Layer) {
    let pieces = pieces();
    let plain = pieces.concat();
    let wire = sealed(of(make()), &pieces);
    for cut in 0..=wire.len() {
        let (front, behind) = wire.split_at(cut);
        assert_eq!(
            opened(of(make()), &[front, behind]).unwrap(),
            plain,
            "{cut}"
        );
    }
    let bytes: Vec<&[u8]> = wire.chunks(1).collect();
    assert_eq!(opened(of(make()), &bytes).unwrap(), plain);
    // Each write can be read without the next one.
    let mut sealing = of(make());
    for count in 1..=pieces.len() {
        sealing.seal(&pieces[count - 1]).unwrap();
        let plain = pieces[..count].concat();
        assert_eq!(opened(of(make()), &[&sealing.wire]).unwrap(), plain);
    }
    // Larger than any block, and compressed so well that one read becomes many.
    let long = vec![vec![0; 1_000_000], plain.repeat(500)];
    let wire = sealed(of(make()), &long);
    let parts: Vec<&[u8]> = wire.chunks(32 * 1024).collect();
    assert!(opened(of(make()), &parts).unwrap() == long.concat());
}

#[test]
fn compressed_streams_may_be_cut_at_every_byte() {
    check_cuts(Layer::snappy);
    for level in [1, 6, 9] {
        check_cuts(|| Layer::deflate(level));
    }
}

#[test]
fn the_answers_of_the_original_are_understood() {
    let snappy = b"\xff\x06\x00\x00sNaPpY\x01\x0e\x00\x00";
    let mut stream = snappy.to_vec();
    stream.extend_from_slice(&crc_of_ok());
    stream.extend_from_slice(OK);
    assert_eq!(opened(of(Layer::snappy()), &[&stream]).unwrap(), OK);
    assert_eq!(sealed(of(Layer::snappy()), &[OK.to_vec()]), stream);
    let deflate = b"\x62\x60\x60\x60\x63\x60\x60\x60\xf0\xf7\x06\x00\x00\x00\xff\xff";
    assert_eq!(opened(of(Layer::deflate(6)), &[deflate]).unwrap(), OK);
}

/// CRC-32C of the OK frame, bit by bit, masked as the format says.
fn crc_of_ok() -> [u8; 4] {
    let mut crc = u32::MAX;
    for byte in OK {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    let crc = !crc;
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[test]
fn what_is_no_stream_is_refused() {
    let check = |layer: Layer, stream: &[u8], words: &str| {
        let error = opened(of(layer), &[stream]).unwrap_err().to_string();
        assert!(error.contains(words), "{stream:?}: {error}");
    };
    let mut stream = sealed(of(Layer::snappy()), &[OK.to_vec()]);
    let identifier = stream[..10].to_vec();
    let behind = |bytes: &[u8]| [&identifier, bytes].concat();
    check(Layer::snappy(), &stream[10..], "identifier");
    check(Layer::snappy(), b"\xff\x06\x00\x00sNaPpX", "identifier");
    check(Layer::snappy(), &behind(b"\x02\x00\x00\x00"), "type 0x02");
    check(Layer::snappy(), &behind(b"\x7f\x00\x00\x00"), "type 0x7f");
    check(Layer::snappy(), &behind(b"\x01\x03\x00\x00abc"), "3 bytes");
    check(Layer::snappy(), &behind(b"\x01\x05\x00\x01"), "65541 bytes");
    check(
        Layer::snappy(),
        &behind(b"\x00\x00\x00\xff"),
        "16711680 bytes",
    );
    check(Layer::snappy(), &behind(b"\x00\x04\x00\x00abcd"), "snappy");
    // To be skipped, also when empty or long; and a second identifier.
    let mut skipped = behind(b"\x80\x02\x00\x00ab\xfe\x00\x00\x00");
    skipped.extend_from_slice(b"\xfe\x00\x00\x02");
    skipped.extend_from_slice(&[0; 0x2_0000]);
    skipped.extend_from_slice(&stream);
    assert_eq!(opened(of(Layer::snappy()), &[&skipped]).unwrap(), OK);
    for part in [1, 3, 70_000] {
        let parts: Vec<&[u8]> = skipped.chunks(part).collect();
        assert_eq!(opened(of(Layer::snappy()), &parts).unwrap(), OK);
    }
    *stream.last_mut().unwrap() ^= 1;
    check(Layer::snappy(), &stream, "checksum");
    check(Layer::deflate(6), b"\xff\xff\xff\xff", "deflate");
    // A final block, and something behind it.
    check(Layer::deflate(6), b"\x03\x00x", "end");
    assert!(
        opened(of(Layer::deflate(6)), &[b"\x03\x00"])
            .unwrap()
            .is_empty()
    );
}

/// A certificate authority and a certificate for 127.0.0.1, as files.
fn certificates(directory: &Path) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_string()]).unwrap();
    let cert = params.signed_by(&key, &ca).unwrap();
    for (name, pem) in [
        ("ca.pem", ca.pem()),
        ("cert.pem", cert.pem()),
        ("key.pem", key.serialize_pem()),
    ] {
        fs::write(directory.join(name), pem).unwrap();
    }
}

fn tls_scenario(directory: &Path) -> Scenario {
    Scenario {
        tls: true,
        tls_ca: directory.join("ca.pem"),
        ..Scenario::default()
    }
}

/// Hands over what one side wants to send, in parts of so many bytes; what came out.
fn carry(from: &mut Layers, to: &mut Layers, part: usize) -> Result<Vec<u8>, UpgradeError> {
    let (mut buffer, mut filled) = (Vec::new(), 0);
    for bytes in std::mem::take(&mut from.wire).chunks(part) {
        let mut room = Room::behind(&mut buffer, filled);
        to.open(bytes, &mut room)?;
        filled = room.filled;
    }
    buffer.truncate(filled);
    Ok(buffer)
}

#[test]
fn tls_and_what_is_in_it_may_be_cut_anywhere() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let path = |name: &str| directory.path().join(name);
    let server_config = server_config(&path("cert.pem"), &path("key.pem"), None).unwrap();
    let address = "127.0.0.1:4150".parse().unwrap();
    let base = tls_scenario(directory.path());
    for (snappy, deflate) in [(false, 0), (true, 0), (false, 6)] {
        let scenario = Scenario {
            snappy,
            deflate,
            ..base.clone()
        };
        let upgrades = Upgrades::new(&scenario, address).unwrap();
        for part in [1, 2, 7, 1000, 1 << 20] {
            let (mut client, mut server) = (Layers::default(), Layers::default());
            client.push(upgrades.layer(0).unwrap().unwrap());
            server.push(Layer::tls_server(&server_config).unwrap());
            // Before the handshake: it waits.
            server.seal(OK).unwrap();
            assert!(server.wire.is_empty());
            let mut answer = Vec::new();
            while answer.is_empty() {
                assert!(carry(&mut client, &mut server, part).unwrap().is_empty());
                answer = carry(&mut server, &mut client, part).unwrap();
            }
            assert_eq!(answer, OK);
            if let Some(layer) = upgrades.layer(1).unwrap() {
                client.push(layer);
                server.push(match snappy {
                    true => Layer::snappy(),
                    false => Layer::deflate(6),
                });
            }
            assert!(upgrades.layer(2).unwrap().is_none());
            for piece in [OK.to_vec(), b"a body ".repeat(9000), vec![1]] {
                server.seal(&piece).unwrap();
                assert!(carry(&mut server, &mut client, part).unwrap() == piece);
                client.seal(&piece).unwrap();
                assert!(carry(&mut client, &mut server, part).unwrap() == piece);
            }
        }
    }
}

#[test]
fn a_link_is_upgraded_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut link = crate::link::Link::new(stream);
    link.output.extend_from_slice(OK);
    assert!(!link.is_upgraded());
    link.upgrade(Layer::snappy()).unwrap();
    assert!(link.is_upgraded());
    // What was there waits as it was.
    assert_eq!((link.unsent(), link.output.len()), (OK.len(), 0));
    let stream = sealed(of(Layer::snappy()), &[b"behind".to_vec()]);
    let mut scratch = [b"answer", &stream[..]].concat();
    let part = 6..scratch.len();
    let opened = link.open_behind_upgrade(&mut scratch, part).unwrap();
    assert_eq!(&scratch[opened], b"behind");
}

#[test]
fn a_certificate_that_is_not_for_the_daemon_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    certificates(directory.path());
    certificates(other.path());
    let path = |name: &str| directory.path().join(name);
    let server_config = server_config(&path("cert.pem"), &path("key.pem"), None).unwrap();
    let check = |scenario: &Scenario, address: &str| {
        let upgrades = Upgrades::new(scenario, address.parse().unwrap()).unwrap();
        let (mut client, mut server) = (Layers::default(), Layers::default());
        client.push(upgrades.layer(0).unwrap().unwrap());
        server.push(Layer::tls_server(&server_config).unwrap());
        carry(&mut client, &mut server, 4096).unwrap();
        let outcome = carry(&mut server, &mut client, 4096).map(drop);
        if outcome.is_err() {
            // The alert tells the daemon.
            assert!(!client.wire.is_empty());
            assert!(carry(&mut client, &mut server, 4096).is_err());
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
    certificates(directory.path());
    let check = |change: &dyn Fn(&mut Scenario), words: &str| {
        let mut scenario = tls_scenario(directory.path());
        change(&mut scenario);
        let address = "127.0.0.1:4150".parse().unwrap();
        let error = Upgrades::new(&scenario, address).unwrap_err();
        assert!(error.contains(words), "{error}");
    };
    let path = |name: &str| directory.path().join(name);
    check(&|s| s.tls_ca = path("none.pem"), "none.pem");
    check(&|s| s.tls_ca = path("key.pem"), "no certificate");
    check(
        &|s| (s.tls_cert, s.tls_key) = (path("cert.pem"), path("cert.pem")),
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
        assert_eq!(upgrades.ask(b"{\"a\":1}"), asks.as_bytes());
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
