//! Checks the project's words: one thing has one name. docs/architecture.md has the glossary.

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// Parts of names that this project does not use, and the words that it uses instead.
const WORDS: [(&str, &str); 18] = [
    ("subscriber", "consumer"),
    ("nack", "requeue"),
    ("prefetch", "ready count"),
    ("payload", "body"),
    ("worker", "keeper, thread"),
    ("workers", "threads"),
    ("cursor", "seq, offset"),
    ("partition", "shard"),
    ("blame", "what is done with the error"),
    ("heritage", "what was found at the start"),
    ("birth", "creation"),
    ("wish", "request"),
    ("fulfil", "answer"),
    ("fences", "order"),
    ("hurrier", "urgent thread"),
    ("looker", "engine"),
    ("desk", "queue"),
    ("patience", "timeout"),
];

/// Words with which no comment begins. A comment begins with its subject, and these words begin
/// half a sentence.
const OPENINGS: [&str; 12] = [
    "Of", "As", "So many", "So", "Who", "Whoever", "To be", "What", "Whether", "How", "Which",
    "Those",
];

/// The only opening with one of these words that begins a whole sentence.
const GOOD_OPENING: &str = "As in nsqd, ";

/// Returns all sources of the workspace, except those of the fuzz targets.
fn sources() -> Vec<(PathBuf, String)> {
    fn collect(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(directory).expect("a source directory") {
            let path = entry.expect("readable").path();
            let name = path.file_name().expect("an entry has a name");
            if path.is_dir() && name != "target" && name != "fuzz" {
                collect(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("UTF-8");
                found.push((path, text));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for part in ["bench", "diskq", "engine", "tools", "wire"] {
        collect(&root.join(part), &mut found);
    }
    assert!(found.len() > 300, "{} files", found.len());
    found
}

/// Returns the names that `text` declares (items, variables, fields and variants), with their line
/// numbers.
fn declared(text: &str) -> Vec<(usize, String)> {
    let comment = Regex::new(r#"//.*|"(\\.|[^"\\])*""#).expect("a pattern");
    let declaration = Regex::new(concat!(
        r"\b(?:fn|struct|enum|trait|type|mod|const|static|let|mut)\s+([A-Za-z_]\w*)",
        r"|^\s+(?:pub(?:\([a-z ]+\))?\s+)?([a-z_]\w*):\s",
        r"|^\s+([A-Z][A-Za-z0-9]*)\s*[,({]"
    ))
    .expect("a pattern");
    let mut names = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = comment.replace_all(line, "");
        for captures in declaration.captures_iter(&code) {
            let name = captures.iter().skip(1).flatten().next();
            names.extend(name.map(|name| (index + 1, name.as_str().to_owned())));
        }
    }
    names
}

/// Returns the parts of a name. `SyncDelayed` and `sync_delayed` have the same parts.
fn parts(name: &str) -> Vec<String> {
    let part = Regex::new(r"[A-Z]?[a-z0-9]+|[A-Z]+").expect("a pattern");
    let found = part.find_iter(name);
    found.map(|part| part.as_str().to_lowercase()).collect()
}

/// Returns the first line of each comment, with its line number.
fn comments(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut was_comment = false;
    for (index, line) in text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//");
        if let (Some(comment), false) = (comment, was_comment) {
            found.push((index + 1, comment.trim_start_matches(['/', '!']).trim()));
        }
        was_comment = comment.is_some();
    }
    found
}

fn banned_name(name: &str) -> Option<&'static str> {
    let parts = parts(name);
    if parts.len() > 1 && parts[0] == "note" {
        return Some("a verb that tells the effect");
    }
    let banned = |(word, _): &&(&str, &str)| parts.iter().any(|part| part == word);
    WORDS.iter().find(banned).map(|(_, instead)| *instead)
}

fn has_banned_opening(comment: &str) -> bool {
    let begins = |opening: &&str| {
        let rest = comment.strip_prefix(*opening);
        rest.is_some_and(|rest| rest.starts_with(' '))
    };
    OPENINGS.iter().any(begins) && !comment.starts_with(GOOD_OPENING)
}

#[test]
fn names_use_the_words_of_the_glossary() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        for (line, name) in declared(&text) {
            if let Some(instead) = banned_name(&name) {
                wrong.push(format!("{}:{line}: {name}: say {instead}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn comments_begin_with_their_subject() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        for (line, comment) in comments(&text) {
            if has_banned_opening(comment) {
                wrong.push(format!("{}:{line}: {comment}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_check_sees_what_it_looks_for() {
    let text = "fn note_answer() {}\n    pub(crate) workers: u8,\n    // Of it.\n    // Of more.\n    Wish(u8),\n";
    let names: Vec<_> = declared(text).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["note_answer", "workers", "Wish"]);
    assert!(names.iter().all(|name| banned_name(name).is_some()));
    assert!(banned_name("Subscriber").is_some());
    for name in ["notes", "note", "annotate", "networker", "x"] {
        assert_eq!(banned_name(name), None, "{name}");
    }
    assert_eq!(comments(text), [(3, "Of it.")]);
    assert!(has_banned_opening("So many segments are enough."));
    assert!(has_banned_opening("How a run ended."));
    assert!(!has_banned_opening("Offsets count bytes."));
    assert!(declared("// fn note_it()\nlet a = \"let note = 1\";").len() == 1);
}
