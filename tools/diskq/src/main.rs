//! The program `diskq`: operations on a data path while no broker runs.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgMatches;
use diskq::{DataPathLock, DiskError, OsFiles};
use diskq_import::{ExportOptions, Exported, Metadata, export};
use diskq_program::command;

/// nsqd's default of `--max-bytes-per-file`.
const FILE_BYTES_MAX: u64 = 100 << 20;
/// nsqd's default of `--max-msg-size`.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;

fn main() -> ExitCode {
    let matches = command().get_matches();
    let result = match matches.subcommand() {
        Some(("export", matches)) => run_export(matches),
        _ => unreachable!("clap demands a subcommand"),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("diskq: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_export(matches: &ArgMatches) -> Result<(), String> {
    let path = |name| matches.get_one::<PathBuf>(name).expect("clap demands it");
    let (data_path, output) = (path("data-path"), path("output"));
    let file_bytes_max = matches.get_one("max-bytes-per-file");
    let options = ExportOptions {
        file_bytes_max: file_bytes_max.copied().unwrap_or(FILE_BYTES_MAX),
    };
    let _lock = DataPathLock::acquire(data_path).map_err(|error| match error {
        DiskError::Locked(_) => format!("{error}: stop the broker first"),
        error => error.to_string(),
    })?;
    let metadata = Metadata::load(data_path).map_err(|error| error.to_string())?;
    let exported = export(&OsFiles, data_path, output, &metadata, &options)
        .map_err(|error| format!("nothing was exported: {error}"))?;
    report(&exported);
    println!("{}: complete", output.display());
    Ok(())
}

fn report(exported: &Exported) {
    for note in &exported.notes {
        eprintln!("diskq: {note}");
    }
    for (topic, channel, count) in &exported.queues {
        match channel {
            Some(channel) => println!("topic {topic}, channel {channel}: {count} messages"),
            None => println!("topic {topic}: {count} messages that no channel has yet"),
        }
    }
    if exported.deferred_count > 0 {
        let count = exported.deferred_count;
        println!("{count} deferred messages are due at once now");
    }
    if exported.body_bytes_max > MESSAGE_BYTES_MAX {
        let bytes = exported.body_bytes_max;
        println!("nsqd needs --max-msg-size={bytes} or more, or it loses messages");
    }
}
