use super::*;

const ROOMY: usize = 100 << 20;

fn point(depth: u64) -> Point {
    Point {
        depth,
        rate: Some(0.5),
        oldest_ms: 250,
    }
}

fn topic() -> Key {
    Key::Topic("t".to_owned())
}

/// Returns a history of 700 seconds: a busy topic, and an idle channel and node.
fn history() -> History {
    let mut history = History::new(ROOMY);
    let channel = Key::Channel("t".to_owned(), "c#ephemeral".to_owned());
    for second in 0..700_u32 {
        let samples = [
            (Key::All, point(9)),
            (Key::Node("[::1]:4151".to_owned()), point(0)),
            (topic(), point(second.into())),
            (channel.clone(), point(2)),
        ];
        history.add(second.into(), samples);
    }
    history
}

#[test]
fn a_saved_history_is_the_same() {
    let history = history();
    let bytes = history.to_bytes();
    let read = History::from_bytes(&bytes, ROOMY).expect("the bytes are whole");
    assert_eq!(read.len(), 3);
    for key in history.series.keys() {
        for tier in 0..TIERS.len() {
            let (before, after) = (history.points(key, tier, 700), read.points(key, tier, 700));
            assert_eq!(before, after, "{key:?}");
        }
    }
    assert_eq!(read.to_bytes(), bytes);
    // 12 bytes for each point of a busy or idle series were 34 kB.
    assert!(bytes.len() < 8_000, "{}", bytes.len());
}

#[test]
fn a_large_history_is_saved_in_pieces() {
    let mut history = History::new(ROOMY);
    for second in 0..600_u32 {
        let names = (0..700).map(|number| Key::Topic(format!("t{number}")));
        history.add(second.into(), names.map(|key| (key, point(second.into()))));
    }
    let mut pieces = Vec::new();
    let mut last = None;
    loop {
        let piece = history.piece(last.as_ref());
        assert!(piece.bytes.len() < 2 * PIECE_BYTES);
        pieces.push(piece.bytes);
        match piece.last {
            Some(key) => last = Some(key),
            None => break,
        }
    }
    assert!(pieces.len() > 2, "{}", pieces.len());
    assert_eq!(pieces.concat(), history.to_bytes());
}

#[test]
fn a_file_that_is_cut_off_is_damaged() {
    let bytes = history().to_bytes();
    // Only a cut between two series gives a history.
    let mut whole = Vec::new();
    for length in 0..bytes.len() {
        if let Ok(read) = History::from_bytes(&bytes[..length], ROOMY) {
            whole.push(read.len());
        }
    }
    assert_eq!(
        whole,
        [0, 0, 1, 2],
        "none, all topics together, a node, a channel"
    );
}

/// No byte of a file may make the reader panic or take more memory than the limit.
#[test]
fn a_file_of_anything_does_no_harm() {
    let bytes = history().to_bytes();
    for at in 0..bytes.len() {
        for change in [1, 0x7f, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= change;
            let Ok(mut read) = History::from_bytes(&damaged, 20_000) else {
                continue;
            };
            assert!(read.bytes() <= 20_000, "{at}");
            for key in read.series.keys() {
                for (tier, limits) in TIERS.iter().enumerate() {
                    let found = read.points(key, tier, 700).expect("there is a series");
                    assert!(found.1.len() <= limits.points, "{at}");
                }
            }
            read.add(701, [(Key::All, point(1)), (topic(), point(1))]);
            read.to_bytes();
        }
    }
}

fn ring(last: i64, runs: &[u8]) -> Vec<u8> {
    let length = u32::try_from(runs.len()).unwrap();
    [&last.to_le_bytes()[..], &length.to_le_bytes(), runs].concat()
}

fn file(rings: [Vec<u8>; 3]) -> Vec<u8> {
    let head = [MAGIC, &NEVER.to_le_bytes(), b"\x01\x01\0t\0\0"].concat();
    [head, rings.concat()].concat()
}

#[test]
fn a_ring_that_cannot_be_is_damage() {
    let open = [1 << 2 | 1, 5, 0, 0];
    let gap = |count: u8| [&[0x80 | (count & 0x1f) << 2, count >> 5][..], &open].concat();
    let with = |last, runs: &[u8]| {
        let rings = [ring(last, runs), ring(last, &open), ring(last, &open)];
        History::from_bytes(&file(rings), ROOMY)
    };
    for last in [0, 1 << 40, i64::MIN, i64::MAX] {
        let read = with(last, &gap(200)).expect("the bytes are whole");
        let (_, points) = read.points(&topic(), 0, last).expect("there is a series");
        assert!(points.len() <= 201, "{last}");
    }
    // 600 points with the open one, and one more.
    let long = |count: u32| {
        [
            &[0x80 | ((count & 0x1f) << 2) as u8, (count >> 5) as u8][..],
            &open,
        ]
        .concat()
    };
    assert!(with(0, &long(599)).is_ok());
    assert!(with(0, &long(600)).is_err());
    for runs in [&[1][..], &[0x80; 4], &[1 << 2], &[open, open].concat()[..7]] {
        assert!(with(0, runs).is_err(), "{runs:?}");
    }
    let mut short = file([0; 3].map(|last| ring(last, &open)));
    short.pop();
    assert!(History::from_bytes(&short, ROOMY).is_err());
    // A name twice.
    let one = file([0; 3].map(|last| ring(last, &open)));
    let twice = [&one[..], &one[MAGIC.len() + 8..]].concat();
    let read = History::from_bytes(&twice, ROOMY).expect("the bytes are whole");
    let once = History::from_bytes(&one, ROOMY).expect("the bytes are whole");
    assert_eq!((read.len(), read.bytes), (1, once.bytes));
}

/// Histories of the earlier forms: depth 1.5, 2.5 and a gap of the topic `t`, as nsqadmin saved them.
#[test]
fn earlier_forms_are_read() {
    for magic in OLD_MAGICS {
        let mut bytes = [magic, b"\x01\x01\0t\0\0"].concat();
        for tier in TIERS {
            bytes.extend_from_slice(&(600 / tier.step).to_le_bytes());
            bytes.extend_from_slice(&4_u32.to_le_bytes());
            for depth in [1.5, f32::NAN, 2.5, 3.0] {
                for value in [depth, depth / 10.0, depth / 2.0] {
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
            }
        }
        let history = History::from_bytes(&bytes, ROOMY).expect("the bytes are whole");
        let (start, points) = history.points(&topic(), 1, 600).expect("there is a series");
        let depths = points.iter().map(|point| point.map(|point| point.depth));
        assert_eq!(
            (start, depths.collect::<Vec<_>>()),
            (570, vec![Some(1), None, Some(2), Some(3)])
        );
        let first = points[0].expect("there are samples");
        assert_eq!(
            (first.rate.map(f64::to_bits), first.oldest_ms),
            (Some(0.15_f64.to_bits()), 750)
        );
        assert!(history.to_bytes().starts_with(MAGIC));
        for length in 0..bytes.len() {
            let is_whole = length == magic.len();
            let read = History::from_bytes(&bytes[..length], ROOMY);
            assert_eq!(read.is_ok(), is_whole, "{length}");
        }
    }
}

/// A depth of u64::MAX, and a rate that JSON does not have, were shown.
#[test]
fn numbers_of_earlier_forms_that_cannot_be_are_gaps() {
    let good = [4.0_f32, 2.0, 1.0];
    for wrong in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -1.0] {
        for place in 0..3 {
            let mut bad = good;
            bad[place] = wrong;
            let mut bytes = [OLD_MAGICS[1], b"\x01\x01\0t\0\0"].concat();
            for _ in TIERS {
                bytes.extend_from_slice(&9_i64.to_le_bytes());
                bytes.extend_from_slice(&3_u32.to_le_bytes());
                let values = [good, bad, good].into_iter().flatten();
                bytes.extend(values.flat_map(f32::to_le_bytes));
            }
            let history = History::from_bytes(&bytes, ROOMY).expect("the bytes are whole");
            let (_, points) = history.points(&topic(), 0, 9).expect("there is a series");
            let depths = points.iter().map(|point| point.map(|point| point.depth));
            let expected = [Some(4), None, Some(4)];
            assert_eq!(depths.collect::<Vec<_>>(), expected, "{wrong} at {place}");
        }
    }
}
