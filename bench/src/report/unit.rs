//! Figures as people read them: a number, its unit, and no more digits than it deserves.

use super::scale::decimal_step;

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Seconds since the start of the run.
    Seconds,
    /// A latency or lateness, in nanoseconds.
    Nanos,
    /// Messages per second.
    PerSecond,
    /// Messages, connections, context switches.
    Count,
    /// Bytes; 1 MB is 1,000,000 bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Processor cores in use: 1.5 is one and a half.
    Cores,
    /// Machines of a cluster; before rounding, parts of one.
    Nodes,
}

impl Unit {
    /// The figure with its unit, three significant digits.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Unit::Seconds => seconds(value),
            Unit::Nanos => nanos(value),
            Unit::PerSecond => format!("{}/s", grouped(value)),
            Unit::Count => grouped(value),
            Unit::Bytes => scaled(value, &["B", "kB", "MB", "GB", "TB", "PB"]),
            Unit::BytesPerSecond => {
                format!("{}/s", scaled(value, &["B", "kB", "MB", "GB", "TB", "PB"]))
            }
            Unit::Cores => format!("{} cores", significant(value)),
            Unit::Nodes => format!("{} nodes", significant(value)),
        }
    }

    /// The figure at a tick of an axis, as short as can be.
    pub(crate) fn tick(self, value: f64) -> String {
        match self {
            Unit::Count | Unit::PerSecond => scaled(value, &["", "k", "M", "G", "T"]),
            Unit::Cores | Unit::Nodes => significant(value),
            Unit::BytesPerSecond => Unit::Bytes.tick(value),
            Unit::Bytes if value == 0.0 => "0".to_owned(),
            Unit::Nanos if value == 0.0 => "0".to_owned(),
            Unit::Seconds => clock(value),
            _ => self.show(value),
        }
    }

    /// A distance between ticks that reads well, not below `value`.
    pub(crate) fn step(self, value: f64) -> f64 {
        const ROUND: [f64; 9] = [10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];
        match self {
            Unit::Seconds if (5.0..=3600.0).contains(&value) => {
                let found = ROUND.into_iter().find(|step| *step >= value);
                found.unwrap_or(3600.0)
            }
            // Half a message is no message.
            Unit::Count => decimal_step(value).max(1.0),
            _ => decimal_step(value),
        }
    }

    /// The unit of a bare value, for machines to read.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Nanos => "ns",
            Unit::PerSecond => "messages/s",
            Unit::Count => "messages",
            Unit::Bytes => "bytes",
            Unit::BytesPerSecond => "bytes/s",
            Unit::Cores => "cores",
            Unit::Nodes => "nodes",
        }
    }
}

/// Three significant digits, without trailing zeros, thousands grouped.
pub(crate) fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if magnitude >= 2 {
        return grouped(value);
    }
    let decimals = (2 - magnitude).clamp(0, 12) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A whole number with its thousands grouped; below 100, what `significant` says.
pub(crate) fn grouped(value: f64) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    if value.abs() < 100.0 && value.fract() != 0.0 {
        return significant(value);
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    if value < 0.0 && digits != "0" {
        text.push('-');
    }
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn scaled(value: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut index = 0;
    while value.abs() >= 999.5 && index + 1 < units.len() {
        value /= 1000.0;
        index += 1;
    }
    format!("{} {}", significant(value), units[index])
        .trim_end()
        .to_owned()
}

fn nanos(value: f64) -> String {
    if value < 999.5e6 {
        return scaled(value, &["ns", "µs", "ms"]);
    }
    format!("{} s", significant(value / 1e9))
}

/// A length of time: "850 ms", "12.5 s", "3 min 20 s", "8.4 h".
fn seconds(value: f64) -> String {
    match value {
        value if value < 1.0 => nanos(value * 1e9),
        value if value < 120.0 => format!("{} s", significant(value)),
        value if value < 7200.0 => {
            let whole = value.round() as u64;
            match whole % 60 {
                0 => format!("{} min", whole / 60),
                rest => format!("{} min {rest} s", whole / 60),
            }
        }
        value if value < 172_800.0 => format!("{} h", significant(value / 3600.0)),
        value => format!("{} days", significant(value / 86_400.0)),
    }
}

/// A moment on a time axis: "0", "15 s", "2:30", "1:30 h".
fn clock(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value < 120.0 {
        return format!("{} s", significant(value));
    }
    let whole = value.round() as u64;
    if whole < 3600 {
        return format!("{}:{:02} min", whole / 60, whole % 60);
    }
    format!("{}:{:02} h", whole / 3600, whole % 3600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        let cases = [
            (Unit::Nanos, 850.0, "850 ns"),
            (Unit::Nanos, 1_234_567.0, "1.23 ms"),
            (Unit::Nanos, 2.5e9, "2.5 s"),
            (Unit::PerSecond, 231_481.4, "231,481/s"),
            (Unit::Count, 0.0, "0"),
            (Unit::Count, 5e9, "5,000,000,000"),
            (Unit::Bytes, 2.25e12, "2.25 TB"),
            (Unit::Bytes, 999.7, "1 kB"),
            (Unit::BytesPerSecond, 104_166_600.0, "104 MB/s"),
            (Unit::Cores, 1.337, "1.34 cores"),
            (Unit::Seconds, 0.25, "250 ms"),
            (Unit::Seconds, 200.0, "3 min 20 s"),
            (Unit::Seconds, 43_200.0, "12 h"),
            (Unit::Seconds, 864_000.0, "10 days"),
        ];
        for (unit, value, expected) in cases {
            assert_eq!(unit.show(value), expected);
        }
        assert_eq!(significant(f64::NAN), "n/a");
        assert_eq!(grouped(-1234.0), "-1,234");
        assert_eq!(significant(0.000_123_4), "0.000123");
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(Unit::PerSecond.tick(1_500_000.0), "1.5 M");
        assert_eq!(Unit::Seconds.tick(150.0), "2:30 min");
        assert_eq!(Unit::Seconds.tick(5400.0), "1:30 h");
        assert_eq!(Unit::Seconds.step(7.0), 10.0);
        assert_eq!(Unit::Seconds.step(0.7), 1.0);
        assert_eq!(Unit::Count.step(0.2), 1.0);
    }
}
