//! The program `nsq-bench`.

use std::process::ExitCode;

fn main() -> ExitCode {
    nsq_bench::cli::main()
}
