//! The limits of this process: cores for the shards, open files, which are raised as far as they go, and memory mappings.

use std::num::NonZeroUsize;

use program::check::{Finding, bytes_text};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors besides those of clients: listeners, log, metadata, standard streams, some slack.
const DESCRIPTORS_PROCESS: u64 = 64;

/// Descriptors per shard: the ring, the wake-up, listeners, a few segments.
const DESCRIPTORS_PER_SHARD: u64 = 16;

/// The places where the limit on open files can be raised.
const RAISE_DESCRIPTORS: &str = "ulimit -n; systemd: LimitNOFILE=; docker: --ulimit nofile=";

/// Room for fewer clients than this is a warning. The old default, a limit of 1024, leaves 928 for two shards.
const CLIENTS_FEW: u64 = 1000;

/// The kernel's default of vm.max_map_count.
const MAPPINGS_USUAL: u64 = 65_530;

/// Mappings of a process besides segments: its program, libraries, heaps, a stack for each thread.
const MAPPINGS_PROCESS: u64 = 500;

/// Mapped segments of a topic with a small backlog: the one that is written, and while messages flow the next one.
/// (100 topics at rest have 100 mappings more than none.)
const MAPPINGS_PER_TOPIC: u64 = 2;

/// The size to which segments grow with the flow; with a large backlog they grow further.
const SEGMENT_BYTES: u64 = 1 << 20;

/// Returns `1 shard` or `2 shards`.
pub(super) fn shards_text(shard_count: NonZeroUsize) -> String {
    match shard_count.get() {
        1 => "1 shard".to_owned(),
        count => format!("{count} shards"),
    }
}

/// Raises a soft limit as far as it goes, and returns it. `None`: there is no limit.
pub(super) fn raise(resource: Resource) -> Option<u64> {
    let maximum = getrlimit(resource).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    // Raising within the hard limit is always allowed. A sandbox may disagree, and what we have may still be enough.
    let _ = setrlimit(resource, raised);
    getrlimit(resource).current
}

/// Raises the limit on open files as far as it goes: clients take one each.
pub(super) fn open_files(shard_count: NonZeroUsize) -> Finding {
    judge_open_files(raise(Resource::Nofile), shard_count)
}

/// Descriptors that a broker needs without a client.
pub(super) fn descriptors_need(shard_count: NonZeroUsize) -> u64 {
    DESCRIPTORS_PROCESS + DESCRIPTORS_PER_SHARD * shard_count.get() as u64
}

/// `None` is no limit.
pub(super) fn judge_open_files(limit: Option<u64>, shard_count: NonZeroUsize) -> Finding {
    let Some(limit) = limit else {
        return Finding::ok("no limit");
    };
    let need = descriptors_need(shard_count);
    let Some(clients) = limit.checked_sub(need) else {
        return Finding::failure(
            format!(
                "the limit on open files is {limit}, but {shard_count} shards need at least {need}, and each client one \
                 more"
            ),
            format!("raise it ({RAISE_DESCRIPTORS}), or use fewer --shards"),
        );
    };
    let shards = shards_text(shard_count);
    let found = format!("up to {limit}, which is enough for {shards} and {clients} clients");
    match clients {
        CLIENTS_FEW.. => Finding::ok(found),
        _ => Finding::warning(
            format!("{found}; further clients wait until others leave"),
            format!("raise the limit if there may be more clients ({RAISE_DESCRIPTORS})"),
        ),
    }
}

/// `None` where the system does not count mappings.
pub(super) fn mappings() -> Option<Finding> {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?;
    text.trim().parse().ok().map(judge_mappings)
}

fn judge_mappings(limit: u64) -> Finding {
    let segments = limit.saturating_sub(MAPPINGS_PROCESS);
    let found = format!(
        "vm.max_map_count is {limit}, and each segment in memory takes one: enough for {} topics with a small \
         backlog, or {} of backlog in memory",
        segments / MAPPINGS_PER_TOPIC,
        bytes_text(segments * SEGMENT_BYTES)
    );
    match limit {
        MAPPINGS_USUAL.. => Finding::ok(found),
        _ => Finding::warning(
            format!("{found}; publishes that need more are refused"),
            format!(
                "raise it (sysctl -w vm.max_map_count={MAPPINGS_USUAL}; to keep it, write it to a file in /etc/sysctl.d)"
            ),
        ),
    }
}

/// A core for each shard. The standard library counts a quota of the control group as fewer cores.
pub(super) fn cores(shard_count: NonZeroUsize) -> Finding {
    let usable = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    judge_cores(shard_count, usable)
}

fn judge_cores(shard_count: NonZeroUsize, usable: NonZeroUsize) -> Finding {
    let shards = shards_text(shard_count);
    let cores = match usable.get() {
        1 => "1 core".to_owned(),
        count => format!("{count} cores"),
    };
    if shard_count > usable {
        return Finding::warning(
            format!(
                "{shards}, but this process may use only {cores}: shards wait for each other's turns"
            ),
            "use --shards=0, which makes a shard for each usable core, or allow more cores (taskset; docker: --cpuset-cpus=; \
             where a quota limits them, docker: --cpus=, Kubernetes: resources.limits.cpu)",
        );
    }
    Finding::ok(format!("{shards}, and this process may use {cores}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::check::State;

    #[test]
    fn few_descriptors_are_few_clients() {
        let two = NonZeroUsize::new(2).unwrap();
        let judge = |limit| judge_open_files(limit, two);
        assert_eq!(judge(None), Finding::ok("no limit"));
        let finding = judge(Some(1096));
        let enough = "up to 1096, which is enough for 2 shards and 1000 clients";
        assert_eq!(finding, Finding::ok(enough));
        let finding = judge(Some(1024));
        assert_eq!(finding.state, State::Warning);
        assert!(finding.found.contains("2 shards and 928 clients;"));
        assert!(finding.advice.contains("systemd: LimitNOFILE="));
    }

    #[test]
    fn mappings_are_segments_in_memory() {
        let finding = judge_mappings(65_530);
        assert_eq!(finding.state, State::Ok);
        assert!(
            finding.found.contains("32515 topics") && finding.found.contains("or 64 GiB"),
            "{finding:?}"
        );
        let finding = judge_mappings(30_000);
        assert_eq!(finding.state, State::Warning);
        let advice = "sysctl -w vm.max_map_count=65530;";
        assert!(finding.advice.contains(advice), "{finding:?}");
        assert_eq!(judge_mappings(100).state, State::Warning);
    }

    #[test]
    fn each_shard_needs_a_core_of_its_own() {
        let check = |shards: usize, usable: usize, state, found: &str, advice: &str| {
            let number = |count| NonZeroUsize::new(count).unwrap();
            let finding = judge_cores(number(shards), number(usable));
            assert_eq!(finding.state, state, "{finding:?}");
            assert!(finding.found.contains(found), "{finding:?}");
            assert!(finding.advice.contains(advice), "{finding:?}");
            assert_eq!(finding.advice.is_empty(), state == State::Ok, "{finding:?}");
        };
        let found = "2 shards, and this process may use 4 cores";
        check(2, 4, State::Ok, found, "");
        check(
            1,
            1,
            State::Ok,
            "1 shard, and this process may use 1 core",
            "",
        );
        check(
            8,
            2,
            State::Warning,
            "8 shards, but this process may use only 2 cores",
            "where a quota limits them, docker: --cpus=",
        );
    }
}
