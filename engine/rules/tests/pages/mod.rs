//! Checks of the pages: each link leads somewhere, each page that a comment names is there, and each ERROR, WARNING and
//! FATAL of nsqd has a row.

mod links;
mod log_messages;
mod rust_text;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the files below a directory whose names end in `.` and `extension`, without hidden directories and builds.
fn files_below(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("readable").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "node_modules" {
                files_below(&path, extension, found);
            }
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
}

/// Returns the texts of these files with their paths below the root.
fn texts_below(directories: &[&str], extension: &str) -> Vec<(String, String)> {
    let root = root();
    let mut files = Vec::new();
    for directory in directories {
        files_below(&root.join(directory), extension, &mut files);
    }
    files.sort();
    let named = files.iter().map(|path| {
        let name = path.strip_prefix(&root).expect("it is below the root");
        let text = fs::read_to_string(path).expect("UTF-8");
        (name.to_string_lossy().into_owned(), text)
    });
    named.collect()
}
