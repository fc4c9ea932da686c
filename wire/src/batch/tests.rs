use super::*;

/// Messages as they are packed on the wire.
fn pack(bodies: &[&[u8]]) -> Vec<u8> {
    let mut packed = Vec::new();
    for body in bodies {
        packed.extend((body.len() as i32).to_be_bytes());
        packed.extend(*body);
    }
    packed
}

fn binary(count: i32, packed: &[u8]) -> Vec<u8> {
    [&count.to_be_bytes()[..], packed].concat()
}

#[test]
fn a_batch_knows_its_messages() {
    let bodies: [&[u8]; 3] = [b"a", b"\0\0\0\x01", b"ccc"];
    let packed = pack(&bodies);
    let batch = Batch::from_packed(3, &packed).unwrap();
    assert_eq!((batch.count(), batch.body_bytes()), (3, 8));
    assert_eq!(batch.packed(), packed);
    assert_eq!(batch.iter().collect::<Vec<_>>(), bodies);
    let mut iter = batch.iter();
    for left in (0..3).rev() {
        assert!(iter.next().is_some());
        assert_eq!(iter.len(), left);
    }
    assert_eq!(iter.next(), None);
    assert!(batch.into_iter().eq(&batch));
}

#[test]
fn packed_must_be_exactly_the_messages() {
    let packed = pack(&[b"a", b"bb"]);
    let check = |count, packed: &[u8], expected: bool| {
        assert_eq!(
            Batch::from_packed(count, packed).is_some(),
            expected,
            "{count} {packed:?}"
        );
    };
    check(2, &packed, true);
    check(1, &packed, false);
    check(3, &packed, false);
    check(0, &packed, false);
    check(0, b"", false);
    for end in 0..packed.len() {
        check(2, &packed[..end], false);
    }
    check(1, b"\0\0\0\0", false);
    check(1, b"\xff\xff\xff\xffa", false);
}

#[test]
fn binary_bodies_of_http() {
    let limits = Limits {
        message_bytes_max: 3,
        body_bytes_max: 24,
        ..Limits::default()
    };
    let check = |body: &[u8], expected: Result<&[&[u8]], &str>| {
        let found = Batch::parse_binary(body, &limits);
        let found = found
            .map(|batch| batch.iter().collect::<Vec<_>>())
            .map_err(BatchError::as_str);
        assert_eq!(
            found,
            expected.map(<[_]>::to_vec),
            "{}",
            body.escape_ascii()
        );
    };
    let two: &[&[u8]] = &[b"a", b"bcd"];
    check(&binary(2, &pack(two)), Ok(two));
    // Bytes after the last message are ignored.
    check(&binary(1, &pack(two)), Ok(&two[..1]));
    // Four messages of one byte are the most that 24 bytes could hold.
    let five = [&b"a"[..]; 5];
    check(&binary(4, &pack(&five[..4])), Ok(&five[..4]));
    check(&binary(5, &pack(&five)), Err("BAD_BODY"));
    for count in [0, -1, i32::MIN, i32::MAX] {
        check(&binary(count, &pack(two)), Err("BAD_BODY"));
    }
    for short in [&b""[..], b"\0\0\0"] {
        check(short, Err("BAD_BODY"));
    }
    let whole = binary(2, &pack(two));
    for end in 4..whole.len() {
        check(&whole[..end], Err("BAD_MESSAGE"));
    }
    check(&binary(1, &pack(&[b""])), Err("BAD_MESSAGE"));
    check(&binary(1, &pack(&[b"abcd"])), Err("BAD_MESSAGE"));
    check(&binary(1, b"\xff\xff\xff\xff"), Err("BAD_MESSAGE"));
}
