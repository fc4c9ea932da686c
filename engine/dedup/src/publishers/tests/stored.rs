//! A stored file of numbers, `dedup.a`, of version 1. It was not written by this program, but after
//! docs/reference/format.md. A change of the format fails here.

use super::*;
use diskq_log::{STATE_HEAD_BYTES, Seq, StateContent, decode_state, encode_state_head};

/// The largest number.
const MAX: u64 = i64::MAX as u64;

#[test]
fn a_stored_file_of_numbers_is_read() {
    let bytes = include_bytes!("version-1.dedup.a");
    let StateContent::State(state) = decode_state(bytes) else {
        panic!("{:?}", decode_state(bytes));
    };
    assert_eq!((state.number, state.boundary), (7, Seq(7100)));
    let mut table = Publishers::new(128, 1 << 20, 7);
    assert!(table.load(&state.body));
    table.check();
    assert_eq!(table.count(), 3);
    let id = 0x9f86_d081_884c_7d65;
    let fresh: Vec<u64> = (0..202)
        .filter(|number| !has_stored(&table, id, *number))
        .collect();
    let expected: Vec<u64> = [150].into_iter().chain(190..199).chain(200..202).collect();
    assert_eq!(fresh, expected);
    let stored = |number: &u64| has_stored(&table, 1, *number);
    assert_eq!((0..9).filter(stored).collect::<Vec<_>>(), [3]);
    let found = table.find(2).expect("it is a publisher");
    let known = [MAX, MAX - 499, MAX - 500].map(|number| found.knows(number));
    assert_eq!(known, [Known::Stored, Known::Stored, Known::Forgotten]);
    // This program writes the same. Only the times of use begin again.
    table.set_boundary();
    let mut encoder = table.save().expect("some memory");
    table.continue_save(&mut encoder, usize::MAX);
    assert!(table.is_saved(&encoder));
    let without_uses = |body: &[u8]| {
        let mut body = body.to_vec();
        for place in body[5..].chunks_exact_mut(4 * 8 + 128 / 8) {
            place[8..16].fill(0);
        }
        body
    };
    assert_eq!(without_uses(&encoder.body), without_uses(&state.body));
    let head = encode_state_head(7, Seq(7100), &state.body);
    assert_eq!(head[..], bytes[..STATE_HEAD_BYTES]);
}
