//! The pages and files of docs/ that tests read, and the tables in them that programs have made.

use std::path::{Path, PathBuf};

/// Returns the path of a file below docs/.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name)
}

/// Returns the text of a file below docs/.
pub fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("docs/{name}: {error}"))
}

/// Checks that a page is as `update` makes it of the page. With the variable UPDATE_DOCS, writes it anew.
#[track_caller]
pub fn check(name: &str, update: impl FnOnce(&str) -> String) {
    let page = read(name);
    let updated = update(&page);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path(name), &updated).expect("the page can be written");
    }
    let is_new = page == updated;
    assert!(
        is_new,
        "docs/{name} is out of date: run with UPDATE_DOCS=1 and look at the difference"
    );
}
