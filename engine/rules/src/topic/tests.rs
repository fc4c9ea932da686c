use super::kept::{Bounds, Progress};
use super::*;
use crate::client::Client;
use crate::topic::restore::DueTimes;
use diskq::Keeper;
use diskq_log::checkpoint::Roster;
use diskq_log::{ChannelFacts, Checkpoint, Damage, DamageKind, Recovered, TopicFacts};
use diskq_sim::SimFiles;
use wire::decode::ClientState;
use wire::identify::{ClientSettings, ServerSettings};

const NOW: Now = Now {
    mono: Duration::from_secs(1),
    wall_ns: 1 << 60,
};

fn name() -> TopicName<'static> {
    TopicName::new(b"orders").expect("a name")
}

fn topic() -> Topic {
    let options = TopicOptions {
        mem_queue_size: 0,
        ..TopicOptions::default()
    };
    Topic::new(name(), options)
}

/// The topic and its channel in nsqd.dat, of which one is paused.
fn listed(is_topic_paused: bool) -> TopicFacts {
    TopicFacts {
        name: "orders".to_owned(),
        paused: is_topic_paused,
        channels: vec![ChannelFacts {
            name: "billing".to_owned(),
            paused: !is_topic_paused,
        }],
    }
}

/// Regression: a timeout in one channel also pumped the channels whose next message was on its way from the disk.
#[test]
fn a_timeout_in_one_channel_pumps_no_other_channel() {
    let mut topic = topic();
    let mut clients = Clients::default();
    let [cold, busy] = [b"cold", b"busy"].map(|name| {
        let settings = ClientSettings::from_server(&ServerSettings::default());
        let mut client = Client::new("127.0.0.1:1".into(), "127.0.0.1".into(), 0, settings);
        client.session.state = ClientState::Subscribed;
        client.consumer.ready_count = 1;
        let consumer = clients.insert(client);
        let id = topic.create_channel(ChannelName::new(name).expect("a name"));
        let channel = &mut topic.channels[id];
        channel.consumers.add(consumer);
        channel
            .consumers
            .make_ready(consumer, &mut clients[consumer]);
        id
    });
    // A channel that waits for the disk has a ready consumer and messages, and no place among the channels to pump.
    topic.channels[cold].restore(SeqRange::one(Seq(1)), 0);
    let mono = Duration::from_secs(1);
    topic.channels[busy].defer(Seq(2), mono);
    let now = Now { mono, wall_ns: 0 };
    topic.handle_timeout(now, &mut clients, &mut Work::unbounded());
    assert_eq!(topic.channels.to_pump(), [busy]);
}

/// Regression: a topic without channels drops old messages while a checkpoint is put together. The scan counted from
/// the start of the range, so it left out as many newer messages as were dropped, and a restart lost them.
#[test]
fn a_scan_misses_no_message_when_the_oldest_ones_go() {
    let mut list: Kept<u32> = Kept::default();
    list.messages.push(SeqRange::new(Seq(0), Seq(100)));
    list.messages.push(SeqRange::new(Seq(200), Seq(300)));
    let ranges = list.messages.iter();
    let seqs = ranges.flat_map(|range| range.start.0..range.end.0);
    seqs.for_each(|seq| list.deferred.push_back((Seq(seq), 1)));
    let (mut progress, mut named) = (Progress::default(), Vec::new());
    let mut gone = 0;
    loop {
        let out = |run: diskq_log::CheckpointRun| {
            named.extend(run.start.0..run.range().end.0);
        };
        if progress.scan(&list, u64::from, &mut Work::new(10), out) {
            break;
        }
        // Slower than the scan in the first range, and then the rest of that range at once.
        let count = if gone == 40 { 60 } else { 5 };
        gone += list.messages.take_front(count).len();
    }
    let ranges = list.messages.iter();
    let kept = ranges.flat_map(|range| range.start.0..range.end.0);
    let missing: Vec<u64> = kept.filter(|seq| !named.contains(seq)).collect();
    assert_eq!(missing, [0; 0], "of {named:?}");
    assert!(named.is_sorted_by(|a, b| a < b), "{named:?}");
}

/// Regression: the sizes of a log also count its damaged messages. If these were the last ones of a topic without
/// channels, they were left when all messages were dropped, and a timer for them fired without end.
#[test]
fn no_timer_is_left_when_all_unclaimed_messages_are_gone() {
    let mut topic = topic();
    let second = Duration::from_secs(1);
    let now = Now {
        mono: second,
        wall_ns: 0,
    };
    let bounds = Bounds {
        bytes: 1000,
        age: second,
    };
    let mut pieces = Pieces::of_log(&topic.log, std::iter::empty(), Totals::default(), now);
    let taken = Totals {
        messages: 2,
        body_bytes: 2,
    };
    pieces.add(Seq(2), taken, now, bounds);
    topic.unclaimed = Some(Box::new(Unclaimed {
        bounds,
        pieces: Some(pieces),
        dropped_count: 0,
    }));
    assert_eq!(topic.next_timeout(), None);
    topic.undistributed.messages.push(SeqRange::one(Seq(1)));
    assert_eq!(topic.next_timeout(), Some(2 * second));
}

/// Regression: an undo was refused as too large, because deferrals of messages that had been dropped were counted.
#[test]
fn deferrals_that_are_left_over_do_not_count_in_an_undo() {
    let mut topic = topic();
    for seq in 0..100_000 {
        topic.undistributed.deferred.push_back((Seq(seq), 1));
    }
    let kept = SeqRange::new(Seq(100_000), Seq(100_010));
    topic.undistributed.messages.push(kept);
    topic.undistributed.deferred.push_back((Seq(100_005), 1));
    let (mono, wall_ns) = (Duration::ZERO, 0);
    let emptied = topic.empty_for(Now { mono, wall_ns }, Duration::from_secs(1));
    assert_eq!(emptied, Ok(()));
    let undo = topic.undo.as_ref().expect("there are messages");
    assert_eq!((undo.count(), undo.entries()), (kept.len(), 3));
}

fn publish(topic: &mut Topic, keeper: &Keeper<SimFiles>, now: Now, defer_ms: u32) {
    let publication = Publication::one(b"x", defer_ms, None);
    while let Err(error) = topic.publish(now, &publication) {
        assert_eq!(error, AppendError::WouldBlock);
        while let Some(request) = topic.log.next_request() {
            if let Some(reply) = keeper.handle("orders", request) {
                topic.log.handle_reply(now.mono, reply, &mut Vec::new());
            }
        }
    }
}

/// Regression: the messages that a turn had no budget for were counted at the place of the last one that was given, and
/// not at all if the topic was emptied meanwhile. So the grace kept them beyond its bound.
#[test]
fn a_grace_keeps_the_newest_of_messages_that_several_turns_give() {
    let now = NOW;
    let keeper = Keeper::new(SimFiles::new(), "/data");
    for is_emptied in [false, true] {
        let mut topic = topic();
        topic.options.grace = GraceOptions {
            period: Duration::from_secs(60),
            bytes_max: 2 * 51,
        };
        assert!(topic.begin_grace(now));
        topic.create_channel(ChannelName::new(b"one").expect("a name"));
        topic.set_pause(now, Some(&crate::Pause::default()));
        let clients = Clients::default();
        for _ in 0..40 {
            publish(&mut topic, &keeper, now, 60_000);
            topic.distribute(now, &clients, &mut Work::new(10));
        }
        topic.set_pause(now, None);
        let mut turns = 0;
        while !topic.undistributed.messages.is_empty() {
            topic.distribute(now, &clients, &mut Work::new(10));
            if is_emptied && turns == 0 {
                topic.empty_grace(now);
            }
            turns += 1;
        }
        assert_eq!(turns, 4);
        let grace = topic.grace.as_ref().expect("its time is not over");
        let kept: Vec<SeqRange> = grace.kept.messages.iter().collect();
        let end = topic.log.next_seq();
        assert_eq!(kept, [SeqRange::new(Seq(end.0 - 2), end)], "{is_emptied}");
    }
}

fn damage(kind: DamageKind) -> Damage {
    Damage {
        kind,
        file: String::new(),
        offset: 0,
        seqs: SeqRange::new(Seq(0), Seq(0)),
        detail: String::new(),
    }
}

/// Regression: a copy of the data path lacked the end of the checkpoint file. The start used an older checkpoint, from
/// before the channel, so the channel was gone, and the next channel got its messages.
#[test]
fn a_channel_outlives_the_loss_of_newer_checkpoints() {
    for (kind, is_there) in [
        (DamageKind::CheckpointFile, true),
        // The other slots stand in for a slot that was torn.
        (DamageKind::Checkpoint, false),
    ] {
        let recovered = Recovered {
            log: Log::new(LogOptions::default()),
            checkpoint: Some(Checkpoint {
                number: 1,
                ..Checkpoint::default()
            }),
            durable_channels: Roster::default(),
            found: Vec::new(),
            had: Vec::new(),
            recorded_ns: 0,
            deferred: Vec::new(),
            state: None,
            durable_boundary: Seq(0),
            origins: Vec::new(),
            damage: vec![damage(kind)],
        };
        let (listed, options) = (listed(false), topic().options);
        let mut times = DueTimes::new(NOW, 0, Duration::ZERO);
        let topic = Topic::restore(name(), options, &mut times, recovered, Some(&listed));
        let channel = topic.channels.find("billing");
        assert_eq!(channel.is_some(), is_there, "{kind:?}");
    }
}

/// Regression: such a channel got none of the messages of the grace in which it was made.
#[test]
fn a_channel_that_checkpoints_have_lost_gets_the_messages_of_its_grace() {
    let now = NOW;
    for is_over in [false, true] {
        let keeper = Keeper::new(SimFiles::new(), "/data");
        let mut before = topic();
        for _ in 0..3 {
            publish(&mut before, &keeper, now, 0);
        }
        for job in before.log.close() {
            keeper.handle("orders", job);
        }
        let (path, options) = (std::path::Path::new("/data"), LogOptions::default());
        let opened = diskq::open_log(keeper.files(), path, "orders", options, now.wall_ns);
        let mut recovered = opened.expect("a log");
        let found = recovered.found.clone();
        assert_eq!(found.iter().map(|range| range.len()).sum::<u64>(), 3);
        let runs = found
            .iter()
            .map(|range| diskq_log::CheckpointRun::fresh(*range, 0));
        let until_ns = [now.wall_ns + 60_000_000_000, now.wall_ns - 1];
        recovered.checkpoint = Some(Checkpoint {
            number: 1,
            next: found.last().expect("messages").end,
            paused: false,
            grace: Some(diskq_log::GraceCheckpoint {
                until_ns: until_ns[usize::from(is_over)],
                runs: runs.collect(),
            }),
            ..Checkpoint::default()
        });
        recovered.damage.push(damage(DamageKind::CheckpointFile));
        // The pause is newer than the checkpoint or older: nobody knows. Its end would be lost.
        let listed = listed(true);
        let mut options = topic().options;
        options.grace.period = Duration::from_secs(60);
        let mut times = DueTimes::new(now, 0, Duration::ZERO);
        let topic = Topic::restore(name(), options, &mut times, recovered, Some(&listed));
        let id = topic.channels.find("billing").expect("the list has it");
        assert_eq!(topic.channels[id].depth(), 3, "{is_over}");
        assert!(topic.pause.is_none(), "the checkpoint says so");
    }
}
