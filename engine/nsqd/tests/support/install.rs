//! Foreign programs from package registries, in `target/interop`.

use std::path::{Path, PathBuf};
use std::process::Command;

use test_support::packages;

use test_support::packages::run_installer;

use super::{interop_dir, is_installed};

/// Returns the directory in `engine/nsqd/tests/interop` that has the sources of `name`.
pub fn source_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/interop")
        .join(name)
}

/// Builds the Go program in the directory `name`, which needs this version of Go. Returns the
/// command that runs it, or None if Go is missing.
pub fn go_program(name: &str, version: &str) -> Option<Command> {
    if !is_installed("go", &format!("Go {version} or later, such as golang-go")) {
        return None;
    }
    let files = ["go.mod", "go.sum", "main.go"];
    let installed = install(name, &files, |source, target| {
        run_installer(
            Command::new("go")
                .current_dir(source)
                .args(["build", "-o"])
                .arg(target.join("interop"))
                .arg("."),
        );
    });
    Some(Command::new(installed.join("interop")))
}

/// Installs the Python libraries of the client libraries. Returns the command that runs a script of the directory
/// `python`, or None if Python is missing.
pub fn python_program(script: &str) -> Option<Command> {
    if !has_python() {
        return None;
    }
    let source = source_dir("python");
    let mut command = Command::new(packages::python(&interop_dir(), &source));
    // Python must not write __pycache__ to the source tree.
    command.arg("-B").arg(source.join(script));
    Some(command)
}

/// Returns true if Python can be run. Otherwise prints a notice, or fails with `CI` set.
pub fn has_python() -> bool {
    is_installed(
        "python3",
        "Python 3.9 or later with venv, such as python3-venv",
    )
}

/// Installs the Node libraries. Returns the command that runs a script of the directory `node`, or None if Node or npm is
/// missing.
pub fn node_program(script: &str) -> Option<Command> {
    const HOW: &str = "Node.js 18 or later with npm, such as nodejs and npm";
    if !is_installed("node", HOW) || !is_installed("npm", HOW) {
        return None;
    }
    // The optional part is a native snappy, which no script uses.
    let modules = packages::npm(&interop_dir(), &source_dir("node"));
    let mut command = Command::new("node");
    command.env("NODE_PATH", modules);
    command.arg(source_dir("node").join(script));
    Some(command)
}

/// Returns the directory in which `build` has installed the packages that `files` of the directory
/// `name` list.
pub fn install(name: &str, files: &[&str], build: impl FnOnce(&Path, &Path)) -> PathBuf {
    packages::install(&interop_dir(), &source_dir(name), files, build)
}
