use super::*;
use crate::channel::Channel;
use crate::work::Work;
use diskq_log::segment::{FRAMES_AT, Head, NewFrame, write_frame, write_head};
use diskq_log::{
    Checkpoints, FoundLog, LogOptions, Memory, Residency, Segment, SegmentNumber, SeqRange,
};
use std::ops::Range;
use wire::id::MessageId;

const BASE: Seq = Seq(1000);
const NOW: Duration = Duration::from_secs(1);

/// A log in memory with one message for each body. A bit of each message in `damaged` is flipped, as if a page was read
/// back wrong after the start.
fn log(bodies: &[&[u8]], damaged: Range<usize>) -> Log {
    let mut bytes = vec![0; 64 * 1024].into_boxed_slice();
    let head = Head {
        generation: 7,
        base: BASE,
        bytes: bytes.len() as u32,
        node: 0,
        slots: diskq_log::SlotKind::Plain,
    };
    write_head(&mut bytes, &head);
    let (mut end, mut flipped) = (FRAMES_AT, Vec::new());
    for (index, body) in bodies.iter().enumerate() {
        let new = NewFrame {
            timestamp_ns: 1,
            id: MessageId::new(BASE.offset(index as u64), 0),
            defer_ms: 0,
            body,
        };
        end = write_frame(&mut bytes, &head, index as u32, end, &new);
        if damaged.contains(&index) {
            flipped.push(end as usize - 1);
        }
    }
    for place in flipped {
        bytes[place] ^= 1;
    }
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
        states: diskq_log::States::default(),
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
    let mut log = log(&bodies, 1..2);
    let mut channel = channel(SeqRange::new(BASE, BASE.offset(3)), &mut log);
    let mut sent = Vec::new();
    let budget = &mut LetterBudget::new(0, DEAD_LETTER_BYTES);
    let is_more = channel.take_dead_letters(NOW, &mut log, budget, |letter| sent.push(letter.body));
    let expected = vec![b"first".to_vec(), b"last".to_vec()];
    assert_eq!((sent, is_more), (expected, false));
    assert_eq!(
        (channel.depth(), log.holders()),
        (2, 2),
        "the others are owed"
    );
    assert_eq!(log.stats().damaged_count, 1, "the damage is reported");
    channel.check(&Default::default());
}

/// Damaged messages were skipped without a bound, so a channel with millions of them held up its shard.
#[test]
fn damaged_messages_count_in_the_budget_of_a_turn() {
    const COUNT: usize = 2 * SHARD_TURN_MESSAGES + 1;
    let bodies = vec![&b"damaged"[..]; COUNT];
    let mut log = log(&bodies, 0..COUNT);
    let range = SeqRange::new(BASE, BASE.offset(COUNT as u64));
    let mut channel = channel(range, &mut log);
    let mut turns = 0;
    loop {
        turns += 1;
        let before = channel.depth();
        let budget = &mut LetterBudget::new(0, DEAD_LETTER_BYTES);
        let none = |_| panic!("all are damaged");
        let is_more = channel.take_dead_letters(NOW, &mut log, budget, none);
        channel.check(&Default::default());
        assert!(before - channel.depth() <= SHARD_TURN_MESSAGES as u64);
        if !is_more {
            break;
        }
    }
    assert!(turns > 2, "{turns}");
    assert_eq!((channel.depth(), log.holders()), (0, 0));
}

#[test]
fn a_channel_waits_while_letters_of_the_shard_take_all_the_room() {
    let bodies: [&[u8]; 3] = [b"1", b"2", b"3"];
    let mut log = log(&bodies, 0..0);
    let mut channel = channel(SeqRange::new(BASE, BASE.offset(3)), &mut log);
    let mut take = |channel: &mut Channel, under_way| {
        let mut sent = Vec::new();
        let budget = &mut LetterBudget::new(under_way, 1000);
        let is_more = channel.take_dead_letters(NOW, &mut log, budget, |letter| {
            sent.push((letter.body, letter.wants_sync));
        });
        assert!(!is_more);
        sent
    };
    // A letter leaves as long as there is any room, so that a large one leaves, too.
    assert_eq!(take(&mut channel, 999), [(b"1".to_vec(), true)]);
    assert!(!channel.wants_pump());
    assert_eq!(take(&mut channel, 0), []);
    let at = channel.next_timeout().expect("it tries again");
    channel.handle_timeout(at, &mut Default::default(), &mut Work::unbounded());
    assert!(channel.wants_pump());
    let expected = [(b"2".to_vec(), false), (b"3".to_vec(), false)];
    assert_eq!(take(&mut channel, 0), expected);
    assert_eq!(channel.depth(), 3, "all are owed until they are stored");
}

fn rules(all: &[(&str, &str, &str)]) -> Result<DeadLetterRules, DeadLetterError> {
    let mut rules = DeadLetterRules::default();
    for (topic, channel, to) in all {
        rules.add(topic, channel, 5, to)?;
    }
    Ok(rules)
}

#[test]
fn the_first_rule_that_fits_counts() {
    let rules = rules(&[
        ("orders", "audit", "a.dead"),
        ("orders*", "*", "b.dead"),
        ("b.dead", "*", "c.dead"),
    ]);
    let rules = rules.expect("they are right");
    let to = |topic: &str, channel: &str| {
        let rule = rules.of(topic, channel);
        rule.map(|rule| rule.to().to_string())
    };
    assert_eq!(to("orders", "audit").as_deref(), Some("a.dead"));
    assert_eq!(to("orders", "billing").as_deref(), Some("b.dead"));
    assert_eq!(to("orders.eu", "audit").as_deref(), Some("b.dead"));
    assert_eq!(to("clicks", "audit"), None);
    assert_eq!(to("b.dead", "retry").as_deref(), Some("c.dead"));
}

#[test]
fn a_star_does_not_stand_for_dead_letter_topics() {
    let rules = rules(&[("*", "*", "dead"), ("orders", "*", "orders.dead")]);
    let rules = rules.expect("no circle");
    assert!(rules.of("orders", "a").is_some());
    assert_eq!(rules.of("dead", "a"), None);
    assert_eq!(rules.of("orders.dead", "a"), None);
}

/// A rule behind one that fits all its channels was accepted, and had no effect.
#[test]
fn a_rule_that_never_counts_is_found() {
    let check = |all: &[(&str, &str, &str)], expected: Option<(&str, &str)>| {
        let order = rules(all).expect("each rule is right").check_order();
        let found = order.err();
        let found = found.as_ref().map(|e| (&*e.earlier, &*e.later));
        assert_eq!(found, expected, "{all:?}");
    };
    check(&[("*", "*", "d"), ("x", "*", "e")], Some(("*/*", "x/*")));
    check(&[("x", "*", "e"), ("*", "*", "d")], None);
    check(
        &[("a*", "c", "d"), ("ab*x", "c", "d")],
        Some(("a*/c", "ab*x/c")),
    );
    check(&[("ab*x", "c", "d"), ("a*", "c", "d")], None);
    check(&[("a*", "c", "d"), ("ab", "*", "d")], None);
    check(&[("x", "*", "d"), ("x", "c", "e")], Some(("x/*", "x/c")));
    check(&[("x", "c", "d"), ("*", "c", "e")], None);
    check(&[("*", "c", "d"), ("*", "c", "e")], Some(("*/c", "*/c")));
    // A * does not stand for a dead-letter topic, also not for that of a later rule.
    check(&[("*", "*", "d"), ("d", "*", "e")], None);
    check(
        &[("*", "*", "d"), ("x.dead", "c", "e"), ("e", "*", "f")],
        Some(("*/*", "x.dead/c")),
    );
    let why = rules(&[("*", "*", "d"), ("x", "*", "e")])
        .expect("right")
        .check_order();
    assert_eq!(
        why.expect_err("wrong").to_string(),
        "the rule x/* never counts, because the first rule that fits counts, and */* fits all its channels; \
         put x/* before */*"
    );
}

/// Topic, channel and dead-letter topic of a rule, and why the rule is refused.
const REFUSED: &str = r#"
a b|c|d|has "a b", which is no name, and no name with * in it
a||d|has "", which is no name, and no name with * in it
a|c|d/e|has the topic "d/e", which is not a valid name
a|c|*|has the topic "*", which is not a valid name
a|c|d#ephemeral|would lose messages: d#ephemeral is ephemeral, so it ends with its last consumer
a|c|a|may send dead letters round in a circle: a has a rule of its own, which must stand behind this one
"#;

#[test]
fn wrong_rules() {
    let refused = |all: &[(&str, &str, &str)]| rules(all).expect_err("wrong").to_string();
    for row in REFUSED.trim().lines() {
        let [topic, channel, to, why] = row.split('|').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        assert_eq!(refused(&[(topic, channel, to)]), why);
    }
    assert_eq!(
        refused(&[("a", "x", "b"), ("b", "*", "c"), ("c", "*", "a")]),
        "may send dead letters round in a circle: a has a rule of its own, which must stand behind this one"
    );
    let mut rules = DeadLetterRules::default();
    let added = rules.add("a", "b", 0, "c");
    assert_eq!(added, Err(DeadLetterError::NoAttempts));
    assert!(rules.is_empty());
}
