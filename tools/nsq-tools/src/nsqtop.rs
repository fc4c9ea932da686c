//! `nsqtop`: a live view of topics, channels, clients and nodes, with a sentence for each channel that
//! says what limits it.
//!
//! ```text
//!   /nodes, /stats ─► Sampler ─Sample─► State ─View─► Table ─► screen ─► terminal
//!                                         ▲             └──────────────► standard output
//!                                       keys
//! ```
//!
//! [`Table`] is a pure function of two samples, and [`State`] a state machine without a terminal.

mod config;
mod sample;
mod screen;
mod state;
mod table;
pub mod terminal;
mod views;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;

use config::Config;
pub use config::NSQTOP;
use state::State;

use crate::flags;
use crate::process::print;

/// Runs the tool with these arguments, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let config = match flags::read(&NSQTOP, args, Config::new) {
        Ok(config) => config,
        Err(exit) => return exit.print(),
    };
    let shows_once = config.flags.once || !io::stdout().is_terminal() || !io::stdin().is_terminal();
    let result = if shows_once {
        print_once(&config)
    } else {
        terminal::show(&config)
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => NSQTOP.failed(&format!("ERROR: {why}")).print(),
    }
}

/// Prints one table, for the time between two samples. The error is the reason for the user.
fn print_once(config: &Config) -> Result<(), String> {
    let mut sampler = config.sampler();
    let before = sampler.sample();
    if before.nodes.is_empty() {
        return Err(before.problems().join("\n"));
    }
    thread::sleep(config.flags.interval);
    let after = sampler.sample();
    let state = State::new(config.start.clone()).with_samples(before, after);
    for problem in state.problems() {
        eprintln!("{problem}");
    }
    let text = state.table().plain_text();
    print(text.as_bytes()).map_err(|error| format!("failed to write to standard output - {error}"))
}
