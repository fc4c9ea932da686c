//! [`Encoder`]: the bytes of messages as a file has them, plain or compressed.
//!
//! A compressed file is a sequence of gzip members or zstd frames. Each ends at a sync, and holds
//! the messages that were finished then. So a file that was cut in the middle can be read up to its
//! last sync, by every reader that takes several members: `zcat`, `zstdcat`.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use zstd::stream::raw::{CParameter, Encoder as ZstdContext, InBuffer, Operation, OutBuffer};

/// The bytes by which a buffer for compressed bytes grows.
const OUTPUT_STEP_BYTES: usize = 64 * 1024;

/// The form of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    /// The messages as they are.
    None,
    /// gzip, with a level from 1 to 9.
    Gzip(u32),
    /// zstd, with a level from 1 to 22.
    Zstd(i32),
}

impl Compression {
    /// Returns the end of the names of such files.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip(_) => ".gz",
            Compression::Zstd(_) => ".zst",
        }
    }
}

/// The encoder of one topic. Its member, or frame, is open between the first byte after a sync and
/// the next sync.
pub(super) enum Encoder {
    Plain,
    Gzip {
        level: flate2::Compression,
        member: Option<Box<GzEncoder<Vec<u8>>>>,
    },
    Zstd {
        context: Box<ZstdContext<'static>>,
        is_open: bool,
    },
}

impl Encoder {
    /// Returns an encoder.
    ///
    /// # Errors
    /// zstd refuses the level, or has no memory.
    pub(super) fn new(compression: Compression) -> io::Result<Encoder> {
        Ok(match compression {
            Compression::None => Encoder::Plain,
            Compression::Gzip(level) => Encoder::Gzip {
                level: flate2::Compression::new(level),
                member: None,
            },
            Compression::Zstd(level) => {
                let mut context = ZstdContext::new(level)?;
                context.set_parameter(CParameter::ChecksumFlag(true))?;
                Encoder::Zstd {
                    context: Box::new(context),
                    is_open: false,
                }
            }
        })
    }

    /// Encodes `bytes`. Appends what is ready to `out`. An encoder may keep some bytes until the next
    /// call of [`Encoder::end`].
    pub(super) fn encode(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Encoder::Plain => out.extend_from_slice(bytes),
            Encoder::Gzip { level, member } => {
                let member =
                    member.get_or_insert_with(|| Box::new(GzEncoder::new(Vec::new(), *level)));
                member.write_all(bytes)?;
                out.append(member.get_mut());
            }
            Encoder::Zstd { context, is_open } => {
                *is_open = true;
                let mut input = InBuffer::around(bytes);
                while input.pos() < bytes.len() {
                    append(out, |output| context.run(&mut input, output))?;
                }
            }
        }
        Ok(())
    }

    /// Ends the member or frame, if one is open.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Encoder::Plain => {}
            Encoder::Gzip { member, .. } => {
                if let Some(member) = member.take() {
                    out.append(&mut member.finish()?);
                }
            }
            Encoder::Zstd { context, is_open } => {
                if std::mem::take(is_open) {
                    while append(out, |output| context.finish(output, true))? > 0 {}
                    context.reinit()?;
                }
            }
        }
        Ok(())
    }
}

/// Calls `run` with room at the end of `out`. Returns its result.
fn append(
    out: &mut Vec<u8>,
    run: impl FnOnce(&mut OutBuffer<'_, Vec<u8>>) -> io::Result<usize>,
) -> io::Result<usize> {
    out.reserve(OUTPUT_STEP_BYTES);
    let written = out.len();
    run(&mut OutBuffer::around_pos(out, written))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn decode(compression: Compression, bytes: &[u8]) -> (Vec<u8>, io::Result<()>) {
        let mut reader: Box<dyn Read> = match compression {
            Compression::None => Box::new(bytes),
            Compression::Gzip(_) => Box::new(flate2::read::MultiGzDecoder::new(bytes)),
            Compression::Zstd(_) => Box::new(zstd::Decoder::new(bytes).unwrap()),
        };
        let mut text = Vec::new();
        let end = reader.read_to_end(&mut text);
        (text, end.map(|_| ()))
    }

    #[test]
    fn a_file_is_the_sequence_of_its_members() {
        for compression in [
            Compression::None,
            Compression::Gzip(1),
            Compression::Gzip(9),
            Compression::Zstd(1),
            Compression::Zstd(19),
        ] {
            let mut encoder = Encoder::new(compression).unwrap();
            let mut rng = fastrand::Rng::with_seed(3);
            let (mut plain, mut file) = (Vec::new(), Vec::new());
            for _ in 0..5 {
                // Random bytes grow when they are compressed.
                let length = rng.usize(0..300_000);
                let bytes: Vec<u8> = (0..length).map(|_| rng.u8(..)).collect();
                for part in bytes.chunks(70_000) {
                    encoder.encode(part, &mut file).unwrap();
                }
                encoder.end(&mut file).unwrap();
                plain.extend_from_slice(&bytes);
                let (decoded, end) = decode(compression, &file);
                end.unwrap();
                assert_eq!(decoded, plain, "{compression:?}");
            }
        }
    }

    #[test]
    fn a_torn_file_can_be_read_up_to_its_last_sync() {
        for compression in [Compression::Gzip(6), Compression::Zstd(3)] {
            let mut encoder = Encoder::new(compression).unwrap();
            let mut file = Vec::new();
            encoder.encode(b"one\ntwo\n", &mut file).unwrap();
            encoder.end(&mut file).unwrap();
            let synced = file.len();
            encoder.encode(b"three\n", &mut file).unwrap();
            encoder.end(&mut file).unwrap();
            for torn in synced..file.len() {
                let (decoded, end) = decode(compression, &file[..torn]);
                assert!(decoded.starts_with(b"one\ntwo\n"), "{compression:?} {torn}");
                assert_eq!(end.is_ok(), torn == synced, "{compression:?} {torn}");
            }
        }
    }

    #[test]
    fn a_sync_without_messages_writes_nothing() {
        for compression in [
            Compression::None,
            Compression::Gzip(6),
            Compression::Zstd(3),
        ] {
            let mut encoder = Encoder::new(compression).unwrap();
            let mut file = Vec::new();
            encoder.end(&mut file).unwrap();
            encoder.encode(b"a\n", &mut file).unwrap();
            encoder.end(&mut file).unwrap();
            let length = file.len();
            encoder.end(&mut file).unwrap();
            assert_eq!(file.len(), length);
        }
    }

    #[test]
    fn a_gzip_header_has_no_name_and_no_time() {
        let mut encoder = Encoder::new(Compression::Gzip(6)).unwrap();
        let mut file = Vec::new();
        encoder.encode(b"a\n", &mut file).unwrap();
        encoder.end(&mut file).unwrap();
        // Magic, deflate, no flags, no time.
        assert_eq!(file[..8], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0]);
    }
}
