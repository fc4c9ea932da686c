//! Stops while the disk cannot be synced, and while another shard still serves its clients.

use super::numbers::with_rule;
use super::script::{Session, options};
use crate::{Broker, BrokerOptions, ForwardBatch, Now, Output, ShardId, shard_of};
use diskq::Keeper;
use diskq_sim::SimFiles;
use wire::encode;
use wire::name::TopicName;

const NOW: Now = Now {
    mono: std::time::Duration::ZERO,
    wall_ns: 1_800_000_000_000_000_000,
};

/// Returns the first of two shards.
fn first_of_two() -> Broker {
    Broker::new(BrokerOptions {
        shards: 2,
        ..options()
    })
}

/// Makes a batch of one publish from the second of two shards to the first one.
fn forward() -> ForwardBatch {
    let mut names = ["a", "b", "c", "d"].into_iter();
    let topic = names.find(|name| shard_of(name, 2) == ShardId(0));
    let topic = TopicName::new(topic.expect("one is there").as_bytes()).expect("valid");
    let mut serving = Broker::new(BrokerOptions {
        shard: ShardId(1),
        shards: 2,
        ..options()
    });
    let client = serving.connect(NOW, "10.0.0.1:5".to_owned(), "10.0.0.1".to_owned());
    let mut input = b"  V2".to_vec();
    encode::publish(&mut input, topic, b"x");
    serving.receive(NOW, client, &input, &mut Vec::new());
    let batch = serving.take_forwards(ShardId(0));
    batch.expect("the topic belongs to the other shard")
}

/// Publishes a batch on a shard. Returns the number of answers.
fn answers_to(broker: &mut Broker, files: &SimFiles, batch: &ForwardBatch) -> usize {
    let mut out = Vec::new();
    broker.handle_forwards(NOW, batch, &mut out);
    serve(broker, files, out);
    broker
        .take_forward_replies(ShardId(1))
        .map_or(0, |replies| replies.len())
}

/// Does the jobs of a shard's keeper, and those that follow.
fn serve(broker: &mut Broker, files: &SimFiles, mut out: Vec<Output>) {
    for _ in 0..3 {
        broker.end_turn(NOW, &mut out);
        for output in std::mem::take(&mut out) {
            if let Output::Keeper(key, topic, request) = output
                && let Some(reply) = Keeper::new(files.clone(), "/data").handle(&topic, request)
            {
                broker.handle_reply(NOW, key, reply, &mut out);
            }
        }
    }
}

/// A shard that had written its last checkpoints answered publishes of a shard that still served its clients. No sync
/// covered them, so a power failure took messages that had got OK before a graceful stop.
#[test]
fn a_shard_that_stops_takes_no_publish_of_another_shard() {
    let (files, mut broker) = (SimFiles::new(), first_of_two());
    assert_eq!(answers_to(&mut broker, &files, &forward()), 1);
    broker.begin_stop(&mut Vec::new());
    assert_eq!(answers_to(&mut broker, &files, &forward()), 0);
}

/// A publish of another shard that waited for a segment was stored and answered when the segment came, after the last
/// sync of the stop had begun.
#[test]
fn a_shard_that_stops_takes_no_publish_that_waits_for_room() {
    let stored_after = |stops: bool| {
        let (files, mut broker) = (SimFiles::new(), first_of_two());
        let mut out = Vec::new();
        broker.handle_forwards(NOW, &forward(), &mut out);
        if stops {
            broker.begin_stop(&mut out);
        }
        serve(&mut broker, &files, out);
        broker
            .take_forward_replies(ShardId(1))
            .map_or(0, |it| it.len())
    };
    assert_eq!(stored_after(false), 1);
    assert_eq!(stored_after(true), 0);
}

/// A stop that cannot sync the last messages saves no numbers of these messages: after a power failure, their copies are
/// stored.
#[test]
fn a_stop_without_a_sync_saves_no_numbers() {
    let mut lost = 0;
    for seed in 0..20 {
        let mut session = Session::new(with_rule());
        session.play(&format!(
            "
create t/ch
a is 7f
a: PUB t 0 | x
no descriptors 13s
stop
power lost {seed}
create t/ch
c: SUB t ch
c: RDY 9
"
        ));
        lost += usize::from(!session.transcript().contains("c< x ("));
        session.play("a is 7f\na: PUB t 0 | x");
        let transcript = session.transcript();
        assert_eq!(transcript.matches("c< x (").count(), 1, "{transcript}");
    }
    assert!(
        (1..20).contains(&lost),
        "the disk lost x {lost} times of 20"
    );
}
