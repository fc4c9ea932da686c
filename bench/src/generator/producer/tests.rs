use super::*;
use crate::generator::pace::Pace;
use crate::scenario::Arrivals;
use crate::scenario::header::Decoded;
use crate::scenario::span::Span;
use wire::command::Command;
use wire::decode::{ClientState, Context, Decoder};
use wire::limits::Limits;

const SECOND: u64 = 1_000_000_000;

fn settings(via: Via, window: Option<u32>) -> Arc<PublishSettings> {
    let filler = vec![7; 500];
    let sizes = vec![Filler::new(&filler, 0), Filler::new(&filler, 100)];
    Arc::new(PublishSettings {
        scenario: Scenario {
            via,
            batch: 3,
            defer: Span::from_millis(1500),
            window: window.unwrap_or(1000),
            ..Scenario::default()
        },
        topics: vec!["a".into(), "b".into()],
        host: "h".into(),
        filler,
        sizes,
    })
}

fn producer(via: Via, window: Option<u32>, limit: u64) -> Producer {
    let pace = Pace {
        commands_per_s: 10.0,
        arrivals: Arrivals::Even,
        offset: 0.0,
        curve: None,
        seed: 1,
    };
    let pace = window.is_none().then_some(pace);
    let mut producer = Producer::new(settings(via, window), 9, (0, 1), pace, limit);
    producer.begin(SECOND, SECOND..2 * SECOND);
    producer
}

/// The messages in V2 commands, as (topic, number, intended time).
fn commands(mut output: &[u8]) -> Vec<(String, u64, u64)> {
    let limits = Limits::default();
    let context = Context {
        state: ClientState::Init,
        heartbeats: true,
        tls_missing: false,
        req_uncounted: false,
        has_numbers: false,
        limits: &limits,
    };
    let mut found = Vec::new();
    while !output.is_empty() {
        let wire::decode::Decoded::Command { command, consumed } =
            Decoder::default().decode(output, &context)
        else {
            panic!("no command: {:?}", output.escape_ascii().to_string());
        };
        let mut add = |topic: &str, body: &[u8]| match Header::decode(body) {
            Decoded::Intact(header) => {
                assert_eq!(header.producer, 9 << 16);
                found.push((topic.to_string(), header.number, header.intended_ns));
            }
            other => panic!("{other:?}"),
        };
        match command {
            Command::Pub { topic, body, .. } => add(topic.as_str(), body),
            Command::Dpub {
                topic, defer, body, ..
            } => {
                assert_eq!(defer.as_millis(), 1500);
                add(topic.as_str(), body);
            }
            Command::Mpub { topic, batch, .. } => {
                batch.iter().for_each(|body| add(topic.as_str(), body));
            }
            other => panic!("{other:?}"),
        }
        output = &output[consumed..];
    }
    found
}

#[test]
fn an_open_loop_sends_what_is_due_with_its_intended_time() {
    for via in [Via::Pub, Via::Dpub] {
        let mut producer = producer(via, None, u64::MAX);
        let (mut output, mut tally) = (Vec::new(), Tally::default());
        let wait = producer.publish(SECOND, &mut output, &mut tally);
        assert_eq!(wait, Wait::Until(SECOND + SECOND / 10));
        // It slept too long: three are due, and they keep their times.
        let wait = producer.publish(SECOND + 350_000_000, &mut output, &mut tally);
        assert_eq!(wait, Wait::Until(SECOND + 400_000_000));
        let sent = commands(&output);
        let times: Vec<u64> = sent.iter().map(|message| message.2 - SECOND).collect();
        assert_eq!(times, [0, 100_000_000, 200_000_000, 300_000_000]);
        let topics: Vec<&str> = sent.iter().map(|message| message.0.as_str()).collect();
        assert_eq!(topics, ["a", "b", "a", "b"]);
        assert_eq!(tally.counts.sent_bytes, 2 * (28 + 128));
        let late = tally.of(HistogramKind::Lateness).measured.max();
        assert!((249_000_000..252_000_000).contains(&late), "{late}");
        // OK at 1.4 s: latency counts from the intended time.
        let input = wire::encode::OK.repeat(4);
        let now_ns = SECOND + 400_000_000;
        let handled = producer.answers(&input, now_ns, &mut output, &mut tally);
        assert_eq!(handled, Ok(input.len()));
        let slowest = tally.of(HistogramKind::Publish).measured.max();
        assert!((399_000_000..401_000_000).contains(&slowest), "{slowest}");
        assert_eq!(producer.acknowledged(), 4);
        let wait = producer.publish(2 * SECOND, &mut output, &mut tally);
        assert_eq!(wait, Wait::Done);
        assert_eq!(producer.record().sent, 10);
    }
}

#[test]
fn a_full_socket_is_not_the_generator_s_lateness() {
    let mut producer = producer(Via::Pub, None, u64::MAX);
    let mut full = vec![0; OUTPUT_BYTES_MAX];
    let mut tally = Tally::default();
    let wait = producer.publish(SECOND, &mut full, &mut tally);
    assert_eq!(wait, Wait::Daemon);
    let mut output = Vec::new();
    let _ = producer.publish(SECOND + 500_000_000, &mut output, &mut tally);
    assert_eq!(tally.of(HistogramKind::Lateness).measured.max(), 0);
    assert_eq!(tally.of(HistogramKind::Lateness).measured.len(), 6);
}

#[test]
fn a_closed_loop_keeps_its_window() {
    let mut producer = producer(Via::Mpub, Some(5), 10);
    let (mut output, mut tally) = (Vec::new(), Tally::default());
    let mut sent = Vec::new();
    for round in 0.. {
        let wait = producer.publish(SECOND, &mut output, &mut tally);
        sent.extend(commands(&output));
        output.clear();
        if wait == Wait::Done {
            break;
        }
        assert_eq!(wait, Wait::Daemon);
        assert!(producer.awaits_answer() && round < 10);
        let handled = producer.answers(wire::encode::OK, SECOND, &mut output, &mut tally);
        assert_eq!(handled, Ok(10));
    }
    let numbers: Vec<u64> = sent.iter().map(|message| message.1).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<u64>>());
    assert!(tally.of(HistogramKind::Lateness).measured.is_empty());
}

#[test]
fn refusals_and_silence_are_told_apart() {
    let mut producer = producer(Via::Pub, Some(100), 3);
    let (mut output, mut tally) = (Vec::new(), Tally::default());
    let wait = producer.publish(SECOND, &mut output, &mut tally);
    assert_eq!(wait, Wait::Done);
    let mut input = wire::encode::OK.to_vec();
    let refused = wire::error::WireError::pub_failed("PUB", "exiting");
    wire::encode::error(&mut input, &refused);
    input.extend_from_slice(wire::encode::HEARTBEAT);
    output.clear();
    let handled = producer.answers(&input, SECOND, &mut output, &mut tally);
    assert_eq!((handled, &output[..]), (Ok(input.len()), &b"NOP\n"[..]));
    let record = producer.record();
    assert_eq!(record.sent, 3);
    let only = |ranges: &[Range<u64>]| (ranges.len() == 1).then(|| ranges[0].clone());
    assert_eq!(only(&record.refused), Some(1..2));
    assert_eq!(only(&record.unconfirmed), Some(2..3));
    assert_eq!(producer.acknowledged(), 1);
    // An error in words ends the connection.
    let mut fatal = Vec::new();
    wire::encode::error(&mut fatal, &wire::error::WireError::invalid("no"));
    for input in [&fatal, wire::encode::OK] {
        let handled = producer.answers(input, SECOND, &mut output, &mut tally);
        assert!(handled.is_err());
    }
}

#[test]
fn http_sends_one_request_at_a_time() {
    let mut producer = producer(Via::HttpMpub, None, u64::MAX);
    let (mut output, mut tally) = (Vec::new(), Tally::default());
    let now_ns = SECOND * 3 / 2;
    let wait = producer.publish(now_ns, &mut output, &mut tally);
    assert_eq!(wait, Wait::Daemon);
    let head_bytes = output.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    assert!(output.starts_with(b"POST /mpub?topic=a&binary=true HTTP/1.1\r\n"));
    let body = &output[head_bytes..];
    let batch = wire::command::Batch::parse_binary(body, &Limits::default()).unwrap();
    assert_eq!(batch.count(), 3);
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";
    let mut more = Vec::new();
    let handled = producer.answers(answer, now_ns, &mut more, &mut tally);
    assert_eq!(handled, Ok(answer.len()));
    assert_eq!(tally.counts.acknowledged, 3);
    let wait = producer.publish(now_ns, &mut more, &mut tally);
    assert_eq!(wait, Wait::Daemon);
    assert_eq!(producer.unsent(2 * SECOND), 3 * 8);
}

#[test]
fn a_producer_that_waits_for_the_others_answers_heartbeats() {
    let (heartbeat, mut output) = (wire::encode::HEARTBEAT, Vec::new());
    let input = [heartbeat, heartbeat, &heartbeat[..5]].concat();
    let mut producer = Producer::new(settings(Via::Pub, None), 9, (0, 1), None, u64::MAX);
    let mut answers =
        |input: &[u8]| producer.answers(input, SECOND, &mut output, &mut Tally::default());
    assert_eq!(answers(&input), Ok(2 * heartbeat.len()));
    assert!(answers(wire::encode::OK).is_err());
    assert_eq!(output, b"NOP\nNOP\n");
}
