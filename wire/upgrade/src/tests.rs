#[path = "../tests/certificates/mod.rs"]
mod certificates;

use std::path::Path;

use super::*;

/// The OK frame of a daemon.
const OK: &[u8] = b"\x00\x00\x00\x06\x00\x00\x00\x00OK";

/// Returns data that compress well, data that do not, and a piece longer than a snappy block.
fn pieces() -> Vec<Vec<u8>> {
    // Odd multiples of a prime do not repeat.
    let noise: Vec<u8> = (0..300u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    vec![
        OK.to_vec(),
        b"the same again ".repeat(20),
        noise,
        vec![b'x'],
        Vec::new(),
    ]
}

fn sealed(mut upgrade: Upgrades, pieces: &[Vec<u8>]) -> Vec<u8> {
    for piece in pieces {
        upgrade.seal(&[IoSlice::new(piece)]).unwrap();
    }
    upgrade.wire
}

fn of(upgrade: Upgrade) -> Upgrades {
    let mut upgrades = Upgrades::default();
    upgrades.push(upgrade);
    upgrades
}

/// Returns all plain bytes that `upgrades` makes of the parts.
fn opened(mut upgrades: Upgrades, parts: &[&[u8]]) -> Result<Vec<u8>, UpgradeError> {
    let mut out = Vec::new();
    for part in parts {
        out.extend(open(&mut upgrades, part, 1 << 16)?);
    }
    Ok(out)
}

/// Returns all plain bytes that `upgrades` makes of `wire`, in pieces of at most `space` bytes.
fn open(upgrades: &mut Upgrades, mut wire: &[u8], space: usize) -> Result<Vec<u8>, UpgradeError> {
    let (mut out, mut plain) = (Vec::new(), vec![0; space]);
    loop {
        let opened = upgrades.open(&mut wire, &mut plain)?;
        out.extend_from_slice(&plain[..opened]);
        if opened < space {
            assert!(wire.is_empty(), "who has room takes everything");
            return Ok(out);
        }
    }
}

/// Checks that every cut of a stream gives the same bytes, and that no bytes before a cut wait for
/// those behind it.
fn check_cuts(make: impl Fn() -> Upgrade) {
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
        sealing.seal(&[IoSlice::new(&pieces[count - 1])]).unwrap();
        let plain = pieces[..count].concat();
        assert_eq!(opened(of(make()), &[&sealing.wire]).unwrap(), plain);
    }
    // This piece is larger than any block, and compresses so well that one read becomes many.
    let long = vec![vec![0; 1_000_000], plain.repeat(500)];
    let wire = sealed(of(make()), &long);
    let parts: Vec<&[u8]> = wire.chunks(32 * 1024).collect();
    assert!(opened(of(make()), &parts).unwrap() == long.concat());
}

#[test]
fn compressed_streams_may_be_cut_at_every_byte() {
    check_cuts(Upgrade::snappy);
    for level in [1, 6, 9] {
        check_cuts(|| Upgrade::deflate(level));
    }
}

#[test]
fn the_answers_of_the_original_are_understood() {
    let snappy = b"\xff\x06\x00\x00sNaPpY\x01\x0e\x00\x00";
    let mut stream = snappy.to_vec();
    stream.extend_from_slice(&crc_of_ok());
    stream.extend_from_slice(OK);
    assert_eq!(opened(of(Upgrade::snappy()), &[&stream]).unwrap(), OK);
    assert_eq!(sealed(of(Upgrade::snappy()), &[OK.to_vec()]), stream);
    let deflate = b"\x62\x60\x60\x60\x63\x60\x60\x60\xf0\xf7\x06\x00\x00\x00\xff\xff";
    assert_eq!(opened(of(Upgrade::deflate(6)), &[deflate]).unwrap(), OK);
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
fn invalid_streams_are_refused() {
    let check = |upgrade: Upgrade, stream: &[u8], words: &str| {
        let error = opened(of(upgrade), &[stream]).unwrap_err().to_string();
        assert!(error.contains(words), "{stream:?}: {error}");
    };
    let mut stream = sealed(of(Upgrade::snappy()), &[OK.to_vec()]);
    let identifier = stream[..10].to_vec();
    let behind = |bytes: &[u8]| [&identifier, bytes].concat();
    check(Upgrade::snappy(), &stream[10..], "identifier");
    check(Upgrade::snappy(), b"\xff\x06\x00\x00sNaPpX", "identifier");
    check(Upgrade::snappy(), &behind(b"\x02\x00\x00\x00"), "type 0x02");
    check(Upgrade::snappy(), &behind(b"\x7f\x00\x00\x00"), "type 0x7f");
    check(
        Upgrade::snappy(),
        &behind(b"\x01\x03\x00\x00abc"),
        "3 bytes",
    );
    check(
        Upgrade::snappy(),
        &behind(b"\x01\x05\x00\x01"),
        "65541 bytes",
    );
    check(
        Upgrade::snappy(),
        &behind(b"\x00\x00\x00\xff"),
        "16711680 bytes",
    );
    check(
        Upgrade::snappy(),
        &behind(b"\x00\x04\x00\x00abcd"),
        "snappy",
    );
    // These chunks are skipped, also when empty or long. A second identifier follows.
    let mut skipped = behind(b"\x80\x02\x00\x00ab\xfe\x00\x00\x00");
    skipped.extend_from_slice(b"\xfe\x00\x00\x02");
    skipped.extend_from_slice(&[0; 0x2_0000]);
    skipped.extend_from_slice(&stream);
    assert_eq!(opened(of(Upgrade::snappy()), &[&skipped]).unwrap(), OK);
    for part in [1, 3, 70_000] {
        let parts: Vec<&[u8]> = skipped.chunks(part).collect();
        assert_eq!(opened(of(Upgrade::snappy()), &parts).unwrap(), OK);
    }
    *stream.last_mut().unwrap() ^= 1;
    check(Upgrade::snappy(), &stream, "checksum");
    check(Upgrade::deflate(6), b"\xff\xff\xff\xff", "deflate");
    // A final block has bytes behind it.
    check(Upgrade::deflate(6), b"\x03\x00x", "end");
    assert!(
        opened(of(Upgrade::deflate(6)), &[b"\x03\x00"])
            .unwrap()
            .is_empty()
    );
}

fn server_tls<'a>(cert: &'a Path, key: &'a Path) -> ServerTls<'a> {
    ServerTls {
        cert,
        key,
        clients: ClientTrust::Everybody,
        only_tls13: false,
    }
}

/// Carries the bytes of one side to the other in parts of `part` bytes. Returns the plain bytes.
fn carry(from: &mut Upgrades, to: &mut Upgrades, part: usize) -> Result<Vec<u8>, UpgradeError> {
    let mut out = Vec::new();
    for bytes in std::mem::take(&mut from.wire).chunks(part) {
        out.extend(open(to, bytes, 1 << 16)?);
    }
    Ok(out)
}

#[test]
fn tls_and_its_content_may_be_cut_anywhere() {
    let directory = tempfile::tempdir().unwrap();
    certificates::write(directory.path());
    let path = |name: &str| directory.path().join(name);
    let server_config =
        server_config(&server_tls(&path("server.pem"), &path("server-key.pem"))).unwrap();
    let client_config = client_config(&ClientTls {
        authorities: Some(authorities(&path("ca.pem")).unwrap()),
        ..ClientTls::default()
    })
    .unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    for compression in [
        None,
        Some(Upgrade::snappy as fn() -> Upgrade),
        Some(|| Upgrade::deflate(6)),
    ] {
        for part in [1, 2, 7, 1000, 1 << 20] {
            let (mut client, mut server) = (Upgrades::default(), Upgrades::default());
            client.push(Upgrade::tls_client(&client_config, name.clone()).unwrap());
            server.push(Upgrade::tls_server(&server_config).unwrap());
            // Bytes sealed before the handshake wait.
            server.seal(&[IoSlice::new(OK)]).unwrap();
            assert!(server.wire.is_empty());
            let mut answer = Vec::new();
            while answer.is_empty() {
                assert!(carry(&mut client, &mut server, part).unwrap().is_empty());
                answer = carry(&mut server, &mut client, part).unwrap();
            }
            assert_eq!(answer, OK);
            if let Some(upgrade) = compression {
                client.push(upgrade());
                server.push(upgrade());
            }
            for piece in [OK.to_vec(), b"a body ".repeat(9000), vec![1]] {
                server.seal(&[IoSlice::new(&piece)]).unwrap();
                assert!(carry(&mut server, &mut client, part).unwrap() == piece);
                client.seal(&[IoSlice::new(&piece)]).unwrap();
                assert!(carry(&mut client, &mut server, part).unwrap() == piece);
            }
        }
    }
}

proptest::proptest! {
    /// However the writes, the reads and the room are cut, the same bytes come out in order.
    #[test]
    fn nothing_depends_on_how_it_is_cut(
        pieces in proptest::collection::vec(
            (0..3000usize, proptest::prelude::any::<u8>()), 1..20),
        writes in proptest::collection::vec(1..5000usize, 1..5),
        rooms in proptest::collection::vec(1..5000usize, 1..5),
        compression in 0..3u32,
        with_tls in proptest::prelude::any::<bool>(),
    ) {
        let (mut client, mut server) = if with_tls {
shaken_hands()
} else {
Default::default()
};
        for side in [&mut client, &mut server] {
            match compression {
                0 => {}
                1 => side.push(Upgrade::snappy()),
                _ => side.push(Upgrade::deflate(6)),
            }
        }
        // Some of the data repeat, some do not.
        let piece = |(bytes, seed): &(usize, u8)| -> Vec<u8> {
            (0..*bytes).map(|n| (n * n / 7 % (1 + usize::from(*seed))) as u8).collect()
        };
        let pieces: Vec<Vec<u8>> = pieces.iter().map(piece).collect();
        for pair in pieces.chunks(2) {
            let slices: Vec<IoSlice<'_>> = pair.iter().map(|piece| IoSlice::new(piece)).collect();
            client.seal(&slices).unwrap();
        }
        let wire = std::mem::take(&mut client.wire);
        let (mut writes, mut rooms) = (writes.iter().cycle(), rooms.iter().cycle());
        let (mut out, mut rest) = (Vec::new(), &wire[..]);
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(rest.len().min(*writes.next().unwrap()));
            rest = behind;
            out.extend(open(&mut server, part, *rooms.next().unwrap()).unwrap());
        }
        proptest::prop_assert!(out == pieces.concat());
    }
}

/// Returns both sides of TLS after the handshake.
fn shaken_hands() -> (Upgrades, Upgrades) {
    static CONFIGS: std::sync::LazyLock<(Arc<ClientConfig>, Arc<ServerConfig>)> =
        std::sync::LazyLock::new(|| {
            let directory = tempfile::tempdir().unwrap();
            certificates::write(directory.path());
            let path = |name: &str| directory.path().join(name);
            let server =
                server_config(&server_tls(&path("server.pem"), &path("server-key.pem"))).unwrap();
            (client_config(&ClientTls::default()).unwrap(), server)
        });
    let (client_config, server_config) = &*CONFIGS;
    let (mut client, mut server) = (Upgrades::default(), Upgrades::default());
    let name = ServerName::try_from("127.0.0.1").unwrap();
    client.push(Upgrade::tls_client(client_config, name).unwrap());
    server.push(Upgrade::tls_server(server_config).unwrap());
    while client.is_handshaking() || server.is_handshaking() {
        carry(&mut client, &mut server, 1 << 14).unwrap();
        carry(&mut server, &mut client, 1 << 14).unwrap();
    }
    (client, server)
}

/// Data that grow a thousandfold by decompression come out in pieces of the given room.
#[test]
fn bytes_beyond_the_room_stay_compressed() {
    let zeros = vec![vec![0; 10_000_000]];
    for upgrade in [Upgrade::snappy as fn() -> Upgrade, || Upgrade::deflate(9)] {
        let wire = sealed(of(upgrade()), &zeros);
        let (mut upgrades, mut rest, mut plain) = (of(upgrade()), &wire[..], [0; 1000]);
        let before = rest.len();
        assert_eq!(upgrades.open(&mut rest, &mut plain).unwrap(), 1000);
        assert!(before - rest.len() < 80_000, "one chunk at most is taken");
        // Without further input `open` gives the bytes it holds, and no more.
        let mut given = 1000;
        while let bytes @ 1.. = upgrades.open(&mut &b""[..], &mut plain).unwrap() {
            given += bytes;
        }
        assert!(given <= 1 << 17, "{given}");
    }
}

/// pynsq ends the connection when it reads a record that decompresses to nothing, such as one that
/// holds only the last bytes of a flush.
#[test]
fn each_record_decompresses_to_something() {
    let mut random = 1u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 24) as u8
    })
    .take(40_000)
    .collect();
    // Noise does not shrink. Some of these lengths have a flush that ends just behind a full
    // record.
    for bytes in (16_300..16_400).chain(32_700..32_800) {
        let (mut client, mut server) = shaken_hands();
        client.push(Upgrade::deflate(6));
        server.push(Upgrade::deflate(6));
        server.seal(&[IoSlice::new(&noise[..bytes])]).unwrap();
        let mut out = Vec::new();
        let mut rest = &server.wire[..];
        while !rest.is_empty() {
            let record = 5 + usize::from(u16::from_be_bytes([rest[3], rest[4]]));
            let plain = open(&mut client, &rest[..record], 1 << 16).unwrap();
            assert!(!plain.is_empty(), "{bytes}: a record of {record} bytes");
            out.extend(plain);
            rest = &rest[record..];
        }
        assert!(out == noise[..bytes], "{bytes}");
    }
}
