//! Finds the body's bytes in a chunked body. The parser is pure: bytes in, steps out.

/// Most bytes of all extensions of a body, of one chunk's line, and of the trailers. Nobody needs
/// them. The limits are those of hyper, which served here before.
const OVERHEAD_BYTES_MAX: usize = 16 * 1024;
const TRAILERS_MAX: usize = 100;

/// The chunks are malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// This many bytes that do not belong to the body.
    Skip(usize),
    /// This many bytes of the body, at least one.
    Data(usize),
    /// The input is too short for a decision.
    More,
    /// The body has ended. The input begins with the bytes behind it.
    End,
}

/// The state of a chunked body. The caller removes the bytes of each step from the input.
#[derive(Debug, Default)]
pub(super) struct Chunked {
    place: Place,
    extension_bytes: usize,
}

#[derive(Debug, Default)]
enum Place {
    #[default]
    Size,
    /// This many bytes of the chunk are left, at least one.
    Data(u64),
    DataEnd,
    Trailers,
    End,
}

impl Chunked {
    /// Returns true when the body has been read to its end.
    pub(super) fn is_at_end(&self) -> bool {
        matches!(self.place, Place::End)
    }

    /// Examines the front of the input.
    pub(super) fn step(&mut self, input: &[u8]) -> Result<Step, Malformed> {
        match self.place {
            _ if input.is_empty() && !self.is_at_end() => Ok(Step::More),
            Place::Size => self.size(input),
            Place::Data(left) => {
                let count = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
                self.place = match left - count as u64 {
                    0 => Place::DataEnd,
                    left => Place::Data(left),
                };
                Ok(Step::Data(count))
            }
            Place::DataEnd => match input {
                [b'\r', b'\n', ..] => {
                    self.place = Place::Size;
                    Ok(Step::Skip(2))
                }
                b"\r" => Ok(Step::More),
                _ => Err(Malformed),
            },
            Place::Trailers => self.trailers(input),
            Place::End => Ok(Step::End),
        }
    }

    fn size(&mut self, input: &[u8]) -> Result<Step, Malformed> {
        // The parser would accept a line without a number as zero.
        if !input[0].is_ascii_hexdigit() {
            return Err(Malformed);
        }
        let parsed = httparse::parse_chunk_size(input).map_err(|_| Malformed)?;
        let httparse::Status::Complete((count, size)) = parsed else {
            return more(input);
        };
        let line = &input[..count - 2];
        // Some parsers accept a bare line feed as the end of the line. They would see other chunks
        // than this one.
        if line.contains(&b'\n') {
            return Err(Malformed);
        }
        let digits = line.iter().position(|&byte| byte == b';');
        self.extension_bytes += digits.map_or(0, |digits| line.len() - digits);
        if count.max(self.extension_bytes) > OVERHEAD_BYTES_MAX {
            return Err(Malformed);
        }
        self.place = if size == 0 {
            Place::Trailers
        } else {
            Place::Data(size)
        };
        Ok(Step::Skip(count))
    }

    fn trailers(&mut self, input: &[u8]) -> Result<Step, Malformed> {
        let mut fields = [httparse::EMPTY_HEADER; TRAILERS_MAX];
        match httparse::parse_headers(input, &mut fields) {
            Ok(httparse::Status::Complete((count, _))) if count <= OVERHEAD_BYTES_MAX => {
                self.place = Place::End;
                Ok(Step::Skip(count))
            }
            Ok(httparse::Status::Partial) => more(input),
            Ok(httparse::Status::Complete(_)) | Err(_) => Err(Malformed),
        }
    }
}

fn more(input: &[u8]) -> Result<Step, Malformed> {
    if input.len() >= OVERHEAD_BYTES_MAX {
        return Err(Malformed);
    }
    Ok(Step::More)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `input`, which arrives in pieces of `at_once` bytes. Returns the body and the bytes
    /// behind it.
    fn decode(input: &str, at_once: usize) -> Result<(String, &str), Option<Malformed>> {
        let (mut chunked, mut body) = (Chunked::default(), String::new());
        let (mut start, mut end) = (0, 0);
        loop {
            match chunked.step(&input.as_bytes()[start..end]).map_err(Some)? {
                Step::Skip(count) => start += count,
                Step::Data(count) => {
                    body.push_str(&input[start..start + count]);
                    start += count;
                }
                Step::More if end == input.len() => return Err(None),
                Step::More => end = input.len().min(end + at_once),
                Step::End => return Ok((body, &input[start..])),
            }
        }
    }

    fn check(input: &str, expected: Result<(&str, &str), Option<Malformed>>) {
        let pieces: &[usize] = if input.len() < 1000 {
            &[1, 2, 3, 5, 1000]
        } else {
            &[5000, 20_000]
        };
        for &at_once in pieces {
            let decoded = decode(input, at_once);
            let decoded = decoded.as_ref().map(|(body, rest)| (body.as_str(), *rest));
            let shown = &input[..input.len().min(60)];
            assert_eq!(
                decoded,
                expected.as_ref().map(|ok| *ok),
                "{shown:?}, {at_once}"
            );
        }
    }

    #[test]
    fn chunks_are_joined() {
        check("0\r\n\r\n", Ok(("", "")));
        check(
            "3\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\n",
            Ok(("abc0123456789", "")),
        );
        check(
            "1 \t;x=\"y\"\r\na\r\n0;z\r\nA: b\r\nC: d\r\n\r\n",
            Ok(("a", "")),
        );
        let extension = "x".repeat(OVERHEAD_BYTES_MAX - 10);
        check(&format!("1;{extension}\r\na\r\n0\r\n\r\n"), Ok(("a", "")));
    }

    #[test]
    fn incomplete_chunks_are_awaited() {
        let whole = "3;x\r\nabc\r\n0\r\nA: b\r\n\r\n";
        for cut in 0..whole.len() {
            check(&whole[..cut], Err(None));
        }
    }

    #[test]
    fn malformed_chunks() {
        let long = "x".repeat(OVERHEAD_BYTES_MAX);
        let bad = [
            "zz\r\n",
            "\r\n\r\n",
            ";x\r\n\r\n",
            "-1\r\n",
            "0x1\r\na\r\n0\r\n\r\n",
            "1\na\r\n0\r\n\r\n",
            "1;x\ny\r\na\r\n0\r\n\r\n",
            "1 1\r\na\r\n0\r\n\r\n",
            "11112222333344445\r\n",
            "1\r\nab\r\n0\r\n\r\n",
            "1\r\na\n0\r\n\r\n",
            "0\r\nno trailer\r\n\r\n",
            &format!("1;{long}\r\na\r\n0\r\n\r\n"),
            &format!("1;{}\r\na\r\n1;{}\r\nb\r\n", &long[..9000], &long[..9000]),
            &format!("0\r\nA: {long}\r\n\r\n"),
            &format!("0\r\n{}\r\n", "A: b\r\n".repeat(TRAILERS_MAX + 1)),
        ];
        for input in bad {
            check(input, Err(Some(Malformed)));
        }
    }
}
