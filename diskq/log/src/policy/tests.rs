use super::*;

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

#[test]
fn a_flow_doubles_its_segments_while_they_are_full_soon() {
    let check = |flow, ms, expected| {
        let bytes = flow_bytes(flow, Duration::from_millis(ms), MIB);
        assert_eq!(bytes, expected, "{flow} full in {ms} ms");
    };
    check(32 * KIB, 0, 64 * KIB);
    check(32 * KIB, 499, 64 * KIB);
    check(32 * KIB, 500, 32 * KIB);
    check(768 * KIB, 1, MIB);
    check(MIB, 1, MIB);
    // A large batch has made them larger than the flow would.
    check(16 * MIB, 1, 16 * MIB);
}

#[test]
fn a_segment_has_room_for_two_batches_of_up_to_8_mib() {
    let check =
        |needed, most, expected| assert_eq!(batch_bytes(needed, most), expected, "{needed}");
    check(0, 64 * MIB, 1);
    check(100, 64 * MIB, 256);
    check(MIB, 64 * MIB, 2 * MIB);
    check(MIB + 1, 64 * MIB, 4 * MIB);
    check(8 * MIB, 64 * MIB, 16 * MIB);
    check(51 * MIB, 64 * MIB, 16 * MIB);
    check(u32::MAX, 64 * MIB, 16 * MIB);
    check(8 * MIB, MIB, MIB);
}

#[test]
fn a_backlog_has_segments_of_a_part_of_its_size() {
    let gib = 1u64 << 30;
    let check = |live: u64, memory: u64, expected| {
        let bytes = backlog_bytes(live, memory, 32 * KIB, 64 * MIB);
        assert_eq!(bytes, expected, "{live} bytes, {memory} in memory");
    };
    check(0, 8 << 20, 32 * KIB);
    check(512 << 10, 8 << 20, 32 * KIB);
    check(16 << 20, 8 << 20, MIB);
    check(17 << 20, 8 << 20, 2 * MIB);
    // The part of memory, and then 16 MiB, bound a 16th.
    check(gib, 4 << 20, 4 * MIB);
    check(gib, 8 << 20, 8 * MIB);
    check(gib, 64 << 20, 16 * MIB);
    // Behind that a 1024th, up to --max-bytes-per-file.
    check(5 * gib, 4 << 20, 8 * MIB);
    check(20 * gib, 64 << 20, 32 * MIB);
    check(1000 * gib, 64 << 20, 64 * MIB);
    check(u64::MAX, 64 << 20, 64 * MIB);
    // Flow and batches need more than --max-bytes-per-file.
    assert_eq!(backlog_bytes(gib, 8 << 20, MIB, 64 * KIB), MIB);
}

#[test]
fn a_segment_is_whole_pages_and_as_large_as_its_batch() {
    let check = |needed, usual, expected| assert_eq!(segment_bytes(needed, usual), expected);
    check(0, 32 * KIB, 32 * KIB);
    check(32 * KIB + 1, 32 * KIB, 36 * KIB);
    check(51 * MIB, 16 * MIB, 51 * MIB);
}

#[test]
fn large_pages_are_for_large_segments_of_a_flow_that_is_quicker_than_syncs() {
    let check = |bytes, is_quicker, expected| assert_eq!(pages(bytes, is_quicker), expected);
    check(4 * MIB, true, Pages::Large);
    check(4 * MIB, false, Pages::Small);
    check(4 * MIB - 1, true, Pages::Small);
}

#[test]
fn the_pool_keeps_segments_of_about_the_usual_size() {
    let check = |bytes: u32, usual, least, suits, oversized| {
        assert_eq!(suits_pool(bytes.into(), usual, least), suits, "{bytes}");
        assert_eq!(is_oversized(bytes, usual), oversized, "{bytes}");
    };
    check(256 * KIB, MIB, 32 * KIB, true, false);
    check(256 * KIB - 1, MIB, 32 * KIB, false, false);
    check(4 * MIB, MIB, 32 * KIB, true, false);
    check(4 * MIB + 1, MIB, 32 * KIB, false, true);
    // No batch would fit.
    check(256 * KIB, MIB, 512 * KIB, false, false);
}

#[test]
fn the_pool_has_a_few_segments_and_more_while_they_fit_memory() {
    let check = |count, pooled, bytes, expected| {
        let has_place = has_pool_room(count, 4, pooled, bytes, 1000);
        assert_eq!(has_place, expected, "{count} of {pooled} bytes, {bytes}");
    };
    check(3, 5000, 5000, true);
    check(4, 900, 100, true);
    check(4, 900, 101, false);
}

#[test]
fn both_bounds_of_memory_must_be_passed() {
    let check = |bytes, messages, expected| {
        assert_eq!(is_too_much(bytes, 100, messages, 10), expected);
    };
    check(101, 11, true);
    check(100, 11, false);
    check(101, 10, false);
}

#[test]
fn the_other_bounds() {
    assert_eq!(SPILLING_ENOUGH, 8);
    assert!(is_begun_anew(8192, 32_768) && !is_begun_anew(8191, 32_768));
    let counts = [1, 64, 65, 6400].map(peek_count);
    assert_eq!(counts, [1, 1, 2, 100]);
}
