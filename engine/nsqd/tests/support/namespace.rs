//! Tests with a network and mounts of their own, which other processes of the machine do not see.

use std::io;
use std::path::Path;
use std::process::Command;
use std::thread;

use test_support::skip::not_tested;

/// Runs `test` on a thread with its own loopback interface and its own mounts. The processes that `test` starts have
/// them, too. Both end with the last thread or process that uses them, so nothing is to be cleaned up. Prints a notice
/// if the system does not permit this.
pub fn with_own_network(test: impl FnOnce() + Send) {
    let run = || match enter() {
        Ok(()) => test(),
        Err(why) => not_tested(&format!(
            "no network namespace (root is needed, and ip of iproute2): {why}"
        )),
    };
    let ended = thread::scope(|scope| scope.spawn(run).join());
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

/// Shows the calling thread, and everything that the thread starts, `content` instead of a file.
pub fn replace_file(path: &str, content: &str, directory: &Path) {
    let name = Path::new(path).file_name().expect("it is a file");
    let substitute = directory.join(name);
    std::fs::write(&substitute, content).expect("the directory is the test's");
    let substitute = substitute.to_str().expect("a plain path");
    run("mount", &["--bind", substitute, path]).expect("the mounts are the test's");
}

#[allow(unsafe_code)]
fn enter() -> Result<(), String> {
    // SAFETY: the call changes what this thread sees of the system, and no memory.
    let done = unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) };
    if done != 0 {
        return Err(format!("unshare: {}", io::Error::last_os_error()));
    }
    run("mount", &["--make-rprivate", "/"])?;
    run("ip", &["link", "set", "lo", "up"])
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        other => Err(format!("{program} {arguments:?}: {other:?}")),
    }
}
