//! The page tells in sentences why nsqd refused an action or a peek. Each code that nsqd can answer needs a sentence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The modules of nsqd's HTTP answers to other requests than actions and peeks.
const OTHERS: [&str; 7] = [
    "bodies", "config", "debug", "metrics", "publish", "route", "stats",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    let text = std::fs::read_to_string(path);
    text.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the source files of a directory and its subdirectories, without tests and without the modules `others`.
fn sources(directory: &Path, others: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the directory can be listed");
    let paths = entries.map(|entry| entry.expect("the directory can be listed").path());
    let is_wanted = |path: &PathBuf| {
        let stem = path.file_stem().and_then(|name| name.to_str());
        stem.is_some_and(|name| name != "tests" && !others.contains(&name))
    };
    let mut files = Vec::new();
    for path in paths.filter(is_wanted) {
        if path.is_dir() {
            files.extend(sources(&path, others))
        } else {
            files.push(path)
        }
    }
    files
}

/// Returns the texts in the code of some files that are codes: four capital letters and underscores, or more.
fn codes(files: &[PathBuf]) -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for file in files {
        let text = read(file);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let is_code = |word: &&str| {
            let mut letters = word.chars();
            word.len() >= 4 && letters.all(|letter| letter.is_ascii_uppercase() || letter == '_')
        };
        // Some codes have details behind them. Lines of the log begin with words like HTTP.
        let words = code.split('"').map(|text| match text.split_once(": ") {
            Some((word, _)) if word.contains('_') => word,
            _ => text,
        });
        codes.extend(words.filter(is_code).map(str::to_owned));
    }
    codes
}

/// Returns the table `CAUSES` of the page: each code with its sentence.
fn sentences() -> BTreeMap<String, String> {
    let page = read(&root().join("tools/nsqadmin/page/api.js"));
    let table = page.split("const CAUSES = {\n").nth(1).expect("the table");
    let table = table.split("};").next().expect("the end of the table");
    let rows = table.lines().map(|line| {
        let (code, sentence) = line.trim().split_once(": ").expect("a code and a sentence");
        let sentence = sentence.trim_matches(['"', ',']);
        (code.to_owned(), sentence.to_owned())
    });
    rows.collect()
}

#[test]
fn each_code_of_nsqd_has_a_sentence() {
    let http = root().join("engine/nsqd/src/http");
    let mut files = sources(&http, &OTHERS);
    files.push(http.with_extension("rs"));
    // The codes of requests that reach no endpoint.
    files.push(root().join("engine/program/src/http/reply.rs"));
    let of_nsqd = codes(&files);
    for known in [
        "UNDO_OF_EPHEMERAL",
        "INVALID_FOR",
        "INVALID_ARG_JSON",
        "EXITING",
    ] {
        assert!(of_nsqd.contains(known), "{known} is not found: {of_nsqd:?}");
    }
    let sentences = sentences();
    let missing: Vec<&String> = of_nsqd
        .iter()
        .filter(|code| !sentences.contains_key(*code))
        .collect();
    assert_eq!(missing, [""; 0], "CAUSES in page/api.js lacks these codes");

    let of_nsqadmin = codes(&sources(&root().join("tools/nsqadmin/src"), &[]));
    for (code, sentence) in &sentences {
        let is_used = of_nsqd.contains(code) || of_nsqadmin.contains(code);
        assert!(is_used, "nobody answers {code}");
        let is_sentence = sentence.starts_with(char::is_uppercase) || sentence.starts_with("nsqd ");
        assert!(is_sentence && sentence.ends_with('.'), "{code}: {sentence}");
    }
}
