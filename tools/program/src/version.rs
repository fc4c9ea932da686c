//! What the programs say of their version.

/// The version of NSQ that these programs stand in for. Clients and tools decide by it what a daemon can do. It is
/// not the version of ringq.
pub const NSQ_VERSION: &str = "1.3.0";

/// The version of the compiler. A plain build does not know it, and takes the oldest one that will do. A release
/// build sets the variable.
const TOOLCHAIN: &str = match option_env!("RINGQ_RUSTC_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_RUST_VERSION"),
};

/// Returns what a daemon says of itself: `nsqd v1.3.0 (built w/rust1.95)`. It is what `--version` prints and the
/// first line of the log.
pub fn of_daemon(program: &str) -> String {
    format!("{program} v{NSQ_VERSION} (built w/rust{TOOLCHAIN})")
}

/// Returns what a tool says of itself: `nsq_tail v1.3.0`.
pub fn of_tool(program: &str) -> String {
    format!("{program} v{NSQ_VERSION}")
}
