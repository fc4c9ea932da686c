use proptest::prelude::*;

use super::*;

pub(crate) fn sample() -> Checkpoint {
    let run = |start, count, attempts, due_ns| CheckpointRun {
        start: Seq(start),
        count,
        attempts,
        due_ns,
    };
    Checkpoint {
        synced: Seq(900),
        next: Seq(1000),
        number: 17,
        paused: true,
        terms: PauseTerms::default(),
        undistributed: vec![run(990, 10, 0, 0)],
        channels: vec![
            ChannelCheckpoint {
                name: "a#ephemeral".into(),
                paused: false,
                runs: vec![],
                ..ChannelCheckpoint::default()
            },
            ChannelCheckpoint {
                name: "archive".into(),
                paused: true,
                runs: vec![
                    run(5, 10, 0, 0),
                    run(70, 1, 3, 0),
                    run(80, 2, 65_535, u64::MAX),
                ],
                ..ChannelCheckpoint::default()
            },
        ],
        grace: None,
    }
}

/// The same, in grace.
fn sample_in_grace() -> Checkpoint {
    let run = |start, count, due_ns| CheckpointRun {
        start: Seq(start),
        count,
        attempts: 0,
        due_ns,
    };
    Checkpoint {
        grace: Some(GraceCheckpoint {
            until_ns: 1_800_000_000_000_000_000,
            runs: vec![run(3, 80, 0), run(83, 1, 1_800_000_000_000_000_001)],
        }),
        ..sample()
    }
}

/// The same with an undo and terms of pauses.
fn sample_with_additions(mut sample: Checkpoint) -> Checkpoint {
    let run = |start, count, attempts, due_ns| CheckpointRun {
        start: Seq(start),
        count,
        attempts,
        due_ns,
    };
    sample.terms = PauseTerms {
        until_ns: 1_800_000_000_000_000_002,
        length_ns: 600_000_000_000,
        ..PauseTerms::default()
    };
    sample.channels[0].terms.note = "repair of Jörg's disk".to_owned();
    sample.channels[0].terms.by = "ann".to_owned();
    sample.channels[1].undo = Some(UndoCheckpoint {
        until_ns: 1_800_000_000_000_000_003,
        runs: vec![run(1, 2, 0, 0), run(3, 1, 4, 0), run(4, 1, 0, u64::MAX)],
    });
    sample
}

fn stamp(checkpoint: &Checkpoint, sync: bool) -> Stamp {
    let Checkpoint {
        synced,
        next,
        number,
        ..
    } = *checkpoint;
    Stamp {
        synced,
        next,
        number,
        sync,
    }
}

/// The bytes of a slot as docs/format.md has them, whatever the checkpoint says.
fn encode(checkpoint: &Checkpoint, stamp: &Stamp) -> Vec<u8> {
    let runs = |out: &mut Vec<u8>, runs: &[CheckpointRun]| {
        out.extend((runs.len() as u32).to_le_bytes());
        for run in runs {
            out.extend(run.start.0.to_le_bytes());
            out.extend(run.count.to_le_bytes());
            out.extend(run.attempts.to_le_bytes());
            out.extend(run.due_ns.to_le_bytes());
        }
    };
    let mut out = MAGIC.to_vec();
    let all_terms = checkpoint.channels.iter().map(|channel| &channel.terms);
    let mut all_terms = all_terms.chain([&checkpoint.terms]);
    let mut undos = checkpoint.channels.iter().map(|channel| &channel.undo);
    let has_additions = all_terms.any(|it| !it.are_none()) || undos.any(Option::is_some);
    let version: u16 = match (has_additions, checkpoint.grace.is_some()) {
        (true, _) => 4,
        (false, true) => 3,
        (false, false) => 2,
    };
    out.extend(version.to_le_bytes());
    out.extend(u16::from(stamp.sync).to_le_bytes());
    out.extend(stamp.number.to_le_bytes());
    out.extend([0; 8]);
    out.extend(stamp.synced.0.to_le_bytes());
    out.extend(stamp.next.0.to_le_bytes());
    out.push(u8::from(checkpoint.paused));
    runs(&mut out, &checkpoint.undistributed);
    out.extend((checkpoint.channels.len() as u32).to_le_bytes());
    for channel in &checkpoint.channels {
        out.push(channel.name.len() as u8);
        out.extend(channel.name.as_bytes());
        out.push(u8::from(channel.paused));
        runs(&mut out, &channel.runs);
    }
    if has_additions {
        out.push(u8::from(checkpoint.grace.is_some()));
    }
    if let Some(grace) = &checkpoint.grace {
        out.extend(grace.until_ns.to_le_bytes());
        runs(&mut out, &grace.runs);
    }
    if has_additions {
        let channels = checkpoint.channels.iter();
        let channels = channels.map(|channel| (&channel.terms, channel.undo.as_ref()));
        for (terms, undo) in [(&checkpoint.terms, None)].into_iter().chain(channels) {
            let has_length = terms.length_ns > 0;
            let bits = u8::from(!terms.are_none()) + 2 * u8::from(undo.is_some());
            out.push(bits + 4 * u8::from(has_length));
            if !terms.are_none() {
                out.extend(terms.until_ns.to_le_bytes());
                for text in [&terms.note, &terms.by] {
                    out.extend((text.len() as u16).to_le_bytes());
                    out.extend(text.as_bytes());
                }
            }
            if has_length {
                out.extend(terms.length_ns.to_le_bytes());
            }
            if let Some(undo) = undo {
                out.extend(undo.until_ns.to_le_bytes());
                runs(&mut out, &undo.runs);
            }
        }
    }
    let body_bytes = (out.len() - HEAD_BYTES) as u32;
    out[16..20].copy_from_slice(&body_bytes.to_le_bytes());
    reseal(&mut out);
    out
}

#[test]
fn a_draft_is_written_as_the_format_says() {
    for (sync, sample) in [
        (false, sample()),
        (true, sample()),
        (true, sample_in_grace()),
        (false, sample_with_additions(sample())),
        (true, sample_with_additions(sample_in_grace())),
    ] {
        let mut draft = CheckpointDraft::from(&sample);
        draft.stamp = stamp(&sample, sync);
        let written = draft.encode().unwrap();
        assert_eq!(written, encode(&sample, &draft.stamp));
    }
}

#[test]
fn a_checkpoint_comes_back_also_from_a_larger_file() {
    for (sync, sample) in [
        (false, sample()),
        (true, sample()),
        (true, sample_in_grace()),
        (false, sample_with_additions(sample())),
        (true, sample_with_additions(sample_in_grace())),
    ] {
        let mut bytes = encode(&sample, &stamp(&sample, sync));
        assert_eq!(encoded_bytes(&bytes), bytes.len() as u64);
        let expected = SlotContent::Checkpoint(sample, sync);
        assert_eq!(decode(&bytes).unwrap(), expected);
        bytes.extend_from_slice(&[0xAA; 5000]);
        assert_eq!(decode(&bytes).unwrap(), expected);
    }
}

#[test]
fn an_undo_lies_below_the_messages_of_its_channel() {
    let is_good = |change: fn(&mut UndoCheckpoint)| {
        let mut sample = sample_with_additions(sample());
        change(sample.channels[1].undo.as_mut().expect("an undo"));
        let content = decode(&encode(&sample, &stamp(&sample, true))).unwrap();
        assert!(matches!(
            content,
            SlotContent::Checkpoint(..) | SlotContent::Inconsistent
        ));
        content != SlotContent::Inconsistent
    };
    assert!(is_good(|_| ()));
    // The channel's first message is 5.
    assert!(!is_good(|undo| undo.runs[2].count = 2));
    assert!(!is_good(|undo| undo.runs[0].count = 3));
    assert!(!is_good(|undo| undo.runs.swap(0, 1)));
}

#[test]
fn nothing_written_is_empty_not_bad() {
    assert_eq!(decode(&[]).unwrap(), SlotContent::Empty);
    assert_eq!(decode(&[0; 4096]).unwrap(), SlotContent::Empty);
}

/// T7: each bit of each byte.
#[test]
fn a_flipped_bit_is_noticed() {
    let mut bytes = encode(&sample_in_grace(), &stamp(&sample(), true));
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode(&bytes).unwrap(), SlotContent::Bad, "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_torn_write_is_noticed_at_every_byte() {
    let bytes = encode(&sample_in_grace(), &stamp(&sample(), true));
    for end in 1..bytes.len() {
        let mut torn = bytes.clone();
        torn[end..].fill(0);
        if torn != bytes {
            assert_eq!(decode(&torn).unwrap(), SlotContent::Bad, "cut at {end}");
        }
        assert_eq!(
            decode(&bytes[..end]).unwrap(),
            SlotContent::Bad,
            "cut at {end}"
        );
    }
}

#[test]
fn a_newer_version_is_named() {
    let mut bytes = encode(&sample(), &stamp(&sample(), true));
    bytes[4..6].copy_from_slice(&(ADDITIONS_VERSION + 1).to_le_bytes());
    reseal(&mut bytes);
    assert_eq!(
        decode(&bytes).unwrap(),
        SlotContent::Newer(ADDITIONS_VERSION + 1)
    );
}

/// Each would end the process later: a message has one place in a channel, and one channel.
#[test]
fn a_checkpoint_that_contradicts_itself_is_not_believed() {
    let check = |change: fn(&mut Checkpoint)| {
        let mut checkpoint = sample_in_grace();
        change(&mut checkpoint);
        let bytes = encode(&checkpoint, &stamp(&checkpoint, true));
        assert_eq!(
            decode(&bytes).unwrap(),
            SlotContent::Inconsistent,
            "{checkpoint:?}"
        );
    };
    check(|c| c.next = Seq(999));
    check(|c| c.synced = Seq(1001));
    check(|c| c.next = Seq(u64::MAX));
    check(|c| c.number = 0);
    check(|c| c.number = u64::MAX);
    check(|c| c.channels[0].name = "archive".into());
    check(|c| c.channels[0].name = "no name".into());
    check(|c| c.channels[1].runs[1].start = Seq(14));
    check(|c| c.channels[1].runs[2].count = u64::MAX);
    check(|c| c.channels[1].runs[2].start = Seq(989));
    check(|c| c.undistributed[0].count = 11);
    check(|c| c.undistributed.push(c.undistributed[0]));
    check(|c| {
        let grace = c.grace.as_mut().expect("the sample is in grace");
        grace.runs[1] = grace.runs[0];
    });
    check(|c| c.undistributed[0].start = Seq(83));
}

#[test]
fn slots_fill_their_file_without_overlapping_and_share_no_block() {
    for room in [4096_u64, 8192, 16_384, 1 << 20] {
        assert_eq!(slot_room(room as usize), room);
        let mut owners = vec![None; (file_bytes(room) / SLOT_ROOM_MIN) as usize];
        for slot in 0..SLOTS {
            let mut covered = 0;
            for (piece, at) in pieces(slot, room) {
                assert_eq!(piece.start, covered);
                covered = piece.end;
                let blocks = at / SLOT_ROOM_MIN..(at + piece.end - piece.start) / SLOT_ROOM_MIN;
                for block in blocks {
                    let before = owners[block as usize].replace(slot);
                    assert_eq!(before, None, "two slots share block {block}");
                }
            }
            assert_eq!(covered, room);
        }
        assert!(owners.iter().all(Option::is_some), "room {room} has a hole");
    }
    // Where it is does not depend on how much of it is asked for.
    let (long, short): (Vec<_>, Vec<_>) = (pieces(2, 5000).collect(), pieces(2, 3).collect());
    assert_eq!((long[0].1, long[1].0.clone()), (short[0].1, 4096..5000));
}

proptest! {
    #[test]
    fn no_bytes_crash_the_reader(
        mut bytes in prop::collection::vec(any::<u8>(), 24..400),
        version in VERSION..=GRACE_VERSION,
    ) {
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&version.to_le_bytes());
        let body_bytes = bytes.len() as u32 - 24;
        bytes[16..20].copy_from_slice(&body_bytes.to_le_bytes());
        reseal(&mut bytes);
        let _ = decode(&bytes);
    }
}
