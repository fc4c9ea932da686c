use proptest::prelude::*;

use super::*;

#[test]
fn no_slot_is_all_zero() {
    // Under some generation the CRC of any frame is 0: it is stored as 1.
    let frame = [7; 40];
    let zero_start = (0..u32::MAX)
        .step_by(65_537)
        .find(|&start| crc(start, &frame) <= 1)
        .unwrap_or_default();
    assert_ne!(crc(zero_start, &frame), 0);
    assert_ne!(
        Slot::of(0, Seq(0), 0, 0, None, &[]).encode(),
        [0; SLOT_BYTES]
    );
}

#[test]
fn the_layout_is_the_documented_one() {
    let slot = Slot {
        start: 0x0403_0201,
        end: 0x0807_0605,
        crc: 0x0C0B_0A09,
        defer_ms: 0x100F_0E0D,
        origin: None,
    };
    assert_eq!(
        slot.encode(),
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
    );
    let origin = Origin {
        publisher: 0x0807_0605_0403_0201,
        number: 0x100F_0E0D_0C0B_0A09,
    };
    let origin_bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    assert_eq!(Slot::encode_origin(origin), origin_bytes);
    // Stored values of versions 2 and 3: changing the mix is changing the format.
    assert_eq!(Slot::of(1, Seq(2), 128, 3, None, b"frame").crc, STORED_CRC);
    let crc = |origin: Option<Origin>| {
        let origin = Some(origin.unwrap_or(NO_ORIGIN));
        Slot::of(1, Seq(2), 128, 3, origin, b"frame").crc
    };
    assert_eq!(crc(None), STORED_CRC_WITHOUT_ORIGIN);
    assert_eq!(crc(Some(origin)), STORED_CRC_WITH_ORIGIN);
}

const STORED_CRC: u32 = 3_735_441_123;
const STORED_CRC_WITHOUT_ORIGIN: u32 = 3_125_100_702;
const STORED_CRC_WITH_ORIGIN: u32 = 2_002_470_165;

proptest! {
    #[test]
    fn a_slot_comes_back(start: u32, end: u32, crc: u32, defer_ms: u32) {
        let slot = Slot { start, end, crc, defer_ms, origin: None };
        prop_assert_eq!(Slot::decode(&slot.encode()), slot);
    }

    #[test]
    fn a_slot_with_an_origin_comes_back(start: u32, end: u32, crc: u32, publisher: u64, number: u64) {
        let origin = Origin { publisher, number };
        let slot = Slot { start, end, crc, defer_ms: 7, origin: Some(origin) };
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&slot.encode());
        bytes[16..].copy_from_slice(&Slot::encode_origin(origin));
        prop_assert_eq!(Slot::decode_with_origin(&bytes), slot);
        prop_assert_eq!(slot.message_origin(), (publisher != 0).then_some(origin));
    }

    #[test]
    fn the_origin_is_covered(publisher: u64, number: u64, bit in 0usize..64) {
        let origin = Origin { publisher, number };
        let slot = Slot::of(5, Seq(9), 128, 0, Some(origin), b"frame");
        prop_assert!(slot.is_proof_of(5, Seq(9), b"frame"));
        let other = |origin| Slot { origin: Some(origin), ..slot };
        let publisher = other(Origin { publisher: publisher ^ 1 << bit, ..origin });
        prop_assert!(!publisher.is_proof_of(5, Seq(9), b"frame"));
        let number = other(Origin { number: number ^ 1 << bit, ..origin });
        prop_assert!(!number.is_proof_of(5, Seq(9), b"frame"));
        let plain = Slot { origin: None, ..slot };
        prop_assert!(!plain.is_proof_of(5, Seq(9), b"frame"));
    }

    #[test]
    fn every_part_is_covered(
        generation: u64,
        seq in 0..u64::MAX,
        start in 0..1u32 << 30,
        defer_ms: u32,
        mut frame in prop::collection::vec(any::<u8>(), 1..300),
        bit in 0usize..10_000,
    ) {
        let slot = Slot::of(generation, Seq(seq), start, defer_ms, None, &frame);
        prop_assert!(slot.is_proof_of(generation, Seq(seq), &frame));
        prop_assert!(!slot.is_proof_of(generation ^ 1 << (bit % 64), Seq(seq), &frame));
        prop_assert!(!slot.is_proof_of(generation, Seq(seq ^ 1 << (bit % 64)), &frame));
        let moved = Slot { start: slot.start ^ 1 << (bit % 32), ..slot };
        prop_assert!(!moved.is_proof_of(generation, Seq(seq), &frame));
        let put_off = Slot { defer_ms: slot.defer_ms ^ 1 << (bit % 32), ..slot };
        prop_assert!(!put_off.is_proof_of(generation, Seq(seq), &frame));
        let at = bit % (frame.len() * 8);
        frame[at / 8] ^= 1 << (at % 8);
        prop_assert!(!slot.is_proof_of(generation, Seq(seq), &frame));
    }
}
