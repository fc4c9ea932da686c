//! The program `nsq_pubsub`.

use std::process::ExitCode;

fn main() -> ExitCode {
    nsq_tools::nsq_pubsub::run(std::env::args_os().skip(1))
}
