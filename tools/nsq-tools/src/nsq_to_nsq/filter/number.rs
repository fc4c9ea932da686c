//! JSON numbers in the form of the original, but never with another value.
//!
//! The original reads each number as a 64-bit float and prints that float, which damages integers
//! beyond 2^53 and long fractions. Here such a number keeps its text. Every other number has the
//! original's form: `2.0` becomes `2`, and `1e3` becomes `1000`.

use wire::go_json;

/// The first float above the 64-bit integers.
const TWO_TO_63: f64 = (1_u64 << 63) as f64;

/// Returns the value of a JSON number as a 64-bit float, which is infinite beyond the range of
/// floats. Returns `None` for the text of another value.
pub(super) fn value(text: &str) -> Option<f64> {
    let is_number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Appends a field of the object itself. The original prints such a number as an integer, if the
/// number is whole and fits.
pub(super) fn push_field(out: &mut String, text: &str) {
    push(out, text, |out, value| {
        if value.trunc() == value && (-TWO_TO_63..TWO_TO_63).contains(&value) {
            out.push_str(&(value as i64).to_string());
        } else {
            go_json::push(out, &value);
        }
    });
}

/// Appends a number inside an inner object or an array.
pub(super) fn push_inner(out: &mut String, text: &str) {
    push(out, text, |out, value| go_json::push(out, &value));
}

fn push(out: &mut String, text: &str, print: impl FnOnce(&mut String, f64)) {
    let start = out.len();
    if let Some(value) = value(text).filter(|value| value.is_finite()) {
        print(out, value);
        if Decimal::of(&out[start..]) == Decimal::of(text) {
            return;
        }
    }
    out.truncate(start);
    out.push_str(text);
}

/// The exact value of a decimal number: 0.`digits` times ten to the power of `exponent`.
///
/// Invariant: the first and the last digit are not 0. Zero has no digits, no sign and exponent 0.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: Vec<u8>,
    exponent: i128,
}

impl Decimal {
    /// Returns the value of a JSON number.
    fn of(text: &str) -> Decimal {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let unsigned = mantissa.trim_start_matches('-');
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        let leading = digits.iter().take_while(|digit| **digit == b'0').count();
        let mut digits = digits[leading..].to_vec();
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        if digits.is_empty() {
            return Decimal {
                is_negative: false,
                digits,
                exponent: 0,
            };
        }
        // An exponent beyond 128 bits has no equal among printed floats, so any large one will do.
        let exponent: i128 = exponent.parse().unwrap_or(i128::MAX / 4);
        Decimal {
            is_negative: mantissa.starts_with('-'),
            digits,
            exponent: exponent + whole.len() as i128 - leading as i128,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_originals_form() {
        let check = |text: &str, expected: &str| {
            let mut out = "x".to_owned();
            push_field(&mut out, text);
            assert_eq!(out, format!("x{expected}"));
        };
        check("1", "1");
        check("2.0", "2");
        check("2.50", "2.5");
        check("-0.0", "0");
        check("-0", "0");
        check("0e5", "0");
        check("1e3", "1000");
        check("1E+3", "1000");
        check("1e18", "1000000000000000000");
        check("1e20", "100000000000000000000");
        check("1e21", "1e+21");
        check("0.1", "0.1");
        check("0.0000010", "0.000001");
        check("1e-7", "1e-7");
        check("0.00000012", "1.2e-7");
        check("-9223372036854775808", "-9223372036854775808");
        check("9007199254740992", "9007199254740992");
    }

    #[test]
    fn a_number_that_a_float_would_change_keeps_its_text() {
        for text in [
            "9007199254740993",
            "12345678901234567890",
            "9223372036854775807",
            "9223372036854775808",
            "0.1000000000000000055511151231257827",
            "3.14159265358979323846",
            "1e400",
            "-1e400",
            "1e-400",
            "1e99999999999999999999999999999999999999999999",
        ] {
            for print in [push_field, push_inner] {
                let mut out = String::new();
                print(&mut out, text);
                assert_eq!(out, text);
            }
        }
    }

    #[test]
    fn inner_numbers_are_floats() {
        let check = |text: &str, expected: &str| {
            let mut out = String::new();
            push_inner(&mut out, text);
            assert_eq!(out, expected);
        };
        check("-0.0", "-0");
        check("2.50", "2.5");
        check("1e3", "1000");
        check("123456789012345680000", "123456789012345680000");
    }

    #[test]
    fn other_values_are_no_numbers() {
        for text in ["\"1\"", "true", "null", "[1]", "inf", "nan"] {
            assert_eq!(value(text), None, "{text}");
        }
        assert_eq!(value("2.0"), Some(2.0));
        assert_eq!(value("1e400"), Some(f64::INFINITY));
    }
}
