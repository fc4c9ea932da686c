//! The program `nsq_to_http`.

use std::process::ExitCode;

fn main() -> ExitCode {
    nsq_tools::nsq_to_http::run(std::env::args_os().skip(1))
}
