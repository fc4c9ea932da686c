use super::*;
use crate::DeadLetterRules;
use diskq_log::segment::{FRAMES_AT, Head, NewFrame, write_frame, write_head};
use diskq_log::{Checkpoints, FoundLog, LogOptions, Memory, Residency, Segment, SegmentNumber};
use wire::id::MessageId;

const BASE: Seq = Seq(1000);

/// A log in memory with one message for each body. A bit of the message `damaged` is flipped, as if a page was read back
/// wrong after the start.
fn log(bodies: &[&[u8]], damaged: usize) -> Log {
    let mut bytes = vec![0; 16 * 1024].into_boxed_slice();
    let head = Head {
        generation: 7,
        base: BASE,
        bytes: bytes.len() as u32,
        node: 0,
    };
    write_head(&mut bytes, &head);
    let (mut end, mut flipped) = (FRAMES_AT, 0);
    for (index, body) in bodies.iter().enumerate() {
        let new = NewFrame {
            timestamp_ns: 1,
            id: MessageId::new(BASE.offset(index as u64), 0),
            defer_ms: 0,
            body,
        };
        end = write_frame(&mut bytes, &head, index as u32, end, &new);
        if index == damaged {
            flipped = end as usize - 1;
        }
    }
    bytes[flipped] ^= 1;
    let residency = Residency::Mapped(Memory::Heap(bytes));
    let mut segment = Segment::new(SegmentNumber(1), head, residency);
    segment.count = bodies.len() as u32;
    segment.end = end;
    let next = segment.end_seq();
    let found = FoundLog {
        segments: vec![segment],
        next,
        synced: next,
        next_number: SegmentNumber(2),
        checkpoints: Checkpoints::default(),
        damaged_count: 0,
        voided: Vec::new(),
    };
    Log::from_found(LogOptions::default(), found)
}

/// A channel whose rule allows two attempts, with dead letters in `range`.
fn channel(range: SeqRange, log: &mut Log) -> Channel {
    let mut rules = DeadLetterRules::default();
    rules.add("t", "ch", 2, "dead").expect("a rule");
    let mut channel = Channel::new("ch", false, None);
    channel.set_dead_letters(rules.of("t", "ch"));
    log.retain(range, 1);
    channel.restore(range, 2);
    channel
}

/// Regression: a message whose bytes in memory were no longer whole could be taken, but not copied. The channel took the
/// same message again without end, and the shard stood still.
#[test]
fn a_message_that_cannot_be_copied_is_skipped() {
    let bodies: [&[u8]; 3] = [b"first", b"damaged", b"last"];
    let mut log = log(&bodies, 1);
    let mut channel = channel(SeqRange::new(BASE, BASE.offset(3)), &mut log);
    let mut sent = Vec::new();
    let budget = &mut LetterBudget::new();
    let has_more = channel.take_dead_letters(&mut log, budget, |letter| sent.push(letter.body));
    assert_eq!(
        (sent, has_more),
        (vec![b"first".to_vec(), b"last".to_vec()], false)
    );
    assert_eq!(
        (channel.depth(), log.holders()),
        (2, 2),
        "the others are owed"
    );
    assert_eq!(log.stats().damaged_count, 1, "the damage is reported");
    channel.check(&Default::default());
}
