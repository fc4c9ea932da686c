//! Limits of this process: open files and memory mappings.

use std::num::NonZeroUsize;

use rustix::process::{Resource, getrlimit};

use super::{Finding, bytes_text, shards_text};
use crate::preflight::{self, RAISE_DESCRIPTORS};

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

pub(super) fn open_files(shard_count: NonZeroUsize) -> Finding {
    const NAME: &str = "open-files";
    match preflight::raise_descriptors(shard_count) {
        Err(error) => Finding::refusal(NAME, &error),
        Ok(()) => judge_open_files(
            NAME,
            getrlimit(Resource::Nofile).current,
            preflight::descriptors_need_count(shard_count),
            &shards_text(shard_count),
        ),
    }
}

fn judge_open_files(name: &'static str, limit: Option<u64>, need: u64, shards: &str) -> Finding {
    let Some(limit) = limit else {
        return Finding::ok(name, "no limit");
    };
    let clients = limit.saturating_sub(need);
    let found = format!("up to {limit}, which is enough for {shards} and {clients} clients");
    match clients {
        CLIENTS_FEW.. => Finding::ok(name, found),
        _ => Finding::warning(
            name,
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
    const NAME: &str = "mappings";
    let segments = limit.saturating_sub(MAPPINGS_PROCESS);
    let found = format!(
        "vm.max_map_count is {limit}, and each segment in memory takes one: enough for {} topics with a small \
         backlog, or {} of backlog in memory",
        segments / MAPPINGS_PER_TOPIC,
        bytes_text(segments * SEGMENT_BYTES)
    );
    match limit {
        MAPPINGS_USUAL.. => Finding::ok(NAME, found),
        _ => Finding::warning(
            NAME,
            format!("{found}; publishes that need more are refused"),
            format!(
                "raise it (sysctl -w vm.max_map_count={MAPPINGS_USUAL}; to keep it, write it to a file in /etc/sysctl.d)"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn few_descriptors_are_few_clients() {
        let judge = |limit| judge_open_files("open-files", limit, 96, "2 shards");
        assert_eq!(judge(None), Finding::ok("open-files", "no limit"));
        let finding = judge(Some(1096));
        let enough = "up to 1096, which is enough for 2 shards and 1000 clients";
        assert_eq!(finding, Finding::ok("open-files", enough));
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
}
