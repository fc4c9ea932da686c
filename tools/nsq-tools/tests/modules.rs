//! Checks that the dependencies between the modules point in one direction.

// This test uses a part of the module. The tests in the core use all of it.
#[allow(dead_code)]
#[path = "../../../engine/core/tests/module_graph/mod.rs"]
mod module_graph;

use module_graph::ModuleGraph;

#[test]
fn no_module_depends_on_itself() {
    ModuleGraph::check_crate(env!("CARGO_MANIFEST_DIR"), 80);
}
