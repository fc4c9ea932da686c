//! The limits of this process: cores for the shards, open files, which are raised as far as they go, and memory mappings.

use std::num::NonZeroUsize;
use std::path::Path;

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

/// The decision about a resource limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Keep,
    RaiseTo(u64),
    /// Even the hard limit, given here, is too low.
    Refuse(u64),
}

/// `None` is no limit.
pub(super) fn judge_limit(limit: &Rlimit, need: u64, wanted: u64) -> Limit {
    let soft = limit.current.unwrap_or(u64::MAX);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if hard < need {
        Limit::Refuse(hard)
    } else if soft < wanted.min(hard) {
        Limit::RaiseTo(wanted.min(hard))
    } else {
        Limit::Keep
    }
}

/// Raises a soft limit. Returns the limit that is too low, if it is.
pub(super) fn raise(resource: Resource, need: u64, wanted: u64) -> Result<(), u64> {
    let limit = getrlimit(resource);
    match judge_limit(&limit, need, wanted) {
        Limit::Keep => Ok(()),
        Limit::Refuse(hard) => Err(hard),
        Limit::RaiseTo(soft) => {
            let raised = Rlimit {
                current: Some(soft),
                maximum: limit.maximum,
            };
            match setrlimit(resource, raised) {
                Ok(()) => Ok(()),
                // Raising within the hard limit is always allowed; a sandbox may disagree, and
                // what we have may still be enough.
                Err(_) => {
                    let current = limit.current.unwrap_or(u64::MAX);
                    if current < need { Err(current) } else { Ok(()) }
                }
            }
        }
    }
}

/// Raises the limit on open files as far as it goes: clients take one each.
pub(super) fn open_files(shard_count: NonZeroUsize) -> Finding {
    let raised = raise(Resource::Nofile, descriptors_need(shard_count), u64::MAX);
    let limit = raised.map(|()| getrlimit(Resource::Nofile).current);
    judge_open_files(limit, shard_count)
}

/// Descriptors that a broker needs without a client.
pub(super) fn descriptors_need(shard_count: NonZeroUsize) -> u64 {
    DESCRIPTORS_PROCESS + DESCRIPTORS_PER_SHARD * shard_count.get() as u64
}

/// The error is a limit that is too low: the hard limit, or the soft limit if the system refuses to raise it. `None` is no
/// limit.
pub(super) fn judge_open_files(
    limit: Result<Option<u64>, u64>,
    shard_count: NonZeroUsize,
) -> Finding {
    let need = descriptors_need(shard_count);
    let limit = match limit {
        Ok(Some(limit)) => limit,
        Ok(None) => return Finding::ok("no limit"),
        Err(limit) => {
            return Finding::failure(
                format!(
                    "the limit on open files is {limit}, but {shard_count} shards need at least {need}, and each client \
                     one more"
                ),
                format!("raise it ({RAISE_DESCRIPTORS}), or use fewer --shards"),
            );
        }
    };
    let clients = limit.saturating_sub(need);
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

/// A core for each shard, and no quota below that.
pub(super) fn cores(shard_count: NonZeroUsize) -> Finding {
    let usable = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    judge_cores(shard_count, usable, core_quota())
}

/// The cores that the control group of this process may use per period: the least of its own quota and those above.
/// Reads control groups of version 2 only. The standard library counts a quota of version 1 as fewer usable cores.
fn core_quota() -> Option<f64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = own_group(&groups)?;
    let paths = Path::new(group).ancestors().filter_map(|path| {
        let path = path.strip_prefix("/").ok()?;
        let file = Path::new("/sys/fs/cgroup").join(path).join("cpu.max");
        cores_of(&std::fs::read_to_string(file).ok()?)
    });
    paths.min_by(f64::total_cmp)
}

/// The group in the unified hierarchy, which is the line `0::/path`.
fn own_group(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::"))
}

/// The cores that `<quota> <period>` amounts to, both in microseconds; `max` is no quota.
fn cores_of(cpu_max: &str) -> Option<f64> {
    let mut words = cpu_max.split_ascii_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (period > 0.0).then(|| quota / period)
}

fn judge_cores(shard_count: NonZeroUsize, usable: NonZeroUsize, quota: Option<f64>) -> Finding {
    let shards = shards_text(shard_count);
    if let Some(quota) = quota.filter(|quota| *quota < shard_count.get() as f64) {
        let raise = "raise the quota (Kubernetes: resources.limits.cpu; docker: --cpus; systemd: CPUQuota=)";
        let advice = match quota as usize {
            0 => raise.to_owned(),
            whole if whole < shard_count.get() => format!("use --shards={whole}, or {raise}"),
            _ => raise.to_owned(),
        };
        return Finding::warning(
            format!(
                "{shards}, but the control group may use only {quota:.2} cores: when that is used up, no shard \
                 runs until the next period, which is up to 100 ms as a rule"
            ),
            advice,
        );
    }
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
        let judge = |limit| judge_open_files(Ok(limit), two);
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
    fn quotas_are_read() {
        assert_eq!(cores_of("150000 100000\n"), Some(1.5));
        assert_eq!(cores_of("max 100000\n"), None);
        assert_eq!(cores_of("1 0"), None);
        assert_eq!(cores_of(""), None);
        let groups = "12:cpu:/old\n0::/system.slice/nsqd.service\n";
        assert_eq!(own_group(groups), Some("/system.slice/nsqd.service"));
        assert_eq!(own_group("12:cpu:/old\n"), None);
    }

    #[test]
    fn each_shard_needs_a_core_of_its_own() {
        let check = |shards: usize, usable: usize, quota, state, found: &str, advice: &str| {
            let number = |count| NonZeroUsize::new(count).unwrap();
            let finding = judge_cores(number(shards), number(usable), quota);
            assert_eq!(finding.state, state, "{finding:?}");
            assert!(finding.found.contains(found), "{finding:?}");
            assert!(finding.advice.contains(advice), "{finding:?}");
            assert_eq!(finding.advice.is_empty(), state == State::Ok, "{finding:?}");
        };
        check(
            2,
            4,
            None,
            State::Ok,
            "2 shards, and this process may use 4 cores",
            "",
        );
        check(
            1,
            1,
            Some(1.0),
            State::Ok,
            "1 shard, and this process may use 1 core",
            "",
        );
        check(
            8,
            2,
            None,
            State::Warning,
            "8 shards, but this process may use only 2 cores",
            "where a quota limits them, docker: --cpus=",
        );
        check(
            4,
            4,
            Some(2.5),
            State::Warning,
            "may use only 2.50 cores",
            "use --shards=2, or raise",
        );
        check(
            1,
            4,
            Some(0.25),
            State::Warning,
            "may use only 0.25 cores",
            "raise the quota",
        );
    }
}
