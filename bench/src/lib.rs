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
//!
//! The crate owns loads, histograms and the ledger of messages. It knows a daemon only from outside, by its sockets, and
//! by `/proc` if the daemon is on the same machine. Start with `scenario.rs`, then `run.rs`. A new option is a field in
//! `scenario/fields.rs`, its use in `generator` or `run`, and its row in docs/reference/nsq-bench.md.
#![forbid(unsafe_code)]

/// Appends formatted text to a `String`; writing to one cannot fail.
macro_rules! put {
    ($out:expr, $($arguments:tt)*) => {{
        use std::fmt::Write as _;
        write!($out, $($arguments)*).expect("writing to a String cannot fail");
    }};
}

/// Adds the named fields of one struct to those of another.
macro_rules! add_fields {
    ($to:expr, $from:expr, $($field:ident)*) => { $($to.$field += $from.$field;)* };
}

/// Lets serde write a type by `Display` and read it by `FromStr`, as the command line does. The type says
/// `#[serde(try_from = "String", into = "String")]`.
macro_rules! written_as_text {
    ($kind:ty) => {
        impl TryFrom<String> for $kind {
            type Error = String;

            fn try_from(text: String) -> Result<$kind, String> {
                text.parse()
            }
        }

        impl From<$kind> for String {
            fn from(value: $kind) -> String {
                value.to_string()
            }
        }
    };
}

pub mod cli;
pub mod clock;
pub mod daemon;
pub mod generator;
pub mod http;
pub mod judgement;
pub mod machine;
pub mod many_runs;
pub mod plan;
pub mod print;
pub mod random;
pub mod report;
pub mod result;
pub mod run;
pub mod save;
pub mod scenario;
pub mod sink;
pub mod target;
