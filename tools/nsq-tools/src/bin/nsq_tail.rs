//! The program `nsq_tail`.

use std::process::ExitCode;

fn main() -> ExitCode {
    nsq_tools::nsq_tail::run(std::env::args_os().skip(1))
}
