//! The clock: roughly right, and cheap to read.

use std::fs;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::Finding;

/// 2020-01-01, in seconds since 1970: no machine that runs this program has been set earlier on purpose.
const EARLIEST: Duration = Duration::from_secs(1_577_836_800);

/// Sources that the kernel cannot read without a system call and a slow device, or that only a hypervisor can read.
const SLOW_SOURCES: &[&str] = &[
    "acpi_pm",
    "hpet",
    "jiffies",
    "pit",
    "refined-jiffies",
    "xen",
];

const SOURCES: &str = "/sys/devices/system/clocksource/clocksource0";

/// The time of day.
pub(super) fn wall() -> Finding {
    judge_wall(
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

fn judge_wall(since_1970: Duration) -> Finding {
    let seconds = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
    let time = match Timestamp::from_second(seconds) {
        Ok(time) => time.to_string(),
        Err(_) => format!("{seconds} seconds after 1970"),
    };
    if since_1970 >= EARLIEST {
        return Finding::ok(format!("it is {time}"));
    }
    Finding::failure(
        format!(
            "the system says that it is {time}: messages would carry wrong times, and deferred ones would come \
             at wrong times after a restart"
        ),
        "set the clock before the start of nsqd (timedatectl set-ntp true; chronyc makestep)",
    )
}

/// The device behind the clocks. `None` where the system does not say.
pub(super) fn source() -> Option<Finding> {
    let read = |name| fs::read_to_string(format!("{SOURCES}/{name}")).ok();
    let (current, available) = (
        read("current_clocksource")?,
        read("available_clocksource").unwrap_or_default(),
    );
    Some(judge_source(current.trim(), &available))
}

fn judge_source(current: &str, available: &str) -> Finding {
    if !SLOW_SOURCES.contains(&current) {
        return Finding::ok(format!("{current}, which is read quickly"));
    }
    let better = available
        .split_ascii_whitespace()
        .find(|source| !SLOW_SOURCES.contains(source));
    let advice = match better {
        Some(better) => format!(
            "switch with: echo {better} > {SOURCES}/current_clocksource (to keep it, boot with the kernel parameter \
             clocksource={better})"
        ),
        None => "look for the reason in the kernel's log (dmesg | grep -i -e tsc -e clocksource), or use another \
                 machine type"
            .to_owned(),
    };
    Finding::warning(
        format!(
            "{current}, which takes microseconds to read: nsqd reads the clock many times a second"
        ),
        advice,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::State;

    #[test]
    fn a_clock_that_was_never_set_is_found() {
        let finding = judge_wall(Duration::ZERO);
        assert_eq!(finding.state, State::Failure);
        assert!(
            finding.found.contains("it is 1970-01-01T00:00:00Z:"),
            "{finding:?}"
        );
        assert!(finding.advice.contains("timedatectl"), "{finding:?}");
        let before = EARLIEST - Duration::from_nanos(1);
        assert_eq!(judge_wall(before).state, State::Failure);
        let expected = Finding::ok("it is 2020-01-01T00:00:00Z");
        assert_eq!(judge_wall(EARLIEST), expected);
        assert_eq!(judge_wall(Duration::MAX).state, State::Ok);
        assert_eq!(wall().state, State::Ok);
    }

    #[test]
    fn slow_clock_sources_are_found() {
        for fast in [
            "tsc",
            "kvm-clock",
            "arch_sys_counter",
            "hyperv_clocksource_tsc_page",
        ] {
            assert_eq!(judge_source(fast, "").state, State::Ok, "{fast}");
        }
        let finding = judge_source("hpet", "hpet tsc acpi_pm\n");
        assert_eq!(finding.state, State::Warning);
        assert!(finding.advice.contains("clocksource=tsc"), "{finding:?}");
        let finding = judge_source("acpi_pm", "hpet acpi_pm");
        assert_eq!(finding.state, State::Warning);
        assert!(finding.advice.contains("dmesg"), "{finding:?}");
    }
}
