//! The tests of nsq-bench, which runs as a program. Each module has the tests of one subject.

mod failures;
#[path = "report/fixtures.rs"]
mod fixtures;
mod honesty;
mod many_runs;
mod plan;
mod report;
mod scenarios;
mod support;
mod upgrades;
