//! [`Runs`]: a list of runs of a draft, and its bytes.

use std::borrow::Cow;
use std::collections::BinaryHeap;

use wire::id::Seq;

use super::content::CheckpointRun;

/// Runs per piece of a list: 1 MiB. With smaller ones the allocator spends 2 ms at once sorting the pieces of ten
/// million runs that the keeper gave back.
pub(super) const PIECE_RUNS: usize = 32_768;

/// A list of runs that grows without ever being copied.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// All but the last have [`PIECE_RUNS`] entries.
    pub(super) pieces: Vec<Vec<CheckpointRun>>,
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

    pub(super) fn is_empty(&self) -> bool {
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
    pub(super) fn resolved(&self) -> Cow<'_, Runs> {
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

pub(super) fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("a body below 4 GiB lists fewer than 2^32 things");
    out.extend_from_slice(&count.to_le_bytes());
}

pub(super) fn put_runs(out: &mut Vec<u8>, runs: &Runs) {
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
