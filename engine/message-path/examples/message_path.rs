//! Publishes, delivers and finishes messages without sockets and files, for a profiler. The
//! argument is the number of rounds of 200 messages of 200 bytes.
//!
//!     cargo run --profile dist -p message-path --example message_path -- 1000
//!
//! The broker's work for publishing is in functions whose names end in `publishing`, and its work
//! for delivering in functions whose names end in `delivering`:
//!
//!     valgrind --tool=callgrind --toggle-collect='*publishing*'

#[path = "../../rules/tests/path/mod.rs"]
mod path;

use std::hint::black_box;

use path::{Counter, MESSAGES, MessagePath, Part};

/// Counts nothing, but runs each part in a function with the part's name.
struct Named;

impl Counter for Named {
    fn count<R>(&mut self, part: Part, act: impl FnOnce() -> R) -> R {
        match part {
            Part::Publish => publishing(act),
            Part::Deliver => delivering(act),
        }
    }
}

// The constants differ. Otherwise the compiler would make one function of both.

#[inline(never)]
fn publishing<R>(act: impl FnOnce() -> R) -> R {
    black_box(Part::Publish);
    act()
}

#[inline(never)]
fn delivering<R>(act: impl FnOnce() -> R) -> R {
    black_box(Part::Deliver);
    act()
}

fn main() {
    let rounds: u64 = match std::env::args().nth(1).map(|text| text.parse()) {
        Some(Ok(rounds)) => rounds,
        _ => {
            eprintln!("usage: message_path ROUNDS");
            std::process::exit(2);
        }
    };
    let mut path = MessagePath::new(Named);
    for _ in 0..rounds {
        path.round(false);
    }
    assert_eq!(path.finished, rounds * MESSAGES as u64);
    println!("{} messages", path.finished);
}
