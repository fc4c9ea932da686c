//! The program `nsq_forget`.

use std::process::ExitCode;

fn main() -> ExitCode {
    nsq_tools::nsq_forget::run(std::env::args_os().skip(1))
}
