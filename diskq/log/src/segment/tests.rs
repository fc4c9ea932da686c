mod stored;

use super::*;

const BYTES: usize = 64 << 10;
const HEAD: Head = Head {
    generation: 0x1234_5678_9ABC_DEF0,
    base: Seq(1000),
    bytes: 65_536,
    node: 7,
    slots: SlotKind::Plain,
};

/// Both kinds of slots.
const HEADS: [Head; 2] = [
    HEAD,
    Head {
        slots: SlotKind::WithOrigin,
        ..HEAD
    },
];

/// Every third message has an origin.
fn origin_of(index: u32) -> Option<Origin> {
    index.is_multiple_of(3).then_some(Origin {
        publisher: 1 + u64::from(index % 2),
        number: index.into(),
    })
}

/// A pseudo-random byte per index, different for each salt.
fn noise(salt: u64, at: usize) -> u8 {
    let mut mixed = (salt << 32 ^ at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 56) as u8
}

/// Fills `image` with about `count` messages, and returns the bounds of each frame.
fn fill(image: &mut [u8], head: &Head, count: u32, salt: u64) -> Vec<Range<usize>> {
    write_head(image, head);
    let mut start = FRAMES_AT;
    let mut frames = Vec::new();
    for index in 0..count {
        let bytes = 140 + usize::from(noise(salt, index as usize)) % 200;
        let body: Vec<u8> = (0..bytes)
            .map(|at| noise(salt + u64::from(index), at))
            .collect();
        let id = MessageId::new(Seq(head.base.0 + u64::from(index)), head.node);
        let defer_ms = if index % 10 == 3 { index } else { 0 };
        let new = NewFrame {
            timestamp_ns: 77,
            id,
            defer_ms,
            body: &body,
        };
        let end = write_numbered(image, head, index, start, &new, origin_of(index));
        frames.push(start as usize..end as usize);
        start = end;
    }
    frames
}

fn full_image(head: &Head, salt: u64) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut image = vec![0; BYTES];
    let frames = fill(&mut image, head, 200, salt);
    (image, frames)
}

fn seal(image: &mut [u8], head: &Head, count: u32, end: u32) -> Seal {
    let seal = Seal { count, end };
    write_seal(image, head, &seal);
    seal
}

fn whole_indices(scan: &Scan) -> Vec<u32> {
    scan.whole.iter().cloned().flatten().collect()
}

#[test]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "one run of whole messages is meant"
)]
fn what_is_written_is_found() {
    for head in HEADS {
        let (mut image, frames) = full_image(&head, 1);
        assert_eq!(read_head(&image), HeadState::Segment(head, None));
        let found = scan(&image, &head, None);
        assert_eq!(found.whole, [0..200]);
        assert_eq!(found.end as usize, frames[199].end);
        assert_eq!(found.deferred.len(), 20);
        assert_eq!(found.deferred[1], (13, 77, 13));
        for index in 0..200 {
            let slot = slot_at(&image, head.slots, index).expect("it has room");
            let expected = origin_of(index).filter(|_| head.slots == SlotKind::WithOrigin);
            assert_eq!(slot.message_origin(), expected);
        }
        let seal = seal(&mut image, &head, 200, found.end);
        assert_eq!(read_head(&image), HeadState::Segment(head, Some(seal)));
        assert_eq!(found.holes(200), []);
        assert_eq!(found.holes(203), [200..203]);
    }
}

#[test]
fn empty_and_short_images_are_unused_or_unreadable() {
    assert_eq!(read_head(&[0; 128]), HeadState::Unused);
    assert_eq!(read_head(&[0; 127]), HeadState::Unreadable);
    assert_eq!(read_head(&[1; 128]), HeadState::Unreadable);
    assert_eq!(scan(&[], &HEAD, None).whole, []);
    assert_eq!(scan(&[0; 4096], &HEAD, None).whole, []);
}

#[test]
fn a_newer_version_is_named() {
    let (mut image, _) = full_image(&HEAD, 1);
    for block in [0, 64] {
        image[block + 4] = 9;
        let crc = crc32c(0, &image[block..block + 60]);
        image[block + 60..block + 64].copy_from_slice(&crc.to_le_bytes());
    }
    assert_eq!(read_head(&image), HeadState::Newer(9));
}

/// T5: the write of a full segment stops at each byte; behind it is what was there before.
#[test]
fn a_write_that_stops_anywhere_keeps_what_was_whole() {
    for head in HEADS {
        let (image, frames) = full_image(&head, 1);
        let earlier = Head {
            generation: head.generation + 1,
            base: Seq(700),
            ..head
        };
        let (mut earlier_image, _) = full_image(&earlier, 9);
        // The same bytes under another generation: the hardest earlier life.
        let twin = Head {
            generation: head.generation + 2,
            ..head
        };
        let (mut twin_image, _) = full_image(&twin, 1);
        write_head(&mut earlier_image, &head);
        write_head(&mut twin_image, &head);
        let mut zeros = vec![0; BYTES];
        write_head(&mut zeros, &head);
        let mut noisy: Vec<u8> = (0..BYTES).map(|at| noise(5, at)).collect();
        write_head(&mut noisy, &head);

        let slot_start = |index: usize| BYTES - (index + 1) * head.slots.bytes();
        // Frames reach the disk first: bytes in rising order. Whole slots are those at the end.
        let frames_first = |mut torn: Vec<u8>| {
            for stop in FRAMES_AT as usize..BYTES {
                torn[stop] = image[stop];
                let is_whole = |index: &u32| {
                    let slot = slot_start(*index as usize);
                    let slot = slot..slot + head.slots.bytes();
                    let frame = frames[*index as usize].clone();
                    torn[slot.clone()] == image[slot] && torn[frame.clone()] == image[frame]
                };
                let expected: Vec<u32> = (0..200).filter(is_whole).collect();
                let found = whole_indices(&scan(&torn, &head, None));
                assert_eq!(found, expected, "stopped at {stop}");
            }
        };
        // Slots reach the disk first: bytes in falling order.
        let slots_first = |mut torn: Vec<u8>| {
            for stop in (FRAMES_AT as usize..BYTES).rev() {
                torn[stop] = image[stop];
                let from = frames.partition_point(|frame| frame.start < stop);
                let expected: Vec<u32> = (from as u32..200).collect();
                // The bytes before the stop may be equal by chance: then more is whole, rightly.
                let found = whole_indices(&scan(&torn, &head, None));
                assert!(found.ends_with(&expected), "stopped at {stop}: {found:?}");
                for index in found {
                    let frame = frames[index as usize].clone();
                    assert_eq!(torn[frame.clone()], image[frame], "an invented frame");
                }
            }
        };
        std::thread::scope(|scope| {
            for before in [zeros, earlier_image, twin_image, noisy] {
                let copy = before.clone();
                scope.spawn(|| frames_first(copy));
                scope.spawn(|| slots_first(before));
            }
        });
    }
}

/// T7: one bit of each byte flips.
#[test]
fn a_flipped_bit_costs_one_message_at_most() {
    for head in HEADS {
        let (mut image, frames) = full_image(&head, 1);
        seal(&mut image, &head, 200, frames[199].end as u32);
        let original = image.clone();
        for at in 0..BYTES {
            let bit = 1 << (noise(3, at) % 8);
            image[at] ^= bit;
            let HeadState::Segment(found_head, sealed) = read_head(&image) else {
                panic!("byte {at} cost the segment")
            };
            assert_eq!(found_head, head);
            let is_in_frames = (FRAMES_AT as usize..frames[199].end).contains(&at);
            if at < 128 || is_in_frames || at >= BYTES - 200 * head.slots.bytes() {
                let found = scan(&image, &head, sealed.map(|seal| seal.count));
                let lost: usize = found.holes(200).into_iter().map(|hole| hole.len()).sum();
                assert_eq!(lost, usize::from(at >= 128), "byte {at}");
                for index in whole_indices(&found) {
                    let frame = frames[index as usize].clone();
                    let is_right = image[frame.clone()] == original[frame];
                    assert!(is_right, "a wrong message, byte {at}");
                }
            }
            image[at] ^= bit;
        }
    }
}

#[test]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "one run of whole messages is meant"
)]
fn nothing_of_an_earlier_life_is_valid() {
    for head in HEADS {
        let (mut image, _) = full_image(&head, 1);
        seal(&mut image, &head, 200, 60_000);
        let next = Head {
            generation: head.generation ^ 1,
            ..head
        };
        write_head(&mut image, &next);
        assert_eq!(read_head(&image), HeadState::Segment(next, None));
        assert_eq!(scan(&image, &next, None).whole, []);
        fill(&mut image, &next, 50, 2);
        assert_eq!(scan(&image, &next, None).whole, [0..50]);
        // The seal of the earlier life, left by a torn page, seals nothing.
        let mut stale = image.clone();
        seal(&mut stale, &head, 200, 60_000);
        assert_eq!(read_head(&stale), HeadState::Segment(next, None));
    }
}

#[test]
#[should_panic(expected = "range end index")]
fn a_frame_never_runs_into_the_slots() {
    let mut image = vec![0; 4096];
    let body = vec![1; 4096 - 128 - 34 - 15];
    let new = NewFrame {
        timestamp_ns: 0,
        id: MessageId::new(Seq(1), 0),
        defer_ms: 0,
        body: &body,
    };
    write_frame(&mut image, &HEAD, 0, FRAMES_AT, &new);
}
