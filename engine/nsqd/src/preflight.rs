//! The checks before anything starts: that this system lets the shards run, and that the addresses
//! are free. A [`Finding`] says what happened and what to do about it, to a reader
//! who has never heard of io_uring. A start logs it, and `nsqd --check` reports it.
//!
//! ```text
//!   data path (data_path.rs)               locked, writable, closed to others; nsqd.dat is read
//!   descriptors (limits.rs)                soft limits are raised as far as they go
//!   io_uring there, allowed, new enough?   one ring per shard reports one wake-up
//!   addresses (bind.rs)                    reserved until the shards listen on them
//! ```
//!
//! Each check is a question to the system and a pure judgement of its answer; the judgements are
//! tested with the answers of systems that we do not have.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;

use crate::config::Config;
use crate::net::address::Addresses;
use crate::reactor::{self, Engine};
use program::{log_info, log_warn};
use wire::go_error::system_text;

mod bind;
pub(crate) mod data_path;
mod finding;
#[cfg(target_os = "linux")]
pub(crate) mod io_uring;
pub(crate) mod limits;

pub use bind::{AddressKind, Reserved, ReservedAddress, reserve, reserve_tcp};
pub use finding::{Finding, State};
pub(crate) use finding::{bytes_text, shards_text};

/// The first kernel whose `io_uring_enter` takes a timeout.
const KERNEL_MIN: Kernel = Kernel {
    major: 5,
    minor: 11,
};

/// A kernel's version, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kernel {
    /// 6 of 6.18.44
    pub(crate) major: u32,
    /// 18 of 6.18.44
    pub(crate) minor: u32,
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
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
    pub passed_over: Vec<(Engine, Finding)>,
}

/// Prepares the system: raises limits, and tries the engine.
///
/// Returns the engine that `--io` asks for. With `auto` that is io_uring, or epoll where io_uring cannot be
/// used, which is logged.
pub fn prepare_system(io: &str, shard_count: NonZeroUsize) -> Result<Engine, Finding> {
    limits::open_files(shard_count).or_refuse()?;
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
fn fallback_text(better: Engine, error: &Finding, engine: Engine) -> String {
    let text = format!(
        "{} cannot be used: {}. nsqd uses {} instead; {}.",
        better.name(),
        error.found,
        engine.name(),
        engine.cost_text()
    );
    match error.advice.as_str() {
        "" => text,
        advice => format!("{text} What to do: {advice}"),
    }
}

/// Tries the engine that `--io` names, or with `auto` one after the other until one works.
pub(crate) fn choose_engine(io: &str, shard_count: NonZeroUsize) -> Result<Chosen, Finding> {
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

/// A flag that names an address, and its value.
type AskedFor<'a> = (&'static str, &'a str, AddressKind);

/// The addresses to listen at, in the order of a start. An empty one but the first is switched off.
pub(crate) fn addresses_asked_for(config: &Config) -> [AskedFor<'_>; 5] {
    use AddressKind::{Tcp, TcpOrUnix, Unix};
    let https = if config.has_certificate() {
        config.https_address.as_str()
    } else {
        ""
    };
    [
        ("tcp-address", &config.tcp_address, TcpOrUnix),
        ("http-address", &config.http_address, TcpOrUnix),
        ("https-address", https, Tcp),
        ("unix-socket", &config.unix_socket, Unix),
        ("http-unix-socket", &config.http_unix_socket, Unix),
    ]
}

/// Prepares the system and the addresses for a start, in the order in which nsqd would fail.
pub fn prepare(config: &Config) -> Result<StartPlan, Finding> {
    let engine = prepare_system(&config.io, config.shard_count)?;
    let [tcp, http, https, unix, http_unix] = addresses_asked_for(config);
    let mut reserved = Vec::new();
    let mut take = |(_, address, kind): AskedFor<'_>| {
        let place = reserve(address, kind, config.unix_socket_mode.0)?;
        let found = place.address();
        reserved.push(place);
        Ok(found)
    };
    let tcp = take(tcp)?;
    let mut take_unless_empty = |asked: AskedFor<'_>| {
        let taken = (!asked.1.is_empty()).then(|| take(asked));
        taken.transpose()
    };
    let addresses = Addresses {
        tcp,
        http: take_unless_empty(http)?,
        https: take_unless_empty(https)?,
        unix: take_unless_empty(unix)?,
        http_unix: take_unless_empty(http_unix)?,
    };
    Ok(StartPlan {
        engine,
        addresses,
        reserved,
    })
}

/// Creates one engine per shard, and has each report one wake-up. Returns whether all engines receive for connections with
/// small requests.
fn try_engines(engine: Engine, shard_count: NonZeroUsize) -> Result<bool, Finding> {
    match engine {
        #[cfg(target_os = "linux")]
        Engine::IoUring => io_uring::check(shard_count, kernel()),
        _ => reactor::try_engine(engine, shard_count)
            .map_err(|source| engine_failed(engine, &source)),
    }
}

/// The system does not give what an engine needs, or an engine does not report a wake-up.
fn engine_failed(engine: Engine, source: &io::Error) -> Finding {
    Finding::failure(
        format!(
            "{} does not work here: {}",
            engine.name(),
            system_text(source)
        ),
        "look for the cause in the kernel's log (dmesg) and report it",
    )
}

/// Returns whether the kernel is too old for io_uring as ringq uses it.
pub fn is_kernel_too_old() -> bool {
    kernel() < KERNEL_MIN
}

/// The running kernel; 0.0 if its name is not understood, which then counts as old only if
/// io_uring fails, too.
pub(crate) fn kernel() -> Kernel {
    parse_kernel(&rustix::system::uname().release().to_string_lossy())
}

fn parse_kernel(release: &str) -> Kernel {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0);
    Kernel {
        major: next(),
        minor: next(),
    }
}

/// Returns whether this machine lets an engine run. If not, says loudly that a test is left out.
#[cfg(test)]
pub(crate) fn is_usable(engine: Engine) -> bool {
    use test_support::skip;

    match try_engines(engine, NonZeroUsize::MIN) {
        Ok(_) => return true,
        Err(error) if is_kernel_too_old() => skip::kernel_lacks(&error.to_string()),
        Err(error) => skip::not_tested(&error.to_string()),
    }
    false
}

#[cfg(test)]
mod tests;
