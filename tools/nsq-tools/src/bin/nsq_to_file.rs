//! The program `nsq_to_file`.

use std::process::ExitCode;

fn main() -> ExitCode {
    nsq_tools::nsq_to_file::run(std::env::args_os().skip(1))
}
