use std::path::PathBuf;

use diskq::LogOptions;
use diskq_sim::SimFiles;
use wire::id::MessageId;

use super::*;
use crate::import::{TakeoverOptions, take_over};

fn facts() -> Metadata {
    let channel = |name: &str, paused| ChannelFacts {
        name: name.to_owned(),
        paused,
    };
    let topic = TopicFacts {
        name: "orders".to_owned(),
        paused: true,
        channels: vec![channel("billing", false), channel("audit", true)],
    };
    Metadata {
        topics: vec![topic],
    }
}

fn data_path() -> PathBuf {
    PathBuf::from("/data")
}

/// A data path of ours with 100 messages for billing, every second one of them for audit, and two
/// undistributed ones.
fn disk() -> SimFiles {
    let files = SimFiles::new();
    let data_path = data_path();
    let put = |queue: &str, numbers: &[u64]| {
        let mut writer = QueueWriter::new(&files, &data_path, queue, 1 << 20);
        for &n in numbers {
            let record = Record {
                timestamp_ns: n as i64,
                attempts: (n % 3) as u16,
                id: MessageId::new(Seq(n), 1).0,
                body: &[n as u8; 200],
            };
            writer.append(&record).unwrap();
        }
        writer.finish().unwrap();
    };
    let all: Vec<u64> = (1..=100).collect();
    let even: Vec<u64> = (1..=50).map(|n| n * 2).collect();
    put("orders:billing", &all);
    put("orders:audit", &even);
    put("orders", &[102, 105]);
    let options = TakeoverOptions {
        log: LogOptions {
            segment_bytes_max: 4096,
            ..LogOptions::default()
        },
        message_bytes_max: 1 << 20,
        label: "today".to_owned(),
        wall_ns: 1_760_000_000_000_000_000,
    };
    take_over(&files, &data_path, &facts().topics, &options).unwrap();
    files
}

/// Returns the names and contents of all files in a directory and its subdirectories.
fn contents(files: &SimFiles, directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in files.list(directory).unwrap() {
        let path = directory.join(&entry.name);
        if entry.is_dir {
            found.extend(contents(files, &path));
        } else {
            let mut bytes = vec![0; entry.bytes as usize];
            files.read_at(&path, 0, &mut bytes).unwrap();
            found.push((path, bytes));
        }
    }
    found
}

fn run(files: &SimFiles, metadata: &Metadata) -> Result<Exported, DiskError> {
    let options = ExportOptions {
        file_bytes_max: 1 << 20,
    };
    export(files, &data_path(), Path::new("/out"), metadata, &options)
}

/// Returns the bytes without the ids, which are ours.
fn without_ids(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes
        .chunks_mut(230)
        .for_each(|record| record[14..30].fill(0));
    bytes
}

#[test]
fn an_export_writes_a_takeover_back() {
    let files = disk();
    let before = contents(&files, &data_path());
    let exported = run(&files, &facts()).unwrap();
    let count =
        |channel: Option<&str>, count| ("orders".to_owned(), channel.map(str::to_owned), count);
    let expected = [
        count(None, 2),
        count(Some("billing"), 100),
        count(Some("audit"), 50),
    ];
    assert_eq!(exported.queues, expected);
    assert_eq!((exported.body_bytes_max, exported.deferred_count), (200, 0));
    assert_eq!(exported.notes, Vec::<String>::new());
    assert_eq!(
        contents(&files, &data_path()),
        before,
        "the data path was changed"
    );
    let kept = contents(&files, &data_path().join("nsqd-original-today"));
    let written = contents(&files, Path::new("/out"));
    assert_eq!(written.len(), 7);
    for (path, bytes) in written {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == FILE_NAME {
            assert_eq!(bytes, facts().encode().as_bytes());
            continue;
        }
        let (_, original) = kept.iter().find(|(kept, _)| kept.ends_with(name)).unwrap();
        if !name.ends_with("meta.dat") && !name.contains(':') {
            // An undistributed message has no attempts.
            assert_eq!(bytes.len(), original.len());
        } else if name.ends_with("meta.dat") {
            assert_eq!(bytes, *original, "{name}");
        } else {
            assert_eq!(without_ids(&bytes), without_ids(original), "{name}");
        }
    }
}

#[test]
fn a_log_alone_names_its_topic_and_channels() {
    let files = disk();
    run(&files, &Metadata::default()).unwrap();
    let (_, bytes) = contents(&files, Path::new("/out"))
        .into_iter()
        .find(|(path, _)| path.ends_with(FILE_NAME))
        .unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap(), facts().encode());
}

#[test]
fn a_damaged_message_is_left_out_and_told() {
    let files = disk();
    let segment = data_path().join("orders.log/000000000001.segment");
    files.damage(&segment, 300, 1);
    let before = contents(&files, &data_path());
    let exported = run(&files, &facts()).unwrap();
    assert_eq!(contents(&files, &data_path()), before);
    assert_eq!(exported.queues[1].2, 99);
    assert!(
        exported
            .notes
            .iter()
            .any(|note| note.contains("1 damaged messages")),
        "{:?}",
        exported.notes
    );
}

#[test]
fn it_is_complete_or_nothing() {
    for nth in 1.. {
        let files = disk();
        files.fail_nth(nth, std::io::ErrorKind::StorageFull);
        let result = run(&files, &facts());
        if files.fail_count() == 0 {
            result.unwrap();
            break;
        }
        if result.is_err() {
            assert_eq!(contents(&files, Path::new("/out")), [], "call {nth}");
        }
    }
    let files = disk();
    files.write_at(Path::new("/out/file"), 0, b"bytes").unwrap();
    let error = run(&files, &facts()).unwrap_err().to_string();
    assert!(error.contains("not empty"), "{error}");
    assert_eq!(contents(&files, Path::new("/out")).len(), 1);
}

#[test]
fn an_export_refuses_files_that_are_not_taken_over() {
    let files = disk();
    let late = data_path().join("orders:audit.diskqueue.000000.dat");
    files.write_at(&late, 0, b"bytes").unwrap();
    let error = run(&files, &facts()).unwrap_err().to_string();
    assert!(error.contains("start nsqd here once"), "{error}");
    files.remove(&late).unwrap();
    files.create_dir(&data_path().join(UNFINISHED)).unwrap();
    let error = run(&files, &facts()).unwrap_err().to_string();
    assert!(error.contains("import.done"), "{error}");
}
