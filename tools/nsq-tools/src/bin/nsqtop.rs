//! The program `nsqtop`.

use std::process::ExitCode;

fn main() -> ExitCode {
    nsq_tools::nsqtop::run(std::env::args_os().skip(1))
}
