//! `nsq_stat`: prints the statistics of one channel, summed over the cluster, a line per interval.
//!
//! ```text
//!   nsqlookupd ─/lookup─► nodes ─/stats─► Poller ─Figures─► Table ─► a line
//! ```

mod config;
mod poller;
mod table;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::{io, process, thread};

use program::stop::StopSignals;
use program::{log, log_fatal, log_warn, thread_refused};

use config::Config;
pub use config::NSQ_STAT;
use poller::Poller;
use table::Table;

/// Runs the tool with these arguments, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let config = match Config::from_args(args) {
        Ok(config) => config,
        Err(exit) => return exit.print(),
    };
    let signals = match StopSignals::catch_with_hangup() {
        Ok(signals) => signals,
        Err(error) => {
            return NSQ_STAT
                .failed(&format!("ERROR: cannot receive signals - {error}"))
                .print();
        }
    };
    thread::spawn(move || {
        // The tool holds nothing that an end at once would damage.
        signals.wait(|| process::exit(0), |_| true);
        process::exit(0);
    });
    if let Err(error) = log::init_tool(log::Level::Info, config.log_style.clone()) {
        return NSQ_STAT
            .failed(&format!(
                "ERROR: {}",
                thread_refused("the log's thread", &error)
            ))
            .print();
    }
    let result = poll(&config);
    log::flush();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            log_fatal!("ERROR: {why}");
            ExitCode::from(1)
        }
    }
}

/// Polls and prints until `--count` lines are printed. The error is the reason for the user.
fn poll(config: &Config) -> Result<(), String> {
    let mut poller = Poller::new(config);
    let mut table = Table::new(config.flags.interval);
    let mut printed: u64 = 0;
    loop {
        let poll = poller.poll()?;
        for warning in &poll.warnings {
            log_warn!("{warning}");
        }
        if let Some(figures) = poll.figures {
            let rows = table.rows(figures);
            print(&rows.text)
                .map_err(|error| format!("failed to write to standard output - {error}"))?;
            printed += u64::from(rows.has_line);
        }
        thread::sleep(config.flags.interval);
        if config.count == Some(printed) {
            return Ok(());
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
