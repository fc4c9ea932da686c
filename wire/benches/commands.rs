//! Measures the decoding of each command from a buffer with many commands, like that of a busy
//! connection. Also measures the encoding and decoding of message ids. The throughput column has
//! the times per item.

use std::hint::black_box;
use std::time::Duration;

use divan::Bencher;
use divan::counter::ItemsCount;
use wire::decode::{ClientState, Context, Decoded, Decoder};
use wire::encode;
use wire::frame::{HEADER_BYTES, write_header};
use wire::id::{MessageId, Seq};
use wire::identify::{ClientSettings, IdentifyRequest, ServerSettings, negotiate};
use wire::limits::Limits;
use wire::name::{ChannelName, TopicName, is_valid_name};

/// The number of commands in a buffer: enough to hide the cost of the loop, and few enough to stay
/// in the cache.
const COMMANDS: usize = 64;
/// The number of messages in one MPUB.
const BATCH: usize = 200;
/// A body of the size for which the message path is designed.
const BODY: [u8; 200] = [b'x'; 200];

fn main() {
    divan::main();
}

/// Decodes `COMMANDS` commands that `write` produces, in a state in which they are allowed.
fn decode(bencher: Bencher<'_, '_>, state: ClientState, write: impl Fn(&mut Vec<u8>, usize)) {
    let mut input = Vec::new();
    for index in 0..COMMANDS {
        write(&mut input, index);
    }
    let limits = Limits::default();
    let context = Context {
        state,
        heartbeats: true,
        tls_missing: false,
        req_uncounted: false,
        has_numbers: false,
        limits: &limits,
    };
    bencher.counter(ItemsCount::new(COMMANDS)).bench(|| {
        let mut decoder = Decoder::default();
        let mut rest = black_box(&input[..]);
        while let Decoded::Command { command, consumed } = decoder.decode(rest, &context) {
            black_box(command);
            rest = &rest[consumed..];
        }
        assert!(rest.is_empty());
    });
}

fn topic() -> TopicName<'static> {
    TopicName::new(b"orders.created").expect("valid")
}

fn id(index: usize) -> MessageId {
    MessageId::new(Seq(1_733_638_206_652_416 + index as u64), 1)
}

#[divan::bench]
fn fin(bencher: Bencher<'_, '_>) {
    decode(bencher, ClientState::Subscribed, |out, index| {
        encode::fin(out, &id(index))
    });
}

#[divan::bench]
fn touch(bencher: Bencher<'_, '_>) {
    decode(bencher, ClientState::Subscribed, |out, index| {
        encode::touch(out, &id(index))
    });
}

#[divan::bench]
fn req(bencher: Bencher<'_, '_>) {
    let timeout = Duration::from_secs(90);
    decode(bencher, ClientState::Subscribed, |out, index| {
        encode::req(out, &id(index), timeout)
    });
}

#[divan::bench]
fn rdy(bencher: Bencher<'_, '_>) {
    decode(bencher, ClientState::Subscribed, |out, _| {
        encode::rdy(out, 2500)
    });
}

#[divan::bench]
fn nop(bencher: Bencher<'_, '_>) {
    decode(bencher, ClientState::Init, |out, _| encode::nop(out));
}

#[divan::bench]
fn cls(bencher: Bencher<'_, '_>) {
    decode(bencher, ClientState::Subscribed, |out, _| encode::cls(out));
}

#[divan::bench]
fn sub(bencher: Bencher<'_, '_>) {
    let channel = ChannelName::new(b"billing#ephemeral").expect("valid");
    decode(bencher, ClientState::Init, |out, _| {
        encode::sub(out, topic(), channel)
    });
}

#[divan::bench]
fn publish(bencher: Bencher<'_, '_>) {
    decode(bencher, ClientState::Init, |out, _| {
        encode::publish(out, topic(), &BODY)
    });
}

#[divan::bench]
fn dpub(bencher: Bencher<'_, '_>) {
    let defer = Duration::from_secs(90);
    decode(bencher, ClientState::Init, |out, _| {
        encode::dpub(out, topic(), defer, &BODY)
    });
}

#[divan::bench]
fn auth(bencher: Bencher<'_, '_>) {
    decode(bencher, ClientState::Init, |out, _| {
        encode::auth(out, b"secret")
    });
}

#[divan::bench]
fn identify(bencher: Bencher<'_, '_>) {
    decode(bencher, ClientState::Init, |out, _| {
        encode::identify(out, IDENTIFY)
    });
}

/// Measures one command with many messages. The items are the messages.
#[divan::bench]
fn mpub(bencher: Bencher<'_, '_>) {
    let mut input = Vec::new();
    encode::mpub(&mut input, topic(), [BODY; BATCH]);
    let limits = Limits::default();
    let context = Context {
        state: ClientState::Init,
        heartbeats: true,
        tls_missing: false,
        req_uncounted: false,
        has_numbers: false,
        limits: &limits,
    };
    bencher.counter(ItemsCount::new(BATCH)).bench(|| {
        let mut decoder = Decoder::default();
        let decoded = decoder.decode(black_box(&input), &context);
        assert!(matches!(decoded, Decoded::Command { .. }));
        decoded
    });
}

/// The IDENTIFY of go-nsq.
const IDENTIFY: &[u8] = br#"{"client_id":"host-a","deflate":false,"deflate_level":6,
    "feature_negotiation":true,"heartbeat_interval":30000,"hostname":"host-a.example.com",
    "long_id":"host-a.example.com","msg_timeout":0,"output_buffer_size":16384,
    "output_buffer_timeout":250,"sample_rate":0,"short_id":"host-a","snappy":false,"tls_v1":false,
    "user_agent":"go-nsq/1.1.0"}"#;

/// Measures parsing the request and encoding the answer.
#[divan::bench]
fn identify_negotiate() {
    let server = ServerSettings::default();
    let request = IdentifyRequest::decode(black_box(IDENTIFY)).expect("valid");
    let mut client = ClientSettings::from_server(&server);
    black_box(negotiate(&request, &server, &mut client)).expect("within limits");
}

#[divan::bench]
fn name_valid(bencher: Bencher<'_, '_>) {
    bencher.bench(|| is_valid_name(black_box(b"orders.created")));
}

#[divan::bench]
fn id_encode(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(COMMANDS)).bench(|| {
        for index in 0..COMMANDS {
            black_box(id(black_box(index)));
        }
    });
}

#[divan::bench]
fn id_decode(bencher: Bencher<'_, '_>) {
    let ids: Vec<MessageId> = (0..COMMANDS).map(id).collect();
    bencher.counter(ItemsCount::new(COMMANDS)).bench(|| {
        for id in &ids {
            black_box(black_box(id).decode());
        }
    });
}

#[divan::bench]
fn frame_header(bencher: Bencher<'_, '_>) {
    let id = id(0);
    bencher.counter(ItemsCount::new(COMMANDS)).bench(|| {
        let mut header = [0; HEADER_BYTES];
        for index in 0..COMMANDS {
            write_header(&mut header, 200, black_box(index as i64), 1, black_box(&id));
            black_box(&header);
        }
    });
}
