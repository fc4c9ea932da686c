//! Descriptors and disk space run out. The broker still serves connected clients, does not end, and
//! does not loop busily. It works normally as soon as there is room again.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{
    Broker, Client, FrameType, Launch, Message, TIMEOUT, Tmpfs, cpu_percent, descriptors, limited,
    open_files, wait_until,
};

const SHARDS: usize = 2;

// --- descriptors

/// The smallest limit with which two shards start: see DESCRIPTORS_PROCESS in src/preflight.
const DESCRIPTORS: usize = 64 + 16 * SHARDS;
/// The number of connections that use up every descriptor.
const CONNECTIONS: usize = 150;
/// The time of the measurement. It is longer than --sync-timeout, so the log is synced without a
/// free descriptor.
const MEASURE: Duration = Duration::from_secs(3);
/// The largest part of one core, in percent.
const CPU_PERCENT_MAX: f64 = 20.0;
/// The longest time from free descriptors to a served new client: the longest backoff, and time
/// for other work on the machine.
const RECOVERY: Duration = Duration::from_secs(30);

/// Repeats an exchange with the broker, and checks that the broker uses little processor time meanwhile.
fn expect_little_work(broker: &Broker, mut exchange: impl FnMut()) {
    let percent = cpu_percent(broker.pid(), || {
        let (start, mut exchanges) = (Instant::now(), 0);
        while start.elapsed() < MEASURE || exchanges < 10 {
            exchange();
            exchanges += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    eprintln!("limits: {percent:.1} % of a core without free descriptors");
    assert!(percent < CPU_PERCENT_MAX, "{percent:.1} % of a core");
}

#[test]
fn descriptors_run_out_and_come_back() {
    let broker = Launch::new(SHARDS, &[])
        .via(limited(&format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}")))
        .start();
    let mut producer = broker.client();
    let mut consumer = broker.consumer("descriptors", "channel", 1);
    let mut exchange = |body: &[u8]| {
        producer.publish("descriptors", body);
        let message = consumer.message();
        assert_eq!(message.body, body);
        consumer.finish(&message.id);
    };
    // These are more publishes than make a producer's connection move. So a connection that has to
    // move moves now.
    for _ in 0..40 {
        exchange(b"before");
    }

    for _ in 0..2 {
        // These connections succeed, because the kernel accepts them for the listener. The broker
        // may accept them later.
        let crowd: Vec<TcpStream> = (0..CONNECTIONS)
            .map(|_| TcpStream::connect_timeout(&broker.tcp_addr(), TIMEOUT).expect("a backlog"))
            .collect();
        let failures = wait_until(TIMEOUT, || {
            open_files(broker.pid()) + 1 >= DESCRIPTORS
                && broker.log().contains("temporary Accept() failure")
        });
        assert!(
            failures,
            "the descriptors ran out: {} of {DESCRIPTORS}",
            open_files(broker.pid())
        );

        // Connected clients are served.
        expect_little_work(&broker, || exchange(b"meanwhile"));

        // A segment of a new topic needs descriptors too. The publish may be refused or late, but
        // the broker survives.
        drop(crowd);
        let free = Instant::now();
        let mut newcomer = broker.client();
        newcomer.publish("descriptors-new", b"x");
        assert!(
            free.elapsed() < RECOVERY,
            "a new client waited for {:?}",
            free.elapsed()
        );
        let free = Instant::now();
        broker.get("/ping").expect_status(200);
        assert!(
            free.elapsed() < RECOVERY,
            "HTTP waited for {:?}",
            free.elapsed()
        );
        exchange(b"after");
        let is_back = wait_until(TIMEOUT, || open_files(broker.pid()) < DESCRIPTORS / 2 + 10);
        assert!(
            is_back,
            "{} descriptors are still open",
            open_files(broker.pid())
        );
    }
}

/// Sets the broker's limit so that the broker can open exactly `spare` more files. The limit holds
/// until the next call.
fn leave_descriptors(broker: &Broker, spare: usize) {
    // The limit is not a count, but the lowest number that the kernel does not assign.
    let open = descriptors(broker.pid());
    let mut free = (0..).filter(|number| !open.contains(number));
    let limit = free.nth(spare).expect("there is always a next number");
    let status = Command::new("prlimit")
        .args([
            format!("--pid={}", broker.pid()),
            format!("--nofile={limit}:"),
        ])
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "a child process can be limited"
    );
}

/// Returns true when a descriptor below the largest open one is free.
fn has_gaps(open: &BTreeSet<usize>) -> bool {
    open.last().is_some_and(|last| open.len() <= *last)
}

/// Waits until two successive checks find the same open descriptors.
fn wait_for_steady_descriptors(broker: &Broker) {
    let mut last = BTreeSet::new();
    wait_until(TIMEOUT, || {
        let open = descriptors(broker.pid());
        std::mem::replace(&mut last, open) == last
    });
}

/// Without any free descriptor, the broker cannot accept. New clients wait in the kernel's queue
/// without a cost, and are served when others leave.
#[test]
fn newcomers_wait_while_there_is_no_descriptor() {
    let broker = Broker::start(SHARDS, &[]);
    let mut producer = broker.client();
    for _ in 0..40 {
        producer.publish("waiting", b"before");
    }
    let hold = || {
        let mut client = broker.client();
        client.publish("waiting", b"held");
        client
    };
    let mut held: Vec<Client> = (0..30).map(|_| hold()).collect();
    // HTTP connections of this test may still be closing.
    broker.get("/ping").expect_status(200);
    wait_for_steady_descriptors(&broker);
    // Every number below the limit is in use, so the numbers of the held clients can be assigned
    // again.
    while has_gaps(&descriptors(broker.pid())) {
        held.push(hold());
        wait_for_steady_descriptors(&broker);
    }
    leave_descriptors(&broker, 0);
    let failing = Instant::now();
    let mut crowd: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = broker.client();
            client.command("PUB waiting", b"newcomer");
            client
        })
        .collect();
    broker.wait_for_log("temporary Accept() failure");
    expect_little_work(&broker, || producer.publish("waiting", b"meanwhile"));
    // All listeners of all shards fail, and the cause has one line a second.
    let log = broker.log();
    let lines = log.lines().filter(|line| {
        line.contains("temporary Accept() failure") && !line.contains("more like it")
    });
    let (line_count, seconds) = (lines.count() as u64, failing.elapsed().as_secs());
    assert!(
        line_count <= seconds + 3,
        "{line_count} lines in {seconds} s: {log}"
    );
    let free = Instant::now();
    drop(held);
    for client in &mut crowd {
        client.expect_ok();
    }
    assert!(
        free.elapsed() < RECOVERY,
        "the crowd waited for {:?}",
        free.elapsed()
    );
}

/// The number of clients. With this many, some are on the wrong shard, however the kernel spreads
/// them.
const CLIENTS: usize = 32;
/// The number of publishes of each client. It is more than make a producer's connection move to
/// another shard.
const PUBLISHES: usize = 40;

/// A move to another shard takes no descriptor, so clients on the wrong shard are served as usual while there is none.
/// A producer moved with a second descriptor for its socket once, and hung until there was one.
#[test]
fn clients_move_without_a_free_descriptor() {
    // The log is not synced during the test, so only a move could need a descriptor.
    let broker = Broker::start(SHARDS, &["--sync-timeout=10m"]);
    broker.admin("/topic/create?topic=staying");
    // The broker answers when nsqd.dat is written.
    broker.admin("/topic/unpause?topic=staying");
    broker.admin("/channel/create?topic=staying&channel=channel");
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| broker.client()).collect();
    let mut consumers: Vec<Client> = (0..CLIENTS).map(|_| broker.client()).collect();
    // Without a descriptor, the broker rightly refuses a publish that needs a further segment. A
    // large message makes a large segment, which also has room for all later messages.
    clients[0].publish("staying", &[b'x'; 400_000]);
    for client in clients.iter_mut().chain(&mut consumers) {
        client.publish("staying", b"before");
    }
    wait_for_steady_descriptors(&broker);
    let before = segments(&broker, "staying");
    leave_descriptors(&broker, 0);
    for client in &mut clients {
        client.send(&Client::command_with_body("PUB staying", b"x").repeat(PUBLISHES));
    }
    for consumer in &mut consumers {
        consumer.send(b"SUB staying channel\n");
    }
    for (number, client) in clients.iter_mut().enumerate() {
        for answer in 0..PUBLISHES {
            let frame = client.try_frame();
            assert!(
                matches!(&frame, Ok(Some(frame)) if frame.data == b"OK"),
                "client {number}, answer {answer}: {frame:?}"
            );
        }
    }
    for consumer in &mut consumers {
        consumer.expect_ok();
    }
    let after = segments(&broker, "staying");
    assert_eq!(
        before, after,
        "this test is about moves: the log must not need a descriptor"
    );
}

/// Returns the files of a topic's log that hold messages or are prepared for them.
fn segments(broker: &Broker, topic: &str) -> BTreeSet<String> {
    let directory = broker.data_path().join(format!("{topic}.log"));
    let files = std::fs::read_dir(directory).expect("the topic has a log");
    let names = files.map(|file| file.expect("listed").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".segment")).collect()
}

/// After an answer that does not need the rest of its request, the broker closes the connection,
/// whether or not the client continues to send.
#[test]
fn half_sent_requests_hold_no_descriptors() {
    let broker = Broker::start(SHARDS, &["--max-msg-size=1000"]);
    broker.get("/ping").expect_status(200);
    let is_free = |least| wait_until(TIMEOUT, || open_files(broker.pid()) <= least);
    let before = open_files(broker.pid());
    let mut clients: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect_timeout(&broker.http_addr(), TIMEOUT).expect("a backlog"))
        .collect();
    for client in &mut clients {
        let request =
            b"POST /pub?topic=half HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nhalf";
        client.write_all(request).expect("written");
        client.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let mut answer = [0; 12];
        client.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 413");
    }
    assert!(
        is_free(before),
        "clients that stopped hold {} descriptors",
        open_files(broker.pid()) - before
    );
}

/// A log needs descriptors. Without descriptors, the broker refuses a publish with the reason, or
/// lets it wait. A publish with OK is never lost, and the topic works when there are descriptors
/// again.
#[test]
fn a_new_topic_without_descriptors_is_refused_and_works_later() {
    let mut broker = Launch::new(SHARDS, &[])
        .via(limited(&format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}")))
        .start();
    let mut producers: Vec<Client> = (0..4).map(|_| broker.client()).collect();
    for producer in &mut producers {
        producer.publish("there", b"x");
    }
    let crowd: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| TcpStream::connect_timeout(&broker.tcp_addr(), TIMEOUT).expect("a backlog"))
        .collect();
    broker.wait_for_log("temporary Accept() failure");
    let mut stored: Vec<String> = Vec::new();
    for (number, producer) in producers.iter_mut().enumerate() {
        let topic = format!("new-{number}");
        producer.command(&format!("PUB {topic}"), topic.as_bytes());
        match producer.frame_within(TIMEOUT) {
            Some(frame) if frame.kind == FrameType::Response => stored.push(topic),
            Some(frame) => {
                let text = frame.text();
                assert!(text.starts_with("E_PUB_FAILED PUB failed "), "{text}");
                assert!(
                    text.contains("open files"),
                    "the answer has the reason: {text}"
                );
            }
            None => panic!("a publish without descriptors is answered at once"),
        }
    }
    drop(crowd);
    let mut producer = broker.client();
    for number in 0..4 {
        let topic = format!("new-{number}");
        // The first publish may be refused while descriptors are still being closed.
        let works = wait_until(RECOVERY, || {
            producer.command(&format!("PUB {topic}"), b"later");
            let frame = producer.frame_after_heartbeats();
            if frame.kind == FrameType::Error {
                producer = broker.client();
            }
            frame.kind == FrameType::Response
        });
        assert!(works, "{topic} is refused with descriptors free");
    }
    let status = broker.sigterm_and_wait();
    assert!(status.success(), "{status}");
    broker.restart_with(SHARDS, &[]);
    for number in 0..4 {
        let topic = format!("new-{number}");
        let mut bodies: BTreeSet<Vec<u8>> = BTreeSet::from([b"later".to_vec()]);
        if stored.contains(&topic) {
            bodies.insert(topic.clone().into_bytes());
        }
        let mut consumer = broker.consumer(&topic, "channel", 10);
        while !bodies.is_empty() {
            let message = consumer.message();
            bodies.remove(&message.body);
            consumer.finish(&message.id);
        }
    }
}

// --- disk space

const ROUNDS: usize = 3;
const BODY_BYTES: usize = 10_000;
/// The longest time from free space to a publish with OK: a second, and time for other work on the
/// machine.
const SPACE_RECOVERY: Duration = Duration::from_secs(30);
/// The time of refusals after which no more space becomes free, because a checkpoint comes within
/// 250 ms.
const SETTLED: Duration = Duration::from_secs(2);

/// A broker on a full disk, and the messages that it owes.
struct Full {
    broker: Broker,
    tmpfs: Tmpfs,
    next: u64,
    owed: BTreeSet<u64>,
    /// Messages that are certainly finished. None of them may come again, not even after a restart.
    finished: BTreeSet<u64>,
}

impl Full {
    fn start(size: &str) -> Option<Full> {
        let tmpfs = Tmpfs::mount(size)?;
        let data_path: PathBuf = tmpfs.path().join("data");
        std::fs::create_dir(&data_path).expect("created");
        let broker = Launch::new(SHARDS, &[]).at(data_path).start();
        broker.create("full", "channel");
        Some(Full {
            broker,
            tmpfs,
            next: 0,
            owed: BTreeSet::new(),
            finished: BTreeSet::new(),
        })
    }

    fn body(&mut self) -> Vec<u8> {
        self.next += 1;
        let mut body = self.next.to_be_bytes().to_vec();
        body.resize(BODY_BYTES, b'x');
        body
    }

    /// Publishes once. Returns the error text of a refusal.
    fn try_publish(&mut self, client: &mut Client) -> Result<(), String> {
        let body = self.body();
        client.command("PUB full", &body);
        let frame = client.frame_after_heartbeats();
        match frame.kind {
            FrameType::Response => {
                assert_eq!(frame.text(), "OK");
                self.owed.insert(self.next);
                Ok(())
            }
            _ => Err(frame.text()),
        }
    }

    /// Publishes until the disk is full and stays full. The space of finished messages becomes free
    /// only after a checkpoint.
    fn fill(&mut self) {
        let mut client = self.broker.client();
        let mut refused_since = None;
        for _ in 0..20_000 {
            let Err(text) = self.try_publish(&mut client) else {
                refused_since = None;
                continue;
            };
            assert!(text.starts_with("E_PUB_FAILED PUB failed "), "{text}");
            assert!(
                text.contains("o space left on device"),
                "the system's answer: {text}"
            );
            client.expect_close();
            if refused_since.get_or_insert_with(Instant::now).elapsed() > SETTLED {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
            client = self.broker.client();
        }
        panic!("200 MB got OK on a file system of a few MB");
    }

    /// The messages that the topic has refused, by the metrics.
    fn refused(&self) -> u64 {
        let metrics = self.broker.get("/metrics").expect_status(200).text();
        let name = "nsqd_topic_refused_messages_total{topic=\"full\"} ";
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        let value = value.unwrap_or_else(|| panic!("{name} in {metrics}"));
        value.parse().expect("a number")
    }

    /// Checks that every interface reports the full disk at once.
    fn expect_refusals(&mut self) {
        let start = Instant::now();
        let ping = self.broker.get("/ping").expect_status(500);
        assert!(ping.text().starts_with("NOK - "), "{}", ping.text());
        // Both texts name the segment that the broker tried last. Between the two requests, the
        // broker may try another one.
        let agree = wait_until(TIMEOUT, || {
            let ping = self.broker.get("/ping").expect_status(500);
            self.broker.stats()["health"] == ping.text()
        });
        assert!(agree, "/stats says what /ping says");
        let refused_before = self.refused();
        let body = self.body();
        self.broker
            .post("/pub?topic=full", &body)
            .expect_status(503);
        for (line, code) in [
            ("DPUB full 100", "E_DPUB_FAILED DPUB"),
            ("PUB full", "E_PUB_FAILED PUB"),
        ] {
            let body = self.body();
            let mut client = self.broker.client();
            client.command(line, &body);
            let text = client.frame_after_heartbeats().text();
            assert!(text.starts_with(&format!("{code} failed ")), "{text}");
            client.expect_close();
        }
        let many = [self.body(), self.body(), self.body()];
        let mut client = self.broker.client();
        client.send(&Client::mpub("full", &many));
        let text = client.frame_after_heartbeats().text();
        assert!(text.starts_with("E_MPUB_FAILED MPUB failed "), "{text}");
        assert_eq!(self.refused() - refused_before, 1 + 2 + 3);
        assert!(
            start.elapsed() < TIMEOUT,
            "at once, not {:?}",
            start.elapsed()
        );
    }

    /// Takes messages until `left` of the owed ones remain.
    fn consume_until(&mut self, left: usize) {
        let mut consumer = self.broker.consumer("full", "channel", 20);
        while self.owed.len() > left {
            let message = consumer.message();
            self.take(&mut consumer, &message);
        }
        // Messages that were on their way arrive before the answer. They are taken too.
        consumer.close_wait();
        loop {
            let frame = consumer.frame_after_heartbeats();
            match frame.kind {
                FrameType::Message => {
                    let message = Message::parse(&frame.data).expect("whole");
                    self.take(&mut consumer, &message);
                }
                FrameType::Response if frame.text() == "CLOSE_WAIT" => break,
                _ => panic!("a FIN failed: {}", frame.text()),
            }
        }
        // The broker answers the end of input with a close after it has carried out every command.
        // A failed FIN would show.
        consumer.close_write();
        consumer.expect_close();
    }

    fn take(&mut self, consumer: &mut Client, message: &Message) {
        let number = message.body[..8].try_into().expect("eight bytes");
        let number = u64::from_be_bytes(number);
        assert_eq!(message.body.len(), BODY_BYTES);
        assert!(
            message.body[8..].iter().all(|byte| *byte == b'x'),
            "{number} is damaged"
        );
        // Some messages have no OK, because a failed MPUB may have stored a part.
        self.owed.remove(&number);
        assert!(
            self.finished.insert(number),
            "{number} comes again after its FIN"
        );
        consumer.finish(&message.id);
    }

    fn expect_service(&mut self) {
        let start = Instant::now();
        let mut text = String::new();
        let works = wait_until(SPACE_RECOVERY, || {
            let mut client = self.broker.client();
            match self.try_publish(&mut client) {
                Ok(()) => true,
                Err(why) => {
                    text = why;
                    false
                }
            }
        });
        assert!(
            works,
            "still refused {:?} after space was freed: {text}",
            start.elapsed()
        );
        eprintln!("limits: service is back after {:?}", start.elapsed());
        let healthy = wait_until(SPACE_RECOVERY, || self.broker.get("/ping").status == 200);
        assert!(healthy, "{}", self.broker.get("/ping").text());
        let body = self.body();
        self.broker
            .post("/pub?topic=full", &body)
            .expect_status(200);
        self.owed.insert(self.next);
    }

    /// Checks that every owed message exists, also after a restart.
    fn finish(mut self) {
        let status = self.broker.sigterm_and_wait();
        assert!(status.success(), "{status}");
        self.broker.restart();
        self.consume_until(0);
    }
}

/// While every MPUB was refused, /ping said OK in 47 of 60 probes, because small messages found room in between, and the log
/// said "takes messages again" 99 times.
#[test]
fn a_disk_that_refuses_a_batch_is_full_until_the_batch_fits() {
    const BATCHES: u64 = 20;
    let Some(mut full) = Full::start("12m") else {
        return;
    };
    let mut client = full.broker.client();
    while full.next < 800 {
        full.try_publish(&mut client)
            .expect("there is room for 8 MB");
    }
    let batch: Vec<Vec<u8>> = (0..500).map(|_| vec![b'x'; BODY_BYTES]).collect();
    let mut small_count = 0;
    for round in 0..BATCHES {
        let mut client = full.broker.client();
        client.send(&Client::mpub("full", &batch));
        let text = client.frame_after_heartbeats().text();
        assert!(text.starts_with("E_MPUB_FAILED MPUB failed "), "{text}");
        client.expect_close();
        let mut client = full.broker.client();
        small_count += u64::from(full.try_publish(&mut client).is_ok());
        for _ in 0..3 {
            full.broker.get("/ping").expect_status(500);
            full.broker.get("/ready").expect_status(503);
            let metrics = full.broker.get("/metrics").expect_status(200).text();
            assert!(
                metrics.contains("\nnsqd_healthy 0\n"),
                "round {round}: {metrics}"
            );
            std::thread::sleep(Duration::from_millis(40));
        }
    }
    assert!(small_count > 0, "small messages find room");
    let refused = full.broker.topic("full")["refused_count"].as_u64();
    assert!(refused >= Some(BATCHES * batch.len() as u64), "{refused:?}");
    let log = full.broker.log();
    let errors = log.lines().filter(|line| line.contains(" ERROR: "));
    assert_eq!(errors.count(), 1, "{log}");
    assert!(!log.contains("takes messages again"), "{log}");
    // Nobody has to publish for the end.
    full.consume_until(0);
    let is_healthy = wait_until(SPACE_RECOVERY, || full.broker.get("/ping").status == 200);
    assert!(is_healthy, "{}", full.broker.get("/ping").text());
    full.broker
        .wait_for_log("TOPIC(full): takes messages again");
    let mut client = full.broker.client();
    client.send(&Client::mpub("full", &batch));
    client.expect_ok();
    assert!(full.broker.sigterm_and_wait().success());
}

#[test]
fn a_full_disk_recovers_by_consuming() {
    let Some(mut full) = Full::start("12m") else {
        return;
    };
    for round in 0..ROUNDS {
        full.fill();
        full.expect_refusals();
        eprintln!(
            "limits: round {round}: full with {} messages",
            full.owed.len()
        );
        full.consume_until(0);
        full.expect_service();
    }
    full.finish();
}

#[test]
fn a_full_disk_recovers_when_others_make_room() {
    let Some(mut full) = Full::start("24m") else {
        return;
    };
    for round in 0..ROUNDS {
        let mut client = full.broker.client();
        for _ in 0..100 {
            full.try_publish(&mut client)
                .expect("there is room for 1 MB");
        }
        let filler = full.tmpfs.fill("filler");
        full.fill();
        full.expect_refusals();
        eprintln!(
            "limits: round {round}: full with {} messages",
            full.owed.len()
        );
        // Consuming and finishing need no space.
        let left = full.owed.len() / 2;
        full.consume_until(left);
        std::fs::remove_file(filler).expect("it is ours");
        full.expect_service();
        full.consume_until(5);
    }
    full.finish();
}

#[test]
fn a_crash_on_a_full_disk_loses_nothing() {
    let Some(mut full) = Full::start("12m") else {
        return;
    };
    full.fill();
    full.broker.kill9();
    full.broker.restart();
    full.consume_until(0);
    full.expect_service();
    full.finish();
}
