//! Thousands of random histories of the real broker over the real log, against a simple model.
//!
//! The files are simulated (`diskq_sim::SimFiles`). The keepers answer late, connections send a few
//! bytes at a time and fail, shards get their mail or no turn for a while, and sometimes the process
//! stops or is killed. One seed determines the whole history. A failure prints the seed, and
//!
//! ```text
//! RINGQ_SEED=<seed> cargo test -p engine-rules --test simulation
//! ```
//!
//! runs only that history. The seeds follow from the hash of the source tree and a counter, so each
//! version tries other seeds. `RINGQ_SIM_COUNT` sets the number of histories (500000 take a night).
//! With `RINGQ_SIM_FIRST=n` the seeds are n, n + 1 and so on. `RINGQ_SIM_LOG=1` prints the broker's
//! log.

mod lists;
mod planted;
mod retries;
mod world;

use parking_lot::Mutex;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use world::{Reached, World};

/// The default number of histories.
const COUNT: u64 = 5_000;
/// The smallest number of histories that reaches every required notice.
const COUNT_TO_REACH_ALL: u64 = 2_000;
/// The first seed if the hash of the source tree is not known.
const BASE_WITHOUT_TREE: u64 = 1;

/// Seeds that failed once, each with the bug that it showed. No entry is ever removed.
const FAILED_ONCE: &str = "
                     1_009_607: a full disk poisoned a log without a directory in a shared sync
     5_082_098_593_747_125_928: the model believed the name of a log that was lost before a restart
    14_505_313_867_232_644_434: the model wanted a new dead-letter topic in a directory whose sync had failed
    10_981_863_455_620_072_065: the model believed that a channel was safe because a kill had left it
    11_446_014_355_327_025_208: a refused batch left the end of its keys behind that of the next keys
    11_575_405_500_821_144_344: the model believed that an undo was used, although a crash came before the answer
                77_000_004_424: the model added the messages of an undo whose time was over to the next undo
    13_069_154_145_384_137_182: a table of keys ended before it began, because the clock was set back
                   880_008_401: the model let no last SUB wait for the first sync that failed
         1_882_898_425_726_418: the model owed a copy of a message of an undo whose use a power failure had taken back
     2_611_846_951_166_152_300: the model forgot that messages that wait in the topic come to the channels with those of an undo
     8_118_890_852_479_011_455: the model added a message that was not stored yet to the undo of its channel
    15_716_657_871_541_373_110: the model believed in the use of an undo that a crash kept and a power failure took back later
                51_000_007_626: a checkpoint file that a power failure had taken got a name that was not durable
     1_423_715_009_285_984_590: a kill between a new directory and its checkpoint file left a log without room for checkpoints
    17_228_016_651_039_278_570: the model owed a message that waited in the topic to the undo of a channel
     1_332_387_290_831_388_733: keys outlived their log's newest files, and the clock was set back: new messages had lower seqs than old keys
                        34_173: a publish that waited for room when its shard stopped got OK behind the last sync
     7_511_674_046_647_307_543: the clock was set back, and new messages got seqs below the boundary of the saved numbers
    15_327_475_553_090_275_360: the model believed in an undo whose time was over before the clock was set back
               777_000_117_738: the model wanted answers on a connection that a killed process had just ended
                43_214_001_327: the model knew nothing of a hole of one power failure that counts as damaged after the next one
    13_928_387_934_001_432_551: the model buried a tombstone before its name was durable";

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} must be a number, not {value}")))
}

/// Returns the first bytes of the hash of the source tree that was committed last. A merge without a conflict keeps it.
fn tree() -> Option<u64> {
    let git = Command::new("git")
        .args(["rev-parse", "HEAD^{tree}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let output = git.ok().filter(|output| output.status.success())?;
    let hash = String::from_utf8(output.stdout).ok()?;
    u64::from_str_radix(hash.get(..12)?, 16).ok()
}

/// Returns the seed of the first history.
fn first_seed() -> u64 {
    if let Some(first) = number("RINGQ_SIM_FIRST") {
        return first;
    }
    // The low 16 bits belong to the counter, so that no two trees share a seed.
    tree().map_or_else(
        || {
            println!("no commit is known here: the seeds start at {BASE_WITHOUT_TREE}");
            BASE_WITHOUT_TREE
        },
        |hash| hash << 16,
    )
}

type Panic = Box<dyn Any + Send>;

fn run(seed: u64) -> Result<Reached, Panic> {
    catch_unwind(AssertUnwindSafe(|| World::new(seed).run())).inspect_err(|_| {
        eprintln!("to repeat: RINGQ_SEED={seed} cargo test -p engine-rules --test simulation");
    })
}

/// Runs the histories of `count` seeds from `first` on, on all processors.
fn run_all(first: u64, count: u64) -> Result<Reached, Panic> {
    let next = AtomicU64::new(0);
    let total = Mutex::new(Ok(Reached::default()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            let result = run(first + at);
            let mut total = total.lock();
            match (&mut *total, result) {
                (Ok(total), Ok(reached)) => total.add(&reached),
                (Ok(_), Err(panic)) => {
                    next.store(count, Ordering::Relaxed);
                    *total = Err(panic);
                }
                (Err(_), _) => {}
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
        work();
    });
    total.into_inner()
}

#[test]
fn random_histories_agree_with_the_model() {
    let result = match number("RINGQ_SEED") {
        Some(seed) => run_all(seed, 1),
        None => run_all(first_seed(), number("RINGQ_SIM_COUNT").unwrap_or(COUNT)),
    };
    let reached = result.unwrap_or_else(|panic| resume_unwind(panic));
    println!("{reached:?}");
    let is_enough = number("RINGQ_SIM_COUNT").unwrap_or(COUNT) >= COUNT_TO_REACH_ALL;
    if number("RINGQ_SEED").is_none() && is_enough {
        reached.assert_all_seen();
    }
}

/// A producer that publishes its messages again loses none of them, whatever the topic remembers.
#[test]
fn retries_are_recognised_and_lose_nothing() {
    let (first, count) = (first_seed(), 400);
    let seeds = match number("RINGQ_SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + count,
    };
    let mut total = retries::Reached::default();
    for seed in seeds.clone() {
        let reached = retries::History::run(seed);
        total.duplicates += reached.duplicates;
        total.refused += reached.refused;
        total.power_failures += reached.power_failures;
        total.saved_states += reached.saved_states;
    }
    println!("{total:?}");
    if seeds.end - seeds.start == count {
        assert!(total.duplicates > 1000 && total.refused > 50, "{total:?}");
        assert!(
            total.power_failures > 500 && total.saved_states > 500,
            "{total:?}"
        );
    }
}

#[test]
fn seeds_that_failed_once_do_not_fail_again() {
    for line in FAILED_ONCE.trim().lines() {
        println!("{line}");
        let (seed, _) = line.split_once(':').expect("a seed and its bug");
        let seed = seed.trim().replace('_', "").parse().expect("a number");
        run(seed).unwrap_or_else(|panic| resume_unwind(panic));
    }
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in [7, 8, 9] {
        assert_eq!(
            World::new(seed).run_digest(),
            World::new(seed).run_digest(),
            "seed {seed}"
        );
    }
}
