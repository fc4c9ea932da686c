//! [`Decoder`]: the bytes of a connection to commands.
//!
//! ```text
//!   "  V1"  then  line LF                     PING, REGISTER, UNREGISTER
//!                 line LF [size i32][body]    IDENTIFY
//! ```
//!
//! The decoder knows whether the client has identified itself, because an IDENTIFY that must not
//! come has no body. Every error ends the connection, so nothing follows an error.

use crate::peer::PeerInfo;
use wire::name::is_valid_name;

/// The first bytes of a connection.
const MAGIC: [u8; 4] = *b"  V1";

/// Longest line in bytes, without the line feed. The longest valid line has two names of 64 bytes.
/// The original has no limit, so a client could fill its memory.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// Longest body of an IDENTIFY in bytes. nsqd sends about 200 bytes. The original has no limit.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Capacity of an input buffer that is kept, in bytes.
const BUFFER_BYTES_KEPT: usize = 4 * 1024;

/// The next thing in the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// The first four bytes are those of protocol V1.
    Magic,
    /// The first four bytes are others. Nothing follows.
    BadMagic([u8; 4]),
    /// A command.
    Command(Command),
    /// An error. Nothing follows.
    Error(Refusal),
}

/// A command whose parameters are valid.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// PING
    Ping,
    /// IDENTIFY
    Identify(PeerInfo),
    /// REGISTER
    Register(String, Option<String>),
    /// UNREGISTER
    Unregister(String, Option<String>),
}

/// The answer to a command that is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The answer: a code and a description. Parts of it may be the client's own bytes.
    pub answer: Vec<u8>,
    /// The reason behind the answer, for the log.
    pub cause: Option<String>,
}

impl Refusal {
    fn new(answer: impl Into<Vec<u8>>) -> Refusal {
        Refusal {
            answer: answer.into(),
            cause: None,
        }
    }

    fn because(answer: &str, cause: impl Into<String>) -> Refusal {
        Refusal {
            answer: answer.into(),
            cause: Some(cause.into()),
        }
    }

    /// Returns the answer as text, for the log.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.answer).into_owned()
    }
}

/// Decodes the bytes of one connection, in whatever pieces they come.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The unread bytes are those from `start` on.
    input: Vec<u8>,
    start: usize,
    /// Number of unread bytes that are known to have no line feed.
    scanned: usize,
    awaited: Awaited,
    is_identified: bool,
}

/// The part of the input that comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Awaited {
    #[default]
    Magic,
    Line,
    BodySize,
    Body(usize),
    /// Nothing: the input after an error is not read.
    Nothing,
}

impl Decoder {
    /// Appends bytes that have arrived. Bytes after an error are dropped.
    pub fn push(&mut self, bytes: &[u8]) {
        // The bytes before `start` are done with. A read can end inside a line, so the buffer may never be read to its
        // end.
        self.input.drain(..self.start);
        self.start = 0;
        if self.input.len() < BUFFER_BYTES_KEPT {
            self.input.shrink_to(BUFFER_BYTES_KEPT);
        }
        if self.awaited != Awaited::Nothing {
            self.input.extend_from_slice(bytes);
        }
    }

    /// Returns the next thing, or `None` until more bytes arrive.
    pub fn decode(&mut self) -> Option<Decoded> {
        loop {
            match self.awaited {
                Awaited::Magic => {
                    let magic = *self.unread().first_chunk()?;
                    self.take(magic.len());
                    if magic != MAGIC {
                        self.awaited = Awaited::Nothing;
                        return Some(Decoded::BadMagic(magic));
                    }
                    self.awaited = Awaited::Line;
                    return Some(Decoded::Magic);
                }
                Awaited::Line => match self.line()? {
                    Ok(Some(command)) => return Some(Decoded::Command(command)),
                    Ok(None) => self.awaited = Awaited::BodySize,
                    Err(refusal) => return Some(self.refuse(refusal)),
                },
                Awaited::BodySize => {
                    let size = i32::from_be_bytes(*self.unread().first_chunk()?);
                    self.take(4);
                    match usize::try_from(size) {
                        Ok(size) if size <= BODY_BYTES_MAX => self.awaited = Awaited::Body(size),
                        _ => {
                            let cause = format!("a size of {size} bytes is not accepted");
                            return Some(self.refuse(Refusal::because(NO_BODY, cause)));
                        }
                    }
                }
                Awaited::Body(size) => {
                    let body = self.unread().get(..size)?;
                    let identified = identify(body);
                    self.take(size);
                    self.awaited = Awaited::Line;
                    return Some(match identified {
                        Ok(info) => {
                            self.is_identified = true;
                            Decoded::Command(Command::Identify(info))
                        }
                        Err(refusal) => self.refuse(refusal),
                    });
                }
                Awaited::Nothing => return None,
            }
        }
    }

    /// Returns the error for an input that ends here, or `None` if the end is no error. `cause` is
    /// the reason of a connection that is broken.
    pub fn end(&mut self, cause: Option<&str>) -> Option<Refusal> {
        let (answer, has_begun) = match self.awaited {
            Awaited::BodySize => (NO_SIZE, !self.unread().is_empty()),
            Awaited::Body(_) => (NO_BODY, !self.unread().is_empty()),
            Awaited::Magic | Awaited::Line | Awaited::Nothing => return None,
        };
        self.awaited = Awaited::Nothing;
        Some(Refusal::because(answer, cause.unwrap_or(eof(has_begun))))
    }

    /// Returns Go's word for an end of the input before the magic, or `None` behind the magic.
    pub fn missing_magic(&self) -> Option<&'static str> {
        (self.awaited == Awaited::Magic).then(|| eof(!self.unread().is_empty()))
    }

    /// Parses a line. Returns `Ok(None)` for an IDENTIFY, whose body follows.
    fn line(&mut self) -> Option<Result<Option<Command>, Refusal>> {
        let unread = self.unread();
        let found = unread[self.scanned..]
            .iter()
            .position(|byte| *byte == b'\n');
        let Some(found) = found.map(|at| at + self.scanned) else {
            self.scanned = unread.len();
            let is_too_long = self.scanned > LINE_BYTES_MAX;
            return is_too_long.then(|| Err(Refusal::new(TOO_LONG)));
        };
        let result = if found > LINE_BYTES_MAX {
            Err(Refusal::new(TOO_LONG))
        } else {
            parse_line(&unread[..found], self.is_identified)
        };
        self.take(found + 1);
        Some(result)
    }

    fn refuse(&mut self, refusal: Refusal) -> Decoded {
        self.awaited = Awaited::Nothing;
        Decoded::Error(refusal)
    }

    fn unread(&self) -> &[u8] {
        &self.input[self.start..]
    }

    fn take(&mut self, count: usize) {
        self.start += count;
        self.scanned = 0;
    }
}

const NO_SIZE: &str = "E_BAD_BODY IDENTIFY failed to read body size";
const NO_BODY: &str = "E_BAD_BODY IDENTIFY failed to read body";
const TOO_LONG: &str = "E_INVALID line is too long";

/// Returns Go's word for an end of the input.
fn eof(has_begun: bool) -> &'static str {
    if has_begun { "unexpected EOF" } else { "EOF" }
}

fn identify(body: &[u8]) -> Result<PeerInfo, Refusal> {
    let info = PeerInfo::decode(body)
        .map_err(|why| Refusal::because("E_BAD_BODY IDENTIFY failed to decode JSON body", why))?;
    if info.lacks_fields() {
        Err(Refusal::new("E_BAD_BODY IDENTIFY missing fields"))
    } else {
        Ok(info)
    }
}

/// Parses a line without its line feed. Parameters are separated by single spaces, so two spaces
/// mean an empty parameter. Further parameters are ignored.
fn parse_line(line: &[u8], is_identified: bool) -> Result<Option<Command>, Refusal> {
    let mut words = trim(line).split(|byte| *byte == b' ');
    let name = words.next().unwrap_or_default();
    match name {
        b"PING" => Ok(Some(Command::Ping)),
        b"IDENTIFY" if is_identified => Err(Refusal::new("E_INVALID cannot IDENTIFY again")),
        b"IDENTIFY" => Ok(None),
        b"REGISTER" => topic_and_channel("REGISTER", words, is_identified)
            .map(|(topic, channel)| Some(Command::Register(topic, channel))),
        b"UNREGISTER" => topic_and_channel("UNREGISTER", words, is_identified)
            .map(|(topic, channel)| Some(Command::Unregister(topic, channel))),
        _ => Err(Refusal::new([b"E_INVALID invalid command ", name].concat())),
    }
}

fn topic_and_channel<'a>(
    command: &str,
    mut words: impl Iterator<Item = &'a [u8]>,
    is_identified: bool,
) -> Result<(String, Option<String>), Refusal> {
    if !is_identified {
        return Err(Refusal::new("E_INVALID client must IDENTIFY"));
    }
    let topic = words.next().ok_or_else(|| {
        Refusal::new(format!("E_INVALID {command} insufficient number of params"))
    })?;
    let channel = words.next().filter(|channel| !channel.is_empty());
    let topic = name(topic, &format!("E_BAD_TOPIC {command} topic"))?;
    let channel = channel.map(|channel| name(channel, &format!("E_BAD_CHANNEL {command} channel")));
    Ok((topic, channel.transpose()?))
}

fn name(given: &[u8], place: &str) -> Result<String, Refusal> {
    if !is_valid_name(given) {
        let answer = [place.as_bytes(), b" name '", given, b"' is not valid"].concat();
        return Err(Refusal::new(answer));
    }
    // A valid name is ASCII.
    Ok(String::from_utf8_lossy(given).into_owned())
}

/// Removes white space at both ends. Like Go's `strings.TrimSpace`, knows Unicode's, and stops at a
/// byte that is not UTF-8.
fn trim(line: &[u8]) -> &[u8] {
    let mut skipped = 0;
    let mut kept = 0;
    let mut at = 0;
    let mut has_content = false;
    for chunk in line.utf8_chunks() {
        let (valid, invalid) = (chunk.valid(), chunk.invalid());
        if !has_content {
            skipped = at + valid.len() - valid.trim_start().len();
        }
        if !valid.trim().is_empty() {
            has_content = true;
            kept = at + valid.trim_end().len();
        }
        at += valid.len() + invalid.len();
        if !invalid.is_empty() {
            has_content = true;
            kept = at;
        }
    }
    if has_content {
        &line[skipped..kept]
    } else {
        &[]
    }
}

#[cfg(test)]
mod tests;
