//! [`CheckpointDraft`]: a checkpoint while its topic puts it together, and what the keeper makes of it.
//!
//! A topic that owes millions of single messages puts its checkpoint together a slice per turn. Every
//! list grows by pieces of a fixed size, so that no turn copies or frees a long list. Encoding a draft
//! is the keeper's work.
//!
//! A message may change its state while the draft grows, and be named once in its old state and once in
//! its new one. The later entry of a list counts ([`later_wins`]), so the file names each message once.

use std::borrow::Cow;
use std::collections::BinaryHeap;
use std::io;

use wire::id::Seq;

use super::content::{ChannelCheckpoint, Checkpoint, CheckpointRun, GraceCheckpoint, Stamp};
use super::encoding::{GRACE_VERSION, HEAD_BYTES, MAGIC, RUN_BYTES, VERSION, crc};

/// Runs per piece of a list: 1 MiB. With smaller ones the allocator spends 2 ms at once sorting the pieces of ten
/// million runs that the keeper gave back.
const PIECE_RUNS: usize = 32_768;
/// Encoding and writing a draft of this many runs takes about a millisecond.
const SHORT_RUNS: usize = 16_384;

/// A list of runs that grows without ever being copied.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// All but the last have [`PIECE_RUNS`] entries.
    pieces: Vec<Vec<CheckpointRun>>,
}

impl Runs {
    /// Adds a run behind all others, or to the last one if it continues that.
    pub(crate) fn push(&mut self, run: CheckpointRun) {
        if run.count == 0 {
            return;
        }
        let Some(piece) = self.pieces.last_mut() else {
            self.pieces.push(vec![run]);
            return;
        };
        if let Some(last) = piece.last_mut()
            && last.is_continued_by(&run)
        {
            last.count += run.count;
        } else if piece.len() < PIECE_RUNS {
            piece.push(run);
        } else {
            let mut piece = Vec::with_capacity(PIECE_RUNS);
            piece.push(run);
            self.pieces.push(piece);
        }
    }

    /// Drops a part of the list, of bounded size. Returns false when the list is empty.
    pub fn drop_piece(&mut self) -> bool {
        self.pieces.pop().is_some()
    }

    fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The number of runs in the list.
    #[must_use]
    pub fn count(&self) -> usize {
        let full = self.pieces.len().saturating_sub(1) * PIECE_RUNS;
        full + self.pieces.last().map_or(0, Vec::len)
    }

    /// Returns whether each run begins where the run before it ends, or later.
    fn is_in_order(&self) -> bool {
        let runs = self.pieces.iter().flatten();
        runs.is_sorted_by(|run, next| run.range().end <= next.start)
    }

    /// The list in the order of its seqs, with every message named once.
    fn resolved(&self) -> Cow<'_, Runs> {
        if self.is_in_order() {
            return Cow::Borrowed(self);
        }
        let mut resolved = Runs::default();
        let runs = self.pieces.iter().flatten().copied();
        later_wins(runs, |run| resolved.push(run));
        Cow::Owned(resolved)
    }
}

impl<'a> FromIterator<&'a CheckpointRun> for Runs {
    fn from_iter<I: IntoIterator<Item = &'a CheckpointRun>>(runs: I) -> Runs {
        let mut list = Runs::default();
        runs.into_iter().for_each(|run| list.push(*run));
        list
    }
}

/// One channel's part of a [`CheckpointDraft`].
#[derive(Clone, Debug, Default)]
pub struct ChannelDraft {
    /// The channel's name.
    pub name: String,
    /// True if the channel is paused.
    pub paused: bool,
    /// The messages that the channel still owes its consumers.
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
    /// The messages that the topic has not yet given to any channel.
    pub undistributed: Runs,
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
        let grace = self.grace.iter().map(|grace| &grace.runs);
        std::iter::once(&self.undistributed)
            .chain(channels)
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
        let body_bytes = 8 + 8 + 1 + 4 + names + 2 * channels.len() + lists + grace_bytes;
        let body_bytes = u32::try_from(body_bytes).map_err(|_| {
            let text = format!(
                "the checkpoint needs {body_bytes} bytes, and may have {}",
                u32::MAX
            );
            io::Error::new(io::ErrorKind::FileTooLarge, text)
        })?;
        let mut out = Vec::with_capacity(HEAD_BYTES + body_bytes as usize);
        out.extend_from_slice(&MAGIC);
        let version = grace.as_ref().map_or(VERSION, |_| GRACE_VERSION);
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
        if let Some((until_ns, runs)) = &grace {
            out.extend_from_slice(&until_ns.to_le_bytes());
            put_runs(&mut out, runs);
        }
        assert_eq!(out.len(), HEAD_BYTES + body_bytes as usize);
        let crc = crc(&out[..20], &out[HEAD_BYTES..]);
        out[20..24].copy_from_slice(&crc.to_le_bytes());
        Ok(out)
    }
}

impl From<&Checkpoint> for CheckpointDraft {
    fn from(checkpoint: &Checkpoint) -> CheckpointDraft {
        let channel = |channel: &ChannelCheckpoint| ChannelDraft {
            name: channel.name.clone(),
            paused: channel.paused,
            runs: channel.runs.iter().collect(),
        };
        let grace = |grace: &GraceCheckpoint| GraceDraft {
            until_ns: grace.until_ns,
            runs: grace.runs.iter().collect(),
        };
        CheckpointDraft {
            paused: checkpoint.paused,
            undistributed: checkpoint.undistributed.iter().collect(),
            channels: checkpoint.channels.iter().map(channel).collect(),
            grace: checkpoint.grace.as_ref().map(grace),
            stamp: Stamp::default(),
        }
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("a body below 4 GiB lists fewer than 2^32 things");
    out.extend_from_slice(&count.to_le_bytes());
}

fn put_runs(out: &mut Vec<u8>, runs: &Runs) {
    put_count(out, runs.count());
    for run in runs.pieces.iter().flatten() {
        out.extend_from_slice(&run.start.0.to_le_bytes());
        out.extend_from_slice(&run.count.to_le_bytes());
        out.extend_from_slice(&run.attempts.to_le_bytes());
        out.extend_from_slice(&run.due_ns.to_le_bytes());
    }
}

/// A run and its place in the list that it comes from.
struct Placed {
    run: CheckpointRun,
    place: usize,
}

/// Hands out `runs` sorted and without overlaps: each seq belongs to the last run that names it.
fn later_wins(runs: impl Iterator<Item = CheckpointRun>, mut out: impl FnMut(CheckpointRun)) {
    let placed = runs.enumerate().map(|(place, run)| Placed { run, place });
    let mut placed: Vec<Placed> = placed.collect();
    placed.sort_unstable_by_key(|placed| (placed.run.start, placed.place));
    // The runs that name the seq `at`, by place; those that have ended go when they come up.
    let mut open: BinaryHeap<(usize, usize)> = BinaryHeap::new();
    let mut at = Seq(0);
    let mut coming = 0;
    loop {
        while open
            .peek()
            .is_some_and(|&(_, index)| placed[index].run.range().end <= at)
        {
            open.pop();
        }
        let next_start = placed.get(coming).map(|placed| placed.run.start);
        match (open.peek(), next_start) {
            (None, None) => return,
            (None, Some(start)) => at = start,
            (Some(&(_, index)), next_start) => {
                let run = placed[index].run;
                let end = run.range().end;
                let until = next_start.map_or(end, |start| end.min(start));
                out(CheckpointRun {
                    start: at,
                    count: until.0 - at.0,
                    ..run
                });
                at = until;
            }
        }
        while let Some(started) = placed.get(coming)
            && started.run.start <= at
        {
            open.push((started.place, coming));
            coming += 1;
        }
    }
}

#[cfg(test)]
mod tests;
