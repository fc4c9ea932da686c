//! Checks that dependencies point forward only: no module of this crate depends on itself, directly
//! or through others.

mod module_graph;

use module_graph::ModuleGraph;

#[test]
fn no_module_depends_on_itself() {
    ModuleGraph::check_crate(env!("CARGO_MANIFEST_DIR"), 20);
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
