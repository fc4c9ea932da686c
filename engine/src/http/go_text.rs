//! Text as Go writes it: JSON strings and numbers (`encoding/json`), durations (`time.Duration`).
//! Tools and tests compare these bytes, so small differences count: `<` is escaped, 1.0 is `1`.

use std::fmt::Write as _;
use std::time::Duration;

/// Appends a JSON string.
pub(super) fn push_json_string(out: &mut String, text: &str) {
    out.push('"');
    wire::go_json::escape_into(out, text);
    out.push('"');
}

/// Appends a JSON number: the shortest decimal that reads back as the same value.
pub(super) fn push_json_float(out: &mut String, value: f64) {
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        let _ = write!(out, "{value}");
        return;
    }
    // Rust writes 1e21 and 1e-7 where Go writes 1e+21 and 1e-7.
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => {
            let _ = write!(out, "{digits}e+{exponent}");
        }
        _ => out.push_str(&text),
    }
}

/// A JSON object under construction: keys in the order of the calls, no white space.
pub(super) struct JsonObject<'a> {
    out: &'a mut String,
    is_empty: bool,
}

impl<'a> JsonObject<'a> {
    pub(super) fn new(out: &'a mut String) -> JsonObject<'a> {
        out.push('{');
        JsonObject {
            out,
            is_empty: true,
        }
    }

    pub(super) fn end(self) {
        self.out.push('}');
    }

    /// Writes the key; the caller appends the value to what is returned.
    pub(super) fn key(&mut self, key: &str) -> &mut String {
        if !self.is_empty {
            self.out.push(',');
        }
        self.is_empty = false;
        push_json_string(self.out, key);
        self.out.push(':');
        self.out
    }

    pub(super) fn text(&mut self, key: &str, value: &str) {
        push_json_string(self.key(key), value);
    }

    pub(super) fn text_unless_empty(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.text(key, value);
        }
    }

    pub(super) fn number(&mut self, key: &str, value: impl Into<i128>) {
        let _ = write!(self.key(key), "{}", value.into());
    }

    pub(super) fn number_unless_zero(&mut self, key: &str, value: u64) {
        if value != 0 {
            self.number(key, value);
        }
    }

    pub(super) fn flag(&mut self, key: &str, value: bool) {
        self.key(key).push_str(if value { "true" } else { "false" });
    }
}

/// Appends a JSON array, each element written by `push`.
pub(super) fn push_json_array<T>(
    out: &mut String,
    elements: impl IntoIterator<Item = T>,
    mut push: impl FnMut(&mut String, T),
) {
    out.push('[');
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push(out, element);
    }
    out.push(']');
}

/// A duration as Go prints it: `433ns`, `1.877µs`, `3.075344825s`, `1h0m0.5s`.
pub(super) fn duration_text(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    match nanos {
        0 => "0s".to_string(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(nanos, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(nanos, 1_000_000)),
        _ => {
            let minutes = nanos / 60_000_000_000;
            let seconds = decimal(nanos % 60_000_000_000, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// `value / unit` with all its decimals and no trailing zeros; `unit` is a power of ten.
fn decimal(value: u128, unit: u128) -> String {
    let whole = value / unit;
    let fraction = value % unit;
    if fraction == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let fraction = format!("{fraction:0width$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

/// A latency in nanoseconds as the text stats show it: one decimal, thousands as the step.
pub(super) fn latency_text(nanos: f64) -> String {
    if nanos > 1e9 {
        format!("{:.1}s", nanos / 1e9)
    } else if nanos > 1e6 {
        format!("{:.1}ms", nanos / 1e6)
    } else if nanos > 1e3 {
        format!("{:.1}us", nanos / 1e3)
    } else {
        format!("{nanos:.1}ns")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings() {
        let check = |text: &str, expected: &str| {
            let mut out = String::new();
            push_json_string(&mut out, text);
            assert_eq!(out, expected);
        };
        check("a#b", "\"a#b\"");
        check("\"\\/", r#""\"\\/""#);
        check("\n\r\t\u{8}\u{c}\0", r#""\n\r\t\u0008\u000c\u0000""#);
        check(
            "<&>\u{2028}\u{2029}\u{7f}é",
            "\"\\u003c\\u0026\\u003e\\u2028\\u2029\u{7f}é\"",
        );
    }

    #[test]
    fn floats() {
        let check = |value: f64, expected: &str| {
            let mut out = String::new();
            push_json_float(&mut out, value);
            assert_eq!(out, expected);
        };
        check(0.0, "0");
        check(1.0, "1");
        check(0.99, "0.99");
        check(7055112.0, "7055112");
        check(102215749.5, "102215749.5");
        check(1e20, "100000000000000000000");
        check(1.5e21, "1.5e+21");
        check(1e-6, "0.000001");
        check(1e-7, "1e-7");
        check(-2.5, "-2.5");
    }

    #[test]
    fn durations() {
        let check = |nanos: u64, expected: &str| {
            assert_eq!(duration_text(Duration::from_nanos(nanos)), expected);
        };
        check(0, "0s");
        check(433, "433ns");
        check(1_877, "1.877µs");
        check(202_814, "202.814µs");
        check(809_432_282, "809.432282ms");
        check(100_000_000, "100ms");
        check(1_000_000_000, "1s");
        check(3_075_344_825, "3.075344825s");
        check(65_000_000_000, "1m5s");
        check(203_160_370_100, "3m23.1603701s");
        check(3_600_500_000_000, "1h0m0.5s");
        check(3_723_000_000_000, "1h2m3s");
        check(259_200_000_000_000, "72h0m0s");
    }

    #[test]
    fn latencies() {
        assert_eq!(latency_text(0.0), "0.0ns");
        assert_eq!(latency_text(1000.0), "1000.0ns");
        assert_eq!(latency_text(1001.0), "1.0us");
        assert_eq!(latency_text(102_215_749.0), "102.2ms");
        assert_eq!(latency_text(2.5e9), "2.5s");
    }
}
