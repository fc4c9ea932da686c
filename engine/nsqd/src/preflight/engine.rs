//! The engine of the shards: the one that `--io` names works here, or with `auto` the best one that does.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;

use program::check::Finding;
use program::{log_info, log_warn};
use wire::go_error::system_text;

use super::limits::{self, shards_text};
use crate::config::Config;
use crate::reactor::{self, Engine};

#[cfg(target_os = "linux")]
mod io_uring;

/// The first kernel whose `io_uring_enter` takes a timeout.
const KERNEL_MIN: Kernel = Kernel(5, 11);

/// A kernel's version, as far as it matters: 6 and 18 of 6.18.44.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kernel(u32, u32);

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The choice of an engine.
#[derive(Debug)]
struct Chosen {
    /// The engine that was tried and works.
    engine: Engine,
    /// The engine receives for connections with small requests.
    receives: bool,
    /// The better engines, the best first, and why they cannot be used. Only where the choice was free.
    passed_over: Vec<(Engine, Finding)>,
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
const LACKS_RECEIVING: &str = "the ring does not receive for connections with small requests here, which may \
    then take up to a quarter more processor time; nothing has to be done, and the ring of a newer kernel may receive";

impl Chosen {
    /// Returns whether the engine is a ring that does not receive for connections with small requests.
    fn lacks_receiving(&self) -> bool {
        self.engine.is_io_uring() && !self.receives
    }
}

/// The name and version of the system, for example `Linux 6.18.44`.
fn system_name() -> String {
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
fn choose_engine(io: &str, shard_count: NonZeroUsize) -> Result<Chosen, Finding> {
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
fn kernel() -> Kernel {
    parse_kernel(&rustix::system::uname().release().to_string_lossy())
}

fn parse_kernel(release: &str) -> Kernel {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0);
    Kernel(next(), next())
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

pub(super) fn check(config: &Config) -> Finding {
    let chosen = choose_engine(&config.io, config.shard_count);
    let shards = shards_text(config.shard_count);
    judge(chosen, &system_name(), &shards, &config.io)
}

/// `io` is the value of `--io`.
fn judge(chosen: Result<Chosen, Finding>, system: &str, shards: &str, io: &str) -> Finding {
    let chosen = match chosen {
        Ok(chosen) => chosen,
        Err(error) => return error,
    };
    let (name, engine) = (chosen.engine.name(), chosen.engine);
    if let Some((_, error)) = chosen.passed_over.first() {
        return Finding::warning(
            format!(
                "{}; {shards} will wait for sockets with {name}; {}",
                error.found,
                engine.cost_text()
            ),
            &*error.advice,
        );
    }
    let mut found = format!("{name} works for {shards} on {system}");
    if chosen.lacks_receiving() {
        found = format!("{found}; {LACKS_RECEIVING}");
    }
    found += match io {
        "auto" => "; --io=auto takes the best engine that works",
        _ => "; --io asks for this engine",
    };
    Finding::ok(found)
}

#[cfg(test)]
mod tests;
