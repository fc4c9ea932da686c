use std::path::Path;

use diskq::Files;
use diskq_sim::SimFiles;
use proptest::prelude::*;
use wire::limits::ID_BYTES;

use super::names::*;
use super::*;
use crate::metadata::FILE_NAME;

const DIRECTORY: &str = "/data";
const QUEUE: &str = "orders";

/// Two messages that no channel has, captured from nsqd.
const CAPTURED: &[u8] =
    b"\x00\x00\x00\x1f\x18\xea\x04\xe8\x58\x0e\xeb\x1e\x00\x0018a2f060cc001000hello\
    \x00\x00\x00\x20\x18\xea\x04\xe8\x58\x20\x58\x4e\x00\x0018a2f060cc801000world!";

/// A record that owns its body.
type Owned = (i64, u16, [u8; ID_BYTES], Vec<u8>);

fn owned(n: u8, attempts: u16, body_bytes: usize) -> Owned {
    let id = format!("18a2f060cc00{n:04x}").into_bytes();
    (
        i64::from(n),
        attempts,
        id.try_into().unwrap(),
        vec![n; body_bytes],
    )
}

fn encoded(records: &[Owned]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (timestamp, attempts, id, body) in records {
        bytes.extend_from_slice(&(HEADER_BYTES as u32 + body.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&timestamp.to_be_bytes());
        bytes.extend_from_slice(&attempts.to_be_bytes());
        bytes.extend_from_slice(id);
        bytes.extend_from_slice(body);
    }
    bytes
}

fn disk(named: &[(&str, &[u8])]) -> SimFiles {
    let files = SimFiles::new();
    for (name, bytes) in named {
        files
            .write_at(&Path::new(DIRECTORY).join(name), 0, bytes)
            .unwrap();
    }
    files
}

/// Returns all records of a queue, and the notes.
fn read(files: &SimFiles, body_bytes_max: u64) -> (Vec<Owned>, Vec<String>) {
    let directory = Path::new(DIRECTORY);
    let mut queue = Queue::default();
    for entry in files.list(directory).unwrap() {
        match parse_name(&entry.name) {
            Some((QUEUE, FileKind::Data(number))) => {
                queue.data.insert(number, entry.bytes);
            }
            Some((QUEUE, FileKind::Positions)) => queue.positions = Some(entry.bytes),
            _ => {}
        }
    }
    let mut reader =
        QueueReader::open(files, directory, QUEUE.into(), &queue, body_bytes_max).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.head() {
        let Record {
            timestamp_ns,
            attempts,
            id,
            body,
        } = record;
        records.push((timestamp_ns, attempts, id, body.to_vec()));
        reader.advance().unwrap();
    }
    (records, reader.into_notes())
}

fn positions(text: &str) -> (&'static str, &[u8]) {
    ("orders.diskqueue.meta.dat", text.as_bytes())
}

#[test]
fn file_names_tell_queue_and_kind() {
    let check = |name, expected| assert_eq!(parse_name(name), expected, "{name}");
    for (queue, rest, kind) in [
        ("orders", "000000.dat", FileKind::Data(0)),
        ("orders:b", "1234567.dat", FileKind::Data(1_234_567)),
        ("a.diskqueue.000001.dat", "meta.dat", FileKind::Positions),
        (".", "000000.dat", FileKind::Data(0)),
        ("o", "000000.dat.bad", FileKind::Ignored),
        ("o", "meta.dat.12.tmp", FileKind::Ignored),
    ] {
        let name = format!("{queue}.diskqueue.{rest}");
        assert_eq!(parse_name(&name), Some((queue, kind)), "{name}");
    }
    for none in [
        "nsqd.dat",
        "orders.log",
        ".diskqueue.000000.dat",
        "o.diskqueue.00000.dat",
        "o.diskqueue.+00001.dat",
        "o.diskqueue.99999999999999999999999.dat",
        "o.diskqueue.meta.dat.x.tmp",
        "o.diskqueue.000000.dat.worse",
    ] {
        check(none, None);
    }
    assert!(is_temporary("nsqd.dat.5577006791947779410.tmp", FILE_NAME));
    assert!(!is_temporary("nsqd.dat", FILE_NAME));
}

#[test]
fn bytes_are_nsqds() {
    let files = disk(&[
        ("orders.diskqueue.000000.dat", CAPTURED),
        positions("2\n0,0\n0,71\n"),
    ]);
    let (records, notes) = read(&files, 1 << 20);
    let record = |at, id: &[u8; 16], body: &[u8]| (at, 0, *id, body.to_vec());
    let expected = [
        record(0x18ea_04e8_580e_eb1e, b"18a2f060cc001000", b"hello"),
        record(0x18ea_04e8_5820_584e, b"18a2f060cc801000", b"world!"),
    ];
    assert_eq!(records, expected);
    assert_eq!(notes, Vec::<String>::new());

    let files = SimFiles::new();
    write(&files, &records, 1 << 20);
    let is_file = |name: &str, expected: &[u8]| {
        let mut bytes = vec![0; expected.len()];
        let path = Path::new(DIRECTORY).join(name);
        files.read_at(&path, 0, &mut bytes).unwrap();
        assert_eq!(bytes, expected, "{name}");
    };
    is_file("orders.diskqueue.000000.dat", CAPTURED);
    is_file("orders.diskqueue.meta.dat", b"2\n0,0\n0,71\n");
}

fn write(files: &SimFiles, records: &[Owned], file_bytes_max: u64) {
    let mut writer = QueueWriter::new(files, Path::new(DIRECTORY), QUEUE, file_bytes_max);
    for &(timestamp_ns, attempts, id, ref body) in records {
        let record = Record {
            timestamp_ns,
            attempts,
            id,
            body,
        };
        writer.append(&record).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), records.len() as u64);
}

#[test]
fn files_roll_where_nsqds_do() {
    let check = |body_bytes: usize, limit: u64, expected: &[u64]| {
        let files = SimFiles::new();
        let records: Vec<Owned> = (0..5).map(|n| owned(n, 0, body_bytes)).collect();
        write(&files, &records, limit);
        let entries = files.list(Path::new(DIRECTORY)).unwrap();
        let data = entries.iter().filter(|entry| !entry.name.contains("meta"));
        let lengths: Vec<u64> = data.map(|entry| entry.bytes).collect();
        assert_eq!(lengths, expected);
        assert_eq!(read(&files, 1 << 20), (records, vec![]));
    };
    // Captured from nsqd.
    check(10, 100, &[80, 80, 40]);
    check(10, 80, &[80, 80, 40]);
    check(200, 100, &[230; 5]);
}

/// Checks which of five records of 40 bytes are read, by their numbers, and a part of the one note.
#[test]
fn readable_records_are_read() {
    let five = encoded(&[0, 1, 2, 3, 4].map(|n| owned(n, 0, 10)));
    let check = |named: &[(&str, &[u8])], expected: &[i64], note: &str| {
        let (records, notes) = read(&disk(named), 1 << 20);
        let numbers: Vec<i64> = records.iter().map(|record| record.0).collect();
        assert_eq!(numbers, expected, "{note}");
        match note {
            "" => assert_eq!(notes, Vec::<String>::new()),
            note => assert!(
                notes.iter().any(|said| said.contains(note)),
                "{notes:?}: {note}"
            ),
        }
    };
    let data = "orders.diskqueue.000000.dat";
    let clean = "5\n0,0\n0,200\n";
    let all = [0, 1, 2, 3, 4];
    let partial = [&five[..], &five[..20]].concat();
    // The file, its positions, the records that are read, and a part of the note.
    let cases: [(&[u8], &str, &[i64], &str); 17] = [
        (&five, clean, &all, ""),
        (&five, "3\n0,80\n0,200\n", &all[2..], ""),
        (&five, "0\n0,200\n0,200\n", &[], ""),
        // nsqd was killed after its last sync.
        (&five, "3\n0,0\n0,120\n", &all, ""),
        (&partial, clean, &all, "from byte 200 on (unexpected EOF)"),
        (&partial[..203], clean, &all, "its last 3 bytes"),
        (&five[..90], clean, &all[..2], "from byte 80 on"),
        (
            &five[..90],
            clean,
            &all[..2],
            "count 5 messages, but 2 were found",
        ),
        (&five, "", &all, "positions are damaged"),
        (&five, "x", &all, "positions are damaged"),
        (&five, "5\n0,8", &all, "positions are damaged"),
        (&five, "3\n0,80\n0", &all[2..], "positions are damaged"),
        (&five, "5\n-1,0\n0,200\n", &all, "positions are damaged"),
        (&five, "5\n3,0\n0,200\n", &all, "contradict"),
        (
            &five,
            "5\n0,240\n0,240\n",
            &[],
            "its first unread byte is 240",
        ),
        (
            &five,
            "9\n0,0\n0,200\n",
            &all,
            "count 9 messages, but 5 were found",
        ),
        (&five, "2\n0,0\n0,200\n", &all, ""),
    ];
    for (bytes, text, expected, note) in cases {
        check(&[(data, bytes), positions(text)], expected, note);
    }
    let clean = positions(clean);
    check(&[positions("0\n0,235\n0,235\n")], &[], "");
    check(&[clean], &[], "orders.diskqueue.000000.dat is missing");
    check(&[(data, &five)], &all, "no positions");
    for size in [5i32, -5, i32::MAX] {
        let mut bad = five.clone();
        bad[80..84].copy_from_slice(&size.to_be_bytes());
        let why = if size == i32::MAX {
            "unexpected EOF".into()
        } else {
            format!("size ({size})")
        };
        check(&[(data, &bad), clean], &[0, 1], &why);
    }
    // The middle one of three files has junk at its end, is missing, or is missing together with
    // others.
    let (first, middle, last) = (
        &five[..80],
        [&five[80..160], b"junk"].concat(),
        &five[160..],
    );
    let files = positions("5\n0,0\n2,40\n");
    let names = [
        data,
        "orders.diskqueue.000001.dat",
        "orders.diskqueue.000002.dat",
    ];
    let [first, last] = [(names[0], first), (names[2], last)];
    let middle = (names[1], &middle[..]);
    let note = "000001.dat cannot be read from byte 80";
    check(&[first, middle, last, files], &all, note);
    let note = "000001.dat is missing";
    check(&[first, last, files], &[0, 1, 4], note);
    let note = "000001.dat (and the 1 files behind it)";
    check(&[first, files], &[0, 1], note);
    let note = "000000.dat (and the 1 files behind it)";
    check(&[last, files], &[4], note);
    // One file has been read already; another is behind positions that were never renamed into
    // place.
    let middle = (names[1], &middle.1[..80]);
    check(&[first, middle, positions("2\n1,0\n1,80\n")], &[2, 3], "");
    check(&[first, middle, positions("2\n0,0\n0,80\n")], &all[..4], "");
    check(&[first, positions("2\n0,0\n1,0\n")], &[0, 1], "");
}

/// The whole messages behind the zeros were lost. nsqd 1.0 left such a file.
#[test]
fn zeros_in_front_of_whole_messages_cost_none() {
    // Sizes of one, two and three bytes: the first bytes of a size are zeros, too.
    let records = [(1, 10), (2, 0x100 - HEADER_BYTES), (3, 300), (4, 70_000)];
    let records = records.map(|(n, bytes)| owned(n, 0, bytes));
    let read_file = |bytes: &[u8]| {
        let length = bytes.len();
        let positions = format!("4\n0,0\n0,{length}\n");
        let files = disk(&[
            ("orders.diskqueue.000000.dat", bytes),
            ("orders.diskqueue.meta.dat", positions.as_bytes()),
        ]);
        read(&files, 1 << 20)
    };
    for first in 0..records.len() {
        let (before, behind) = records.split_at(first);
        let (before, behind) = (encoded(before), encoded(behind));
        // The size of a large record behind fewer zeros looks like another size, not like zeros.
        for zeros in [4, 5, 4096, 65_536, 200_000] {
            let file = [&before[..], &vec![0; zeros], &behind].concat();
            let (read_back, notes) = read_file(&file);
            assert_eq!(read_back, records, "{zeros} zeros before {first}");
            let note = format!(
                "orders.diskqueue.000000.dat has {zeros} zero bytes from byte {} on, which are left out: the messages \
                 behind them are whole",
                before.len()
            );
            assert_eq!(notes, [note]);
        }
    }
    // Where the records do not fit to the end, nobody knows where one begins: as in nsqd.
    let one = encoded(&records[..1]);
    let mut no_message = one.clone();
    no_message[SIZE_BYTES + 10] = b'x';
    let cut = &one[..one.len() - 1];
    for behind in [cut, &[&one[..], b"x"].concat(), &[0; 100], &no_message] {
        let file = [&one[..], &[0; 100], behind].concat();
        let (read_back, notes) = read_file(&file);
        assert_eq!(read_back, records[..1]);
        let note = format!(
            "orders.diskqueue.000000.dat cannot be read from byte 40 on (invalid message read size (0)): its last {} bytes \
             are not imported",
            file.len() - 40
        );
        assert_eq!(notes[0], note);
    }
}

#[test]
fn a_limit_that_was_lowered_costs_no_message() {
    let mut records = vec![owned(1, 0, 10), owned(2, 3, 300), owned(3, 0, 10)];
    let check = |records: &[Owned], count: usize, note: &str| {
        let data = ("orders.diskqueue.000000.dat", &encoded(records)[..]);
        let (read_back, notes) = read(&disk(&[data, positions("3\n0,0\n0,410\n")]), 100);
        assert_eq!(read_back, records[..count]);
        assert!(notes[0].contains(note), "{notes:?}");
    };
    check(&records, 3, "1 messages above --max-msg-size (100 bytes)");
    // The record must still be a message.
    records[1].2 = *b"no id of nsqd's!";
    check(&records, 1, "invalid message read size (326)");
}

proptest! {
    #[test]
    fn written_records_are_read(
        records in proptest::collection::vec(
            (any::<i64>(), any::<u16>(), any::<[u8; ID_BYTES]>(), proptest::collection::vec(any::<u8>(), 0..600)),
            0..40,
        ),
        file_bytes_max in 1u64..4000,
    ) {
        let files = SimFiles::new();
        write(&files, &records, file_bytes_max);
        prop_assert_eq!(read(&files, 600), (records, vec![]));
    }

    /// Whatever byte is cut or flipped, nothing panics, and every record before the damage is read.
    #[test]
    fn damage_never_panics(at in 0usize..200, flip in 1u8.., cut in 0usize..200) {
        let written: Vec<Owned> = (0..5).map(|n| owned(n, 0, 10)).collect();
        let mut bytes = encoded(&written);
        bytes[at] ^= flip;
        bytes.truncate(cut);
        let files = disk(&[("orders.diskqueue.000000.dat", &bytes), positions("5\n0,0\n0,200\n")]);
        let (records, _) = read(&files, 1 << 20);
        let whole = (at.min(cut) / 40).min(records.len());
        prop_assert_eq!(&records[..whole], &written[..whole]);
        prop_assert!(records.len() >= at.min(cut) / 40);
    }
}
