//! [`CheckpointRun`], and [`Runs`]: a list of runs of a draft.

use std::borrow::Cow;
use std::collections::BinaryHeap;

use wire::id::Seq;

use crate::range::SeqRange;

/// Seqs of one channel that share their attempts and due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointRun {
    /// The first seq.
    pub start: Seq,
    /// The number of seqs.
    pub count: u64,
    /// Deliveries so far.
    pub attempts: u16,
    /// The time from which on the messages may be delivered, in Unix nanoseconds. 0: now.
    pub due_ns: u64,
}

impl CheckpointRun {
    /// A run of messages that were never delivered.
    #[must_use]
    pub fn fresh(range: SeqRange, due_ns: u64) -> CheckpointRun {
        CheckpointRun {
            start: range.start,
            count: range.len(),
            attempts: 0,
            due_ns,
        }
    }

    /// The same for other messages.
    #[must_use]
    pub fn with_range(self, range: SeqRange) -> CheckpointRun {
        CheckpointRun {
            start: range.start,
            count: range.len(),
            ..self
        }
    }

    /// The seqs of the run.
    #[must_use]
    pub fn range(&self) -> SeqRange {
        SeqRange::new(self.start, Seq(self.start.0.saturating_add(self.count)))
    }

    /// Returns whether `next` is the rest of a longer run that begins with this one.
    #[must_use]
    pub fn is_continued_by(&self, next: &CheckpointRun) -> bool {
        self.range().end == next.start
            && (self.attempts, self.due_ns) == (next.attempts, next.due_ns)
    }
}

/// Runs per chunk of a list: 1 MiB. With smaller ones the allocator spends 2 ms at once sorting the chunks of ten
/// million runs that the keeper gave back.
pub(super) const CHUNK_RUNS: usize = 32_768;

/// A list of runs that grows by chunks of a fixed size, so that no turn copies or frees a long list.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// All but the last have [`CHUNK_RUNS`] entries.
    pub(super) chunks: Vec<Vec<CheckpointRun>>,
}

impl Runs {
    /// Adds a run behind all others, or to the last one if it continues that.
    pub(crate) fn push(&mut self, run: CheckpointRun) {
        if run.count == 0 {
            return;
        }
        let Some(chunk) = self.chunks.last_mut() else {
            self.chunks.push(vec![run]);
            return;
        };
        if let Some(last) = chunk.last_mut()
            && last.is_continued_by(&run)
        {
            last.count += run.count;
        } else if chunk.len() < CHUNK_RUNS {
            chunk.push(run);
        } else {
            let mut chunk = Vec::with_capacity(CHUNK_RUNS);
            chunk.push(run);
            self.chunks.push(chunk);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The number of runs in the list.
    #[must_use]
    pub fn count(&self) -> usize {
        let full = self.chunks.len().saturating_sub(1) * CHUNK_RUNS;
        full + self.chunks.last().map_or(0, Vec::len)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CheckpointRun> {
        self.chunks.iter().flatten()
    }

    /// Returns whether each run begins where the run before it ends, or later.
    fn is_in_order(&self) -> bool {
        self.iter()
            .is_sorted_by(|run, next| run.range().end <= next.start)
    }

    /// The list in the order of its seqs, with every message named once.
    pub(super) fn resolved(&self) -> Cow<'_, Runs> {
        if self.is_in_order() {
            return Cow::Borrowed(self);
        }
        let mut resolved = Runs::default();
        let runs = self.iter().copied();
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

/// Hands out `runs` sorted and without overlaps: each seq belongs to the last run that names it.
fn later_wins(runs: impl Iterator<Item = CheckpointRun>, mut out: impl FnMut(CheckpointRun)) {
    // Each run with its index in the list that it comes from.
    let mut listed: Vec<(usize, CheckpointRun)> = runs.enumerate().collect();
    listed.sort_unstable_by_key(|&(index, run)| (run.start, index));
    // The runs that name the seq `at`, the later ones of the list first; those that have ended go when they come up.
    let mut open: BinaryHeap<(usize, usize)> = BinaryHeap::new();
    let mut at = Seq(0);
    let mut coming = 0;
    loop {
        while open
            .peek()
            .is_some_and(|&(_, index)| listed[index].1.range().end <= at)
        {
            open.pop();
        }
        let next_start = listed.get(coming).map(|(_, run)| run.start);
        match (open.peek(), next_start) {
            (None, None) => return,
            (None, Some(start)) => at = start,
            (Some(&(_, index)), next_start) => {
                let run = listed[index].1;
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
        while let Some(&(index, started)) = listed.get(coming)
            && started.start <= at
        {
            open.push((index, coming));
            coming += 1;
        }
    }
}
