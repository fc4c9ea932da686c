//! A command line: where it ends, its words, the numbers among them.

/// Where the first LF is at or behind `from`. `input` holds none before that.
#[inline]
pub(super) fn find_line_end(input: &[u8], from: usize) -> Option<usize> {
    let rest = input.get(from..)?;
    rest.iter().position(|byte| *byte == b'\n').map(|at| from + at)
}

/// The words of a line, at least one. Each single space separates, so there can be empty words.
#[inline]
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ')
}

/// A decimal number as nsqd reads it: digits only, none at all is zero, and what does not fit into 64
/// bits wraps around. `None` when there is anything but digits.
#[inline]
pub(super) fn number(word: &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    Some(value)
}
