//! The command line of the program `diskq`. What the program does is in `main.rs` and in `diskq-import`.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use clap::{Arg, Command, arg, value_parser};

/// Returns the command line of `diskq`, which its manual page shows, too.
pub fn command() -> Command {
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
