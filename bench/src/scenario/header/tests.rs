use super::*;

#[test]
fn every_altered_bit_is_noticed() {
    let source: Vec<u8> = (0..100u8).map(|n| n.wrapping_mul(7)).collect();
    for bytes in [0, 1, 72, 100] {
        let filler = Filler::new(&source, bytes);
        let header = Header {
            producer: 0xabcd_0001,
            number: 1 << 40,
            intended_ns: 1_700_000_000_000_000_000,
        };
        let mut body = header.encode(&filler).to_vec();
        body.extend_from_slice(&source[..bytes]);
        assert_eq!(Header::decode(&body), Decoded::Intact(header));
        for bit in 0..body.len() * 8 {
            body[bit / 8] ^= 1 << (bit % 8);
            let expected = if bit < 32 {
                Decoded::Foreign
            } else {
                Decoded::Damaged
            };
            assert_eq!(Header::decode(&body), expected, "bit {bit}");
            body[bit / 8] ^= 1 << (bit % 8);
        }
        body.push(0);
        assert_eq!(Header::decode(&body), Decoded::Damaged);
    }
    assert_eq!(Header::decode(b"hello"), Decoded::Foreign);
}
