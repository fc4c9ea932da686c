//! Thousands of random histories of the real broker over the real log, against a simple model.
//!
//! The files are simulated (`diskq::SimFiles`), the keepers answer late and in steps, connections
//! trickle, shards exchange their mail with delay, and the process is killed now and then. All of it
//! follows from one seed: a failure prints it, and
//!
//! ```text
//! RINGQ_SIM_SEED=<seed> cargo test -p engine-core --test simulation
//! ```
//!
//! runs that history alone. `RINGQ_SIM_COUNT` sets how many seeds are run, `RINGQ_SIM_FIRST` where
//! they start. `RINGQ_SIM_LOG=1` shows what the broker logs.

mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use world::World;

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, not {value}")),
    )
}

#[test]
fn random_histories_agree_with_the_model() {
    let first = number("RINGQ_SIM_SEED")
        .or(number("RINGQ_SIM_FIRST"))
        .unwrap_or(1);
    let count = if number("RINGQ_SIM_SEED").is_some() {
        1
    } else {
        number("RINGQ_SIM_COUNT").unwrap_or(2000)
    };
    let mut reached = world::Reached::default();
    for seed in first..first + count {
        let result = catch_unwind(AssertUnwindSafe(|| World::new(seed).run()));
        match result {
            Ok(events) => reached.add(&events),
            Err(panic) => {
                eprintln!("the history of RINGQ_SIM_SEED={seed} failed");
                resume_unwind(panic);
            }
        }
    }
    println!("{count} histories: {reached:?}");
    if count >= 500 {
        reached.assert_all_seen();
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
