//! The seam, checked by name: `wire` and `engine/core` read no clock, start no thread, touch no file
//! or socket, log nothing; only the shell names the reactor.

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
    check(&root.join("engine/core/src"), &FORBIDDEN_IN_CORE);
    check(&root.join("wire/src"), &FORBIDDEN_IN_CORE);
}

#[test]
fn only_the_shell_names_the_reactor() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    check(
        &root.join("diskq/src"),
        &["reactor::", "async fn", ".await"],
    );
    check(&root.join("engine/src/http"), &["reactor::"]);
}

/// The features that tests need leak into no release.
#[test]
fn no_release_has_a_feature_of_the_tests() {
    let features_of = |edges: &str| {
        let tree = Command::new(env!("CARGO"))
            .args([
                "tree",
                "--offline",
                "--locked",
                "--workspace",
                "--edges",
                edges,
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo runs");
        let errors = String::from_utf8_lossy(&tree.stderr);
        assert!(tree.status.success(), "{errors}");
        String::from_utf8_lossy(&tree.stdout).into_owned()
    };
    for name in ["sim", "planted"] {
        let feature = format!("diskq feature \"{name}\"");
        assert!(features_of("features").contains(&feature), "tests have it");
        assert!(!features_of("features,no-dev").contains(&feature), "{name}");
    }
}
