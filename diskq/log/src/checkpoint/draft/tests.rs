use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::content::CheckpointRun;
use super::super::runs::PIECE_RUNS;
use super::super::{SlotContent, decode};
use super::*;
use wire::id::Seq;

fn run((start, count, attempts, due_ns): (u64, u64, u16, u64)) -> CheckpointRun {
    CheckpointRun {
        start: Seq(start),
        count,
        attempts,
        due_ns,
    }
}

/// The state of each seq, said one by one.
fn states(runs: &[CheckpointRun]) -> BTreeMap<u64, (u16, u64)> {
    let mut states = BTreeMap::new();
    for run in runs {
        for seq in run.start.0..run.start.0 + run.count {
            states.insert(seq, (run.attempts, run.due_ns));
        }
    }
    states
}

fn draft(runs: &[CheckpointRun]) -> CheckpointDraft {
    let channel = ChannelDraft {
        name: "channel".into(),
        paused: false,
        runs: runs.iter().collect(),
        ..ChannelDraft::default()
    };
    CheckpointDraft {
        channels: vec![channel],
        stamp: Stamp {
            next: Seq(1 << 40),
            number: 1,
            ..Stamp::default()
        },
        ..CheckpointDraft::default()
    }
}

fn decoded(draft: CheckpointDraft) -> Vec<CheckpointRun> {
    match decode(&draft.encode().unwrap()).unwrap() {
        SlotContent::Checkpoint(mut checkpoint, _) => checkpoint.channels.remove(0).runs,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn the_later_of_two_states_is_what_the_file_says(
        runs in prop::collection::vec((0_u64..60, 0_u64..20, 0_u16..3, 0_u64..3), 0..40)
    ) {
        let runs: Vec<CheckpointRun> = runs.into_iter().map(run).collect();
        let read = decoded(draft(&runs));
        prop_assert_eq!(states(&read), states(&runs));
        // Each seq once, in order, in as few runs as can be.
        for pair in read.windows(2) {
            prop_assert!(pair[0].range().end <= pair[1].start);
            prop_assert!(!pair[0].is_continued_by(&pair[1]));
        }
    }
}

#[test]
fn a_list_of_many_pieces_comes_back_whole() {
    let runs: Vec<CheckpointRun> = (0..3 * PIECE_RUNS as u64 + 7)
        .map(|n| run((n * 2, 1, 1, n + 1)))
        .collect();
    let long = draft(&runs);
    assert_eq!(long.run_count(), runs.len());
    assert_eq!(decoded(long), runs);
    let mut list: Runs = runs.iter().collect();
    let mut pieces = 0;
    while list.drop_piece() {
        pieces += 1;
    }
    assert_eq!(pieces, 4);
}

#[test]
fn runs_that_continue_each_other_are_one() {
    let runs = [(0, 5, 1, 0), (5, 1, 1, 0), (6, 1, 2, 0), (8, 1, 2, 0)].map(run);
    assert_eq!(
        decoded(draft(&runs)),
        [(0, 6, 1, 0), (6, 1, 2, 0), (8, 1, 2, 0)].map(run)
    );
}

/// The length of a checkpoint is a field of 32 bits. More than fits stopped the process.
#[test]
fn a_checkpoint_beyond_what_its_head_can_say_is_refused() {
    let one_piece: Vec<CheckpointRun> = (0..PIECE_RUNS as u64)
        .map(|n| run((n * 2, 1, 0, 0)))
        .collect();
    let pieces = u32::MAX as usize / (PIECE_RUNS * RUN_BYTES) + 1;
    let count = pieces * PIECE_RUNS;
    // The pieces are empty but for their number: nothing is encoded before the length is known.
    let mut list: Runs = one_piece.iter().collect();
    let last = list.pieces.remove(0);
    list.pieces.resize(pieces - 1, Vec::new());
    list.pieces.push(last);
    let mut draft = draft(&[]);
    draft.channels[0].runs = list;
    assert!(!draft.is_short());
    let error = draft.encode().unwrap_err();
    assert!(count * RUN_BYTES > u32::MAX as usize);
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
}
