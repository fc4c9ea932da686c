//! The saved form of filters, and how a file with one is replaced.
//!
//! ```text
//!   magic "RQDD" | version u16 | length of the name u8 | name | length of the key's name u32 | key's name |
//!   the filter's own bytes | CRC-32 of all before
//! ```
//!
//! The key's name says what the key of the filter is, such as `json:/id`. A filter knows nothing of other keys, so its
//! user compares the name.
//!
//! [`restore`] also reads older versions. Version 2 has no name of the key. Version 1 also has no size of the forgetful
//! Bloom filter, because the size followed from the options.
//!
//! Numbers are little endian. The CRC is that of IEEE 802.3. [`restore`] accepts a state only if the CRC is right, so a
//! state that was cut or changed is an error, and never a filter with other keys.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::time::Duration;

use crate::bits::Bits;
use crate::error::StateError;
use crate::filter::Filter;

const MAGIC: [u8; 4] = *b"RQDD";
const VERSION: u16 = 3;

/// The elements of a list for which [`Reader::list`] reserves memory before it has read any. A damaged count must not
/// take the memory of the machine.
const RESERVED_FIRST: usize = 1 << 16;

/// A filter with a saved form.
pub trait Saved: Sized {
    /// The filter's name in the saved form.
    const NAME: &'static str;

    /// Writes the filter's own bytes.
    ///
    /// # Errors
    /// If the stream fails.
    fn write(&self, out: &mut Writer<'_>) -> io::Result<()>;

    /// Reads the filter's own bytes.
    ///
    /// # Errors
    /// If the stream fails, or if the bytes are no such filter.
    fn read(input: &mut Reader<'_>) -> Result<Self, StateError>;
}

/// A filter that was restored from its saved state.
#[derive(Debug)]
pub struct Restored<S> {
    /// The filter.
    pub filter: S,
    /// The name of the filter's key. `None` for a state from before version 3, which has no such name.
    pub key_name: Option<String>,
}

/// Writes the state of a filter to a stream. `key_name` names the key of the filter, such as `json:/id`.
///
/// # Errors
/// If the stream fails.
pub fn save<S: Saved>(filter: &S, key_name: &str, out: &mut dyn Write) -> io::Result<()> {
    let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let key_name_bytes = u32::try_from(key_name.len()).map_err(too_long)?;
    let mut writer = Writer {
        out,
        crc: crc32fast::Hasher::new(),
    };
    writer.put(&MAGIC)?;
    writer.put(&VERSION.to_le_bytes())?;
    writer.put(&[S::NAME.len() as u8])?;
    writer.put(S::NAME.as_bytes())?;
    writer.put(&key_name_bytes.to_le_bytes())?;
    writer.put(key_name.as_bytes())?;
    filter.write(&mut writer)?;
    let crc = writer.crc.finalize();
    writer.out.write_all(&crc.to_le_bytes())
}

/// Reads the state of a filter from a stream. The stream must end behind the state.
///
/// # Errors
/// If the stream fails, or if it is not the state of such a filter.
pub fn restore<S: Saved>(input: &mut dyn Read) -> Result<Restored<S>, StateError> {
    let mut reader = Reader {
        input,
        crc: crc32fast::Hasher::new(),
        version: VERSION,
    };
    if reader.array()? != MAGIC {
        return Err(StateError::Damaged("it does not begin as a saved filter"));
    }
    reader.version = u16::from_le_bytes(reader.array()?);
    if !(1..=VERSION).contains(&reader.version) {
        return Err(StateError::Version(reader.version));
    }
    let [name_bytes] = reader.array()?;
    let name = reader.byte_list(name_bytes.into())?;
    if name != S::NAME.as_bytes() {
        return Err(StateError::OtherFilter {
            wanted: S::NAME,
            found: String::from_utf8_lossy(&name).into_owned(),
        });
    }
    let key_name = match reader.version {
        1 | 2 => None,
        _ => Some(reader.key_name()?),
    };
    let filter = S::read(&mut reader)?;
    let crc = reader.crc.clone().finalize();
    if u32::from_le_bytes(reader.array()?) != crc {
        return Err(StateError::Damaged("its CRC is wrong"));
    }
    match reader.input.read(&mut [0])? {
        0 => Ok(Restored { filter, key_name }),
        _ => Err(StateError::Damaged("there are bytes behind its end")),
    }
}

/// Takes a snapshot of a filter, which can be saved while the filter is asked. Without memory for it, `clone` would end
/// the process.
///
/// # Errors
/// The system refuses the memory.
pub fn snapshot<F: Filter + Clone>(filter: &F) -> io::Result<F> {
    let bytes = filter.bytes();
    match Vec::<u8>::new().try_reserve_exact(bytes as usize) {
        Ok(()) => Ok(filter.clone()),
        Err(_) => Err(out_of_memory(bytes, "for a snapshot of the filter")),
    }
}

fn out_of_memory(bytes: u64, purpose: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::OutOfMemory,
        format!("the system refuses {bytes} bytes of memory {purpose}"),
    )
}

/// Saves a filter in a file, as [`save`] does. The file appears, or is replaced, at once and only when it is complete
/// and synced, so a crash or a power failure leaves the file from before or the new one. The new file is written beside
/// it, under the name `.NAME.RANDOM.tmp`. A failure removes the new file.
///
/// # Errors
/// If the file or its directory cannot be written or synced.
pub fn save_file<S: Saved>(filter: &S, key_name: &str, path: &Path) -> io::Result<()> {
    new_file::replace(path, |file| {
        let mut out = BufWriter::new(file);
        save(filter, key_name, &mut out)?;
        out.flush()
    })
}

/// Restores a filter from a file. `None` if there is no such file.
///
/// # Errors
/// If the file cannot be read, or is not the state of such a filter.
pub fn restore_file<S: Saved>(path: &Path) -> Result<Option<Restored<S>>, StateError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    restore(&mut BufReader::new(file)).map(Some)
}

/// Writes a saved form, and computes its CRC.
pub struct Writer<'a> {
    out: &'a mut dyn Write,
    crc: crc32fast::Hasher,
}

impl Writer<'_> {
    /// Writes bytes as they are, and adds them to the CRC.
    ///
    /// # Errors
    /// If the stream fails.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc.update(bytes);
        self.out.write_all(bytes)
    }

    /// Writes a number, in 8 bytes.
    ///
    /// # Errors
    /// If the stream fails.
    pub fn u64(&mut self, number: u64) -> io::Result<()> {
        self.put(&number.to_le_bytes())
    }

    /// Writes a duration, in seconds and nanoseconds.
    pub(crate) fn duration(&mut self, duration: Duration) -> io::Result<()> {
        self.u64(duration.as_secs())?;
        self.put(&duration.subsec_nanos().to_le_bytes())
    }

    /// Writes an array of bits.
    pub(crate) fn bits(&mut self, bits: &Bits) -> io::Result<()> {
        for word in bits.words() {
            self.u64(*word)?;
        }
        Ok(())
    }
}

/// The form for encoders that write to a stream.
impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads a saved form, and computes its CRC.
pub struct Reader<'a> {
    input: &'a mut dyn Read,
    crc: crc32fast::Hasher,
    version: u16,
}

impl Reader<'_> {
    /// Reads as many bytes as the array has.
    ///
    /// # Errors
    /// If the stream fails or ends.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], StateError> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(|error| {
            let is_cut = error.kind() == io::ErrorKind::UnexpectedEof;
            if is_cut {
                StateError::Damaged("it is cut short")
            } else {
                StateError::Io(error)
            }
        })?;
        self.crc.update(&bytes);
        Ok(bytes)
    }

    /// Reads a number of 8 bytes.
    ///
    /// # Errors
    /// If the stream fails or ends.
    pub fn u64(&mut self) -> Result<u64, StateError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn byte_list(&mut self, count: u64) -> Result<Vec<u8>, StateError> {
        self.list(count, |reader| Ok(reader.array::<1>()?[0]))
    }

    fn key_name(&mut self) -> Result<String, StateError> {
        let count = u32::from_le_bytes(self.array()?);
        let key_name = String::from_utf8(self.byte_list(count.into())?);
        key_name.map_err(|_| StateError::Damaged("the name of its key is no text"))
    }

    /// Reads a duration, in seconds and nanoseconds.
    pub(crate) fn duration(&mut self) -> Result<Duration, StateError> {
        let seconds = self.u64()?;
        let nanos = u32::from_le_bytes(self.array()?);
        if nanos >= 1_000_000_000 {
            return Err(StateError::Damaged("a duration without meaning"));
        }
        Ok(Duration::new(seconds, nanos))
    }

    /// Reads the number of bits of an array of a Bloom filter. The arguments are the numbers that follow from the
    /// options: that of version 1, and that of new filters, which has spare bits. A filter of either size goes on as it
    /// is.
    pub(crate) fn size(&mut self, of_version_1: u64, of_new: u64) -> Result<u64, StateError> {
        let bits = match self.version {
            1 => of_version_1,
            _ => self.u64()?,
        };
        if bits == of_version_1 || bits == of_new {
            Ok(bits)
        } else {
            Err(StateError::Damaged("a size that its options do not give"))
        }
    }

    /// Reads an array of `count` bits.
    pub(crate) fn bits(&mut self, count: u64) -> Result<Bits, StateError> {
        let words = self.list(count.div_ceil(64), Reader::u64)?;
        Bits::from_words(words, count).ok_or(StateError::Damaged("a bit outside its filter"))
    }

    /// Reads a list of `count` elements. Memory grows with what is there, and not with what `count` says.
    ///
    /// # Errors
    /// If the stream fails or ends, if an element is wrong, or if the system refuses the memory.
    pub fn list<T>(
        &mut self,
        count: u64,
        mut element: impl FnMut(&mut Self) -> Result<T, StateError>,
    ) -> Result<Vec<T>, StateError> {
        let mut list: Vec<T> = Vec::new();
        for read in 0..count {
            if list.len() == list.capacity() {
                let more = (list.len().max(RESERVED_FIRST) as u64).min(count - read);
                let reserved = list.try_reserve_exact(more as usize);
                reserved.map_err(|_| {
                    let bytes = (read + more).saturating_mul(size_of::<T>() as u64);
                    out_of_memory(bytes, "for the saved filter")
                })?;
            }
            list.push(element(self)?);
        }
        Ok(list)
    }
}

/// The form for decoders that read from a stream.
impl Read for Reader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(bytes)?;
        self.crc.update(&bytes[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
