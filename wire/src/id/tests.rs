use proptest::prelude::*;

use super::*;

/// Formats an id in the plain way, for comparison.
fn slow(seq: u64, node: u64) -> String {
    format!("{:016x}", (seq >> 12) << 22 | node << 12 | seq & 0xfff)
}

#[test]
fn ids_look_like_those_of_nsqd() {
    let check = |text: &[u8; 16], t: u64, node: u16, sequence: u64| {
        let seq = Seq(t << 12 | sequence);
        assert_eq!(MessageId(*text).decode(), Some((seq, node)));
        assert_eq!(MessageId::new(seq, node), MessageId(*text));
    };
    // Captured from nsqd.
    check(b"18a2f065e8001000", 423_251_515_296, 1, 0);
    check(b"0000000000000000", 0, 0, 0);
    check(b"ffffffffffffffff", (1 << 42) - 1, 1023, 4095);
}

#[test]
fn seq_starts_at_nsqds_epoch() {
    // The captured id's timestamp >> 20 is t + epoch.
    let unix_ns = (423_251_515_296 + 1_288_834_974_288) << 20;
    assert_eq!(Seq::from_clock(unix_ns), Seq(423_251_515_296 << 12));
    assert_eq!(
        Seq::from_clock(unix_ns + 0xf_ffff),
        Seq(423_251_515_296 << 12)
    );
    assert_eq!(
        Seq::from_clock(unix_ns + 0x10_0000),
        Seq(423_251_515_297 << 12)
    );
    for early in [0, 1, 1_288_834_974_288 << 20] {
        assert_eq!(Seq::from_clock(early), Seq(1));
    }
    assert_eq!(Seq::from_clock(u64::MAX), Seq(SEQ_MAX));
}

#[test]
fn seqs_count() {
    assert_eq!(Seq(5).offset(3), Seq(8));
    assert_eq!(Seq(8).since(Seq(5)), 3);
    assert_eq!(Seq(8).since(Seq(8)), 0);
    assert_eq!(Seq(SEQ_MAX).offset(1).since(Seq(0)), 1 << 54);
}

#[test]
fn only_lower_case_hexadecimal_is_an_id() {
    for at in 0..16 {
        for byte in 0..=255 {
            let mut text = *b"0123456789abcdef";
            text[at] = byte;
            let expected = matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            assert_eq!(
                MessageId(text).decode().is_some(),
                expected,
                "{byte:#x} at {at}"
            );
        }
    }
}

#[test]
fn display_escapes_bytes_that_a_client_made_up() {
    assert_eq!(
        MessageId(*b"18a2f065e8001000").to_string(),
        "18a2f065e8001000"
    );
    let odd = MessageId(*b"\xff\n23456789abcdef");
    assert_eq!(odd.to_string(), r"\xff\n23456789abcdef");
    assert_eq!(format!("{odd:?}"), r"MessageId(\xff\n23456789abcdef)");
}

proptest! {
    #[test]
    fn round_trip(seq in 0..=SEQ_MAX, node in 0..1024u16) {
        let id = MessageId::new(Seq(seq), node);
        prop_assert_eq!(id.to_string(), slow(seq, node.into()));
        prop_assert_eq!(id.decode(), Some((Seq(seq), node)));
    }

    #[test]
    fn ids_of_one_node_sort_by_seq(a in 0..=SEQ_MAX, b in 0..=SEQ_MAX, node in 0..1024u16) {
        let (x, y) = (MessageId::new(Seq(a), node), MessageId::new(Seq(b), node));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
    }
}
