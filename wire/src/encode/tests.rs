use super::*;
use crate::decode::{ClientState, Context, Decoded, Decoder};
use crate::limits::Limits;

fn appended(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = b"before".to_vec();
    write(&mut out);
    assert!(out.starts_with(b"before"), "an encoder only appends");
    out.split_off(6)
}

#[test]
fn captured_frames() {
    assert_eq!(OK, b"\x00\x00\x00\x06\x00\x00\x00\x00\x4f\x4b");
    assert_eq!(
        HEARTBEAT,
        b"\x00\x00\x00\x0f\x00\x00\x00\x00\x5f\x68\x65\x61\x72\x74\x62\x65\x61\x74\x5f"
    );
    assert_eq!(
        appended(|out| error(out, &WireError::bad_protocol())),
        b"\x00\x00\x00\x12\x00\x00\x00\x01\x45\x5f\x42\x41\x44\x5f\x50\x52\x4f\x54\x4f\x43\x4f\x4c"
    );
    for (constant, data) in [
        (OK, "OK"),
        (CLOSE_WAIT, "CLOSE_WAIT"),
        (HEARTBEAT, "_heartbeat_"),
    ] {
        assert_eq!(appended(|out| response(out, data.as_bytes())), constant);
    }
}

#[test]
fn commands_have_their_bytes() {
    let topic = TopicName::new(b"t").unwrap();
    let channel = ChannelName::new(b"ch").unwrap();
    let id = MessageId(*b"18a2f03533269000");
    let check = |expected: &[u8], write: &dyn Fn(&mut Vec<u8>)| {
        let bytes = appended(write);
        assert_eq!(bytes, expected, "{}", bytes.escape_ascii());
        // The decoder of this crate accepts the bytes.
        let limits = Limits::default();
        let state = match bytes[0] {
            b'R' | b'F' | b'T' | b'C' => ClientState::Subscribed,
            _ => ClientState::Init,
        };
        let context = Context {
            state,
            heartbeats: true,
            tls_missing: false,
            // Old and new spellings of REQ both decode.
            req_uncounted: true,
            has_numbers: false,
            limits: &limits,
        };
        let decoded = Decoder::default().decode(&bytes, &context);
        assert!(
            matches!(decoded, Decoded::Command { consumed, .. } if consumed == bytes.len()),
            "{decoded:?}"
        );
    };
    check(b"IDENTIFY\n\0\0\0\x02{}", &|out| identify(out, b"{}"));
    check(b"AUTH\n\0\0\0\x03s\n ", &|out| auth(out, b"s\n "));
    check(b"SUB t ch\n", &|out| sub(out, topic, channel));
    check(b"PUB t\n\0\0\0\x02hi", &|out| publish(out, topic, b"hi"));
    check(b"DPUB t 1500\n\0\0\0\x02hi", &|out| {
        dpub(out, topic, Duration::from_micros(1_500_999), b"hi");
    });
    check(
        b"MPUB t\n\0\0\0\x0f\0\0\0\x02\0\0\0\x01a\0\0\0\x02bc",
        &|out| {
            mpub(out, topic, [&b"a"[..], b"bc"]);
        },
    );
    check(b"RDY 2500\n", &|out| rdy(out, 2500));
    check(b"FIN 18a2f03533269000\n", &|out| fin(out, &id));
    check(b"REQ 18a2f03533269000 90000\n", &|out| {
        req(out, &id, Duration::from_secs(90))
    });
    check(b"REQ 18a2f03533269000 0 uncounted\n", &|out| {
        req_uncounted(out, &id, Duration::from_micros(999))
    });
    check(b"TOUCH 18a2f03533269000\n", &|out| touch(out, &id));
    check(b"CLS\n", &cls);
    check(b"NOP\n", &nop);
}

#[test]
fn frames_decode() {
    let check = |input: &[u8], expected: FrameDecoded<'_>| {
        assert_eq!(decode_frame(input), expected, "{}", input.escape_ascii());
    };
    let frame = |kind, data, consumed| FrameDecoded::Frame {
        kind,
        data,
        consumed,
    };
    check(OK, frame(FrameType::Response, b"OK", 10));
    check(
        &[OK, b"more"].concat(),
        frame(FrameType::Response, b"OK", 10),
    );
    check(b"\0\0\0\x05\0\0\0\x01E", frame(FrameType::Error, b"E", 9));
    check(b"\0\0\0\x04\0\0\0\x02", frame(FrameType::Message, b"", 8));
    for end in 0..OK.len() {
        let needs = [4, 8, 10].into_iter().find(|needs| end < *needs).unwrap();
        check(&OK[..end], FrameDecoded::NeedMore(needs));
    }
    check(
        b"\x7f\xff\xff\xff\0\0\0\x02",
        FrameDecoded::NeedMore(0x8000_0003),
    );
    check(b"\0\0\0\x03", FrameDecoded::Bad);
    check(b"\0\0\0\0", FrameDecoded::Bad);
    check(b"\xff\xff\xff\xff", FrameDecoded::Bad);
    check(b"\0\0\0\x04\0\0\0\x03", FrameDecoded::Bad);
    check(b"HTTP/1.1", FrameDecoded::Bad);
}

#[test]
fn a_captured_session() {
    // Captured from nsqd: OK, OK, a message.
    let mut input: &[u8] = b"\x00\x00\x00\x06\x00\x00\x00\x00\x4f\x4b\
        \x00\x00\x00\x06\x00\x00\x00\x00\x4f\x4b\
        \x00\x00\x00\x20\x00\x00\x00\x02\x18\xea\x05\x64\x42\x42\x58\x1e\x00\x01\
        \x31\x38\x61\x32\x66\x32\x35\x30\x37\x35\x32\x36\x39\x30\x30\x30\x68\x69";
    let mut frames = Vec::new();
    while let FrameDecoded::Frame {
        kind,
        data,
        consumed,
    } = decode_frame(input)
    {
        frames.push((kind, data));
        input = &input[consumed..];
    }
    assert_eq!(input, b"");
    let [
        (FrameType::Response, b"OK"),
        (FrameType::Response, b"OK"),
        (FrameType::Message, data),
    ] = frames[..]
    else {
        panic!("{frames:?}");
    };
    let message = crate::frame::Message::parse(data).unwrap();
    assert_eq!((message.attempts, message.body), (1, &b"hi"[..]));
    assert_eq!(message.id, MessageId(*b"18a2f25075269000"));
}
