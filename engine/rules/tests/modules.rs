//! Checks the files of the whole workspace: no module of a crate depends on itself, directly or through others, and each
//! test file belongs to a test target.

use crate::module_graph::ModuleGraph;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the directories of the workspace's crates.
fn crates() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("the workspace's manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let members = manifest["workspace"]["members"]
        .as_array()
        .expect("an array");
    let members = members.iter().filter_map(|member| member.as_str());
    members.map(|member| root.join(member)).collect()
}

/// Crates in which a part of a module names the module around it. In all others, such a pair is a circle.
const NAME_THEIR_OUTSIDE: [&str; 9] = [
    "wire",
    "wire/upgrade",
    "engine/program",
    "engine/nsqd",
    "tools/nsqlookupd",
    "tools/client",
    "tools/nsqadmin",
    "tools/test-support",
    "bench",
];

#[test]
fn no_module_depends_on_itself() {
    let mut files = 0;
    let mut cycles = Vec::new();
    // The quickstart and the message path are only examples.
    let libraries = crates().into_iter();
    for package in libraries.filter(|package| package.join("src/lib.rs").exists()) {
        let mut graph = ModuleGraph::of_files(&package.join("src/lib.rs"));
        files += graph.len();
        if NAME_THEIR_OUTSIDE
            .iter()
            .any(|name| package.ends_with(name))
        {
            graph.leave_outside();
        }
        let found = [graph.top_level().cycle(), graph.cycle()];
        let found = found.into_iter().flatten();
        cycles.extend(found.map(|cycle| format!("{}: {cycle}", package.display())));
    }
    assert!(files > 400, "{files} files");
    assert!(cycles.is_empty(), "{}", cycles.join("\n"));
}

/// A file that no target names is not compiled, and its tests do not run.
#[test]
fn each_test_file_belongs_to_a_target() {
    let mut targets = 0;
    for package in crates() {
        let manifest = fs::read_to_string(package.join("Cargo.toml")).expect("a manifest");
        let manifest: toml::Table = manifest.parse().expect("TOML");
        if manifest["package"].get("autotests").is_none() {
            continue;
        }
        let mut named = BTreeSet::new();
        for target in manifest["test"].as_array().expect("an array") {
            let target = target["name"].as_str().expect("a text");
            let root = package.join("tests").join(target).with_extension("rs");
            let text = fs::read_to_string(root).expect("the root of a target");
            let modules = text.lines().filter_map(|line| line.strip_prefix("mod "));
            named.extend(modules.filter_map(|rest| Some(rest.strip_suffix(';')?.to_owned())));
            named.insert(target.to_owned());
            targets += 1;
        }
        for entry in fs::read_dir(package.join("tests")).expect("a directory") {
            let path = entry.expect("readable").path();
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let is_source = path.extension().is_some_and(|extension| extension == "rs");
            if let (true, Some(stem)) = (is_source, stem) {
                assert!(named.contains(stem), "no target names {}", path.display());
            }
        }
    }
    assert!(targets > 8, "{targets} targets");
}

/// Reads a crate of these modules. The first one is the root.
fn graph(modules: &[(&str, &str)]) -> ModuleGraph {
    ModuleGraph::read(|path| {
        let path = path.join("::");
        let found = modules.iter().find(|(name, _)| *name == path);
        found.map(|(_, text)| (*text).to_owned())
    })
}

#[test]
fn cycles_are_found_however_they_are_written() {
    let check = |a: &str, b: &str, expected: Option<&str>| {
        let root = ("", "mod a; mod b; pub use b::B;");
        let graph = graph(&[root, ("a", a), ("b", b), ("a::part", "use super::A;")]);
        assert_eq!(graph.cycle().as_deref(), expected, "{a}\n{b}");
    };
    check("use crate::b::B;", "", None);
    check("use crate::b::B;", "use std::{io, crate_a::A};", None);
    check(
        "use crate::b::B;",
        "use crate::{a::A, b};",
        Some("b -> a -> b"),
    );
    check(
        "fn f(b: crate::b::B) {}",
        "use super::a;",
        Some("b -> a -> b"),
    );
    check(
        "",
        "use crate::B;",
        Some("the crate's root -> b -> the crate's root"),
    );
    check("mod part;", "", None);
    check("mod part; use part::P;", "", Some("a -> a::part -> a"));
    check(
        "mod part; struct S(part::P);",
        "",
        Some("a -> a::part -> a"),
    );
    // Comments, strings and tests do not count.
    check("use crate::b::B;", "// use crate::a::A;", None);
    check("use crate::b::B;", "const S: &str = \"crate::a::A\";", None);
    check(
        "use crate::b::B;",
        "const S: &str = r#\"\"crate::a\"#;",
        None,
    );
    check(
        "use crate::b::B;",
        "#[cfg(test)] mod tests { use crate::a::A; }",
        None,
    );
    check(
        "use crate::b::B;",
        "const Q: [char; 2] = ['\"', '\\'']; #[cfg(test)] mod tests; use crate::a::A;",
        Some("b -> a -> b"),
    );
}

#[test]
fn top_level_modules_stand_for_what_is_below_them() {
    let graph = graph(&[
        ("", "mod a; mod b;"),
        ("a", "mod low; mod high;"),
        ("b", "use crate::a::low::L;"),
        ("a::low", ""),
        ("a::high", "use crate::b::B;"),
    ]);
    assert_eq!(graph.cycle(), None);
    assert_eq!(graph.top_level().cycle().as_deref(), Some("a -> b -> a"));
}
