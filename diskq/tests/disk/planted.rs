//! The tests of this crate find the deliberate bugs in its work. `each_planted_bug_is_found` of engine-rules has the others.

use std::panic::catch_unwind;

use diskq_log::planted::plant;
use diskq_sim::bugs;

use super::{deletion, keeper, log, recovery};

const TESTS: &[(&str, fn())] = &[
    (
        "DataPathBelieved",
        deletion::a_failed_sync_of_the_data_path_is_final,
    ),
    (
        "SyncfsErrorSwallowed",
        keeper::a_checkpoint_whose_sync_is_shared_is_durable_after_it_and_final_without,
    ),
    (
        "SpillFailureNotFinal",
        log::a_spill_whose_sync_of_the_directory_fails_is_final,
    ),
    (
        "SpillThroughCache",
        log::a_copy_is_kept_although_write_back_fails,
    ),
    (
        "CopyRemovesOriginal",
        recovery::a_torn_copy_leaves_its_original_alone,
    ),
    (
        "CheckpointCrcLeftOut",
        recovery::a_flipped_bit_in_a_checkpoint_is_reported_and_costs_nothing,
    ),
    ("PinIgnored", log::an_unfinished_write_keeps_its_segment),
    (
        "DurableCheckpointOverwritten",
        log::a_new_message_is_never_lost_between_two_checkpoints_that_are_not_synced,
    ),
    (
        "FoundCheckpointBelieved",
        recovery::a_checkpoint_of_a_killed_process_is_not_durable_because_there_is_a_newer_one,
    ),
    (
        "TornEndsRecovery",
        recovery::a_flipped_bit_in_a_segment_costs_one_counted_message_at_most,
    ),
    ("VoidSyncBelieved", log::a_spill_that_fails_loses_nothing),
    (
        "StateCrcLeftOut",
        recovery::the_older_of_two_states_counts_if_the_newer_one_is_wrong,
    ),
    (
        "LoadNotChecked",
        log::a_message_that_is_not_whole_waits_for_the_load,
    ),
];

#[test]
fn each_planted_bug_of_the_disk_is_found() {
    let planted = bugs::of_the_disk().into_iter().map(|(bug, _)| bug);
    assert!(TESTS.iter().map(|(bug, _)| *bug).eq(planted));
    let mut survivors = Vec::new();
    for (bug, test) in TESTS {
        plant(Some(*bug));
        let result = catch_unwind(test);
        plant(None);
        if result.is_ok() {
            survivors.push(bug);
        }
    }
    assert!(survivors.is_empty(), "not found: {survivors:?}");
}
