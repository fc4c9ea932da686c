//! Checks that the dependencies between the modules point in one direction.

// This test uses a part of the module. The tests in the core use all of it.
#[allow(dead_code)]
#[path = "../../../engine/core/tests/module_graph/mod.rs"]
mod module_graph;

use module_graph::ModuleGraph;
use std::path::Path;

#[test]
fn no_module_at_the_root_depends_on_itself() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let modules = ModuleGraph::of_files(&root).top_level();
    assert!(modules.len() > 10, "{modules:?}");
    assert_eq!(modules.cycle(), None);
}
