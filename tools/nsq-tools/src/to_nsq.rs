//! `to_nsq`: publishes records of standard input.
//!
//! ```text
//!   stdin ─► Input: Records, Rate ─record─► Publishing ─PUB, MPUB─► every nsqd of the command line,
//!                                               ▲                   or one that an nsqlookupd names
//!                                               └─OK or error──────┘
//! ```
//!
//! Many records are on their way at the same time, in the order of the input. The tool ends when all
//! are confirmed, or at the first failure.

mod config;
mod input;
mod publishing;

use std::ffi::OsString;
use std::future::pending;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;

use program::log_info;
use tokio::time::{Instant, sleep_until};

use crate::process::{self, STOP_TIME_MAX, StopSignals, close, within_stop_time};
use config::Config;
pub use config::TO_NSQ;
use input::{Input, Rate};
use publishing::Publishing;

/// Runs the tool with these arguments, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    process::run_tool(&TO_NSQ, args, Config::new, publish_input)
}

/// Publishes the input until its end, or until a signal comes. The error is the reason for the user.
async fn publish_input(config: Config, mut signals: StopSignals) -> Result<(), String> {
    let rate = Rate::new(config.flags.rate);
    if let Some(rate) = &rate {
        log_info!("{}", rate.announcement());
    }
    let mut input = Input::new(io::stdin(), config.delimiter, rate);
    let mut publishing = Publishing::new(&config)?;
    let counts = Arc::clone(&publishing.counts);
    let work = publish_all(&mut signals, &mut input, &mut publishing);
    // The line would hide what somebody is typing.
    let result = if io::stdin().is_terminal() {
        work.await
    } else {
        process::beside(work, || counts.figures()).await
    };
    match result {
        Ok(()) => within_stop_time(close(&publishing.producer)).await,
        Err(_) => log_info!("{}", publishing.progress()),
    }
    result
}

/// Publishes records until the last one is confirmed.
async fn publish_all(
    signals: &mut StopSignals,
    input: &mut Input,
    publishing: &mut Publishing,
) -> Result<(), String> {
    let mut has_more = true;
    // Set by a signal: the end of the time for the last confirmations.
    let mut deadline = None;
    loop {
        let is_late = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = signals.wait(), if deadline.is_none() => {
                has_more = false;
                deadline = Some(Instant::now() + STOP_TIME_MAX);
                if publishing.is_busy() {
                    log_info!(
                        "stopping: waiting up to {STOP_TIME_MAX:?} for the confirmation of {}",
                        publishing.unconfirmed_text()
                    );
                }
            }
            Some(result) = publishing.next() => result?,
            record = input.next(), if has_more && publishing.has_room() => {
                let record =
                    record.map_err(|error| format!("cannot read standard input: {error}"))?;
                match record {
                    Some(record) => publishing.publish(record),
                    None => has_more = false,
                }
            }
            () = is_late, if publishing.is_busy() => {
                return Err("stopping: nsqd did not confirm the last records within 30 seconds, so they may be lost".to_owned());
            }
            else => break,
        }
        if !has_more && !publishing.is_busy() {
            break;
        }
    }
    Ok(())
}
