//! Stored segments of the versions 2 and 3. They were not written by this program, but after docs/reference/format.md.
//! A change of the format fails here.

use super::*;

const STORED: Head = Head {
    generation: 0x0123_4567_89AB_CDEF,
    base: Seq(7000),
    bytes: 4096,
    node: 7,
    slots: SlotKind::Plain,
};

/// The bodies, the seconds of the times, the deferrals, and in version 3 the origins.
const MESSAGES: [(&[u8], i64, u32, Option<Origin>); 3] = [
    (b"first", 1_700_000_000, 0, None),
    (b"second", 1_700_000_001, 0, Some(origin(17))),
    (b"third", 1_700_000_002, 1500, Some(origin(i64::MAX as u64))),
];

const fn origin(number: u64) -> Origin {
    Origin {
        publisher: 0x9f86_d081_884c_7d65,
        number,
    }
}

/// Checks that `stored` has the messages, and that this program writes the same bytes.
fn check(stored: &[u8], slots: SlotKind) {
    let head = Head { slots, ..STORED };
    let HeadState::Segment(found, Some(seal)) = read_head(stored) else {
        panic!("{:?}", read_head(stored));
    };
    assert_eq!((found, seal.count), (head, 3));
    assert!(seal.fits(&head));
    let scan = scan(stored, &head, Some(seal.count));
    assert_eq!(whole_indices(&scan), [0, 1, 2]);
    assert_eq!(scan.end, seal.end);
    assert_eq!(scan.deferred, [(2, 1_700_000_002_000_000_000, 1500)]);
    let mut written = vec![0; 4096];
    write_head(&mut written, &head);
    let mut end = FRAMES_AT;
    for (index, (body, seconds, defer_ms, origin)) in (0..).zip(MESSAGES) {
        let slot = slot_at(stored, slots, index).expect("the slot is there");
        let frame = &stored[slot.start as usize..slot.end as usize];
        assert_eq!(&frame[HEADER_BYTES..], body);
        let expected = origin.filter(|_| slots == SlotKind::WithOrigin);
        assert_eq!((slot.message_origin(), slot.defer_ms), (expected, defer_ms));
        let new = NewFrame {
            timestamp_ns: seconds * 1_000_000_000,
            id: MessageId::new(Seq(7000 + u64::from(index)), 7),
            defer_ms,
            body,
        };
        end = write_numbered(&mut written, &head, index, end, &new, origin);
    }
    write_seal(&mut written, &head, &seal);
    assert_eq!(end, seal.end);
    assert!(written == stored, "this program writes other bytes");
}

#[test]
fn a_stored_segment_of_version_2_is_read() {
    check(include_bytes!("version-2.segment"), SlotKind::Plain);
}

#[test]
fn a_stored_segment_of_version_3_is_read() {
    check(include_bytes!("version-3.segment"), SlotKind::WithOrigin);
}
