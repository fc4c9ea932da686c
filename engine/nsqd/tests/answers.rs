//! An answer to an operator or a consumer holds after a `kill -9` at any moment after the answer.
//! It also holds with an nsqd.dat that is older than the logs, and if files cannot be removed, read
//! or written.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::{
    Broker, Client, Launch, Random, TIMEOUT, contents, number_from_env, run_nsqd, wait_until,
    whole_machine, without_privileges,
};

const SHARDS: usize = 2;
/// The number of kills after each kind of answer.
const KILLS: u64 = 12;
/// The latest moment of a kill, in microseconds after the answer.
const KILL_US_MAX: u64 = 500_000;

fn publish(broker: &Broker, topic: &str, body: &str) {
    let target = format!("/pub?topic={topic}");
    broker.post(&target, body.as_bytes()).expect_status(200);
}

/// Makes a topic with a message in each of its channels `one` and `two`.
fn fill(broker: &Broker, topic: &str) {
    broker.create(topic, "one");
    broker.create(topic, "two");
    publish(broker, topic, "before");
}

fn depth(broker: &Broker, topic: &str, channel: &str) -> Option<u64> {
    broker.channel_stats(topic, channel)?["depth"].as_u64()
}

/// Returns the bodies that a new consumer gets from a channel with `count` messages.
fn bodies(broker: &Broker, topic: &str, channel: &str, count: usize) -> Vec<String> {
    let mut consumer = broker.consumer(topic, channel, 100);
    let bodies = (0..count).map(|_| consumer.message().body);
    bodies
        .map(|body| String::from_utf8(body).expect("text"))
        .collect()
}

// --- kill -9

/// A request that is answered, with the steps before it and the state that must hold after a kill.
struct Deed {
    prepare: fn(&Broker, &str),
    act: fn(&Broker, &str),
    expect: fn(&Broker, &str),
}

const DEEDS: [Deed; 8] = [
    // A topic is deleted.
    Deed {
        prepare: fill,
        act: |broker, topic| broker.admin(&format!("/topic/delete?topic={topic}")),
        expect: |broker, topic| assert_eq!(broker.topic_stats(topic), None),
    },
    // A topic without messages is deleted.
    Deed {
        prepare: |broker, topic| broker.admin(&format!("/topic/create?topic={topic}")),
        act: |broker, topic| broker.admin(&format!("/topic/delete?topic={topic}")),
        expect: |broker, topic| assert_eq!(broker.topic_stats(topic), None),
    },
    // A topic is deleted and made again by a publish.
    Deed {
        prepare: fill,
        act: |broker, topic| {
            broker.admin(&format!("/topic/delete?topic={topic}"));
            publish(broker, topic, "after");
        },
        expect: |broker, topic| {
            let stats = broker.topic(topic);
            assert_eq!(stats["channels"].as_array().map(Vec::len), Some(0));
            assert_eq!(bodies(broker, topic, "new", 1), ["after"]);
        },
    },
    // A channel is deleted.
    Deed {
        prepare: fill,
        act: |broker, topic| {
            broker.admin(&format!("/channel/delete?topic={topic}&channel=one"));
        },
        expect: |broker, topic| {
            assert_eq!(depth(broker, topic, "one"), None);
            assert_eq!(depth(broker, topic, "two"), Some(1));
        },
    },
    // A topic is made.
    Deed {
        prepare: |_, _| {},
        act: |broker, topic| broker.admin(&format!("/topic/create?topic={topic}")),
        expect: |broker, topic| assert!(broker.topic_stats(topic).is_some(), "{topic} is gone"),
    },
    // A channel is made.
    Deed {
        prepare: fill,
        act: |broker, topic| {
            broker.admin(&format!("/channel/create?topic={topic}&channel=three"));
            publish(broker, topic, "after");
        },
        expect: |broker, topic| {
            assert_eq!(depth(broker, topic, "three"), Some(1));
            assert_eq!(depth(broker, topic, "one"), Some(2));
        },
    },
    // A consumer makes topic and channel.
    Deed {
        prepare: |_, _| {},
        act: |broker, topic| broker.client().subscribe(topic, "one"),
        expect: |broker, topic| assert_eq!(depth(broker, topic, "one"), Some(0)),
    },
    // A topic and a channel are paused.
    Deed {
        prepare: fill,
        act: |broker, topic| {
            broker.admin(&format!("/topic/pause?topic={topic}"));
            broker.admin(&format!("/channel/pause?topic={topic}&channel=one"));
        },
        expect: |broker, topic| {
            let stats = broker.topic(topic);
            assert_eq!(stats["paused"], true);
            assert_eq!(broker.channel(topic, "one")["paused"], true);
            assert_eq!(broker.channel(topic, "two")["paused"], false);
        },
    },
];

#[test]
fn answered_changes_hold_after_kill_9() {
    let _machine = whole_machine();
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("it is later than 1970");
    let seed = number_from_env("RINGQ_ANSWERS_SEED", u64::from(clock.subsec_nanos()));
    let kills = number_from_env("RINGQ_ANSWERS_KILLS", KILLS);
    eprintln!("answers: RINGQ_ANSWERS_SEED={seed}");
    let mut random = Random::new(seed);
    let mut broker = Broker::start(SHARDS, &[]);
    for kill in 0..kills {
        for (number, deed) in DEEDS.iter().enumerate() {
            let topic = format!("deed-{number}-{kill}");
            (deed.prepare)(&broker, &topic);
            // The state before the request is recorded in the logs and in nsqd.dat.
            broker.admin("/topic/create?topic=other");
            broker.admin("/topic/unpause?topic=other");
            (deed.act)(&broker, &topic);
            // Some kills come at once, some during a write, and some later.
            let wait = [0, 2_000, 50_000, KILL_US_MAX][(kill % 4) as usize];
            thread::sleep(Duration::from_micros(random.below(wait + 1)));
            broker.kill9();
            broker.restart();
            (deed.expect)(&broker, &topic);
        }
    }
}

// --- an nsqd.dat that is older than the logs, or none

fn nsqd_dat(broker: &Broker) -> PathBuf {
    broker.data_path().join("nsqd.dat")
}

/// Makes every write of nsqd.dat fail from now on. Returns the previous content of the file. The broker may be writing
/// the file at this moment. Then the file appears again after its removal, and is removed once more.
fn break_nsqd_dat(broker: &Broker) -> Vec<u8> {
    loop {
        let before = fs::read(nsqd_dat(broker)).expect("it is there");
        fs::remove_file(nsqd_dat(broker)).expect("it is ours");
        match fs::create_dir(nsqd_dat(broker)) {
            Ok(()) => return before,
            Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}"),
        }
    }
}

/// The logs take precedence over an older nsqd.dat. nsqd.dat is written as soon as a write can
/// succeed.
#[test]
fn an_nsqd_dat_that_cannot_be_written_costs_nothing() {
    let mut broker = Broker::start(SHARDS, &[]);
    for topic in ["paused", "unpaused", "deleted", "channels"] {
        fill(&broker, topic);
    }
    broker.admin("/topic/pause?topic=unpaused");
    broker.admin("/channel/pause?topic=unpaused&channel=one");
    let old = break_nsqd_dat(&broker);
    let change = |broker: &Broker| {
        broker.admin("/topic/pause?topic=paused");
        broker.admin("/channel/pause?topic=paused&channel=one");
        broker.admin("/topic/unpause?topic=unpaused");
        broker.admin("/channel/unpause?topic=unpaused&channel=one");
        broker.admin("/topic/delete?topic=deleted");
        broker.admin("/channel/delete?topic=channels&channel=one");
        broker.admin("/channel/create?topic=channels&channel=three");
        broker.admin("/topic/create?topic=made");
    };
    change(&broker);
    broker.wait_for_log("failed to persist metadata");
    broker.kill9();
    fs::remove_dir(nsqd_dat(&broker)).expect("it is ours");
    fs::write(nsqd_dat(&broker), &old).expect("the name is free");
    let expect = |broker: &Broker| {
        let paused = |topic: &str, channel: &str| {
            let topic_stats = broker.topic(topic);
            let channel = broker.channel(topic, channel);
            assert_eq!(topic_stats["paused"], channel["paused"], "{topic}");
            channel["paused"].clone()
        };
        assert_eq!(paused("paused", "one"), true);
        assert_eq!(paused("unpaused", "one"), false);
        assert_eq!(broker.topic_stats("deleted"), None);
        assert_eq!(depth(broker, "channels", "one"), None);
        assert_eq!(depth(broker, "channels", "two"), Some(1));
        assert_eq!(depth(broker, "channels", "three"), Some(0));
        assert!(broker.topic_stats("made").is_some());
    };
    broker.restart();
    expect(&broker);
    // nsqd.dat now agrees with the logs.
    let now = fs::read_to_string(nsqd_dat(&broker)).expect("it is there");
    assert!(now.contains("made") && !now.contains("deleted"), "{now}");

    // nsqd.dat is written again without a request.
    break_nsqd_dat(&broker);
    broker.admin("/topic/create?topic=later");
    broker.admin("/topic/delete?topic=made");
    broker.wait_for_log("failed to persist metadata");
    fs::remove_dir(nsqd_dat(&broker)).expect("it is ours");
    let is_written = wait_until(TIMEOUT, || {
        let text = fs::read_to_string(nsqd_dat(&broker)).unwrap_or_default();
        text.contains("later") && !text.contains("made")
    });
    assert!(is_written, "it is not written:\n{}", broker.log());
    // Then the tombstone is removed.
    let is_clean = wait_until(TIMEOUT, || {
        let names = contents(broker.data_path()).into_iter();
        !names
            .into_iter()
            .any(|(path, _)| path.display().to_string().contains(".deleted-"))
    });
    assert!(is_clean, "{:?}", contents(broker.data_path()));
}

/// A broken nsqd.dat stops the start, as in the original. Without the file, the logs supply their
/// topics and channels.
#[test]
fn without_nsqd_dat_the_logs_know_their_topics_and_channels() {
    let mut broker = Broker::start(SHARDS, &[]);
    for topic in ["first", "second"] {
        fill(&broker, topic);
    }
    broker.admin("/channel/pause?topic=first&channel=two");
    broker.admin("/topic/create?topic=empty");
    publish(&broker, "waiting", "for a channel");
    broker.kill9();
    fs::write(nsqd_dat(&broker), b"{\"topics\":[").expect("it is ours");
    let data_path = format!("--data-path={}", broker.data_path().display());
    let addresses = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"];
    let exit = run_nsqd(&[&data_path, addresses[0], addresses[1]], TIMEOUT);
    exit.expect(1, "…failed to load metadata - …move the file aside…");
    let aside = broker.data_path().join("nsqd.dat.broken");
    fs::rename(nsqd_dat(&broker), aside).expect("both are ours");
    broker.restart();
    for topic in ["first", "second"] {
        for channel in ["one", "two"] {
            assert_eq!(depth(&broker, topic, channel), Some(1));
            let stats = broker.channel(topic, channel);
            assert_eq!(stats["paused"], (topic, channel) == ("first", "two"));
        }
    }
    assert!(broker.topic_stats("empty").is_some());
    assert_eq!(bodies(&broker, "waiting", "new", 1), ["for a channel"]);
}

/// A kill during a write of nsqd.dat leaves the new file under a temporary name. The next start
/// removes this file, but no file of another program.
#[test]
fn a_start_removes_what_an_interrupted_write_of_nsqd_dat_left() {
    let mut broker = Broker::start(SHARDS, &[]);
    fill(&broker, "orders");
    broker.kill9();
    let at = |name: &str| broker.data_path().join(name);
    let leftovers = ["nsqd.dat.1.tmp", "nsqd.dat.9223372036854775807.tmp"].map(at);
    let others = ["nsqd.dat.tmp", "nsqd.dat.x.tmp", "nsqd.dat.1.tmp.old"].map(at);
    for path in leftovers.iter().chain(&others) {
        fs::write(path, b"{\"topics\":[").expect("the data path is ours");
    }
    broker.restart();
    assert_eq!(leftovers.map(|path| path.exists()), [false; 2]);
    assert_eq!(others.map(|path| path.exists()), [true; 3]);
    assert_eq!(depth(&broker, "orders", "one"), Some(1));
}

// --- directories that cannot be removed or read

fn unprivileged() -> Launch {
    Launch::new(SHARDS, &[]).via(without_privileges())
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

fn log_of(broker: &Broker, topic: &str) -> PathBuf {
    broker.data_path().join(format!("{topic}.log"))
}

/// The answer reports the failure, and a topic of the same name does not use the old files. The
/// broker retries the deletion until it succeeds.
#[test]
fn a_deletion_that_fails_is_tried_again() {
    let mut broker = unprivileged().start();
    fill(&broker, "doomed");
    fill(&broker, "other");
    allow(broker.data_path(), 0o500);
    let delete = || broker.post("/topic/delete?topic=doomed", b"").status;
    assert_eq!(delete(), 500);
    broker.wait_for_log("TOPIC(doomed)");
    let before = contents(&log_of(&broker, "doomed"));
    assert!(!before.is_empty(), "its files are there");
    let mut producer = broker.client();
    producer.command("PUB doomed", b"refused");
    let text = producer.frame_after_heartbeats().text();
    assert!(text.starts_with("E_PUB_FAILED"), "{text}");
    assert!(text.contains("deleted"), "{text}");
    let create = "/channel/create?topic=doomed&channel=new";
    assert_eq!(broker.post(create, b"").status, 500);
    assert!(
        before == contents(&log_of(&broker, "doomed")),
        "they were touched"
    );
    // The other topics are served.
    publish(&broker, "other", "after");
    allow(broker.data_path(), 0o700);
    let is_gone = wait_until(TIMEOUT, || {
        broker.post("/pub?topic=doomed", b"after").status == 200
    });
    assert!(is_gone, "it is still refused:\n{}", broker.log());
    broker.kill9();
    broker.restart();
    assert_eq!(depth(&broker, "doomed", "one"), None, "it came back");
    assert_eq!(bodies(&broker, "doomed", "new", 1), ["after"]);
    assert_eq!(depth(&broker, "other", "one"), Some(2));
}

/// A failed sync of the data path may have lost any change of names in it, so the broker trusts no
/// later sync.
#[test]
fn a_failed_sync_of_the_data_path_is_final() {
    let mut broker = unprivileged().start();
    fill(&broker, "doomed");
    fill(&broker, "other");
    let delete = || broker.post("/topic/delete?topic=doomed", b"").status;
    // Names change, and the broker cannot open the directory to sync it.
    allow(broker.data_path(), 0o300);
    assert_eq!(delete(), 500);
    let line = broker.wait_for_log("cannot delete its log");
    assert!(line.contains("after the next start"), "{line}");
    allow(broker.data_path(), 0o700);
    assert!(broker.post("/pub?topic=doomed", b"x").status >= 500);
    let is_refused = wait_until(TIMEOUT, || {
        broker.post("/pub?topic=new", b"x").status >= 500
    });
    assert!(is_refused, "its name is not durable:\n{}", broker.log());
    assert!(
        wait_until(TIMEOUT, || broker.get("/ping").status == 500),
        "all is well"
    );
    // Stored messages are still delivered.
    assert_eq!(bodies(&broker, "other", "one", 1), ["before"]);
    assert!(broker.sigterm_and_wait().success());
    broker.restart();
    assert_eq!(depth(&broker, "doomed", "one"), Some(1), "it is not lost");
    broker.admin("/topic/delete?topic=doomed");
    publish(&broker, "doomed", "after");
    assert_eq!(bodies(&broker, "doomed", "new", 1), ["after"]);
}

/// A copy of the data path lacked the end of the checkpoint file. The start used an older checkpoint, from before the
/// channel, so the channel was gone, and the next channel got its messages.
#[test]
fn a_channel_outlives_the_loss_of_newer_checkpoints() {
    let mut broker = Broker::start(1, &[]);
    broker.admin("/topic/create?topic=t");
    let create = "/channel/create?topic=t&channel=c";
    broker.admin(create);
    for _ in 0..10 {
        broker.post("/pub?topic=t", b"x").expect_status(200);
    }
    broker.sigterm_and_wait();
    let path = broker.data_path().join("t.log/checkpoint");
    let file = std::fs::OpenOptions::new().write(true).open(path);
    // The first slot has the checkpoint of the new topic.
    file.and_then(|file| file.set_len(4096))
        .expect("there is the file");
    broker.restart();
    broker.wait_for_log("the file has 4096 bytes instead of 24576");
    let channel = broker.channel("t", "c");
    assert_eq!(channel["depth"], 10);
}

/// The other topics are served.
#[test]
fn a_log_that_cannot_be_read_is_set_aside() {
    let mut broker = unprivileged().start();
    fill(&broker, "unreadable");
    fill(&broker, "other");
    broker.admin("/topic/pause?topic=unreadable");
    assert!(broker.sigterm_and_wait().success());
    let log = log_of(&broker, "unreadable");
    let before = contents(&log);
    allow(&log, 0o000);
    broker.restart();
    let line = broker.wait_for_log("unreadable");
    assert!(
        line.contains("ERROR") && line.contains("set aside"),
        "{line}"
    );
    publish(&broker, "other", "after");
    assert_eq!(depth(&broker, "other", "one"), Some(2));
    assert_eq!(broker.topic_stats("unreadable"), None);
    let ping = broker.get("/ping");
    assert_eq!(ping.status, 500, "{}", ping.text());
    for (command, code) in [
        (
            Client::command_with_body("PUB unreadable", b"x"),
            "E_PUB_FAILED",
        ),
        (Client::mpub("unreadable", &["x"]), "E_MPUB_FAILED"),
        (b"SUB unreadable one\n".to_vec(), "E_SUB_FAILED"),
    ] {
        // With several connections, some of them are on another shard than the topic.
        for _ in 0..8 {
            let mut client = broker.client();
            client.send(&command);
            let text = client.frame_after_heartbeats().text();
            assert!(
                text.starts_with(code) && text.contains("set aside"),
                "{text}"
            );
        }
    }
    let text = broker.post("/pub?topic=unreadable", b"x").text();
    let begin =
        r#"{"message":"STORAGE_FAILED","reason":"topic unreadable is set aside since the start: "#;
    assert!(text.starts_with(begin), "{text}");
    for target in [
        "/pub?topic=unreadable",
        "/topic/create?topic=unreadable",
        "/topic/delete?topic=unreadable",
        "/channel/create?topic=unreadable&channel=new",
    ] {
        assert!(broker.post(target, b"x").status >= 500, "{target}");
    }
    assert!(broker.sigterm_and_wait().success());
    allow(&log, 0o755);
    assert!(before == contents(&log), "its files were touched");
    broker.restart();
    assert_eq!(depth(&broker, "unreadable", "one"), Some(1));
    assert_eq!(depth(&broker, "unreadable", "two"), Some(1));
    let stats = broker.topic("unreadable");
    assert_eq!(stats["paused"], true);
    assert_eq!(broker.get("/ping").status, 200);
}
