//! Foreign programs from package registries, in `target/interop`.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{interop_dir, is_installed, run};

const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Returns the directory in `engine/tests/interop` that has the sources of `name`.
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
    python_program_in("python", script)
}

/// Installs the Python libraries that a directory lists. Returns the command that runs a script of this directory, or
/// None if Python is missing.
pub fn python_program_in(directory: &str, script: &str) -> Option<Command> {
    if !is_installed(
        "python3",
        "Python 3.9 or later with venv, such as python3-venv",
    ) {
        return None;
    }
    let installed = install(directory, &["requirements.txt"], |source, target| {
        run_installer(Command::new("python3").args(["-m", "venv"]).arg(target));
        run_installer(
            Command::new(target.join("bin/python"))
                .args(["-m", "pip", "install", "--disable-pip-version-check", "-r"])
                .arg(source.join("requirements.txt")),
        );
    });
    let mut command = Command::new(installed.join("bin/python"));
    // Python must not write __pycache__ to the source tree.
    command.arg("-B").arg(source_dir(directory).join(script));
    Some(command)
}

/// Installs the Node libraries. Returns the command that runs a script of the directory `node`, or None if Node or npm is
/// missing.
pub fn node_program(script: &str) -> Option<Command> {
    const HOW: &str = "Node.js 18 or later with npm, such as nodejs and npm";
    if !is_installed("node", HOW) || !is_installed("npm", HOW) {
        return None;
    }
    let manifests = ["package.json", "package-lock.json"];
    let installed = install("node", &manifests, |source, target| {
        for manifest in manifests {
            fs::copy(source.join(manifest), target.join(manifest)).expect("a file can be copied");
        }
        // The optional part is a native snappy, which no script uses.
        run_installer(Command::new("npm").current_dir(target).args([
            "ci",
            "--omit=optional",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
        ]));
    });
    let mut command = Command::new("node");
    command.env("NODE_PATH", installed.join("node_modules"));
    command.arg(source_dir("node").join(script));
    Some(command)
}

/// Returns the directory in which `build` has installed the packages that `files` list. Its name
/// depends on their content, so a changed manifest has a new directory. A stamp in the directory
/// says that `build` has finished.
pub fn install(name: &str, files: &[&str], build: impl FnOnce(&Path, &Path)) -> PathBuf {
    let source = source_dir(name);
    let mut hasher = DefaultHasher::new();
    for file in files {
        let path = source.join(file);
        let content = fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        hasher.write(&content);
    }
    let target = interop_dir().join(format!("{name}-{:016x}", hasher.finish()));
    fs::create_dir_all(&target).expect("a directory in target can be made");
    // Two Cargo processes may share a target directory. The lock ends when the file is closed.
    let lock = fs::File::create(interop_dir().join("lock")).expect("a file in target can be made");
    lock.lock().expect("a file in target can be locked");
    let stamp = target.join("installed");
    if !stamp.exists() {
        build(&source, &target);
        fs::write(&stamp, b"").expect("a file in target can be written");
    }
    target
}

/// Runs a command of a package manager. Panics with its output if it fails.
pub fn run_installer(command: &mut Command) {
    let exit = run(command, INSTALL_TIMEOUT);
    assert!(exit.status.success(), "{command:?}: {exit}");
}
