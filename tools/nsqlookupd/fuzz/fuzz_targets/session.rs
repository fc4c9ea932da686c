//! Any bytes of a client: see the module.

#![no_main]

#[path = "../../tests/mutated/session.rs"]
mod session;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| session::check(data));
