//! [`CheckpointDraft`]: a checkpoint while its topic puts it together, and what the keeper makes of it.
//!
//! A topic that owes millions of single messages puts its checkpoint together a slice per turn. Every
//! list grows by pieces of a fixed size, so that no turn copies or frees a long list. Encoding a draft
//! is the keeper's work.
//!
//! A message may change its state while the draft grows, and be named once in its old state and once in
//! its new one. The later entry of a list counts, so the file names each message once.

use std::io;

use super::additions::AllAdditions;
use super::content::{ChannelCheckpoint, Checkpoint, GraceCheckpoint, Stamp, UndoCheckpoint};
use super::encoding::{GRACE_VERSION, HEAD_BYTES, MAGIC, RUN_BYTES, VERSION, crc};
use super::runs::{Runs, put_count, put_runs};
use crate::pause_terms::PauseTerms;

/// Encoding and writing a draft of this many runs takes about a millisecond.
const SHORT_RUNS: usize = 16_384;

/// One channel's part of a [`CheckpointDraft`].
#[derive(Clone, Debug, Default)]
pub struct ChannelDraft {
    /// The channel's name.
    pub name: String,
    /// True if the channel is paused.
    pub paused: bool,
    /// The terms of the pause.
    pub terms: PauseTerms,
    /// The messages that the channel still owes its consumers.
    pub runs: Runs,
    /// The messages that were emptied and can come back.
    pub undo: Option<UndoDraft>,
}

/// The part of a [`CheckpointDraft`] or [`ChannelDraft`] about messages that were emptied and can come back.
#[derive(Clone, Debug, Default)]
pub struct UndoDraft {
    /// The end of the undo, in Unix nanoseconds.
    pub until_ns: u64,
    /// The messages.
    pub runs: Runs,
}

/// The part of a [`CheckpointDraft`] about the topic's grace.
#[derive(Clone, Debug, Default)]
pub struct GraceDraft {
    /// The end of the grace, in Unix nanoseconds.
    pub until_ns: u64,
    /// The messages that every channel gets which is created until then.
    pub runs: Runs,
}

/// A [`Checkpoint`] in the making.
#[derive(Clone, Debug, Default)]
pub struct CheckpointDraft {
    /// True if the topic is paused.
    pub paused: bool,
    /// The terms of the topic's pause.
    pub terms: PauseTerms,
    /// The messages that the topic has not yet given to any channel.
    pub undistributed: Runs,
    /// The messages that the topic was emptied of and that can come back.
    pub undo: Option<UndoDraft>,
    /// The topic's channels.
    pub channels: Vec<ChannelDraft>,
    /// The topic's grace, if the topic is in grace.
    pub grace: Option<GraceDraft>,
    /// Filled by the log.
    pub stamp: Stamp,
}

impl CheckpointDraft {
    /// A draft that names no message yet.
    #[must_use]
    pub fn new(paused: bool, channels: Vec<ChannelDraft>) -> CheckpointDraft {
        CheckpointDraft {
            paused,
            channels,
            ..CheckpointDraft::default()
        }
    }

    /// Returns whether the draft names any message.
    pub(crate) fn names_any(&self) -> bool {
        let mut lists = self.lists();
        lists.any(|runs| !runs.is_empty())
    }

    /// Returns whether the keeper is done with the draft so soon that other jobs may wait for it.
    pub(crate) fn is_short(&self) -> bool {
        self.run_count() <= SHORT_RUNS
    }

    fn run_count(&self) -> usize {
        self.lists().map(Runs::count).sum()
    }

    fn lists(&self) -> impl Iterator<Item = &Runs> {
        let channels = self.channels.iter().map(|channel| &channel.runs);
        let undos = self.channels.iter().filter_map(|it| it.undo.as_ref());
        let undos = undos.chain(&self.undo).map(|undo| &undo.runs);
        let grace = self.grace.iter().map(|grace| &grace.runs);
        std::iter::once(&self.undistributed)
            .chain(channels)
            .chain(undos)
            .chain(grace)
    }

    /// The bytes of a slot that holds the checkpoint.
    ///
    /// # Errors
    /// The checkpoint would be longer than its 32-bit length field can express.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let undistributed = self.undistributed.resolved();
        let channels = self.channels.iter();
        let channels: Vec<_> = channels
            .map(|channel| (channel, channel.runs.resolved()))
            .collect();
        let grace = self.grace.as_ref();
        let grace = grace.map(|grace| (grace.until_ns, grace.runs.resolved()));
        let lists = channels.iter().map(|(_, runs)| runs.count());
        let lists = lists.chain(grace.iter().map(|(_, runs)| runs.count()));
        let runs = undistributed.count() + lists.sum::<usize>();
        let names: usize = self.channels.iter().map(|channel| channel.name.len()).sum();
        let lists = 4 * (1 + channels.len()) + runs * RUN_BYTES;
        let grace_bytes = grace.as_ref().map_or(0, |_| 8 + 4);
        let of_channels = self.channels.iter().map(|it| (&it.terms, it.undo.as_ref()));
        let all = std::iter::once((&self.terms, self.undo.as_ref())).chain(of_channels);
        let additions = AllAdditions::of(
            all.map(|(terms, undo)| (terms, undo.map(|it| (it.until_ns, &it.runs)))),
        );
        let additions_bytes = additions.as_ref().map_or(0, |it| 1 + it.bytes());
        let fixed_bytes = 8 + 8 + 1 + 4 + names + 2 * channels.len();
        let body_bytes = fixed_bytes + lists + grace_bytes + additions_bytes;
        let body_bytes = u32::try_from(body_bytes).map_err(|_| {
            let text = format!(
                "the checkpoint needs {body_bytes} bytes, and may have {}",
                u32::MAX
            );
            io::Error::new(io::ErrorKind::FileTooLarge, text)
        })?;
        let mut out = Vec::with_capacity(HEAD_BYTES + body_bytes as usize);
        out.extend_from_slice(&MAGIC);
        let version = match (&additions, &grace) {
            (Some(additions), _) => additions.version(),
            (None, Some(_)) => GRACE_VERSION,
            (None, None) => VERSION,
        };
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&u16::from(self.stamp.sync).to_le_bytes());
        out.extend_from_slice(&self.stamp.number.to_le_bytes());
        out.extend_from_slice(&body_bytes.to_le_bytes());
        // The CRC, once it is known.
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.stamp.synced.0.to_le_bytes());
        out.extend_from_slice(&self.stamp.next.0.to_le_bytes());
        out.push(u8::from(self.paused));
        put_runs(&mut out, &undistributed);
        put_count(&mut out, channels.len());
        for (channel, runs) in &channels {
            let name_bytes = u8::try_from(channel.name.len()).expect("channel names are short");
            out.push(name_bytes);
            out.extend_from_slice(channel.name.as_bytes());
            out.push(u8::from(channel.paused));
            put_runs(&mut out, runs);
        }
        if additions.is_some() {
            out.push(u8::from(grace.is_some()));
        }
        if let Some((until_ns, runs)) = &grace {
            out.extend_from_slice(&until_ns.to_le_bytes());
            put_runs(&mut out, runs);
        }
        if let Some(additions) = &additions {
            additions.put(&mut out);
        }
        assert_eq!(out.len(), HEAD_BYTES + body_bytes as usize);
        let crc = crc(&out[..20], &out[HEAD_BYTES..]);
        out[20..24].copy_from_slice(&crc.to_le_bytes());
        Ok(out)
    }
}

impl From<&Checkpoint> for CheckpointDraft {
    fn from(checkpoint: &Checkpoint) -> CheckpointDraft {
        let undo = |undo: &UndoCheckpoint| UndoDraft {
            until_ns: undo.until_ns,
            runs: undo.runs.iter().collect(),
        };
        let channel = |channel: &ChannelCheckpoint| ChannelDraft {
            name: channel.name.clone(),
            paused: channel.paused,
            terms: channel.terms.clone(),
            runs: channel.runs.iter().collect(),
            undo: channel.undo.as_ref().map(undo),
        };
        let grace = |grace: &GraceCheckpoint| GraceDraft {
            until_ns: grace.until_ns,
            runs: grace.runs.iter().collect(),
        };
        CheckpointDraft {
            paused: checkpoint.paused,
            terms: checkpoint.terms.clone(),
            undistributed: checkpoint.undistributed.iter().collect(),
            undo: checkpoint.undo.as_ref().map(undo),
            channels: checkpoint.channels.iter().map(channel).collect(),
            grace: checkpoint.grace.as_ref().map(grace),
            stamp: Stamp::default(),
        }
    }
}

#[cfg(test)]
mod tests;
