//! Cores for the shards.

use std::num::NonZeroUsize;
use std::path::Path;

use super::Finding;
use crate::preflight::shards_text;

pub(super) fn check(shard_count: NonZeroUsize) -> Finding {
    let usable = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    judge(shard_count, usable, quota())
}

/// The cores that the control group of this process may use per period: the least of its own quota and those above.
/// Reads control groups of version 2 only. The standard library counts a quota of version 1 as fewer usable cores.
fn quota() -> Option<f64> {
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

fn judge(shard_count: NonZeroUsize, usable: NonZeroUsize, quota: Option<f64>) -> Finding {
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
    use super::super::State;
    use super::*;

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
            let finding = judge(number(shards), number(usable), quota);
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
