//! The program `nsq_to_nsq`.

use std::process::ExitCode;

fn main() -> ExitCode {
    nsq_tools::nsq_to_nsq::run(std::env::args_os().skip(1))
}
