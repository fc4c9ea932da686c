//! The additions of a checkpoint: what an operator said about a pause, and the messages that an undo can bring back.
//!
//! A topic has additions, and so has each channel. A checkpoint without any keeps the version of earlier programs.
//! docs/format.md has the bytes.

use super::content::{Checkpoint, UndoCheckpoint};
use super::encoding::{ADDITIONS_VERSION, LENGTH_VERSION, RUN_BYTES};
use super::reader::{Reader, Unread};
use super::runs::{Runs, put_runs};
use crate::pause_terms::PauseTerms;
use std::borrow::Cow;

/// The bit of a pause with terms.
const TERMS: u8 = 1;
/// The bit of an undo.
const UNDO: u8 = 2;
/// The bit of terms with the time that the operator asked for.
const LENGTH: u8 = 4;

/// The additions of a topic or channel on their way to the file.
struct Additions<'a> {
    terms: &'a PauseTerms,
    /// The end of the undo in Unix nanoseconds, and the messages.
    undo: Option<(u64, Cow<'a, Runs>)>,
}

impl Additions<'_> {
    fn bytes(&self) -> usize {
        let terms = if self.terms.are_none() {
            0
        } else {
            8 + 2 + cut(&self.terms.note).len() + 2 + cut(&self.terms.by).len()
        };
        let length = usize::from(self.has_length()) * 8;
        let undo = self.undo.as_ref();
        let undo = undo.map_or(0, |(_, runs)| 8 + 4 + runs.count() * RUN_BYTES);
        1 + terms + length + undo
    }

    fn has_length(&self) -> bool {
        !self.terms.are_none() && self.terms.length_ns > 0
    }

    fn put(&self, out: &mut Vec<u8>) {
        let has_terms = !self.terms.are_none();
        let has_length = self.has_length();
        let undo = u8::from(self.undo.is_some()) * UNDO;
        out.push(u8::from(has_terms) * TERMS + undo + u8::from(has_length) * LENGTH);
        if has_terms {
            out.extend_from_slice(&self.terms.until_ns.to_le_bytes());
            put_text(out, &self.terms.note);
            put_text(out, &self.terms.by);
        }
        if has_length {
            out.extend_from_slice(&self.terms.length_ns.to_le_bytes());
        }
        if let Some((until_ns, runs)) = &self.undo {
            out.extend_from_slice(&until_ns.to_le_bytes());
            put_runs(out, runs);
        }
    }
}

/// All additions of a checkpoint, the topic's first, and then those of its channels in the draft's order.
pub(super) struct AllAdditions<'a>(Vec<Additions<'a>>);

impl<'a> AllAdditions<'a> {
    /// Takes the terms of each pause, and the end and the messages of each undo. `None`: there are none.
    pub(super) fn of(
        all: impl Iterator<Item = (&'a PauseTerms, Option<(u64, &'a Runs)>)>,
    ) -> Option<AllAdditions<'a>> {
        let all = all.map(|(terms, undo)| Additions {
            terms,
            undo: undo.map(|(until_ns, runs)| (until_ns, runs.resolved())),
        });
        let all: Vec<Additions<'_>> = all.collect();
        let has_any = |it: &Additions<'_>| !it.terms.are_none() || it.undo.is_some();
        all.iter().any(has_any).then_some(AllAdditions(all))
    }

    /// Returns the lowest version that has all of them.
    pub(super) fn version(&self) -> u16 {
        let has_topic_undo = self.0.first().is_some_and(|topic| topic.undo.is_some());
        if has_topic_undo || self.0.iter().any(Additions::has_length) {
            LENGTH_VERSION
        } else {
            ADDITIONS_VERSION
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(Additions::bytes).sum()
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|additions| additions.put(out));
    }
}

/// Reads the additions of the topic and of the channels that `checkpoint` has. Some programs wrote the length of a pause
/// into checkpoints of [`ADDITIONS_VERSION`].
pub(super) fn read(
    reader: &mut Reader<'_>,
    version: u16,
    checkpoint: &mut Checkpoint,
) -> Result<(), Unread> {
    (checkpoint.terms, checkpoint.undo) = read_one(reader)?;
    if checkpoint.undo.is_some() && version == ADDITIONS_VERSION {
        return Err(Unread::Malformed);
    }
    for channel in &mut checkpoint.channels {
        (channel.terms, channel.undo) = read_one(reader)?;
    }
    Ok(())
}

fn read_one(reader: &mut Reader<'_>) -> Result<(PauseTerms, Option<UndoCheckpoint>), Unread> {
    let bits = reader.u8()?;
    let has_length = bits & LENGTH != 0;
    if bits & !(TERMS | UNDO | LENGTH) != 0 || (has_length && bits & TERMS == 0) {
        return Err(Unread::Malformed);
    }
    let mut terms = PauseTerms::default();
    if bits & TERMS != 0 {
        terms.until_ns = reader.u64()?;
        terms.note = read_text(reader)?;
        terms.by = read_text(reader)?;
    }
    if has_length {
        terms.length_ns = reader.u64()?;
    }
    let mut undo = None;
    if bits & UNDO != 0 {
        undo = Some(UndoCheckpoint {
            until_ns: reader.u64()?,
            runs: reader.runs()?,
        });
    }
    Ok((terms, undo))
}

fn read_text(reader: &mut Reader<'_>) -> Result<String, Unread> {
    let bytes = usize::from(reader.u16()?);
    let text = str::from_utf8(reader.take(bytes)?).map_err(|_| Unread::Malformed)?;
    Ok(text.to_owned())
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = cut(text);
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Returns the beginning of a text that fits its 16-bit length field.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(usize::from(u16::MAX))]
}
