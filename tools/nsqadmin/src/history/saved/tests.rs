use super::*;
use crate::history::Point;

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
    let gap = |count: u32| {
        let low = ((count & 0x1f) << 2) as u8;
        [&[0x80 | low, (count >> 5) as u8][..], &open].concat()
    };
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
    assert!(with(0, &gap(599)).is_ok());
    assert!(with(0, &gap(600)).is_err());
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
