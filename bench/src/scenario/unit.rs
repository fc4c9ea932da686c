//! Figures as people read them: a number, its unit, and no more digits than it deserves.
//! `report/charts.js` formats the figures of the page by the same rules.

use serde::Serialize;

/// The unit of a figure. Its name in JSON is the unit of the bare value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) enum Unit {
    /// Seconds since the start of the run.
    #[serde(rename = "s")]
    Seconds,
    /// A latency or lateness, in nanoseconds.
    #[serde(rename = "ns")]
    Nanos,
    /// Messages per second.
    #[serde(rename = "messages/s")]
    PerSecond,
    /// Messages, connections, context switches.
    #[default]
    #[serde(rename = "messages")]
    Count,
    /// Bytes; 1 MB is 1,000,000 bytes.
    #[serde(rename = "bytes")]
    Bytes,
    /// Bytes per second.
    #[serde(rename = "bytes/s")]
    BytesPerSecond,
    /// Processor cores in use: 1.5 is one and a half.
    #[serde(rename = "cores")]
    Cores,
    /// Machines of a cluster; before rounding, parts of one.
    #[serde(rename = "nodes")]
    Nodes,
}

impl Unit {
    /// Writes a figure with its unit, in three significant digits.
    pub(crate) fn show(self, value: f64) -> String {
        const BYTES: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
        match self {
            Unit::Seconds => seconds(value),
            Unit::Nanos if value < 999.5e6 => scaled(value, &["ns", "µs", "ms"]),
            Unit::Nanos => format!("{} s", number(value / 1e9)),
            Unit::PerSecond => format!("{}/s", number(value)),
            Unit::Count => number(value),
            Unit::Bytes => scaled(value, &BYTES),
            Unit::BytesPerSecond => format!("{}/s", scaled(value, &BYTES)),
            Unit::Cores => format!("{} cores", number(value)),
            Unit::Nodes => format!("{} nodes", number(value)),
        }
    }
}

/// Writes a number: three significant digits without trailing zeros below 100, a whole number with its
/// thousands grouped from there on.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    let size = value.abs();
    if size < 100.0 && value.fract() != 0.0 {
        let decimals = (2 - size.log10().floor() as i32).clamp(0, 12) as usize;
        let text = format!("{value:.decimals$}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{size:.0}");
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a value in the unit of a scale of thousands that leaves it below 1,000.
fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut index = 0;
    while value.abs() >= 999.5 && index + 1 < units.len() {
        value /= 1000.0;
        index += 1;
    }
    format!("{} {}", number(value), units[index])
}

/// Writes a length of time: "850 ms", "12.5 s", "3 min 20 s", "8.4 h".
fn seconds(value: f64) -> String {
    match value {
        value if value < 1.0 => Unit::Nanos.show(value * 1e9),
        value if value < 120.0 => format!("{} s", number(value)),
        value if value < 7200.0 => {
            let whole = value.round() as u64;
            match whole % 60 {
                0 => format!("{} min", whole / 60),
                rest => format!("{} min {rest} s", whole / 60),
            }
        }
        value if value < 172_800.0 => format!("{} h", number(value / 3600.0)),
        value => format!("{} days", number(value / 86_400.0)),
    }
}

#[cfg(test)]
mod tests;
