//! The texts with which programs state their version.

pub use wire::NSQ_VERSION;

/// The version of ringq. All programs have it.
pub const RINGQ_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of the compiler. A release build sets the variable. Other builds do not know the
/// version and name the oldest supported one.
const TOOLCHAIN: &str = match option_env!("RINGQ_RUSTC_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_RUST_VERSION"),
};

/// Returns the version text of a daemon: `nsqd v1.3.0 (built w/rust1.95)`. `--version` prints this
/// line first, and the log begins with it.
pub fn of_daemon(program: &str) -> String {
    format!("{program} v{NSQ_VERSION} (built w/rust{TOOLCHAIN})")
}

/// Returns the version text of a tool: `nsq_tail v1.3.0`.
pub fn of_tool(program: &str) -> String {
    format!("{program} v{NSQ_VERSION}")
}

/// Returns the version of ringq as a line of its own: `ringq 0.1.0`. The line follows the version text of a program.
pub fn of_ringq() -> String {
    format!("ringq {RINGQ_VERSION}")
}
