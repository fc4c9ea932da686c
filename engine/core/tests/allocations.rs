//! The message path allocates nothing per message: publish, deliver, finish, requeue and redeliver in
//! the steady state, with every allocation counted.

use diskq::{Keeper, LogOptions, SimFiles};
use engine_core::{Broker, BrokerOptions, ClientId, Now, Output, Sent, ShardId, TopicOptions};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::IoSlice;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use wire::encode::{self, FrameDecoded, decode_frame};
use wire::frame::{FrameType, Message};
use wire::identify::ServerSettings;
use wire::limits::Limits;
use wire::name::{ChannelName, TopicName};

struct Counting;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn note() {
    if IS_COUNTING.load(Ordering::Relaxed) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches atomics only.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DATA_PATH: &str = "/data";
const BATCH: usize = 100;

/// A broker with one producer and one consumer, and the keeper at hand.
struct Bench {
    broker: Broker,
    files: SimFiles,
    out: Vec<Output>,
    to_flush: Vec<ClientId>,
    mono: Duration,
    allocations: u64,
}

impl Bench {
    fn new() -> Bench {
        let broker = Broker::new(BrokerOptions {
            shard: ShardId(0),
            shards: 1,
            limits: Limits::default(),
            server: ServerSettings::default(),
            topic: TopicOptions {
                log: LogOptions {
                    node: 3,
                    ..LogOptions::default()
                },
                mem_queue_size: 10_000,
                group_commit: false,
            },
            resident_bytes: 1 << 20,
            channel_consumers_max: 0,
            seed: 1,
        });
        Bench {
            broker,
            files: SimFiles::new(),
            out: Vec::new(),
            to_flush: Vec::new(),
            mono: Duration::ZERO,
            allocations: 0,
        }
    }

    fn now(&self) -> Now {
        Now {
            mono: self.mono,
            wall_ns: 1_800_000_000_000_000_000 + self.mono.as_nanos() as u64,
        }
    }

    fn connect(&mut self) -> ClientId {
        let id = self
            .broker
            .connect(self.now(), "a:1".to_owned(), "a".to_owned());
        self.send(id, b"  V2");
        id
    }

    /// Counts what `act` allocates in the broker.
    fn counted<R>(&mut self, act: impl FnOnce(&mut Bench) -> R) -> R {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        IS_COUNTING.store(true, Ordering::Relaxed);
        let result = act(self);
        IS_COUNTING.store(false, Ordering::Relaxed);
        self.allocations += ALLOCATIONS.load(Ordering::Relaxed) - before;
        result
    }

    /// Input that the broker must take whole, perhaps after the keeper made room.
    fn send(&mut self, id: ClientId, mut input: &[u8]) {
        for _ in 0..100 {
            let taken = self.counted(|bench| {
                let now = bench.now();
                bench.broker.receive(now, id, input, &mut bench.out)
            });
            input = &input[taken..];
            self.turn();
            if input.is_empty() {
                return;
            }
        }
        panic!("the broker does not take the input");
    }

    fn turn(&mut self) {
        loop {
            self.counted(|bench| {
                let now = bench.now();
                bench.broker.end_turn(now, &mut bench.out);
            });
            let outputs: Vec<Output> = self.out.drain(..).collect();
            for output in outputs {
                if let Output::Keeper(key, topic, request) = output {
                    for (name, log) in self.broker.logs() {
                        self.files.observe(Path::new(DATA_PATH), name, log);
                    }
                    let keeper = Keeper::new(self.files.clone(), DATA_PATH);
                    if let Some(reply) = keeper.handle(&topic, request) {
                        let now = self.now();
                        self.broker.handle_reply(now, key, reply, &mut self.out);
                    }
                }
            }
            if self.out.is_empty() && !self.broker.is_turn_open() {
                return;
            }
        }
    }

    /// Takes everything that is to be sent to `id`.
    fn output(&mut self, id: ClientId, into: &mut Vec<u8>) {
        into.clear();
        loop {
            let more = self.counted(|bench| {
                bench.broker.take_clients_to_flush(&mut bench.to_flush);
                let mut slices = [IoSlice::new(&[]); 64];
                let count = bench.broker.output(id, &mut slices);
                // The kernel's part: a buffer that has room already.
                for slice in &slices[..count] {
                    assert!(into.len() + slice.len() <= into.capacity());
                    into.extend_from_slice(slice);
                }
                let bytes: usize = slices[..count].iter().map(|slice| slice.len()).sum();
                let now = bench.now();
                bench.broker.sent(now, id, bytes) == Sent::More
            });
            if !more {
                return;
            }
        }
    }
}

#[test]
fn the_message_path_allocates_nothing_per_message() {
    let mut bench = Bench::new();
    let topic = TopicName::new(b"orders").unwrap();
    let (producer, consumer) = (bench.connect(), bench.connect());
    let mut input = Vec::new();
    encode::sub(&mut input, topic, ChannelName::new(b"bill").unwrap());
    encode::rdy(&mut input, 1000);
    bench.send(consumer, &input);

    let body = [7u8; 200];
    let mut publishes = Vec::new();
    for _ in 0..BATCH {
        encode::publish(&mut publishes, topic, &body);
    }
    encode::mpub(&mut publishes, topic, std::iter::repeat_n(&body, BATCH));
    let mut received = Vec::with_capacity(1 << 20);
    let mut answers = Vec::with_capacity(1 << 20);
    let (mut finished, mut requeued) = (0u64, 0u64);
    let rounds = 1000;
    for round in 0..rounds {
        if round == rounds / 10 {
            // Warm: every buffer has its size, every segment was there before.
            (bench.allocations, finished, requeued) = (0, 0, 0);
        }
        bench.mono += Duration::from_millis(1);
        bench.send(producer, &publishes);
        bench.output(producer, &mut received);
        for again in 0..2 {
            bench.output(consumer, &mut received);
            answers.clear();
            let mut at = 0;
            while let FrameDecoded::Frame {
                kind,
                data,
                consumed,
            } = decode_frame(&received[at..])
            {
                at += consumed;
                if kind == FrameType::Message {
                    let message = Message::parse(data).unwrap();
                    if again == 0 && message.id.as_bytes()[15] == b'3' {
                        encode::req(&mut answers, &message.id, Duration::ZERO);
                        requeued += 1;
                    } else {
                        encode::fin(&mut answers, &message.id);
                        finished += 1;
                    }
                }
            }
            bench.send(consumer, &answers);
        }
    }
    assert!(
        finished > 150_000 && requeued > 5_000,
        "{finished} finished, {requeued} requeued"
    );
    let per_message = bench.allocations as f64 / finished as f64;
    println!("{} allocations for {finished} messages", bench.allocations);
    assert!(per_message < 0.005, "{per_message} allocations per message");
}
