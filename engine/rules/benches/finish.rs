//! Measures the cost of a FIN, from the bytes of a connection to the channel's window and the log:
//! `cargo bench -p engine-rules --bench finish`. Times are per FIN (`items`).

#[path = "../tests/path/shell.rs"]
mod shell;

use std::cell::RefCell;

use divan::{Bencher, counter::ItemsCount};
use engine_rules::ClientId;
use shell::{Counter, Part, Shell, messages, options};
use wire::encode;
use wire::name::{ChannelName, TopicName};

const BODY: [u8; 200] = [7; 200];
const MESSAGES: usize = 1000;

fn main() {
    divan::main();
}

/// Counts nothing, because Divan measures the time.
struct Uncounted;

impl Counter for Uncounted {
    fn count<R>(&mut self, _part: Part, act: impl FnOnce() -> R) -> R {
        act()
    }
}

/// A producer and a consumer.
struct Path {
    shell: Shell<Uncounted>,
    producer: ClientId,
    consumer: ClientId,
    publishes: Vec<u8>,
    to_flush: Vec<ClientId>,
    received: Vec<u8>,
}

impl Path {
    fn new() -> Path {
        let mut shell = Shell::new(Uncounted, options());
        let (producer, consumer) = (shell.connect(), shell.connect());
        let topic = TopicName::new(b"orders").expect("a valid name");
        let channel = ChannelName::new(b"bill").expect("a valid name");
        let mut input = b"  V2".to_vec();
        shell.receive(Part::Publish, producer, &input);
        encode::sub(&mut input, topic, channel);
        encode::rdy(&mut input, 2500);
        shell.receive(Part::Deliver, consumer, &input);
        let mut publishes = Vec::new();
        encode::mpub(&mut publishes, topic, std::iter::repeat_n(&BODY, MESSAGES));
        Path {
            shell,
            producer,
            consumer,
            publishes,
            to_flush: Vec::new(),
            received: Vec::with_capacity(1 << 20),
        }
    }

    /// Publishes and delivers messages. Returns their FINs.
    fn deliver(&mut self) -> Vec<u8> {
        self.shell
            .receive(Part::Publish, self.producer, &self.publishes);
        self.shell.end_turn();
        self.received.clear();
        self.shell.take_clients_to_flush(&mut self.to_flush);
        for client in &self.to_flush {
            self.shell.take_output(*client, &mut self.received);
        }
        let mut answers = Vec::new();
        for message in messages(&self.received) {
            encode::fin(&mut answers, &message.id);
        }
        answers
    }
}

#[divan::bench(sample_size = 1, sample_count = 1000)]
fn finish_in_order(bencher: Bencher<'_, '_>) {
    finish(bencher, |_| {});
}

/// Measures FINs in the order of a consumer with several threads.
#[divan::bench(sample_size = 1, sample_count = 1000)]
fn finish_out_of_order(bencher: Bencher<'_, '_>) {
    finish(bencher, |answers| {
        // A FIN is "FIN ", the id and "\n". The step has no common factor with the number of
        // messages, so each message comes once.
        let (bytes, step) = (answers.len() / MESSAGES, 7);
        let mixed = (0..MESSAGES).flat_map(|n| {
            let at = n * step % MESSAGES * bytes;
            answers[at..at + bytes].to_vec()
        });
        *answers = mixed.collect();
    });
}

fn finish(bencher: Bencher<'_, '_>, change: impl Fn(&mut Vec<u8>)) {
    let path = RefCell::new(Path::new());
    bencher
        .counter(ItemsCount::new(MESSAGES))
        .with_inputs(|| {
            let mut answers = path.borrow_mut().deliver();
            assert_eq!(answers.len() % MESSAGES, 0, "all were delivered");
            change(&mut answers);
            answers
        })
        .bench_local_refs(|answers| {
            let path = &mut *path.borrow_mut();
            path.shell.receive(Part::Deliver, path.consumer, answers);
        });
}
