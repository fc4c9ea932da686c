//! Plants each deliberate bug of [`diskq_sim::bugs`] that is the broker's. The tests must find each bug, and a table names the
//! test that found it. The tests of `diskq` find the others.
//!
//! The small checks come first, then the histories of the simulation, until one of them fails. A bug that survives
//! all of them shows that a test is missing.

mod checks;

use crate::world::World;
use std::any::Any;
use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use diskq_log::planted::{plant, planted};
use diskq_sim::bugs;
use parking_lot::Mutex;

/// The most histories that may run before a bug is found.
const HISTORIES_MAX: u64 = 3_000;

/// The check or the history that found a bug.
struct Found {
    by: String,
    histories: u64,
}

fn first_line(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic")
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Runs `test` with a bug planted. Returns the message of its failure, if it fails.
fn fails(bug: &'static str, test: impl FnOnce()) -> Option<String> {
    plant(Some(bug));
    let result = catch_unwind(AssertUnwindSafe(test));
    plant(None);
    result.err().map(|panic| first_line(&*panic))
}

fn find(bug: &'static str) -> Option<Found> {
    for (name, check) in checks::ALL {
        if fails(bug, check).is_some() {
            let by = (*name).to_owned();
            return Some(Found { by, histories: 0 });
        }
    }
    for seed in 1..=HISTORIES_MAX {
        if let Some(by) = fails(bug, || drop(World::new(seed).run())) {
            return Some(Found {
                by,
                histories: seed,
            });
        }
    }
    None
}

#[test]
fn each_planted_bug_is_found() {
    let hook = take_hook();
    // A test that finds the planted bug panics. The table shows the panic's message.
    set_hook(Box::new(move |info| {
        if planted().is_none() {
            hook(info);
        }
    }));
    let wanted = std::env::var("RINGQ_PLANTED").ok();
    let is_wanted = |bug: &str| wanted.as_ref().is_none_or(|names| names.contains(bug));
    let bugs = bugs::of_the_broker();
    let next = AtomicUsize::new(0);
    let table = Mutex::new(Vec::new());
    let work = || {
        while let Some((bug, text)) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if is_wanted(bug) {
                let found = find(bug);
                table.lock().push((*bug, *text, found));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
        work();
    });
    let table = table.into_inner();
    let mut survivors = Vec::new();
    for (bug, text, found) in table {
        match found {
            Some(Found { by, histories }) => {
                println!("{bug} ({text}): found after {histories} histories: {by}");
            }
            None => survivors.push(bug),
        }
    }
    assert!(survivors.is_empty(), "not found: {survivors:?}");
}

/// A plant whose name is not listed would never be planted.
#[test]
fn each_plant_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let crates = ["diskq", "diskq/log", "engine/dedup", "engine/rules"];
    let mut left: Vec<_> = crates.map(|name| root.join(name).join("src")).to_vec();
    let mut planted = BTreeSet::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(path).expect("a directory");
            left.extend(entries.map(|entry| entry.expect("readable").path()));
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(path).expect("UTF-8");
        let code: String = text.lines().filter(|line| !line.contains("//")).collect();
        let plants = code.split("plant!(").skip(1);
        let names = plants.filter_map(|rest| rest.split(',').next());
        planted.extend(names.map(|name| name.trim().to_owned()));
    }
    let listed = [bugs::of_the_disk(), bugs::of_the_broker()].concat();
    let listed: BTreeSet<String> = listed.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(planted, listed);
}

/// A check that fails without a bug would prove nothing about a planted bug.
#[test]
fn the_checks_pass_without_a_bug() {
    for (name, check) in checks::ALL {
        println!("{name}");
        check();
    }
}
