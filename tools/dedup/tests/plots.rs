//! The plots of docs/explain/filters.md are those that `examples/plots.rs` draws. `cargo test` builds the
//! example, unless it is told to build certain tests only: then `cargo build -p ringq-dedup --examples` builds it.

use std::fs;
use std::path::Path;
use std::process::Command;

use test_support::daemon::binary_directory;

#[test]
#[cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")),
    ignore = "another mathematical library may round the points of the plots in another way"
)]
fn the_plots_of_the_page_are_those_that_the_example_draws() {
    let example = binary_directory().join("examples/plots");
    assert!(
        example.exists(),
        "{example:?} is missing: run `cargo build -p ringq-dedup --examples`"
    );
    let drawn = tempfile::tempdir().expect("a directory");
    let status = Command::new(example).arg(drawn.path()).status();
    assert!(status.expect("the example can be run").success());
    let shown = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explain/filters");
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("the folder is there");
        let names = entries.map(|entry| entry.expect("readable").file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    assert_eq!(names(drawn.path()), names(&shown));
    for name in names(&shown) {
        let [new, old] = [drawn.path(), &shown].map(|folder| fs::read(folder.join(&name)));
        assert!(
            new.expect("readable") == old.expect("readable"),
            "{name:?} is not what `cargo run --release -p ringq-dedup --example plots -- docs/explain/filters` draws"
        );
    }
}
