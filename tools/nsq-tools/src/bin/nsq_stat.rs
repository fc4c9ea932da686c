//! The program `nsq_stat`.

use std::process::ExitCode;

fn main() -> ExitCode {
    nsq_tools::nsq_stat::run(std::env::args_os().skip(1))
}
