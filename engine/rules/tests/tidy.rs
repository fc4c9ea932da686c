//! Checks that `wire`, `diskq-log`, `engine/dedup` and `engine/rules` read no clock, start no thread, touch no file
//! or socket, and log nothing: their code does not contain the names for it. Only the shell names
//! the reactor. None of the four crates depends on a crate that makes system calls. The lines of the pages have at most 120
//! characters; `pages/` checks what the pages say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FORBIDDEN_IN_CORE: [&str; 16] = [
    "Instant::now",
    "SystemTime",
    "std::thread",
    "std::fs",
    "std::net",
    "std::env",
    "std::os",
    "tokio",
    "reactor::",
    "async fn",
    ".await",
    "println!",
    "thread_rng",
    "RandomState",
    "static mut",
    "lazy_static",
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a source directory") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn check(directory: &Path, forbidden: &[&str]) {
    let mut files = Vec::new();
    sources(directory, &mut files);
    assert!(files.len() > 5, "{} holds the crate", directory.display());
    for file in files {
        let is_test = file.ends_with("tests.rs") || file.to_string_lossy().contains("/tests/");
        let text = fs::read_to_string(&file).expect("UTF-8");
        for (number, line) in text.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            // `'static mut` is a lifetime, not a static item.
            let line = line.replace("'static mut", "");
            for name in forbidden {
                assert!(
                    is_comment || is_test || !line.contains(name),
                    "{}:{}: {name} does not belong here",
                    file.display(),
                    number + 1
                );
            }
        }
    }
}

#[test]
fn the_rules_do_no_io() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    check(&root.join("engine/rules/src"), &FORBIDDEN_IN_CORE);
    check(&root.join("engine/dedup/src"), &FORBIDDEN_IN_CORE);
    check(&root.join("diskq/log/src"), &FORBIDDEN_IN_CORE);
    check(&root.join("wire/src"), &FORBIDDEN_IN_CORE);
}

#[test]
fn only_the_shell_names_the_reactor() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    check(
        &root.join("diskq/src"),
        &["reactor::", "async fn", ".await"],
    );
    check(&root.join("engine/nsqd/src/http"), &["reactor::"]);
}

/// Returns the output of cargo without network.
fn cargo(arguments: &[&str]) -> String {
    let done = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{errors}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Returns the names of the packages that a release of a package of this workspace needs, on any system. Cargo itself tells
/// this only where the packages of all systems have been downloaded.
fn needed_by(package: &str) -> BTreeSet<String> {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let lock = fs::read_to_string(lock).expect("the workspace has a lock file");
    let lock: toml::Table = lock.parse().expect("cargo writes TOML");
    let mut dependencies: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for locked in lock["package"].as_array().expect("an array") {
        let name = locked["name"].as_str().expect("a text");
        // A dependency is a name, or a name and a version.
        let needs = locked.get("dependencies").and_then(|it| it.as_array());
        let needs = needs.into_iter().flatten();
        let needs = needs.filter_map(|it| it.as_str()?.split(' ').next());
        dependencies.entry(name).or_default().extend(needs);
    }
    // The lock file does not tell which packages of the workspace's own ones only their tests need.
    let metadata = cargo(&["metadata", "--no-deps", "--format-version=1"]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("JSON");
    for own in metadata["packages"].as_array().expect("an array") {
        let needs = own["dependencies"].as_array().expect("an array").iter();
        let needs = needs.filter(|it| it["kind"].is_null());
        let needs = needs.map(|it| it["name"].as_str().expect("a text"));
        dependencies.insert(own["name"].as_str().expect("a text"), needs.collect());
    }
    let mut found = BTreeSet::new();
    let mut left = vec![package];
    while let Some(name) = left.pop() {
        if found.insert(name.to_owned()) {
            left.extend(&dependencies[name]);
        }
    }
    found
}

/// The rules make no system call and cannot unmap memory, because on every system they depend only
/// on crates that cannot.
#[test]
fn the_rules_depend_on_no_system_call() {
    for package in ["engine-rules", "engine-dedup", "diskq-log"] {
        let needed = needed_by(package);
        assert!(needed.contains("ringq-wire"), "{package} has dependencies");
        for name in ["memmap2", "rustix", "libc", "nix", "clap", "diskq"] {
            assert!(!needed.contains(name), "{package} depends on {name}");
        }
    }
    assert!(needed_by("engine-rules").contains("diskq-log"));
    assert!(needed_by("diskq").contains("memmap2"), "the shell may");
    assert!(
        needed_by("nsqlookupd").contains("windows-sys"),
        "other systems count"
    );
}

#[test]
fn no_release_has_a_feature_of_the_tests() {
    let features_of = |edges: &str| cargo(&["tree", "--workspace", "--edges", edges]);
    let (with_tests, release) = (features_of("features"), features_of("features,no-dev"));
    for (package, name) in [
        ("diskq-sim", "sim"),
        ("diskq-log", "sim"),
        ("diskq-log", "planted"),
        ("program", "capture"),
    ] {
        let feature = format!("{package} feature \"{name}\"");
        assert!(with_tests.contains(&feature), "tests have {feature}");
        assert!(!release.contains(&feature), "a release has {feature}");
    }
}

/// The most characters of a line of prose.
const PROSE_WIDTH: usize = 120;

/// Returns the lines of prose in a page that are too long, with their numbers. Tables, code, headings and a line that is one
/// link cannot be broken.
fn long_lines(page: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (index, line) in page.lines().enumerate() {
        let text = line.trim_start();
        let is_fence = text.starts_with("```");
        is_code ^= is_fence;
        let is_indented = line.starts_with("    ");
        let is_whole = is_indented || text.starts_with(['|', '#', '<']) || !text.contains(' ');
        if !is_code && !is_fence && !is_whole && line.chars().count() > PROSE_WIDTH {
            found.push((index + 1, line));
        }
    }
    found
}

#[test]
fn the_prose_of_the_pages_has_short_lines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = Vec::new();
    for directory in [
        "",
        "docs",
        "docs/operate",
        "docs/reference",
        "docs/explain",
        "docs/decisions",
    ] {
        let entries = fs::read_dir(root.join(directory)).expect("a directory");
        let paths = entries.map(|entry| entry.expect("readable").path());
        pages.extend(paths.filter(|path| path.extension().is_some_and(|it| it == "md")));
    }
    assert!(pages.len() > 20, "{} pages", pages.len());
    let mut wrong = Vec::new();
    for path in pages {
        let page = fs::read_to_string(&path).expect("UTF-8");
        for (number, line) in long_lines(&page) {
            let characters = line.chars().count();
            wrong.push(format!(
                "{}:{number}: {characters} characters",
                path.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_check_of_lines_sees_prose_only() {
    let long = "ä ".repeat(61);
    let link = format!("[text](https://example.com/{})", "a".repeat(120));
    let page =
        format!("{long}\n| {long}\n    {long}\n# {long}\n```text\n{long}\n```\n- {long}\n{link}\n");
    let numbers: Vec<_> = long_lines(&page).into_iter().map(|(it, _)| it).collect();
    assert_eq!(numbers, [1, 8]);
    assert!(long_lines(&"ä".repeat(120)).is_empty());
}
