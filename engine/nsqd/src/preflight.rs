//! The checks before anything starts: that this system lets the shards run, and that the addresses
//! are free. A check that fails says what happened and what to do about it, to a reader
//! who has never heard of io_uring.
//!
//! ```text
//!   descriptors                            soft limits are raised as far as they go
//!   io_uring there, allowed, new enough?   one ring per shard reports one wake-up
//!   addresses (bind.rs)                    reserved until the shards listen on them
//! ```
//!
//! Each check is a question to the system and a pure judgement of its answer; the judgements are
//! tested with the answers of systems that we do not have.

use std::num::NonZeroUsize;

use crate::config::Config;
use crate::net::address::Addresses;
use crate::reactor::{self, Engine};
use program::{log_info, log_warn};

mod bind;
mod error;
#[cfg(target_os = "linux")]
mod io_uring;
mod limits;

#[cfg(target_os = "linux")]
pub(crate) use io_uring::kernel;

pub use error::PreflightError;
pub(crate) use limits::{RAISE_DESCRIPTORS, descriptors_need_count, raise_descriptors};

pub use bind::{AddressKind, Reserved, ReservedAddress, reserve, reserve_tcp};

/// The first kernel whose `io_uring_enter` takes a timeout.
const KERNEL_MIN: Kernel = Kernel {
    major: 5,
    minor: 11,
};

/// A kernel's version, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kernel {
    /// 6 of 6.18.44
    pub major: u32,
    /// 18 of 6.18.44
    pub minor: u32,
}

/// The result of the preparations for a start.
#[derive(Debug)]
pub struct StartPlan {
    /// The engine with which the shards wait for their sockets.
    pub engine: Engine,
    /// The addresses to listen at, with each port decided. Without a certificate there is none for HTTPS.
    pub addresses: Addresses,
    /// Keeps other processes from these addresses until the shards listen.
    pub reserved: Vec<Reserved>,
}

/// The choice of an engine.
#[derive(Debug)]
pub struct Chosen {
    /// The engine that was tried and works.
    pub engine: Engine,
    /// The engine receives for connections with small requests.
    pub receives: bool,
    /// The better engines, the best first, and why they cannot be used. Only where the choice was free.
    pub passed_over: Vec<(Engine, PreflightError)>,
}

/// Prepares the system: raises limits, and tries the engine.
///
/// Returns the engine that `--io` asks for. With `auto` that is io_uring, or epoll where io_uring cannot be
/// used, which is logged.
pub fn prepare_system(io: &str, shard_count: NonZeroUsize) -> Result<Engine, PreflightError> {
    raise_descriptors(shard_count)?;
    let chosen = choose_engine(io, shard_count)?;
    for (better, error) in &chosen.passed_over {
        log_warn!("{}", fallback_text(*better, error, chosen.engine));
    }
    if chosen.lacks_receiving() {
        log_info!("io_uring on {}: {LACKS_RECEIVING}", system_name());
    }
    Ok(chosen.engine)
}

/// Tells that a ring does not receive, and the cost (docs/decisions/0012-small-requests.md).
pub(crate) const LACKS_RECEIVING: &str = "the ring does not receive for connections with small requests here, which may \
    then take up to a quarter more processor time; nothing has to be done, and the ring of a newer kernel may receive";

impl Chosen {
    /// Returns whether the engine is a ring that does not receive for connections with small requests.
    pub(crate) fn lacks_receiving(&self) -> bool {
        self.engine.is_io_uring() && !self.receives
    }
}

/// The name and version of the system, for example `Linux 6.18.44`.
pub(crate) fn system_name() -> String {
    let system = rustix::system::uname();
    format!(
        "{} {}",
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy()
    )
}

/// The log line of a start that uses `engine`, because a better one failed.
fn fallback_text(better: Engine, error: &PreflightError, engine: Engine) -> String {
    let text = format!(
        "{} cannot be used: {}. nsqd uses {} instead; {}.",
        better.name(),
        error.found(),
        engine.name(),
        engine.cost_text()
    );
    match error.advice() {
        advice if advice.is_empty() => text,
        advice => format!("{text} What to do: {advice}"),
    }
}

/// Tries the engine that `--io` names, or with `auto` one after the other until one works.
pub(crate) fn choose_engine(io: &str, shard_count: NonZeroUsize) -> Result<Chosen, PreflightError> {
    let named = Engine::named(io);
    let engines = match &named {
        Some(engine) => std::slice::from_ref(engine),
        None => Engine::ALL,
    };
    let mut best_first = engines.iter().copied().peekable();
    let mut passed_over = Vec::new();
    loop {
        let engine = best_first.next().expect("there is an engine");
        match try_engines(engine, shard_count) {
            Err(error) if best_first.peek().is_some() => passed_over.push((engine, error)),
            result => {
                return result.map(|receives| Chosen {
                    engine,
                    receives,
                    passed_over,
                });
            }
        }
    }
}

/// Prepares the system and the addresses for a start, in the order in which nsqd would fail.
pub fn prepare(config: &Config) -> Result<StartPlan, PreflightError> {
    let engine = prepare_system(&config.io, config.shard_count)?;
    let mut reserved = Vec::new();
    let mut take = |address: &str, kind| {
        let place = reserve(address, kind, config.unix_socket_mode.0)?;
        let found = place.address();
        reserved.push(place);
        Ok(found)
    };
    let tcp = take(&config.tcp_address, AddressKind::TcpOrUnix)?;
    let mut take_unless_empty = |address: &str, kind| {
        let taken = (!address.is_empty()).then(|| take(address, kind));
        taken.transpose()
    };
    let http = take_unless_empty(&config.http_address, AddressKind::TcpOrUnix)?;
    let https = if config.has_certificate() {
        take_unless_empty(&config.https_address, AddressKind::Tcp)?
    } else {
        None
    };
    let addresses = Addresses {
        tcp,
        http,
        https,
        unix: take_unless_empty(&config.unix_socket, AddressKind::Unix)?,
        http_unix: take_unless_empty(&config.http_unix_socket, AddressKind::Unix)?,
    };
    Ok(StartPlan {
        engine,
        addresses,
        reserved,
    })
}

/// Creates one engine per shard, and has each report one wake-up. Returns whether all engines receive for connections with
/// small requests.
fn try_engines(engine: Engine, shard_count: NonZeroUsize) -> Result<bool, PreflightError> {
    match engine {
        #[cfg(target_os = "linux")]
        Engine::IoUring => io_uring::check(shard_count, io_uring::kernel()),
        _ => reactor::try_engine(engine, shard_count)
            .map_err(|source| PreflightError::EngineFailed { engine, source }),
    }
}

/// Returns whether this machine lets an engine run. If not, says loudly that a test is left out.
#[cfg(test)]
pub(crate) fn is_usable(engine: Engine) -> bool {
    use test_support::skip;

    match try_engines(engine, NonZeroUsize::MIN) {
        Ok(_) => return true,
        Err(error @ PreflightError::KernelTooOld { .. }) => skip::kernel_lacks(&error.to_string()),
        Err(error) => skip::not_tested(&error.to_string()),
    }
    false
}

#[cfg(test)]
mod tests;
