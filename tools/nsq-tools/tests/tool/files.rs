//! The files that a tool has written.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// The content of a file, decompressed as far as it goes.
pub struct Content {
    /// The text up to the end, or up to the first byte that cannot be read.
    pub bytes: Vec<u8>,
    /// False if the end of the file cannot be read.
    pub is_whole: bool,
}

/// Returns the paths of all files below a directory.
pub fn paths(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut unread = vec![directory.to_path_buf()];
    while let Some(directory) = unread.pop() {
        for entry in fs::read_dir(directory).expect("the directory is there") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                unread.push(path)
            } else {
                found.push(path)
            }
        }
    }
    found
}

/// Reads a file. The end of its name says how the file is compressed.
pub fn read(path: &Path) -> Content {
    let file = BufReader::new(File::open(path).expect("the file is readable"));
    let mut reader: Box<dyn Read> = match path.extension().and_then(|end| end.to_str()) {
        Some("gz") => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        Some("zst") => Box::new(zstd::Decoder::with_buffer(file).expect("zstd has memory")),
        _ => Box::new(file),
    };
    let mut bytes = Vec::new();
    let read = io::copy(&mut reader, &mut bytes);
    Content {
        bytes,
        is_whole: read.is_ok(),
    }
}

/// Expects these texts of the files below a directory, in the order of their relative paths.
pub fn expect_texts(directory: &Path, expected: &[(&str, &str)]) {
    let found = texts(directory);
    let found: Vec<_> = found
        .iter()
        .map(|(path, text)| (&**path, &**text))
        .collect();
    assert_eq!(found, expected);
}

/// Returns the texts of the files below a directory, by their relative paths.
pub fn texts(directory: &Path) -> BTreeMap<String, String> {
    let texts = paths(directory).into_iter().map(|path| {
        let relative = path.strip_prefix(directory).expect("it is below");
        let text = String::from_utf8_lossy(&read(&path).bytes).into_owned();
        (relative.display().to_string(), text)
    });
    texts.collect()
}
