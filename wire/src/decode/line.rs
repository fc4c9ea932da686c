//! A command line: its end, its words, and the numbers in it.

/// Returns the offset of the first LF at or behind `from`. `input` has no LF before `from`.
#[inline]
pub(super) fn find_line_end(input: &[u8], from: usize) -> Option<usize> {
    find::<b'\n'>(input.get(from..)?).map(|at| from + at)
}

/// Splits a line into its words, at least one. Each single space separates, so a word may be empty.
#[inline]
pub(super) fn words(line: &[u8]) -> Words<'_> {
    Words { rest: Some(line) }
}

/// The iterator of [`words`].
pub(super) struct Words<'a> {
    /// `None` once the last word has been taken.
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        match find::<b' '>(rest) {
            Some(at) => {
                self.rest = Some(&rest[at + 1..]);
                Some(&rest[..at])
            }
            None => self.rest.take(),
        }
    }
}

/// Returns the offset of the first `BYTE`. The search reads eight bytes at a time: as measured, a
/// FIN takes 24 ns instead of 27, and a NOP 15 ns instead of 14.
#[inline]
fn find<const BYTE: u8>(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);
    let wanted = u64::from_ne_bytes([BYTE; 8]);
    let (chunks, tail) = bytes.as_chunks::<8>();
    for (index, chunk) in chunks.iter().enumerate() {
        let zero_where_found = u64::from_le_bytes(*chunk) ^ wanted;
        // The lowest set top bit marks the first zero byte. Above that bit, borrows may set wrong
        // bits.
        let found = zero_where_found.wrapping_sub(ONES) & !zero_where_found & TOPS;
        if found != 0 {
            return Some(index * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let before_tail = bytes.len() - tail.len();
    tail.iter()
        .position(|byte| *byte == BYTE)
        .map(|at| before_tail + at)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The inputs mix the wanted byte with its neighbours, because borrows affect those.
        #[test]
        fn agrees_with_a_plain_search(
            bytes in prop::collection::vec(
                prop_oneof![9..=11_u8, 31..=33_u8, 0x89..=0x8b_u8, any::<u8>()],
                0..40,
            ),
            from in 0..40_usize,
        ) {
            let plain = |byte: u8, bytes: &[u8]| bytes.iter().position(|b| *b == byte);
            let rest = bytes.get(from..).unwrap_or_default();
            let line_end = plain(b'\n', rest).map(|at| from + at);
            prop_assert_eq!(find_line_end(&bytes, from), line_end);
            prop_assert_eq!(find::<b' '>(&bytes), plain(b' ', &bytes));
            let split: Vec<&[u8]> = bytes.split(|byte| *byte == b' ').collect();
            prop_assert_eq!(words(&bytes).collect::<Vec<_>>(), split);
        }
    }
}
