//! The engine of the shards.

use rustix::process::{Resource, getrlimit};

use super::Finding;
use crate::config::Config;
use crate::preflight::{self, Chosen, bytes_text, shards_text};

/// The system's answers.
pub(super) struct Answer {
    pub(super) chosen: Result<Chosen, Finding>,
    /// Name and version, for example `Linux 6.18.44`.
    pub(super) system: String,
    /// `None`: no limit.
    pub(super) memlock_bytes: Option<u64>,
    /// A wait in a ring is shown as I/O wait.
    pub(super) shows_io_wait: bool,
}

pub(super) fn check(config: &Config) -> Finding {
    let chosen = preflight::choose_engine(&config.io, config.shard_count);
    let answer = Answer {
        chosen,
        system: preflight::system_name(),
        // An attempt with io_uring has raised the limit as far as possible.
        memlock_bytes: getrlimit(Resource::Memlock).current,
        shows_io_wait: shows_io_wait(),
    };
    judge(&answer, &shards_text(config.shard_count))
}

/// Returns whether the kernel counts a wait in a ring as I/O wait. From Linux 6.15 on, a flag prevents that.
#[cfg(target_os = "linux")]
fn shows_io_wait() -> bool {
    const QUIET: preflight::Kernel = preflight::Kernel {
        major: 6,
        minor: 15,
    };
    preflight::kernel() < QUIET
}

#[cfg(not(target_os = "linux"))]
fn shows_io_wait() -> bool {
    false
}

pub(super) fn judge(answer: &Answer, shards: &str) -> Finding {
    let chosen = match &answer.chosen {
        Ok(chosen) => chosen,
        Err(error) => return error.clone(),
    };
    let Chosen {
        engine,
        passed_over,
        ..
    } = chosen;
    let (name, system) = (engine.name(), &answer.system);
    if let Some((_, error)) = passed_over.first() {
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
    if engine.is_io_uring() {
        found += &match answer.memlock_bytes {
            None => ", with no limit on locked memory".to_owned(),
            Some(0) => ", and needs no locked memory here".to_owned(),
            Some(bytes) => format!(", with up to {} of locked memory", bytes_text(bytes)),
        };
        if chosen.lacks_receiving() {
            found = format!("{found}; {}", preflight::LACKS_RECEIVING);
        }
        if answer.shows_io_wait {
            found += "; before Linux 6.15, an idle shard may be counted as I/O wait; it uses no processor time";
        }
    }
    Finding::ok(found)
}
