//! Tells at the start how much memory the rules of `--dedup` may take, and whether the system gives so much.

use crate::config::Rules;
use engine_rules::{RuleMemory, rule_memory};
use program::{log_info, log_warn};
use std::collections::TryReserveError;
use std::fs;

/// The most memory that is asked for at once. Tables of this size are one allocation. Larger ones consist of parts.
const PART_BYTES: u64 = 1 << 30;

/// Logs the memory of each rule. Warns if the topics that exist may take more than the system gives the process.
///
/// # Errors
/// The system refuses the addresses of so much memory. The process would end at a later publish.
pub(super) fn tell<'t>(rules: &Rules, topics: impl Iterator<Item = &'t str>) -> Result<(), String> {
    let rules = rule_memory(&rules.dedup, topics);
    for rule in &rules {
        log_info!("{}", rule_text(rule));
    }
    let mut parts = Vec::new();
    for rule in &rules {
        reserve(rule, &mut parts).map_err(|why| refusal_text(rule, &why))?;
    }
    drop(parts);
    let limit = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|meminfo| {
            let of_container = fs::read_to_string("/sys/fs/cgroup/memory.max");
            memory_limit(&meminfo, of_container.ok().as_deref())
        });
    let warning = limit.and_then(|limit| warning(&rules, limit));
    if let Some(warning) = warning {
        log_warn!("{warning}");
    }
    Ok(())
}

/// Reserves the memory of the topics of a rule, or of one topic if there is none. The memory is not used, so the kernel
/// gives addresses only.
fn reserve(rule: &RuleMemory<'_>, parts: &mut Vec<Vec<u8>>) -> Result<(), TryReserveError> {
    for _ in 0..rule.topics.max(1) {
        let mut left = rule.topic_bytes;
        while left > 0 {
            let bytes = left.min(PART_BYTES);
            let mut part = Vec::new();
            part.try_reserve_exact(bytes as usize)?;
            parts.push(part);
            left -= bytes;
        }
    }
    Ok(())
}

fn refusal_text(rule: &RuleMemory<'_>, why: &TryReserveError) -> String {
    let RuleMemory {
        pattern,
        topic_bytes,
        topics,
        ..
    } = rule;
    format!(
        "--dedup: the system does not give the memory for the rule of the pattern {pattern}, {topic_bytes} bytes for each \
         of {topics} topics - {why}: give the rule a smaller memory= or a narrower pattern, raise the limit of the address \
         space (ulimit -v, LimitAS), or set vm.overcommit_memory to 0"
    )
}

fn rule_text(rule: &RuleMemory<'_>) -> String {
    let RuleMemory {
        pattern,
        remembered,
        topic_bytes,
        topics,
    } = rule;
    // A save takes the copy of a part of a table, or the tables that were forgotten while the keeper writes them.
    format!(
        "--dedup: a topic of the pattern {pattern} remembers {remembered}; it takes at most {topic_bytes} bytes of memory \
         for the rule, and up to as much again while it is saved; topics now: {topics}"
    )
}

/// Returns the warning, if the topics of the rules may take more than `limit` bytes together. A rule without a topic counts
/// as if it had one.
fn warning(rules: &[RuleMemory<'_>], limit: u64) -> Option<String> {
    let bytes = rules.iter();
    let bytes = bytes.map(|rule| rule.topic_bytes.saturating_mul(rule.topics.max(1)));
    let bytes = bytes.fold(0_u64, u64::saturating_add);
    (bytes > limit).then(|| {
        format!(
            "--dedup: the topics may take {bytes} bytes of memory for their rules (at least one topic for each rule), and \
             the system has {limit}: choose narrower patterns, or a smaller memory="
        )
    })
}

/// Returns the bytes of memory that the process can have: those of the machine, or of its container if these are fewer.
fn memory_limit(meminfo: &str, of_container: Option<&str>) -> Option<u64> {
    let line = meminfo.lines().find_map(|it| it.strip_prefix("MemTotal:"));
    let kib: Option<u64> = line.and_then(|it| it.trim().strip_suffix(" kB")?.trim().parse().ok());
    let of_machine = kib.map(|kib| kib * 1024);
    // A container without a limit has the word `max`.
    let of_container = of_container.and_then(|text| text.trim().parse().ok());
    of_machine.into_iter().chain(of_container).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:        8050420 kB\nMemFree:          118032 kB\n";

    #[test]
    fn the_limit_is_the_smaller_one() {
        assert_eq!(memory_limit(MEMINFO, None), Some(8_050_420 << 10));
        assert_eq!(memory_limit(MEMINFO, Some("max\n")), Some(8_050_420 << 10));
        assert_eq!(memory_limit(MEMINFO, Some("1048576\n")), Some(1 << 20));
        assert_eq!(memory_limit("", None), None);
    }

    #[test]
    fn a_warning_comes_when_the_topics_may_take_more_than_there_is() {
        let rule = |topics| RuleMemory {
            pattern: "*",
            remembered: "the bodies of its last 60 messages".to_owned(),
            topic_bytes: 16 << 20,
            topics,
        };
        assert_eq!(
            rule_text(&rule(3)),
            "--dedup: a topic of the pattern * remembers the bodies of its last 60 messages; it takes at most 16777216 \
             bytes of memory for the rule, and up to as much again while it is saved; topics now: 3"
        );
        let rules = [rule(10), rule(2)];
        assert_eq!(warning(&rules, 12 * (16 << 20)), None);
        let warned = warning(&rules, 12 * (16 << 20) - 1).expect("too much");
        assert_eq!(
            warned,
            "--dedup: the topics may take 201326592 bytes of memory for their rules (at least one topic for each rule), \
             and the system has 201326591: choose narrower patterns, or a smaller memory="
        );
        // The first topic comes after the start.
        assert_eq!(warning(&[rule(0)], 16 << 20), None);
        assert!(warning(&[rule(0)], (16 << 20) - 1).is_some());
    }
}
