//! Dependencies point forward only: no module of this crate names, over whatever way, a module that names it.

#[path = "../../../engine/core/tests/module_graph/mod.rs"]
mod module_graph;

use module_graph::ModuleGraph;

#[test]
fn no_module_depends_on_itself() {
    ModuleGraph::check_crate(env!("CARGO_MANIFEST_DIR"), 10);
}
