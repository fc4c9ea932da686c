//! Dependencies point forward only: no module of this crate names, over whatever way, a module that names it.

#[path = "../../engine/core/tests/module_graph/mod.rs"]
mod module_graph;

use module_graph::ModuleGraph;
use std::path::Path;

#[test]
fn no_module_depends_on_itself() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let files = ModuleGraph::of_files(&root);
    assert!(files.len() > 20, "{files:?}");
    assert_eq!(files.cycle(), None);
    assert_eq!(files.top_level().cycle(), None);
}
