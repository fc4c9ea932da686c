//! Parses values like Go's `flag` package and prints them like Go: integers as in Go source
//! (`0x10`, `1_000`), booleans by word, durations with units. Each parser returns the *reason* of a
//! refusal in Go's words. The caller adds the flag's name.

use std::num::IntErrorKind;
use std::time::Duration;

/// Go's error for a value that is not of the flag's type.
pub const PARSE_ERROR: &str = "parse error";
/// Go's error for a number that is too large.
pub const OUT_OF_RANGE: &str = "value out of range";

/// Go's error for an invalid number where only decimal numbers are accepted.
const INVALID_SYNTAX: &str = "invalid syntax";

/// Parses a decimal integer like `strconv.ParseInt(text, 10, 64)` and `strconv.Atoi`: without
/// prefix and underscores.
pub fn parse_decimal(text: &str) -> Result<i64, &'static str> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(INVALID_SYNTAX);
    }
    text.parse().map_err(|_| OUT_OF_RANGE)
}

/// Parses a boolean in the spellings of Go's `strconv.ParseBool` (not `fALSE`).
pub fn parse_bool(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(PARSE_ERROR),
    }
}

/// Parses an integer like `strconv.ParseInt(text, 0, 64)`: the prefix determines the base.
pub fn parse_int(text: &str) -> Result<i64, &'static str> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = &text[..text.len() - unsigned.len()];
    let (radix, digits) = split_radix(unsigned);
    let digits = digits.replace('_', "");
    // Each underscore stands between two digits, or between a base prefix and a digit.
    let has_good_underscores = unsigned.split('_').all(|part| !part.is_empty());
    // Rust would accept a second sign here.
    let is_number = digits.chars().all(|c| c.is_digit(radix));
    if !is_number || !has_good_underscores {
        return Err(PARSE_ERROR);
    }
    i64::from_str_radix(&format!("{sign}{digits}"), radix).map_err(|error| match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => OUT_OF_RANGE,
        _ => PARSE_ERROR,
    })
}

/// Returns the base of a number and the number without a prefix of letters.
fn split_radix(unsigned: &str) -> (u32, &str) {
    let bytes = unsigned.as_bytes();
    if bytes.first() != Some(&b'0') {
        return (10, unsigned);
    }
    match bytes.get(1).map(u8::to_ascii_lowercase) {
        Some(b'x') => (16, &unsigned[2..]),
        Some(b'o') => (8, &unsigned[2..]),
        Some(b'b') => (2, &unsigned[2..]),
        _ => (8, unsigned),
    }
}

/// Parses a duration into nanoseconds like `time.ParseDuration`: `1h30m`, `.5s`, `0`.
pub fn parse_duration(text: &str) -> Result<i64, &'static str> {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(PARSE_ERROR);
    }
    // Go adds up in 63 bits. Only a negative value may have the magnitude 2^63.
    let magnitude_max = 1u128 << 63;
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (part, after) = parse_duration_part(rest).ok_or(PARSE_ERROR)?;
        total += part;
        if total > magnitude_max {
            return Err(PARSE_ERROR);
        }
        rest = after;
    }
    let value = total as i128;
    let value = if text.starts_with('-') { -value } else { value };
    i64::try_from(value).map_err(|_| PARSE_ERROR)
}

/// Parses a duration that is not negative.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let nanos = u64::try_from(parse_duration(text).ok()?).ok()?;
    Some(Duration::from_nanos(nanos))
}

/// Parses one `<decimal><unit>`. Returns the nanoseconds and the rest of the text. The nanoseconds
/// are at most a little above 2^63, so the caller can add before the comparison.
fn parse_duration_part(text: &str) -> Option<(u128, &str)> {
    let whole_bytes = digit_count(text);
    let (whole, mut rest) = text.split_at(whole_bytes);
    let mut fraction = "";
    if let Some(after_point) = rest.strip_prefix('.') {
        (fraction, rest) = after_point.split_at(digit_count(after_point));
    }
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let unit_bytes = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_bytes);
    let unit = unit_nanos(unit)?;
    // A zero in front makes a number of an empty text, too.
    let number = |digits: &str| format!("0{digits}").parse::<u64>().ok();
    let whole = u128::from(number(whole)?) * unit;
    if whole > 1 << 63 {
        return None;
    }
    // Digits beyond the eighteenth are below a nanosecond in every unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10u128.pow(fraction.len() as u32);
    Some((whole + u128::from(number(fraction)?) * unit / scale, rest))
}

fn unit_nanos(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        // The micro sign and the Greek letter mu are two characters that look alike.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

fn digit_count(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Returns the reason why a text is not a duration, in the words of `time.ParseDuration`.
pub fn duration_error(text: &str) -> String {
    let is_number = |part: &str| part.matches('.').count() < 2 && part.contains(char::is_numeric);
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    while let Some(number_bytes) = rest.find(|c: char| c != '.' && !c.is_ascii_digit()) {
        let (number, after) = rest.split_at(number_bytes);
        let unit_bytes = after.find(|c: char| c == '.' || c.is_ascii_digit());
        let (unit, after) = after.split_at(unit_bytes.unwrap_or(after.len()));
        if !is_number(number) {
            return format!("time: invalid duration {text:?}");
        }
        if unit_nanos(unit).is_none() {
            return format!("time: unknown unit {unit:?} in duration {text:?}");
        }
        rest = after;
    }
    if is_number(rest) {
        format!("time: missing unit in duration {text:?}")
    } else {
        format!("time: invalid duration {text:?}")
    }
}

/// Parses numbers separated by commas. The error is the part that is not a number.
pub fn parse_floats(text: &str) -> Result<Vec<f64>, &str> {
    text.split(',')
        .map(|part| parse_float(part).ok_or(part))
        .collect()
}

/// Parses a number like `strconv.ParseFloat`, except hexadecimal numbers.
pub fn parse_float(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Formats a number as Go prints it (`%v`).
pub fn float_text(value: f64) -> String {
    let magnitude = value.abs();
    if value.is_nan() {
        return "NaN".to_string();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_string();
    }
    if magnitude == 0.0 || (1e-4..1e21).contains(&magnitude) {
        return value.to_string();
    }
    // Rust writes 1e21 and 1e-5 where Go writes 1e+21 and 1e-05.
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

/// Formats a duration as Go prints it: `433ns`, `1.877µs`, `3.075344825s`, `1h0m0.5s`.
pub fn duration_text(duration: Duration) -> String {
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

/// Formats `value / unit` with all decimals and without trailing zeros. `unit` is a power of ten.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        let check = |text: &str, expected: Result<i64, &str>| {
            assert_eq!(parse_int(text), expected, "{text:?}");
        };
        check("0", Ok(0));
        check("-0", Ok(0));
        check("+17", Ok(17));
        check("0x1F", Ok(31));
        check("0X_1f", Ok(31));
        check("0o17", Ok(15));
        check("017", Ok(15));
        check("0b101", Ok(5));
        check("1_000_000", Ok(1_000_000));
        check("0_7", Ok(7));
        check("-9223372036854775808", Ok(i64::MIN));
        check("9223372036854775807", Ok(i64::MAX));
        check("9223372036854775808", Err(OUT_OF_RANGE));
        check("99999999999999999999", Err(OUT_OF_RANGE));
        for bad in [
            "", "-", "abc", "1e3", " 1", "1 ", "1.0", "08", "0x", "_1", "1_", "1__0", "--1",
        ] {
            check(bad, Err(PARSE_ERROR));
        }
        check("0x", Err(PARSE_ERROR));
        check("+-1", Err(PARSE_ERROR));
        check("é", Err(PARSE_ERROR));
    }

    #[test]
    fn durations() {
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(parse_duration(text).ok(), expected, "{text:?}");
        };
        check("0", Some(0));
        check("-0", Some(0));
        check("1m0s", Some(60_000_000_000));
        check("250ms", Some(250_000_000));
        check("1.5s", Some(1_500_000_000));
        check(".5s", Some(500_000_000));
        check("5.s", Some(5_000_000_000));
        check("1h30m", Some(5_400_000_000_000));
        check("1h1h", Some(7_200_000_000_000));
        check("3µs", Some(3_000));
        check("3μs", Some(3_000));
        check("-2s", Some(-2_000_000_000));
        check("+2us", Some(2_000));
        check("9223372036s", Some(9_223_372_036_000_000_000));
        check("-9223372036854775808ns", Some(i64::MIN));
        check("0.1234567891234567891234s", Some(123_456_789));
        for bad in [
            "",
            "-",
            "5",
            "s",
            ".s",
            "1 s",
            "1d",
            "1S",
            "1e3s",
            "9223372036s1s",
            "1s2",
            "9223372037s",
            "9223372036854775808ns",
            "99999999999999999999h",
            "1..5s",
            "+-1s",
            "1é",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn booleans() {
        for yes in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(parse_bool(yes), Ok(true));
        }
        for no in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(parse_bool(no), Ok(false));
        }
        for bad in ["", "fALSE", "maybe", "yes", "2"] {
            assert_eq!(parse_bool(bad), Err(PARSE_ERROR));
        }
    }

    #[test]
    fn durations_as_text() {
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
}
