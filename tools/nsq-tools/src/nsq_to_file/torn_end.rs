//! [`mend`]: the end of a file whose writer was killed.
//!
//! ```text
//!   member  member  mem          the writer was killed in the last member
//!   member  member  member       what could be read of the last member, as a whole one
//! ```
//!
//! Messages are finished only behind the end of a member, so a torn member has no finished message. Its messages come
//! again. Without the mending, `zcat` and `zstdcat` would end with an error at the end of the file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};

use flate2::bufread::GzDecoder;
use zstd::stream::read::Decoder as ZstdDecoder;

use super::compression::{Compression, Encoder};
use super::stop::Stop;

/// The bytes that are decoded at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// The state in which a file was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The file was whole.
    Whole,
    /// The file was cut off, and has been mended.
    Torn,
    /// The file has bytes behind its last readable member that no killed writer leaves. The file stays as it was.
    Damaged,
}

/// Mends the end of a file: completes its last line, gzip member or zstd frame. The file may be empty afterwards. A
/// compressed file is read from its begin, which takes long if it is large. `stop` ends this.
pub(super) fn mend(file: &mut File, compression: Compression, stop: &Stop) -> io::Result<End> {
    match compression {
        Compression::None => mend_line(file),
        compression => mend_member(file, compression, stop),
    }
}

/// Ends the last line.
fn mend_line(file: &mut File) -> io::Result<End> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(End::Whole);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last == *b"\n" {
        return Ok(End::Whole);
    }
    file.write_all(b"\n")?;
    Ok(End::Torn)
}

fn mend_member(file: &mut File, compression: Compression, stop: &Stop) -> io::Result<End> {
    file.rewind()?;
    let mut reader = Counted::new(&*file, 0);
    let start = loop {
        let start = reader.position;
        let first = reader.fill_buf()?;
        if first.is_empty() {
            return Ok(End::Whole);
        }
        // Without this check, a short file of another form would count as a member without its end.
        let magic = magic(compression);
        if !first
            .iter()
            .zip(magic)
            .all(|(found, expected)| found == expected)
        {
            return Ok(End::Damaged);
        }
        match decode(&mut reader, compression, |_| stop.check()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break start,
            Err(error) if is_damage(&error) => return Ok(End::Damaged),
            Err(error) => return Err(error),
        }
    };
    file.seek(SeekFrom::Start(start))?;
    let mut encoder = Encoder::new(compression)?;
    let (mut encoded, mut last) = (Vec::new(), b'\n');
    let torn = decode(&mut Counted::new(&*file, start), compression, |piece| {
        last = piece.last().copied().unwrap_or(last);
        encoder.encode(piece, &mut encoded)
    });
    if let Err(error) = torn
        && error.kind() != io::ErrorKind::UnexpectedEof
    {
        return Err(error);
    }
    if last != b'\n' {
        encoder.encode(b"\n", &mut encoded)?;
    }
    encoder.end(&mut encoded)?;
    file.set_len(start)?;
    file.seek(SeekFrom::Start(start))?;
    file.write_all(&encoded)?;
    Ok(End::Torn)
}

/// Returns the first bytes of each member or frame.
fn magic(compression: Compression) -> &'static [u8] {
    match compression {
        Compression::Zstd(_) => b"\x28\xb5\x2f\xfd",
        Compression::Gzip(_) | Compression::None => b"\x1f\x8b\x08",
    }
}

/// Decodes one member or frame, and gives its bytes to `out`.
///
/// # Errors
/// `UnexpectedEof` if the input ends too early.
fn decode(
    reader: &mut Counted<'_>,
    compression: Compression,
    mut out: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut decoder: Box<dyn Read + '_> = match compression {
        Compression::Zstd(_) => Box::new(ZstdDecoder::with_buffer(reader)?.single_frame()),
        Compression::Gzip(_) | Compression::None => Box::new(GzDecoder::new(reader)),
    };
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match decoder.read(&mut piece)? {
            0 => return Ok(()),
            count => out(&piece[..count])?,
        }
    }
}

/// Returns true for an error of a decoder, and false for one of the disk.
fn is_damage(error: &io::Error) -> bool {
    // zstd's errors have the kind `Other`, and no error of the system has it.
    let kinds = [
        io::ErrorKind::InvalidData,
        io::ErrorKind::InvalidInput,
        io::ErrorKind::Other,
    ];
    error.raw_os_error().is_none() && kinds.contains(&error.kind())
}

/// A reader that counts the bytes that its user has taken.
struct Counted<'a> {
    file: BufReader<&'a File>,
    position: u64,
}

impl Counted<'_> {
    /// Returns a reader of a file that stands at `position`.
    fn new(file: &File, position: u64) -> Counted<'_> {
        Counted {
            file: BufReader::new(file),
            position,
        }
    }
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl BufRead for Counted<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.file.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.position += count as u64;
        self.file.consume(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(compression: Compression, members: &[&[u8]]) -> Vec<u8> {
        let mut encoder = Encoder::new(compression).unwrap();
        let mut bytes = Vec::new();
        for member in members {
            encoder.encode(member, &mut bytes).unwrap();
            encoder.end(&mut bytes).unwrap();
        }
        bytes
    }

    /// Mends a file with these bytes. Returns its end and its text. Panics if the file is not whole then.
    fn mended(compression: Compression, bytes: &[u8]) -> (End, String) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let end = mend(&mut file, compression, &Stop::default()).unwrap();
        if file.metadata().unwrap().len() == 0 {
            return (end, String::new());
        }
        file.rewind().unwrap();
        let mut text = String::new();
        let read = match compression {
            Compression::None => file.read_to_string(&mut text),
            Compression::Gzip(_) => {
                flate2::read::MultiGzDecoder::new(&file).read_to_string(&mut text)
            }
            Compression::Zstd(_) => zstd::Decoder::new(&file).unwrap().read_to_string(&mut text),
        };
        assert!(read.is_ok() || end == End::Damaged, "{read:?}");
        (end, text)
    }

    #[test]
    fn a_torn_line_gets_its_end() {
        let check = |bytes: &str, end, text: &str| {
            let found = mended(Compression::None, bytes.as_bytes());
            assert_eq!(found, (end, text.to_owned()));
        };
        check("", End::Whole, "");
        check("a\nb\n", End::Whole, "a\nb\n");
        check("a\nb", End::Torn, "a\nb\n");
    }

    #[test]
    fn a_file_that_was_cut_anywhere_is_whole_afterwards_and_keeps_its_members() {
        for compression in [Compression::Gzip(6), Compression::Zstd(3)] {
            let first = encoded(compression, &[b"one\ntwo\n"]);
            let all = encoded(compression, &[b"one\ntwo\n", b"three\nfour\n"]);
            assert_eq!(
                mended(compression, &all),
                (End::Whole, "one\ntwo\nthree\nfour\n".to_owned())
            );
            for length in 0..all.len() {
                let (end, text) = mended(compression, &all[..length]);
                let is_whole = length == 0 || length == first.len();
                assert_eq!(end == End::Whole, is_whole, "{compression:?} {length}");
                let kept = if length < first.len() {
                    ""
                } else {
                    "one\ntwo\n"
                };
                assert!(text.starts_with(kept), "{compression:?} {length}: {text:?}");
                assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
            }
        }
    }

    #[test]
    fn the_readable_part_of_a_torn_member_stays() {
        let mut rng = fastrand::Rng::with_seed(1);
        let lines: String = (0..50_000).map(|_| format!("{}\n", rng.u64(..))).collect();
        for compression in [Compression::Gzip(6), Compression::Zstd(3)] {
            let all = encoded(compression, &[b"one\n", lines.as_bytes()]);
            let (end, text) = mended(compression, &all[..all.len() / 2]);
            assert_eq!(end, End::Torn);
            let rest = text.strip_prefix("one\n").unwrap();
            assert!(rest.len() > lines.len() / 10, "{}", rest.len());
            assert!(lines.starts_with(rest.strip_suffix('\n').unwrap()));
        }
    }

    #[test]
    fn a_damaged_file_stays_as_it_is() {
        for compression in [Compression::Gzip(6), Compression::Zstd(3)] {
            let mut bytes = encoded(compression, &[b"one\n"]);
            bytes.extend_from_slice(b"something else");
            let (end, text) = mended(compression, &bytes);
            assert_eq!((end, &*text), (End::Damaged, "one\n"), "{compression:?}");
            let (end, _) = mended(compression, b"short");
            assert_eq!(end, End::Damaged, "{compression:?}");
        }
    }
}
