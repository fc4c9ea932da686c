//! [`Records`]: splits the input at the delimiter.

use bytes::{Bytes, BytesMut};

/// The input that is not split yet.
///
/// Invariant: the first `searched` bytes have no delimiter.
#[derive(Debug)]
pub(super) struct Records {
    delimiter: u8,
    buffer: BytesMut,
    searched: usize,
}

impl Records {
    /// Returns an empty input.
    pub(super) fn new(delimiter: u8) -> Records {
        Records {
            delimiter,
            buffer: BytesMut::new(),
            searched: 0,
        }
    }

    /// Adds a piece of the input.
    pub(super) fn add(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the next record that a delimiter ends, without the delimiter. The record may be empty.
    pub(super) fn next_whole(&mut self) -> Option<Bytes> {
        let unsearched = &self.buffer[self.searched..];
        match memchr::memchr(self.delimiter, unsearched) {
            Some(place) => {
                let mut record = self.buffer.split_to(self.searched + place + 1);
                record.truncate(record.len() - 1);
                self.searched = 0;
                Some(record.freeze())
            }
            None => {
                self.searched = self.buffer.len();
                None
            }
        }
    }

    /// Returns the rest of the input after its end, which no delimiter ends, without the line feed that ends a text. The
    /// rest may be empty. The original drops the last byte of the rest, whatever it is.
    pub(super) fn rest(self) -> Bytes {
        let mut rest = self.buffer;
        if rest.ends_with(b"\n") {
            rest.truncate(rest.len() - 1);
        }
        rest.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the input in pieces of each size, and compares the records and the rest.
    fn check(delimiter: u8, input: &str, expected: &[&str], rest: &str) {
        for size in 1..=input.len().max(1) {
            let mut records = Records::new(delimiter);
            let mut found = Vec::new();
            for piece in input.as_bytes().chunks(size) {
                records.add(piece);
                found.extend(std::iter::from_fn(|| records.next_whole()));
            }
            assert_eq!(found, expected, "{input:?} in pieces of {size}");
            assert_eq!(records.rest(), rest, "{input:?} in pieces of {size}");
        }
    }

    #[test]
    fn the_delimiter_ends_a_record() {
        check(b'\n', "", &[], "");
        check(b'\n', "\n", &[""], "");
        check(b'\n', "one\n\ntwo\nthree", &["one", "", "two"], "three");
        check(b'\n', "one\r\n", &["one\r"], "");
        check(b',', "one,two,three\n", &["one", "two"], "three");
        check(b',', "one\n,two\n\n", &["one\n"], "two\n");
        check(b',', "one,\n", &["one"], "");
        check(0, "a\0b", &["a"], "b");
    }

    #[test]
    fn a_long_record_is_searched_once() {
        let mut records = Records::new(b'\n');
        let piece = [b'x'; 1024];
        for size in 1..=100 {
            records.add(&piece);
            assert_eq!(records.next_whole(), None);
            assert_eq!(records.searched, size * piece.len());
        }
        records.add(b"\n");
        assert_eq!(
            records.next_whole().map(|record| record.len()),
            Some(102_400)
        );
    }
}
