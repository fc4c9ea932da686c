//! `nsq-bench`: a load generator for anything that speaks NSQ, which tells the truth, and plans
//! capacity from what it measured.
//!
//! ```text
//!   scenario ─► run ─► threads (producers, consumers) ─► daemon
//!                │        │ per interval: counts, histograms, ledger
//!                │        ▼
//!                └──── report of the run ─► result (JSON, HDR logs) ─► plan, report
//!   sweep, find-max, compare: many runs
//! ```
#![forbid(unsafe_code)]

pub mod cli;
pub mod clock;
pub mod compare;
pub mod consumer;
pub mod control;
pub mod daemon;
pub mod depth;
pub mod find_max;
pub mod grid;
pub mod header;
pub mod http;
pub mod ledger;
pub mod link;
pub mod machine;
pub mod pace;
pub mod plan;
pub mod print;
pub mod process;
pub mod producer;
pub mod progress;
pub mod random;
pub mod rate;
pub mod report;
pub mod result;
pub mod run;
pub mod save;
pub mod scenario;
pub mod search;
pub mod series;
pub mod sink;
pub mod size;
pub mod slo;
pub mod span;
pub mod sweep;
pub mod tally;
pub mod target;
pub mod upgrades;
pub mod verdict;
pub mod work;
pub mod worker;
