//! A command line: its end, its words, and the numbers in it.

/// Returns the offset of the first LF at or behind `from`. `input` has no LF before `from`.
#[inline]
pub(super) fn find_line_end(input: &[u8], from: usize) -> Option<usize> {
    memchr::memchr(b'\n', input.get(from..)?).map(|at| from + at)
}

/// Splits a line into its words, at least one. Each single space separates, so a word may be empty.
#[inline]
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ')
}

/// Reads a decimal number like nsqd: digits only, no digits are zero, and a number beyond 64 bits
/// wraps around. Returns `None` when there is any other character.
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
