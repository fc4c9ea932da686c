//! `Content-Encoding`: the compressed bodies that a server decodes.

use std::io::{self, Write as _};

use flate2::write::MultiGzDecoder;
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, Operation as _};

/// Most bytes that one step adds to the output. A step of this size takes less than 0.1 ms.
const STEP_BYTES: usize = 32 * 1024;

/// Largest window of zstd that is accepted: 2^23 bytes, as RFC 9659 requires of every sender.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// The encodings that a server decodes, for the header `Accept-Encoding`.
pub(super) const ACCEPTED: &str = "gzip, zstd";

/// The encoding of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Coding {
    /// The body is what it is.
    #[default]
    Identity,
    /// One gzip member or more (RFC 1952).
    Gzip,
    /// One zstd frame or more (RFC 8878).
    Zstd,
    /// An unknown encoding, or more than one.
    Unsupported,
}

impl Coding {
    /// Adds the value of a header `Content-Encoding`.
    pub(super) fn add(&mut self, value: &[u8]) {
        for word in value.split(|&byte| byte == b',') {
            let is = |name: &str| word.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
            let coding = match () {
                () if is("") || is("identity") => continue,
                () if *self != Coding::Identity => Coding::Unsupported,
                () if is("gzip") || is("x-gzip") => Coding::Gzip,
                () if is("zstd") => Coding::Zstd,
                () => Coding::Unsupported,
            };
            *self = coding;
        }
    }
}

/// A body that is being decoded. Its memory is that of the output and of a window of at most 8 MiB.
pub(super) enum Decoder {
    /// The output is inside.
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    Zstd {
        decoder: ZstdDecoder<'static>,
        output: Vec<u8>,
        /// True at the end of a frame.
        is_complete: bool,
    },
}

impl Decoder {
    /// Returns a decoder, or `None` for a body that is not encoded or that cannot be decoded.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn new(coding: Coding) -> io::Result<Option<Decoder>> {
        Ok(match coding {
            Coding::Gzip => Some(Decoder::Gzip(Box::new(MultiGzDecoder::new(Vec::new())))),
            Coding::Zstd => {
                let mut decoder = ZstdDecoder::new()?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))?;
                Some(Decoder::Zstd {
                    decoder,
                    output: Vec::new(),
                    is_complete: false,
                })
            }
            Coding::Identity | Coding::Unsupported => None,
        })
    }

    /// Returns the number of decoded bytes so far.
    pub(super) fn decoded_bytes(&self) -> usize {
        match self {
            Decoder::Gzip(decoder) => decoder.get_ref().len(),
            Decoder::Zstd { output, .. } => output.len(),
        }
    }

    /// Decodes from the front of `input`, and removes what is decoded. Adds at most
    /// [`STEP_BYTES`] to the output. Returns true if nothing can be done without more input.
    ///
    /// # Errors
    /// The input is no valid encoding.
    pub(super) fn step(&mut self, input: &mut &[u8]) -> io::Result<bool> {
        match self {
            Decoder::Gzip(decoder) => {
                // One call of `write` decodes into a buffer of 32 KiB and returns.
                let read = decoder.write(input)?;
                if read == 0 && !input.is_empty() {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                *input = &input[read..];
                Ok(input.is_empty())
            }
            Decoder::Zstd {
                decoder,
                output,
                is_complete,
            } => {
                let start = output.len();
                output.resize(start + STEP_BYTES, 0);
                let step = decoder.run_on_buffers(input, &mut output[start..]);
                output.truncate(start + step.as_ref().map_or(0, |step| step.bytes_written));
                let step = step?;
                *input = &input[step.bytes_read..];
                // A step without input begins the next frame, which need not come.
                if step.bytes_read > 0 || step.bytes_written > 0 {
                    *is_complete = step.remaining == 0;
                }
                Ok(input.is_empty() && step.bytes_written < STEP_BYTES)
            }
        }
    }

    /// Ends the input, and returns the output.
    ///
    /// # Errors
    /// The input is not complete.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Decoder::Gzip(decoder) => decoder.finish(),
            Decoder::Zstd {
                is_complete: false, ..
            } => Err(io::ErrorKind::UnexpectedEof.into()),
            Decoder::Zstd { output, .. } => Ok(output),
        }
    }

    /// Returns the output so far, whether the input is complete or not.
    pub(super) fn into_output(self) -> Vec<u8> {
        match self {
            Decoder::Gzip(mut decoder) => std::mem::take(decoder.get_mut()),
            Decoder::Zstd { output, .. } => output,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn encode(coding: Coding, body: &[u8]) -> Vec<u8> {
        if coding == Coding::Zstd {
            return zstd::encode_all(body, 3).unwrap();
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    /// Decodes input that comes in pieces of `piece_bytes`.
    fn decode(coding: Coding, input: &[u8], piece_bytes: usize) -> io::Result<Vec<u8>> {
        let mut decoder = Decoder::new(coding)?.unwrap();
        for mut piece in input.chunks(piece_bytes) {
            loop {
                let before = decoder.decoded_bytes();
                let needs_more = decoder.step(&mut piece)?;
                assert!(decoder.decoded_bytes() - before <= STEP_BYTES);
                if needs_more {
                    break;
                }
            }
        }
        decoder.finish()
    }

    #[test]
    fn one_known_encoding_is_supported() {
        let check = |values: &[&str], expected: Coding| {
            let mut coding = Coding::Identity;
            values.iter().for_each(|value| coding.add(value.as_bytes()));
            assert_eq!(coding, expected, "{values:?}");
        };
        check(&["", " Identity ", "identity,identity"], Coding::Identity);
        check(&["GZip"], Coding::Gzip);
        check(&["x-gzip, identity"], Coding::Gzip);
        check(&["identity", " zstd\t"], Coding::Zstd);
        for refused in ["br", "deflate", "compress", "gzip;q=1", "gzip, zstd"] {
            check(&[refused], Coding::Unsupported);
        }
        check(&["gzip", "gzip"], Coding::Unsupported);
        check(&["br", "gzip"], Coding::Unsupported);
    }

    #[test]
    fn bodies_come_back_however_they_arrive() {
        let long: Vec<u8> = (0..200_000_u32).flat_map(u32::to_be_bytes).collect();
        for coding in [Coding::Gzip, Coding::Zstd] {
            for body in [&b""[..], b"hello", &[0; 100_000], &long] {
                let encoded = encode(coding, body);
                for piece_bytes in [1, 7, 8192, usize::MAX] {
                    let decoded = decode(coding, &encoded, piece_bytes).unwrap();
                    assert!(decoded == body, "{coding:?} {piece_bytes}");
                }
            }
            for steps in 1..=5 {
                let body = vec![b'x'; steps * STEP_BYTES];
                let encoded = encode(coding, &body);
                for piece_bytes in [7, usize::MAX] {
                    let decoded = decode(coding, &encoded, piece_bytes).unwrap();
                    assert!(decoded == body, "{coding:?} {steps} {piece_bytes}");
                }
            }
            let twice = [encode(coding, b"one "), encode(coding, b"two")].concat();
            for piece_bytes in [1, 8192] {
                let decoded = decode(coding, &twice, piece_bytes).unwrap();
                assert_eq!(decoded, b"one two", "{coding:?}");
            }
        }
    }

    #[test]
    fn damaged_bodies_are_errors() {
        for coding in [Coding::Gzip, Coding::Zstd] {
            let encoded = encode(coding, b"hello hello hello hello");
            for count in 0..encoded.len() {
                assert!(decode(coding, &encoded[..count], 8).is_err(), "{count}");
            }
            let with_more = [&encoded[..], b"more"].concat();
            assert!(decode(coding, &with_more, 8192).is_err());
            assert!(decode(coding, b"hello", 8192).is_err());
            // A byte of the checksum, or of the data.
            let mut flipped = encode(Coding::Gzip, b"hello");
            let at = flipped.len() - 6;
            flipped[at] ^= 1;
            assert!(decode(Coding::Gzip, &flipped, 8192).is_err());
        }
    }

    #[test]
    fn a_window_above_8_mib_is_refused() {
        let encoded = |window_log: u32| {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.window_log(window_log).unwrap();
            encoder.write_all(&[0; 1000]).unwrap();
            encoder.flush().unwrap();
            encoder.finish().unwrap()
        };
        decode(Coding::Zstd, &encoded(23), 8192).unwrap();
        assert!(decode(Coding::Zstd, &encoded(24), 8192).is_err());
    }
}
