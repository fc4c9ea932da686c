//! The tables of topics that recognise messages hold up no turn: their memory comes from the system when it is first used,
//! and a large batch costs no more per message than a small one.

use crate::path::shell::{Counter, Part, Shell, messages, options};
use engine_rules::{ContentKey, ContentRule, DedupRule, DedupRules, KeyWindow, PublisherRule};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use wire::encode;
use wire::name::{ChannelName, TopicName};

/// Remembers the longest processor time of one call of the broker.
#[derive(Default)]
struct Longest(Duration);

impl Counter for Longest {
    fn count<R>(&mut self, _: Part, act: impl FnOnce() -> R) -> R {
        let began = cpu_time();
        let result = act();
        self.0 = self.0.max(cpu_time() - began);
        result
    }
}

/// The processor time of this thread: other programs on the machine do not count.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Regression: the first numbered message of a topic with `memory=1GiB` filled an index of 268 MB, which took more than a
/// tenth of a second.
#[test]
fn the_first_numbered_message_fills_no_table() {
    let (_, most) = PublisherRule::MEMORY_BOUNDS;
    let rule = PublisherRule {
        window: PublisherRule::WINDOW_BOUNDS.0,
        memory_bytes: most,
    };
    let mut rules = DedupRules::default();
    rules.add("*", DedupRule::Publisher(rule));
    let mut options = options();
    options.server.takes_numbers = true;
    options.topic.dedup = rules.into();
    let mut shell = Shell::new(Longest::default(), options);
    let topic = TopicName::new(b"orders").expect("a name");

    let consumer = shell.connect();
    let mut input = b"  V2".to_vec();
    encode::sub(
        &mut input,
        topic,
        ChannelName::new(b"bill").expect("a name"),
    );
    encode::rdy(&mut input, 10);
    shell.receive(Part::Deliver, consumer, &input);

    let producer = shell.connect();
    let mut input = b"  V2".to_vec();
    encode::identify(
        &mut input,
        br#"{"feature_negotiation":true,"publisher_id":"7f"}"#,
    );
    for number in [5, 5, 6] {
        encode::publish_numbered(&mut input, topic, number, b"x");
    }
    shell.receive(Part::Publish, producer, &input);
    shell.end_turn();
    shell.take_clients_to_flush(&mut Vec::new());
    let mut received = Vec::with_capacity(1 << 16);
    shell.take_output(consumer, &mut received);
    assert_eq!(messages(&received).count(), 2);
    let Longest(time) = shell.counter;
    assert!(time < Duration::from_millis(30), "{time:?}");
}

/// Regression: each message of a batch behind those that fill the window went through the list of all messages before. With
/// a window of 250,000 messages, an MPUB of 600,000 messages and 5 MB held up the shard for 49 s.
#[test]
fn a_batch_of_many_windows_is_judged_in_linear_time() {
    let rule = ContentRule::new(ContentKey::Body, KeyWindow::Count(100_000), None);
    let mut rules = DedupRules::default();
    rules.add("*", DedupRule::Content(rule.expect("it fits")));
    let mut options = options();
    options.topic.dedup = rules.into();
    let mut shell = Shell::new(Longest::default(), options);
    let topic = TopicName::new(b"orders").expect("a name");

    let producer = shell.connect();
    let mut input = b"  V2".to_vec();
    let bodies: Vec<[u8; 4]> = (0..300_000_u32).map(u32::to_be_bytes).collect();
    encode::mpub(&mut input, topic, &bodies);
    shell.receive(Part::Publish, producer, &input);
    let mut received = Vec::with_capacity(1 << 10);
    shell.take_output(producer, &mut received);
    assert!(received.ends_with(b"OK"));
    let Longest(time) = shell.counter;
    assert!(time < Duration::from_secs(4), "{time:?}");
}
