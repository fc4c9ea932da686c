//! Runs the commands of README.md, docs/start.md and docs/operate/upgrade.md, in the order of the page. A block marked
//! `sh` is a part of one bash script, and one marked `python` is a program that must print a message. Indented commands
//! are not run: they build for minutes, or are for a machine on which NSQ's nsqd runs.
//!
//! The pages install and start programs under their usual names. Here, `/usr/local/bin`, `/var/lib` and `/srv` are
//! directories of the test, and each installed program is a script that gives the real one free ports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use test_support::daemon::binary_directory;
use test_support::dead_port::DeadPort;
use test_support::packages;
use test_support::process::{Exit, run};
use test_support::{TIMEOUT, assert_like};

/// Where the pages have the programs that they install.
const BUILT: [&str; 2] = ["target/dist", "target/release"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A machine on which NSQ's nsqd ran, and has left a data path with two channels.
struct Machine {
    directory: tempfile::TempDir,
    /// The addresses of the pages, and those of the test.
    addresses: [(&'static str, DeadPort); 4],
}

impl Machine {
    fn new() -> Machine {
        let addresses = [
            "127.0.0.1:4150",
            "127.0.0.1:4151",
            "127.0.0.1:4160",
            "127.0.0.1:4161",
        ];
        let machine = Machine {
            directory: tempfile::tempdir().expect("a temporary directory can be made"),
            addresses: addresses.map(|address| (address, DeadPort::bind())),
        };
        for directory in ["bin", "lib", "srv"].into_iter().chain(BUILT) {
            fs::create_dir_all(machine.path(directory)).expect("a directory can be made");
        }
        let flags = |tcp, http| {
            machine.with_addresses(&format!("--tcp-address={tcp} --http-address={http}"))
        };
        let nsqd = flags(addresses[0], addresses[1]);
        let nsqlookupd = flags(addresses[2], addresses[3]);
        for (name, flags) in [
            ("nsqd", &*nsqd),
            ("nsqlookupd", &nsqlookupd),
            ("diskq", ""),
            ("nsq_tail", ""),
        ] {
            let program = binary_directory().join(name);
            assert!(
                program.exists(),
                "{program:?} is missing: run `cargo build -p nsqd -p nsqlookupd -p diskq-program`"
            );
            let script = format!("exec {} \"$@\" {flags}", program.display());
            for directory in BUILT {
                machine.write_program(&format!("{directory}/{name}"), &script);
            }
        }
        // It stands for NSQ's nsqd, and starts only on a directory that has a topic's queues.
        let original =
            "cd \"$(echo \"$*\" | sed 's/.*--data-path=//')\" && ls nsqd.dat *.diskqueue.meta.dat";
        machine.write_program("bin/nsqd", original);
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write_program(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file can be written");
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&path, executable).expect("a file gets permissions");
    }

    /// Makes a data path that NSQ's nsqd 1.3.0 has written.
    fn make_data_path(&self, name: &str) {
        let fixture = repository().join("diskq/import/tests/data/nsqd/two-channels");
        fs::create_dir_all(self.path(name)).expect("a directory can be made");
        for file in fs::read_dir(fixture).expect("the fixture is there") {
            let file = file.expect("readable");
            let copy = self.path(name).join(file.file_name());
            fs::copy(file.path(), copy).expect("a file can be copied");
        }
    }

    fn with_addresses(&self, script: &str) -> String {
        // No real port has a port of the pages in it: those have four digits, and free ports five.
        self.addresses
            .iter()
            .fold(script.to_owned(), |script, (page, real)| {
                script.replace(page, &real.address.to_string())
            })
    }

    /// Runs a script of bash, in which the paths and addresses of the pages stand for those of the test.
    fn run(&self, script: &str) -> Exit {
        let mut script = self.with_addresses(script);
        for (page, real) in [
            ("/usr/local/bin", "bin"),
            ("/var/lib", "lib"),
            ("/srv", "srv"),
        ] {
            script = script.replace(page, &self.path(real).display().to_string());
        }
        // Monitor mode numbers the jobs. All of them end with the script.
        let script =
            format!("set -euo pipefail\nset -m\ntrap 'kill $(jobs -p) || true' EXIT\n{script}");
        let search = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command
            .args(["-c", &script])
            .env("PATH", format!("{}:{search}", self.path("bin").display()))
            .current_dir(self.directory.path());
        run(&mut command, TIMEOUT)
    }
}

/// Returns the script of a page. `python` is a Python that has pynsq.
fn script_of(page: &str, machine: &Machine, python: Option<&Path>) -> String {
    let text = fs::read_to_string(repository().join(page)).expect("the page is there");
    let mut script = String::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(mark) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        let block = lines.by_ref().map(|(_, line)| line);
        let block = block.take_while(|line| line.trim_start() != "```");
        script += &format!("echo '{page}, line {}' >&2\n", number + 2);
        match (mark, python) {
            ("sh", _) => block.for_each(|line| script += &step(line)),
            ("python", Some(python)) => {
                let program: Vec<_> = block.collect();
                let program = machine.with_addresses(&program.join("\n"));
                fs::write(machine.path("example.py"), program).expect("a file can be written");
                script += &python_step(python);
            }
            ("python", None) => block.for_each(drop),
            _ => panic!("{page}, line {}: a block that nobody runs", number + 1),
        }
    }
    script
}

/// Returns a line of a page. If it starts a daemon, a wait follows until the daemon answers. A reader is slower than that.
fn step(line: &str) -> String {
    let answers = match line.trim_end().strip_suffix('&') {
        Some(command) if command.contains("nsqlookupd") => "curl -sf 127.0.0.1:4161/ping",
        Some(command) if command.contains("--lookupd-tcp-address") => {
            "curl -sf 127.0.0.1:4161/topics | grep greetings"
        }
        Some(command) if command.contains("nsqd ") => "curl -sf 127.0.0.1:4151/ping",
        _ => return format!("{line}\n"),
    };
    format!("{line}\nuntil {answers} > /dev/null; do sleep 0.05; done\n")
}

/// Runs the program of a page until it has printed its message.
fn python_step(python: &Path) -> String {
    format!(
        "{} -u example.py > printed & python=$!\n\
         until grep 'hello from pynsq' printed; do kill -0 $python; sleep 0.05; done\n\
         kill $python; wait $python || true\n",
        python.display()
    )
}

/// Runs a page. Returns its output, or `None` if curl is missing.
fn check(page: &str, machine: &Machine, python: Option<&Path>) -> Option<String> {
    if !packages::is_installed("curl", "apt-get install curl") {
        return None;
    }
    let exit = machine.run(&script_of(page, machine, python));
    assert!(exit.status.success(), "{page}: {exit}");
    Some(exit.stdout)
}

#[test]
fn the_readme_works() {
    let machine = Machine::new();
    // The page leaves out the start between the swap and the way back.
    machine.make_data_path("lib/nsqd");
    let started = machine
        .run(&(step("target/dist/nsqd --data-path=/var/lib/nsqd &") + "kill %1 && wait %1\n"));
    assert!(started.status.success(), "{started}");
    let python = packages::is_installed("python3", "python3-venv").then(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../interop");
        packages::python(
            &target,
            &repository().join("engine/nsqd/tests/interop/python"),
        )
    });
    let Some(output) = check("README.md", &machine, python.as_deref()) else {
        return;
    };
    assert_like(&output, "…orders:audit.diskqueue.meta.dat\n…");
    assert!(output.contains("OKhello\n"), "{output}");
    assert!(output.contains("\"tcp_port\""), "{output}");
}

#[test]
fn the_first_five_minutes_work() {
    let machine = Machine::new();
    machine.make_data_path("srv/nsqd-copy");
    let Some(output) = check("docs/start.md", &machine, None) else {
        return;
    };
    assert_like(&output, "…OKhello\nOKkilled\nstill here\n…");
    assert!(output.contains("] depth: 30 "), "{output}");
    assert!(machine.path("srv/nsqd-back/nsqd.dat").exists());
}

#[test]
fn the_upgrade_and_the_way_back_work() {
    let machine = Machine::new();
    machine.make_data_path("lib/nsqd");
    let Some(output) = check("docs/operate/upgrade.md", &machine, None) else {
        return;
    };
    assert!(output.contains("topic orders: 30 messages"), "{output}");
    assert_like(&output, "…orders:audit.diskqueue.meta.dat\n…");
}
