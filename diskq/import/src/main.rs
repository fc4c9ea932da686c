//! The program `diskq`: operations on a data path while no broker runs.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, arg, value_parser};
use diskq::{DataPathLock, DiskError, OsFiles};
use diskq_import::{ExportOptions, Exported, Metadata, export};

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

fn command() -> Command {
    let directory = |arg: Arg| arg.required(true).value_parser(value_parser!(PathBuf));
    let data_path = arg!(--"data-path" <DIR> "Where the messages are (--data-path of the broker)");
    let output = arg!(--output <DIR> "Where to write; must be empty or missing");
    let file_bytes = arg!(--"max-bytes-per-file" <BYTES>);
    let export = Command::new("export")
        .about("Writes a data directory of the original nsqd, for going back to it")
        .long_about(
            "Writes a data directory of the original nsqd, for going back to it.\n\nThe broker must be \
             stopped; its data path is not changed. Deferred messages are due at once there.",
        )
        .args([directory(data_path), directory(output)])
        .arg(
            file_bytes
                .value_parser(value_parser!(u64).range(1..))
                .help("Length of a file of messages [default: 104857600]"),
        );
    Command::new("diskq")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Works on the data path of a stopped broker")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(export)
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
