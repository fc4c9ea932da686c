use super::*;

/// A message frame, captured from nsqd.
const CAPTURED: &[u8] =
    b"\0\0\0\x1f\0\0\0\x02\x18\xea\x04\xdd\x71\xc0\x7d\xec\0\x0118a2f03533269000x";

#[test]
fn a_captured_message_frame_both_ways() {
    let message = Message::parse(&CAPTURED[DATA_AT..]).unwrap();
    let id = MessageId(*b"18a2f03533269000");
    let timestamp_ns = 0x18ea_04dd_71c0_7dec;
    assert_eq!(
        message,
        Message {
            timestamp_ns,
            attempts: 1,
            id,
            body: b"x"
        }
    );

    let mut header = [0xaa; HEADER_BYTES];
    write_header(&mut header, 1, timestamp_ns, 1, &id);
    assert_eq!(header, CAPTURED[..HEADER_BYTES]);
}

#[test]
fn patching_attempts_changes_nothing_else() {
    let mut header = *CAPTURED.first_chunk().unwrap();
    patch_attempts(&mut header, 0xfffe);
    let message = Message::parse(&header[DATA_AT..]).unwrap();
    assert_eq!((message.attempts, message.body), (0xfffe, &b""[..]));
    patch_attempts(&mut header, 1);
    assert_eq!(header, CAPTURED[..HEADER_BYTES]);
}

#[test]
fn short_data_are_no_message() {
    let data = &CAPTURED[DATA_AT..HEADER_BYTES];
    for end in 0..data.len() {
        assert_eq!(Message::parse(&data[..end]), None, "{end}");
    }
    assert!(Message::parse(data).is_some());
}

#[test]
fn the_largest_body_still_has_a_size() {
    let mut header = [0; HEADER_BYTES];
    write_header(
        &mut header,
        MESSAGE_BODY_BYTES_MAX,
        0,
        1,
        &MessageId([b'0'; 16]),
    );
    assert_eq!(header[..4], i32::MAX.to_be_bytes());
}

#[test]
fn types_have_their_numbers() {
    for kind in [FrameType::Response, FrameType::Error, FrameType::Message] {
        assert_eq!(FrameType::from_wire(kind as i32), Some(kind));
    }
    assert_eq!(FrameType::from_wire(3), None);
    assert_eq!(FrameType::from_wire(-1), None);
}
