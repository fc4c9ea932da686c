//! Dependencies between the modules of the program point in one direction.

// The tests of the graph itself, in the broker's core, use all of it.
#[allow(dead_code)]
#[path = "../../engine/core/tests/module_graph/mod.rs"]
mod module_graph;

use module_graph::ModuleGraph;
use std::path::Path;

#[test]
fn no_module_at_the_root_depends_on_itself() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let modules = ModuleGraph::of_files(&root).top_level();
    assert!(modules.len() > 30, "{modules:?}");
    assert_eq!(modules.cycle(), None);
}
