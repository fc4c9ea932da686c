//! Packages of other ecosystems that tests need, installed once in the target directory.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::run;
use crate::skip::not_tested;

/// The longest time for an installation. A busy machine may take long.
pub const INSTALL_TIMEOUT: Duration = Duration::from_secs(1800);

/// Returns a directory in `root` in which `build` has installed what the `files` of the directory
/// `source` list. `build` gets `source` and the directory. The directory's name depends on the
/// content of the files, so a changed manifest has a new directory. A stamp in the directory says
/// that `build` has finished.
pub fn install(
    root: &Path,
    source: &Path,
    files: &[&str],
    build: impl FnOnce(&Path, &Path),
) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    for file in files {
        let path = source.join(file);
        let content = fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        hasher.write(&content);
    }
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let target = root.join(format!("{name}-{:016x}", hasher.finish()));
    let stamp = target.join("installed");
    if stamp.exists() {
        return target;
    }
    fs::create_dir_all(&target).expect("a directory in target can be made");
    // Two Cargo processes may share a target directory. The lock ends when the file is closed.
    let lock = fs::File::create(root.join("lock")).expect("a file in target can be made");
    lock.lock().expect("a file in target can be locked");
    if !stamp.exists() {
        build(source, &target);
        fs::write(&stamp, b"").expect("a file in target can be written");
    }
    target
}

/// Returns true if the program can be run. Otherwise prints a notice with the way to install it, or panics
/// if `CI` is set.
pub fn is_installed(program: &str, how: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    if found.is_ok_and(|output| output.status.success()) {
        return true;
    }
    not_tested(&format!("{program} is missing. Install it: {how}"));
    false
}

/// Installs the packages that `package.json` and `package-lock.json` in `source` list, below `root`.
/// Returns the directory that `NODE_PATH` has to name. The machine needs npm. No script of a package
/// runs, and optional packages are left out.
pub fn npm(root: &Path, source: &Path) -> PathBuf {
    let manifests = ["package.json", "package-lock.json"];
    let installed = install(root, source, &manifests, |source, target| {
        for manifest in manifests {
            fs::copy(source.join(manifest), target.join(manifest)).expect("a file can be copied");
        }
        run_installer(Command::new("npm").current_dir(target).args([
            "ci",
            "--omit=optional",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
        ]));
    });
    installed.join("node_modules")
}

/// Installs the Python packages that `requirements.txt` in `source` lists, below `root`. Returns the path
/// of the Python that has them. The machine needs Python with venv.
pub fn python(root: &Path, source: &Path) -> PathBuf {
    let installed = install(root, source, &["requirements.txt"], |source, target| {
        run_installer(Command::new("python3").args(["-m", "venv"]).arg(target));
        run_installer(
            Command::new(target.join("bin/python"))
                .args(["-m", "pip", "install", "--disable-pip-version-check", "-r"])
                .arg(source.join("requirements.txt")),
        );
    });
    installed.join("bin/python")
}

/// Runs a command of a package manager. Panics with its output if it fails.
pub fn run_installer(command: &mut Command) {
    let exit = run(command, INSTALL_TIMEOUT);
    assert!(exit.status.success(), "{command:?}: {exit}");
}
