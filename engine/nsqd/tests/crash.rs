//! Kills the broker several times with `kill -9` under load. Each message that got `OK` arrives on
//! every channel. Messages that were requeued, in flight or deferred when the broker died arrive
//! again.
//!
//! `cargo test` publishes few messages. This command publishes a million, with a new seed, which it
//! prints:
//!
//!     RINGQ_CRASH_MESSAGES=1000000 RINGQ_CRASH_KILLS=10 \
//!         cargo test --release -p nsqd --test nsqd crash:: -- --nocapture
//!
//! `RINGQ_CRASH_SEED=n` repeats a run's choices (not its timing), `RINGQ_CRASH_SHARDS=n` its shards.
//!
//! The test judges as follows. Every publication has a unique id. If a publication gets no `OK`
//! before a kill, the broker owes nothing, and a publication with a new id replaces it. On each
//! channel, an id is settled when a consumer has sent FIN for it. After a REQ or no answer, the id
//! is not settled, so the message must be delivered again. At the end, all ids with `OK` must be
//! settled. A delivery after the FIN is permitted, because a FIN may be lost with the broker. The
//! test counts and prints such deliveries.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::{
    self, Broker, Client, FrameType, Message, Random, number_from_env, whole_machine,
};

const TOPIC: &str = "crash";
const CHANNELS: [&str; 2] = ["first", "second"];

/// The most commands without an answer: enough to keep the broker busy while an answer is on its
/// way.
const COMMANDS_IN_FLIGHT_MAX: usize = 8;
const BATCH_MIN: u64 = 50;
const BATCH_MAX: u64 = 200;
/// One in this many commands is a DPUB, one is a row of PUBs, and the others are MPUBs.
const ONE_DPUB_IN: u64 = 20;
const ONE_PUB_IN: u64 = 4;
const DEFER_MS_MAX: u64 = 3_000;

const READY: u32 = 500;
/// The message timeout. It is short, so that the end of the test need not wait long for messages in
/// flight.
const MSG_TIMEOUT_MS: u64 = 2_000;
const ONE_REQUEUE_IN: u64 = 100;
const ONE_HELD_IN: u64 = 400;
const REQUEUE_MS_MAX: u64 = 2_000;

/// The bytes of the id and the checksum in front of the padding. The size of bodies varies, so that
/// frames lie anywhere in pages and segments.
const HEADER_BYTES: usize = 12;
const PADDING_BYTES_MAX: u64 = 200;
const ONE_LONG_IN: u64 = 2_000;
const LONG_BYTES: usize = 20_000;

/// The time without a settled message after which the rest counts as lost. All timeouts and delays
/// are shorter.
const STALLED: Duration = Duration::from_secs(60);
/// The longest time until the producer reaches the next kill.
const FLOW_TIMEOUT: Duration = Duration::from_secs(300);

const OK: u8 = 1;
const SETTLED: [u8; 2] = [2, 4];
const DELIVERED: [u8; 2] = [8, 16];

#[test]
fn messages_with_ok_survive_kill_9() {
    let _machine = whole_machine();
    let messages = number_from_env("RINGQ_CRASH_MESSAGES", 100_000);
    let kills = number_from_env("RINGQ_CRASH_KILLS", 3);
    let shards = number_from_env("RINGQ_CRASH_SHARDS", 2) as usize;
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("it is later than 1970");
    let seed = number_from_env("RINGQ_CRASH_SEED", u64::from(clock.subsec_nanos()));
    eprintln!("crash: RINGQ_CRASH_SEED={seed}, {messages} messages, {kills} kills");
    let mut random = Random::new(seed);
    let flow = Arc::new(Flow::new(messages, kills));
    let started = Instant::now();

    let mut broker = Broker::start(shards, &[]);
    broker.admin(&format!("/topic/create?topic={TOPIC}"));
    for channel in CHANNELS {
        broker.admin(&format!("/channel/create?topic={TOPIC}&channel={channel}"));
    }

    let mut moments: Vec<u64> = (0..kills)
        .map(|_| random.between(messages / 100, messages - messages / 100))
        .collect();
    moments.sort_unstable();
    for moment in moments {
        let round = Round::start(&broker, &flow, &mut random);
        round.wait_for_oks(moment);
        // The kill comes at any point of the broker's work, not only during an answer.
        std::thread::sleep(Duration::from_micros(random.below(50_000)));
        broker.kill9();
        round.join();
        let before = Instant::now();
        broker.restart();
        eprintln!(
            "crash: killed after {moment} OKs, settled {:?}, back after {:?}",
            flow.settled_counts(),
            before.elapsed()
        );
    }
    let round = Round::start(&broker, &flow, &mut random);
    round.wait_for_oks(messages);
    wait_for_settlement(&flow);
    expect_empty_channels(&broker);
    let status = broker.sigterm_and_wait();
    assert!(status.success(), "the broker ended with {status}");
    round.join();
    flow.report(seed, started);
}

/// The state of every publication, shared by all threads of all rounds.
struct Flow {
    /// The number of publications that must get OK.
    messages: u64,
    /// The bits `OK`, `SETTLED` and `DELIVERED` of each id.
    ids: Vec<AtomicU8>,
    next_id: AtomicU64,
    oks: AtomicU64,
    /// The number of settled ids with OK of each channel. OK and FIN may come in either order.
    settled: [AtomicU64; 2],
    /// The number of deliveries of finished ids of each channel.
    after_finish: [AtomicU64; 2],
    /// The number of deliveries of each channel.
    deliveries: [AtomicU64; 2],
    padding: Vec<u8>,
}

impl Flow {
    fn new(messages: u64, kills: u64) -> Flow {
        // A kill loses the OKs of at most the commands without an answer, each with at most one
        // batch.
        let stranded = kills * (COMMANDS_IN_FLIGHT_MAX as u64 + 1) * BATCH_MAX;
        let mut random = Random::new(1);
        Flow {
            messages,
            ids: (0..messages + stranded).map(|_| AtomicU8::new(0)).collect(),
            next_id: AtomicU64::new(0),
            oks: AtomicU64::new(0),
            settled: Default::default(),
            after_finish: Default::default(),
            deliveries: Default::default(),
            padding: (0..LONG_BYTES).map(|_| random.below(256) as u8).collect(),
        }
    }

    fn body(&self, id: u64, random: &mut Random) -> Vec<u8> {
        let padding = if random.one_in(ONE_LONG_IN) {
            LONG_BYTES
        } else {
            random.below(PADDING_BYTES_MAX) as usize
        };
        let mut body = Vec::with_capacity(HEADER_BYTES + padding);
        body.extend_from_slice(&id.to_be_bytes());
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(&self.padding[..padding]);
        let sum = checksum(&body);
        body[8..12].copy_from_slice(&sum.to_be_bytes());
        body
    }

    /// Returns the id in a body. Panics unless every byte of the body is the expected one.
    fn id_in(&self, body: &[u8]) -> u64 {
        assert!(body.len() >= HEADER_BYTES, "a body of {} bytes", body.len());
        let id = u64::from_be_bytes(body[..8].try_into().expect("8 bytes"));
        let sum = u32::from_be_bytes(body[8..12].try_into().expect("4 bytes"));
        assert_eq!(
            sum,
            checksum(body),
            "corrupt body of {} bytes, id {id:#x}",
            body.len()
        );
        assert!(
            id < self.next_id.load(Ordering::SeqCst),
            "id {id} has not been published"
        );
        id
    }

    fn got_ok(&self, id: u64) {
        let before = self.ids[id as usize].fetch_or(OK, Ordering::SeqCst);
        for (settled, bit) in self.settled.iter().zip(SETTLED) {
            if before & bit != 0 {
                settled.fetch_add(1, Ordering::SeqCst);
            }
        }
        self.oks.fetch_add(1, Ordering::SeqCst);
    }

    fn finished(&self, channel: usize, id: u64) {
        let before = self.ids[id as usize].fetch_or(SETTLED[channel], Ordering::SeqCst);
        if before & OK != 0 && before & SETTLED[channel] == 0 {
            self.settled[channel].fetch_add(1, Ordering::SeqCst);
        }
    }

    fn settled_counts(&self) -> [u64; 2] {
        [0, 1].map(|channel: usize| self.settled[channel].load(Ordering::SeqCst))
    }

    /// Returns the ids with OK that lack a bit.
    fn missing(&self, bit: u8) -> Vec<usize> {
        let bits = self.ids.iter().map(|id| id.load(Ordering::SeqCst));
        bits.enumerate()
            .filter(|(_, bits)| bits & OK != 0 && bits & bit == 0)
            .map(|(id, _)| id)
            .collect()
    }

    /// Gives the verdict from the bits alone.
    fn report(&self, seed: u64, started: Instant) {
        for (channel, name) in CHANNELS.iter().enumerate() {
            let missing = self.missing(SETTLED[channel]);
            assert!(
                missing.is_empty(),
                "{name}: {} ids not settled, seed {seed}",
                missing.len()
            );
            eprintln!(
                "crash: {name}: all {} arrived; {} deliveries, {} of them after FIN",
                self.messages,
                self.deliveries[channel].load(Ordering::SeqCst),
                self.after_finish[channel].load(Ordering::SeqCst)
            );
        }
        eprintln!("crash: seed {seed} done in {:?}", started.elapsed());
    }
}

/// Returns the FNV-1a hash of all bytes except the checksum. It detects a torn, shifted or mixed-up
/// body.
fn checksum(body: &[u8]) -> u32 {
    let bytes = body[..8].iter().chain(&body[HEADER_BYTES..]);
    bytes.fold(0x811C_9DC5, |sum, byte| {
        (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// The threads between two kills.
struct Round {
    flow: Arc<Flow>,
    /// True before the test kills the broker. Until then a lost connection is a failure.
    ending: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Round {
    fn start(broker: &Broker, flow: &Arc<Flow>, random: &mut Random) -> Round {
        let ending = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (channel, name) in CHANNELS.into_iter().enumerate() {
            let mut client = broker.client();
            client.identify(&format!("{{\"msg_timeout\":{MSG_TIMEOUT_MS}}}"));
            client.subscribe(TOPIC, name);
            client.ready(READY);
            let consumer = Consumer {
                client,
                flow: Arc::clone(flow),
                channel,
                random: Random::new(random.next()),
                commands: Vec::new(),
            };
            let ending = Arc::clone(&ending);
            threads.push(std::thread::spawn(move || {
                let error = consumer.run();
                assert!(ending.load(Ordering::SeqCst), "{name}: {error}");
            }));
        }
        let producer = Producer {
            client: broker.client(),
            flow: Arc::clone(flow),
            random: Random::new(random.next()),
            unanswered: VecDeque::new(),
            promised: flow.oks.load(Ordering::SeqCst),
        };
        threads.push(std::thread::spawn({
            let ending = Arc::clone(&ending);
            move || {
                if let Err(error) = producer.run() {
                    assert!(ending.load(Ordering::SeqCst), "producer: {error}");
                }
            }
        }));
        Round {
            flow: Arc::clone(flow),
            ending,
            threads,
        }
    }

    /// Waits until `count` publications have got OK, then permits connections to end.
    fn wait_for_oks(&self, count: u64) {
        let deadline = Instant::now() + FLOW_TIMEOUT;
        while self.flow.oks.load(Ordering::SeqCst) < count {
            assert!(
                Instant::now() < deadline,
                "fewer than {count} OKs after {FLOW_TIMEOUT:?}"
            );
            let is_dead = self.threads.iter().any(|thread| thread.is_finished());
            let is_short = self.flow.oks.load(Ordering::SeqCst) < count;
            assert!(!(is_dead && is_short), "a thread has failed, see above");
            std::thread::sleep(Duration::from_micros(200));
        }
        self.ending.store(true, Ordering::SeqCst);
    }

    fn join(self) {
        for thread in self.threads {
            assert!(thread.join().is_ok(), "a thread has failed, see above");
        }
    }
}

/// Publishes until enough ids have got OK, or the connection ends.
struct Producer {
    client: Client,
    flow: Arc<Flow>,
    random: Random,
    /// The ids of each command without an answer, oldest first.
    unanswered: VecDeque<Vec<u64>>,
    /// The number of OKs that have arrived or are expected.
    promised: u64,
}

impl Producer {
    fn run(mut self) -> io::Result<()> {
        loop {
            while self.unanswered.len() < COMMANDS_IN_FLIGHT_MAX
                && self.promised < self.flow.messages
            {
                self.send_command()?;
            }
            if self.unanswered.is_empty() {
                return Ok(());
            }
            self.receive_answer()?;
        }
    }

    fn send_command(&mut self) -> io::Result<()> {
        let left = self.flow.messages - self.promised;
        if self.random.one_in(ONE_DPUB_IN) {
            let defer_ms = self.random.between(1, DEFER_MS_MAX);
            return self.send_single(&format!("DPUB {TOPIC} {defer_ms}"));
        }
        if self.random.one_in(ONE_PUB_IN) {
            return self.send_single(&format!("PUB {TOPIC}"));
        }
        let count = self.random.between(BATCH_MIN, BATCH_MAX).min(left);
        let first = self.take_ids(count);
        let ids: Vec<u64> = (first..first + count).collect();
        let bodies: Vec<Vec<u8>> = ids
            .iter()
            .map(|id| self.flow.body(*id, &mut self.random))
            .collect();
        self.unanswered.push_back(ids);
        self.client.try_send(&Client::mpub(TOPIC, &bodies))
    }

    fn send_single(&mut self, line: &str) -> io::Result<()> {
        let id = self.take_ids(1);
        let body = self.flow.body(id, &mut self.random);
        self.unanswered.push_back(vec![id]);
        self.client
            .try_send(&Client::command_with_body(line, &body))
    }

    fn take_ids(&mut self, count: u64) -> u64 {
        self.promised += count;
        self.flow.next_id.fetch_add(count, Ordering::SeqCst)
    }

    fn receive_answer(&mut self) -> io::Result<()> {
        let Some(frame) = self.client.try_frame()? else {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "connection closed",
            ));
        };
        if frame.is_heartbeat() {
            return self.client.try_send(b"NOP\n");
        }
        let answer = (frame.kind, frame.data.as_slice());
        assert_eq!(
            answer,
            (FrameType::Response, b"OK".as_slice()),
            "{}",
            frame.text()
        );
        let ids = self
            .unanswered
            .pop_front()
            .expect("an answer belongs to a command");
        ids.iter().for_each(|id| self.flow.got_ok(*id));
        Ok(())
    }
}

/// Takes messages from one channel until the connection ends.
struct Consumer {
    client: Client,
    flow: Arc<Flow>,
    channel: usize,
    random: Random,
    /// Commands that have not been sent yet.
    commands: Vec<u8>,
}

impl Consumer {
    /// Consumes until the connection ends. Returns the reason.
    fn run(mut self) -> io::Error {
        loop {
            // One system call sends the commands for all messages that arrived together.
            if !self.client.has_buffered() && !self.commands.is_empty() {
                if let Err(error) = self.client.try_send(&self.commands) {
                    return error;
                }
                self.commands.clear();
            }
            let frame = match self.client.try_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return io::Error::new(io::ErrorKind::UnexpectedEof, "closed"),
                // At the end, no frame may arrive for a while, because the interval of heartbeats
                // is longer than the read timeout.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return error,
            };
            match frame.kind {
                FrameType::Message => {
                    let message = Message::parse(&frame.data).expect("a message has its header");
                    self.receive(&message);
                }
                FrameType::Response if frame.is_heartbeat() => {
                    self.commands.extend_from_slice(b"NOP\n");
                }
                // The consumer may be so slow that a message timed out before the consumer read it.
                FrameType::Error
                    if frame.data.starts_with(b"E_FIN_FAILED")
                        || frame.data.starts_with(b"E_REQ_FAILED") => {}
                _ => panic!(
                    "{}: unexpected frame {}",
                    CHANNELS[self.channel],
                    frame.text()
                ),
            }
        }
    }

    fn receive(&mut self, message: &Message) {
        let id = self.flow.id_in(&message.body);
        let state = &self.flow.ids[id as usize];
        let before = state.fetch_or(DELIVERED[self.channel], Ordering::SeqCst);
        self.flow.deliveries[self.channel].fetch_add(1, Ordering::SeqCst);
        if before & SETTLED[self.channel] != 0 {
            self.flow.after_finish[self.channel].fetch_add(1, Ordering::SeqCst);
        }
        if self.random.one_in(ONE_HELD_IN) {
            return; // The message times out, here or after the next start.
        }
        if self.random.one_in(ONE_REQUEUE_IN) {
            let delay = if self.random.one_in(2) {
                0
            } else {
                self.random.between(1, REQUEUE_MS_MAX)
            };
            self.command(b"REQ ", message, format!(" {delay}\n").as_bytes());
            return;
        }
        // The FIN of an id that is settled here may be lost with the broker. The id stays settled:
        // the broker promises one delivery that a consumer finished.
        self.command(b"FIN ", message, b"\n");
        self.flow.finished(self.channel, id);
    }

    fn command(&mut self, verb: &[u8], message: &Message, rest: &[u8]) {
        self.commands.extend_from_slice(verb);
        self.commands.extend_from_slice(&message.id);
        self.commands.extend_from_slice(rest);
    }
}

/// Waits until both channels have settled all messages. Gives up when no more messages are settled.
fn wait_for_settlement(flow: &Flow) {
    let mut counts = flow.settled_counts();
    let mut moved = Instant::now();
    while counts != [flow.messages; 2] {
        std::thread::sleep(Duration::from_millis(50));
        let now = flow.settled_counts();
        if now != counts {
            counts = now;
            moved = Instant::now();
        }
        if moved.elapsed() > STALLED {
            let mut text = String::new();
            for channel in 0..2 {
                let unsettled = flow.missing(SETTLED[channel]);
                let unseen = flow.missing(DELIVERED[channel]);
                text.push_str(&format!(
                    "\n{}: {} ids with OK never arrived, first {:?}; {} more arrived, were given \
                     back or held, and did not arrive again",
                    CHANNELS[channel],
                    unseen.len(),
                    &unseen[..unseen.len().min(10)],
                    unsettled.len() - unseen.len()
                ));
            }
            panic!("nothing has arrived for {STALLED:?}:{text}");
        }
    }
}

/// The other messages are duplicates and publications without OK. They come to an end, too.
fn expect_empty_channels(broker: &Broker) {
    let mut last = None;
    let empty = support::wait_until(STALLED, || {
        last = broker.topic_stats(TOPIC);
        let Some(topic) = &last else {
            return false;
        };
        topic["depth"] == 0
            && topic["channels"].as_array().is_some_and(|channels| {
                channels.len() == 2
                    && channels.iter().all(|channel| {
                        ["depth", "in_flight_count", "deferred_count"]
                            .iter()
                            .all(|key| channel[*key] == 0)
                    })
            })
    });
    assert!(empty, "the channels do not become empty: {last:?}");
}
