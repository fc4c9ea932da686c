use bytes::BufMut;
use proptest::prelude::*;
use wire::encode;

use super::*;

fn frame(kind: i32, data: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_i32(i32::try_from(data.len() + 4).unwrap());
    frame.put_i32(kind);
    frame.extend_from_slice(data);
    frame
}

fn message(number: u16, body: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    data.put_i64(i64::from(number) * 1000);
    data.put_u16(number);
    data.extend_from_slice(format!("{number:016}").as_bytes());
    data.extend_from_slice(body);
    frame(2, &data)
}

/// Describes everything that the buffer has, up to the first error.
fn drain(buffer: &mut FrameBuffer, found: &mut Vec<String>) -> Result<(), ConnectionError> {
    while let Some(incoming) = buffer.next()? {
        match incoming {
            Incoming::Response(data) => found.push(format!("response {data:?}")),
            Incoming::Error(data) => found.push(format!("error {data:?}")),
            Incoming::Messages(batch) => {
                assert!(batch.len() > 0, "a batch has a message");
                found.extend(batch.map(|message| {
                    let RawMessage {
                        timestamp_ns,
                        attempts,
                        id,
                        body,
                    } = message;
                    let id = String::from_utf8_lossy(id.as_bytes()).into_owned();
                    format!("message {timestamp_ns} {attempts} {id} {body:?}")
                }));
            }
        }
    }
    Ok(())
}

fn feed(buffer: &mut FrameBuffer, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let space = buffer.space();
        let taken = bytes.len().min(space.capacity() - space.len());
        assert!(taken > 0, "there is always space");
        space.extend_from_slice(&bytes[..taken]);
        bytes = &bytes[taken..];
    }
}

fn error_of(bytes: &[u8], size_max: usize) -> ConnectionError {
    let mut buffer = FrameBuffer::new(size_max);
    feed(&mut buffer, bytes);
    drain(&mut buffer, &mut Vec::new()).expect_err("the bytes are wrong")
}

#[test]
fn consecutive_messages_are_one_batch_without_copies() {
    let mut buffer = FrameBuffer::new(usize::MAX);
    let mut bytes = message(1, b"a");
    bytes.extend(message(2, b"b"));
    bytes.extend_from_slice(encode::HEARTBEAT);
    bytes.extend(message(3, b"c"));
    bytes.extend(&message(4, b"d")[..20]);
    feed(&mut buffer, &bytes);
    let start = buffer.bytes.as_ptr();
    let Some(Incoming::Messages(mut batch)) = buffer.next().unwrap() else {
        panic!("messages come first");
    };
    assert_eq!(batch.len(), 2);
    let first = batch.next().unwrap();
    assert_eq!(first.body, b"a"[..]);
    assert_eq!(first.body.as_ptr(), start.wrapping_add(HEADER_BYTES));
    assert!(matches!(
        buffer.next().unwrap(),
        Some(Incoming::Response(_))
    ));
    let Some(Incoming::Messages(batch)) = buffer.next().unwrap() else {
        panic!("a third message follows");
    };
    assert_eq!(batch.len(), 1);
    assert!(buffer.next().unwrap().is_none());
}

#[test]
fn wrong_frames_are_named() {
    let http = &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..];
    for (bytes, size_max, expected) in [
        (http, usize::MAX, "HttpEndpoint"),
        (http, 1024, "HttpEndpoint"),
        (&[0, 0, 0, 3, 0, 0, 0, 0], 99, "FrameSize { announced: 3 }"),
        (&[0xff; 8], usize::MAX, "FrameSize { announced: -1 }"),
        (&frame(7, b"x"), 99, "FrameType { number: 7 }"),
        (
            &frame(0, &[0; 97]),
            100,
            "FrameTooLarge { bytes: 101, bytes_max: 100 }",
        ),
        (&frame(2, &[0; 25]), 99, "ShortMessage { bytes: 25 }"),
    ] {
        let error = error_of(bytes, size_max);
        assert_eq!(format!("{error:?}"), expected);
    }
    let text = error_of(http, 99).to_string();
    assert!(text.contains("a nsqd TCP endpoint is required"), "{text}");
}

#[test]
fn messages_before_a_wrong_frame_are_delivered() {
    let mut buffer = FrameBuffer::new(usize::MAX);
    let mut bytes = message(1, b"a");
    bytes.extend(frame(2, &[0; 25]));
    feed(&mut buffer, &bytes);
    let mut found = Vec::new();
    drain(&mut buffer, &mut found).unwrap_err();
    assert_eq!(found.len(), 1);
}

#[test]
fn an_announced_size_alone_takes_no_memory() {
    let mut buffer = FrameBuffer::new(usize::MAX);
    feed(&mut buffer, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 2]);
    assert!(buffer.next().unwrap().is_none());
    let space = buffer.space();
    assert!(space.capacity() < 1024 * 1024, "{}", space.capacity());
}

proptest! {
    #[test]
    fn cuts_change_nothing(
        sizes in proptest::collection::vec((0..3_i32, 0..70_000_usize), 1..12),
        cuts in proptest::collection::vec(1..40_000_usize, 1..40),
    ) {
        let mut bytes = Vec::new();
        for (number, (kind, size)) in sizes.iter().enumerate() {
            let body = vec![b'a' + number as u8; *size];
            match kind {
                2 => bytes.extend(message(number as u16, &body)),
                kind => bytes.extend(frame(*kind, &body)),
            }
        }
        let (mut whole, mut expected) = (FrameBuffer::new(usize::MAX), Vec::new());
        feed(&mut whole, &bytes);
        drain(&mut whole, &mut expected).unwrap();
        prop_assert_eq!(expected.len(), sizes.len());
        let (mut cut, mut found) = (FrameBuffer::new(usize::MAX), Vec::new());
        let mut rest = &bytes[..];
        for size in cuts.iter().cycle() {
            let (piece, later) = rest.split_at((*size).min(rest.len()));
            feed(&mut cut, piece);
            drain(&mut cut, &mut found).unwrap();
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(found, expected);
    }
}
