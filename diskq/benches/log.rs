//! Measures what the log costs per message, with a keeper that answers at once and memory that is
//! warm.
//!
//! `cargo bench -p diskq`; times are per message (`items`).

use std::time::Duration;

use diskq::{Keeper, Log, LogOptions, Notice, OsFiles, Seq, SeqRange, Taken};
use divan::{Bencher, black_box, counter::ItemsCount};

const BODY: [u8; 200] = [7; 200];
const TOPIC: &str = "bench";
const MONO: Duration = Duration::from_secs(1);
const WALL_NS: u64 = 1_760_000_000_000_000_000;

fn main() {
    divan::main();
}

struct Bench {
    log: Log,
    keeper: Keeper<OsFiles>,
    notices: Vec<Notice>,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let directory = tempfile::tempdir().expect("a directory for the bench");
        let options = LogOptions {
            sync_every: 0,
            sync_timeout: Duration::from_secs(1_000_000),
            segment_bytes_min: 1 << 20,
            ..LogOptions::default()
        };
        let mut bench = Bench {
            log: Log::new(options),
            keeper: Keeper::new(OsFiles, directory.path()),
            notices: Vec::new(),
            _directory: directory,
        };
        // Fills and empties some segments, so that the pool is warm.
        for _ in 0..40_000 {
            let seq = bench.append();
            bench.log.release(seq);
        }
        bench
    }

    fn serve(&mut self) {
        while let Some(request) = self.log.next_request() {
            if let Some(reply) = self.keeper.handle(TOPIC, request) {
                self.log.handle_reply(MONO, reply, &mut self.notices);
            }
        }
        self.notices.clear();
    }

    #[inline]
    fn append(&mut self) -> Seq {
        loop {
            if let Ok(seq) = self.log.append(MONO, WALL_NS, black_box(&BODY), 0) {
                self.log.retain(SeqRange::one(seq), 1);
                return seq;
            }
            self.serve();
        }
    }

    #[inline]
    fn append_batch(&mut self, count: u32) -> SeqRange {
        loop {
            let bodies = (0..count).map(|_| black_box(&BODY[..]));
            let bytes = u64::from(count) * BODY.len() as u64;
            if let Ok(range) = self.log.append_batch(MONO, WALL_NS, bodies, count, bytes) {
                self.log.retain(range, 1);
                return range;
            }
            self.serve();
        }
    }
}

/// Measures the steady state: each message is appended and retained, and released 1000 messages
/// later, in one range.
#[divan::bench]
fn append_200_bytes(bencher: Bencher<'_, '_>) {
    let mut bench = Bench::new();
    bencher.counter(ItemsCount::new(1000u32)).bench_local(|| {
        let first = bench.append();
        for _ in 1..1000 {
            bench.append();
        }
        bench
            .log
            .release_range(SeqRange::new(first, Seq(first.0 + 1000)));
    });
}

#[divan::bench]
fn append_batch_200_of_200_bytes(bencher: Bencher<'_, '_>) {
    let mut bench = Bench::new();
    bencher.counter(ItemsCount::new(200u32)).bench_local(|| {
        let range = bench.append_batch(200);
        bench.log.release_range(range);
    });
}

/// Measures, for comparison, the work that every log has: to copy the body and to compute its CRC
/// with a library.
fn floor(bencher: Bencher<'_, '_>, crc: impl Fn(u32, &[u8]) -> u32) {
    let mut memory = vec![0u8; 1 << 20];
    bencher.counter(ItemsCount::new(1000u32)).bench_local(|| {
        for index in 0..1000 {
            let frame = &mut memory[index * 234..(index + 1) * 234];
            frame[34..].copy_from_slice(black_box(&BODY));
            black_box(crc(index as u32, frame));
        }
    });
}

/// Measures only the CRC of a slot, from a starting value and in one pass, as `Slot::of` computes
/// it.
#[divan::bench]
fn floor_crc_of_234_bytes(bencher: Bencher<'_, '_>) {
    let frames = vec![7u8; 1000 * 234];
    bencher.counter(ItemsCount::new(1000u32)).bench_local(|| {
        for (index, frame) in black_box(&frames).chunks_exact(234).enumerate() {
            let mut hasher = crc32fast::Hasher::new_with_initial(index as u32);
            hasher.update(frame);
            black_box(hasher.finalize());
        }
    });
}

#[divan::bench]
fn floor_copy_of_234_bytes(bencher: Bencher<'_, '_>) {
    floor(bencher, |start, _| start);
}

#[divan::bench]
fn floor_copy_and_crc32fast_of_234_bytes(bencher: Bencher<'_, '_>) {
    floor(bencher, |start, frame| {
        let mut hasher = crc32fast::Hasher::new_with_initial(start);
        hasher.update(frame);
        hasher.finalize()
    });
}

#[divan::bench]
fn floor_copy_and_crc32c_of_234_bytes(bencher: Bencher<'_, '_>) {
    floor(bencher, crc32c::crc32c_append);
}

#[divan::bench]
fn take_run_of_64(bencher: Bencher<'_, '_>) {
    let mut bench = Bench::new();
    let range = bench.append_batch(2000);
    bencher.counter(ItemsCount::new(64u32)).bench_local(|| {
        let Taken::Run(run) = bench.log.take_run(black_box(range), 64, 1 << 20) else {
            panic!("the batch is resident")
        };
        black_box(bench.log.bytes(&run).len())
    });
}

#[divan::bench]
fn release_in_the_tail(bencher: Bencher<'_, '_>) {
    let mut bench = Bench::new();
    let range = bench.append_batch(1000);
    bencher.counter(ItemsCount::new(1000u32)).bench_local(|| {
        bench.log.retain(range, 1);
        for seq in range.start.0..range.end.0 {
            bench.log.release(black_box(Seq(seq)));
        }
    });
}

#[divan::bench]
fn release_in_a_sealed_segment(bencher: Bencher<'_, '_>) {
    let mut bench = Bench::new();
    let range = bench.append_batch(1000);
    for _ in 0..100 {
        bench.append_batch(1000);
    }
    bencher.counter(ItemsCount::new(1000u32)).bench_local(|| {
        bench.log.retain(range, 1);
        for seq in range.start.0..range.end.0 {
            bench.log.release(black_box(Seq(seq)));
        }
    });
}
