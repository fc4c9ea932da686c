use super::*;
use fastrand::Rng;

#[test]
fn a_bitmap_agrees_with_a_set() {
    let mut random = Rng::with_seed(11);
    let mut bitmap = Bitmap::default();
    let mut set = HashSet::new();
    let limit = 3 * CHUNK;
    for _ in 0..2 * limit {
        let number = random.u64(..limit);
        assert_eq!(bitmap.insert(number), set.insert(number));
    }
    // The middle chunk becomes complete.
    for number in CHUNK..2 * CHUNK {
        assert_eq!(bitmap.insert(number), set.insert(number));
    }
    assert!(matches!(bitmap.chunks[1], Chunk::Full));
    assert_eq!(bitmap.count, set.len() as u64);
    for _ in 0..50 {
        let start = random.u64(..limit);
        let range = start..start + random.u64(..2 * CHUNK);
        let expected = set.iter().filter(|number| range.contains(number)).count() as u64;
        assert_eq!(bitmap.count_in(range.clone()), expected, "{range:?}");
    }
    let span = *set.iter().min().unwrap()..set.iter().max().unwrap() + 1;
    assert_eq!(bitmap.span(), span);
    assert_eq!(Bitmap::default().span(), 0..0);
}

fn delivery(number: u64, attempts: u16) -> Delivery {
    Delivery {
        producer: 7,
        number,
        attempts,
    }
}

fn record(sent: u64) -> ProducerRecord {
    ProducerRecord {
        producer: 7,
        sent,
        ..ProducerRecord::default()
    }
}

#[test]
fn what_did_not_arrive_is_lost_unless_it_was_never_acknowledged() {
    let mut channel = ChannelLedger::default();
    for number in 0..100 {
        if ![3, 50, 60, 61, 99].contains(&number) {
            channel.deliver(delivery(number, 1));
        }
    }
    let mut record = record(100);
    assert_eq!(final_ledger(&[record.clone()], &[&channel]).lost, 5);
    // An exception that arrived all the same is neither lost nor counted twice.
    record.refused.push(50..51);
    record.unconfirmed.push(60..65);
    let ledger = final_ledger(&[record], &[&channel]);
    assert_eq!((ledger.sent, ledger.acknowledged), (100, 94));
    assert_eq!((ledger.refused, ledger.unconfirmed), (1, 5));
    assert_eq!((ledger.lost, ledger.received), (2, 95));
    assert!(!ledger.is_clean());
}

#[test]
fn a_damaged_message_stands_for_one_that_is_missing() {
    let mut channel = ChannelLedger::default();
    for number in 0..98 {
        channel.deliver(delivery(number, 1));
    }
    channel.enter(LedgerEntry::Damaged);
    let ledger = final_ledger(&[record(100)], &[&channel]);
    assert_eq!((ledger.corrupted, ledger.lost), (1, 1));
    assert_eq!(channel.arrived(), 99);
}

#[test]
fn what_was_given_back_may_come_again_once() {
    let mut channel = ChannelLedger::default();
    channel.deliver(delivery(0, 1));
    channel.enter(LedgerEntry::GivenBack(7, 0));
    assert_eq!(channel.awaited(), 1);
    channel.deliver(delivery(0, 2));
    assert_eq!(channel.awaited(), 0);
    channel.deliver(delivery(0, 3));
    channel.allow_redeliveries();
    channel.deliver(delivery(0, 1));
    channel.deliver(delivery(0, 4));
    let ledger = final_ledger(&[record(1)], &[&channel]);
    assert_eq!((ledger.redelivered, ledger.duplicated), (2, 2));
    assert_eq!((ledger.received, ledger.lost), (1, 0));
}

#[test]
fn a_late_reader_gets_what_timed_out_on_its_way() {
    let mut channel = ChannelLedger::default();
    channel.allow_redeliveries();
    // Another one got it in the second attempt, then the first is read; once.
    channel.deliver(delivery(0, 2));
    channel.deliver(delivery(0, 1));
    channel.deliver(delivery(0, 1));
    // Read in time to be the first, too late for its FIN.
    channel.deliver(delivery(1, 1));
    channel.deliver(delivery(1, 2));
    channel.deliver(delivery(1, 1));
    let ledger = final_ledger(&[record(2)], &[&channel]);
    assert_eq!((ledger.redelivered, ledger.duplicated), (2, 2));
}

#[test]
fn every_channel_is_owed_every_message() {
    let channels: Vec<ChannelLedger> = (0..3)
        .map(|skip| {
            let mut channel = ChannelLedger::default();
            for number in skip..10 {
                channel.deliver(delivery(number, 1));
            }
            channel
        })
        .collect();
    let channels: Vec<&ChannelLedger> = channels.iter().collect();
    let ledger = final_ledger(&[record(10)], &channels);
    assert_eq!((ledger.lost, ledger.received, ledger.channels), (3, 27, 3));
    assert_eq!(final_ledger(&[record(10)], &[]).lost, 0);
}

#[test]
fn without_producers_the_holes_are_what_is_missing() {
    let mut channel = ChannelLedger::default();
    for number in [5, 6, 8, 9, 11] {
        channel.deliver(delivery(number, 1));
    }
    assert_eq!(final_ledger(&[], &[&channel]).lost, 2);
}
