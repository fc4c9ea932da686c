use super::*;
use crate::scenario::header::Filler;
use wire::frame::{self, HEADER_BYTES};
use wire::id::Seq;

const RUN: u16 = 3;

fn behaviour() -> Behaviour {
    Behaviour {
        scenario: Scenario::default(),
        run: Some(RUN),
        owns_topics: true,
    }
}

/// A message frame with this number of producer 0.
fn message(number: u64, attempts: u16) -> Vec<u8> {
    message_at(1000, number, attempts)
}

fn message_at(intended_ns: u64, number: u64, attempts: u16) -> Vec<u8> {
    let header = Header {
        producer: u32::from(RUN) << 16,
        number,
        intended_ns,
    };
    let body = header.encode(&Filler::new(&[], 0));
    let mut frame = [0; HEADER_BYTES];
    let id = MessageId::new(Seq(number + 1), 0);
    frame::write_header(&mut frame, body.len() as u32, 0, attempts, &id);
    [&frame[..], &body[..]].concat()
}

struct Bench {
    consumer: Consumer,
    output: Vec<u8>,
    tally: Tally,
    entries: Vec<LedgerEntry>,
    held: BinaryHeap<Reverse<(HeldMessage, usize)>>,
}

impl Bench {
    fn new(behaviour: Behaviour) -> Bench {
        Bench {
            consumer: Consumer::new(0, Arc::new(behaviour), 1),
            output: Vec::new(),
            tally: Tally::default(),
            entries: Vec::new(),
            held: BinaryHeap::new(),
        }
    }

    fn parts(&mut self, now_ns: u64) -> (&mut Consumer, CallContext<'_>) {
        let context = CallContext {
            now_ns,
            measured: 0..u64::MAX,
            output: &mut self.output,
            tally: &mut self.tally,
            entries: &mut self.entries,
            connection: 0,
            held: &mut self.held,
        };
        (&mut self.consumer, context)
    }

    fn frames(&mut self, input: &[u8]) -> Result<usize, String> {
        let (consumer, mut context) = self.parts(5000);
        consumer.frames(input, &mut context)
    }

    fn act_on_all(&mut self) {
        while let Some(Reverse((held, 0))) = self.held.pop() {
            let (consumer, mut context) = self.parts(held.due_ns);
            consumer.act(held, &mut context);
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

#[test]
fn the_fins_of_a_read_go_out_together() {
    let mut bench = Bench::new(behaviour());
    let mut input: Vec<u8> = (0..3).flat_map(|number| message(number, 1)).collect();
    let whole = input.len();
    input.extend_from_slice(wire::encode::HEARTBEAT);
    input.extend_from_slice(&message(3, 1)[..20]);
    let handled = bench.frames(&input).unwrap();
    assert_eq!(handled, whole + wire::encode::HEARTBEAT.len());
    let fins: Vec<String> = (1..=3)
        .map(|n| format!("FIN {}\n", MessageId::new(Seq(n), 0)))
        .collect();
    assert_eq!(bench.text(), fins.concat() + "NOP\n");
    assert_eq!(bench.tally.counts.delivered, 3);
    assert_eq!(bench.tally.of(HistogramKind::Delivery).measured.len(), 3);
    assert_eq!(bench.tally.of(HistogramKind::Delivery).measured.max(), 4001);
    assert_eq!(bench.entries.len(), 3);
}

#[test]
fn order_damage_and_strangers_are_noticed() {
    let mut bench = Bench::new(behaviour());
    let mut damaged = message(7, 1);
    *damaged.last_mut().unwrap() ^= 1;
    let input = [message(5, 1), message(4, 1), message(4, 2), damaged].concat();
    bench.frames(&input).unwrap();
    // A redelivery is behind by nature, and its latency is not the first delivery's.
    assert_eq!(bench.tally.counts.reordered, 1);
    assert_eq!(bench.tally.of(HistogramKind::Delivery).measured.len(), 2);
    assert_eq!(bench.entries[3], LedgerEntry::Damaged);
    assert_eq!(bench.tally.counts.answers.finished, 4);
    bench.consumer.behaviour = Arc::new(Behaviour {
        run: Some(RUN + 1),
        ..behaviour()
    });
    bench.entries.clear();
    bench.frames(&message(1, 1)).unwrap();
    assert_eq!((bench.tally.counts.foreign, bench.entries.len()), (1, 0));
    // Nobody waits for the messages of an earlier run: they would only come again and again.
    assert_eq!(bench.tally.counts.answers.finished, 5);
}

/// A message of an application was finished, and counted as one of ours that was corrupted.
#[test]
fn messages_of_others_are_given_back() {
    let mut frame = [0; HEADER_BYTES];
    let id = MessageId::new(Seq(1), 0);
    frame::write_header(&mut frame, 5, 0, 1, &id);
    let order = [&frame[..], b"order"].concat();
    for (run, owns_topics) in [(Some(RUN), false), (None, false), (None, true)] {
        let behaviour = Behaviour {
            run,
            owns_topics,
            ..behaviour()
        };
        let mut bench = Bench::new(behaviour);
        bench.frames(&order).unwrap();
        assert_eq!(bench.text(), format!("REQ {id} 60000\n"));
        let counts = bench.tally.counts;
        assert_eq!(
            (counts.foreign, counts.delivered, counts.answers.finished),
            (1, 0, 0)
        );
        assert!(bench.entries.is_empty());
    }
    // In a topic of the run's own, nobody else publishes.
    let mut bench = Bench::new(behaviour());
    bench.frames(&order).unwrap();
    assert_eq!(bench.entries, [LedgerEntry::Damaged]);
    assert_eq!(bench.tally.counts.answers.finished, 1);
}

/// A consumer whose clock is behind reported a latency of 0.
#[test]
fn messages_from_the_future_are_counted() {
    let mut bench = Bench::new(behaviour());
    bench.frames(&message(1, 1)).unwrap();
    assert_eq!(bench.tally.counts.from_future, 0);
    bench.frames(&message_at(7000, 0, 1)).unwrap();
    assert_eq!(bench.tally.counts.from_future, 1);
    assert_eq!(bench.tally.early_ns_max, 2000);
}

#[test]
fn work_ends_in_fin_req_touch_or_nothing() {
    let check = |change: fn(&mut Behaviour), entries: usize, counts: [u64; 4]| {
        let mut behaviour = behaviour();
        change(&mut behaviour);
        let mut bench = Bench::new(behaviour);
        bench.frames(&message(0, 1)).unwrap();
        bench.act_on_all();
        let c = bench.tally.counts.answers;
        assert_eq!(
            [c.finished, c.requeued, c.touched, c.left_to_time_out],
            counts
        );
        assert_eq!(bench.entries.len(), entries);
        assert!(bench.consumer.held.is_empty());
        // The second delivery is finished in any case.
        bench.frames(&message(0, 2)).unwrap();
        bench.act_on_all();
        assert_eq!(bench.tally.counts.answers.finished, counts[0] + 1);
    };
    check(
        |b| b.scenario.work = Work::Fixed(crate::scenario::span::Span::from_millis(1)),
        1,
        [1, 0, 0, 0],
    );
    check(|b| b.scenario.requeue = 1.0, 2, [0, 1, 0, 0]);
    check(|b| b.scenario.time_out = 1.0, 2, [0, 0, 0, 1]);
    check(|b| b.scenario.touch = 1.0, 1, [1, 0, 1, 0]);
}

#[test]
fn a_dropped_connection_gives_back_what_it_held() {
    let mut behaviour = behaviour();
    behaviour.scenario.work = Work::Fixed(crate::scenario::span::Span::from_millis(1));
    let mut bench = Bench::new(behaviour);
    bench.frames(&message(0, 1)).unwrap();
    let mut ledger = ChannelLedger::default();
    bench
        .entries
        .drain(..)
        .for_each(|entry| ledger.enter(entry));
    bench.consumer.dropped(&mut ledger);
    assert_eq!(ledger.awaited(), 1);
    // Its work may end afterwards: nothing is said on the new connection.
    bench.act_on_all();
    assert_eq!(bench.text(), "");
}

#[test]
fn errors_end_the_connection_unless_they_are_about_a_message() {
    let mut bench = Bench::new(behaviour());
    let mut input = Vec::new();
    let id = MessageId::new(Seq(1), 0);
    wire::encode::error(
        &mut input,
        &wire::error::WireError::fin_failed(&id, "ID not in flight"),
    );
    assert_eq!(bench.frames(&input), Ok(input.len()));
    assert_eq!(bench.tally.counts.answers.error_answers, 1);
    input.clear();
    wire::encode::error(&mut input, &wire::error::WireError::invalid("no"));
    assert!(bench.frames(&input).is_err());
    assert!(bench.frames(b"\0\0\0\x01....").is_err());
}
