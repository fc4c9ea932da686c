//! The commands of docs/operate/cluster.md, as they stand in the page, with a network of their own. From the second
//! section on, producers and consumers use the cluster. Every acknowledged message must arrive.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;

use crate::support::{TIMEOUT, is_installed, wait_until, with_own_network};
use crate::traffic::{Consumer, EndOfTraffic, Traffic};
use test_support::daemon::binary_directory;

/// A command and the lines that it prints.
#[derive(Debug)]
struct Step {
    command: String,
    output: String,
}

/// Returns the sections that have commands.
fn sections(page: &str) -> Vec<(String, Vec<Step>)> {
    let mut sections: Vec<(String, Vec<Step>)> = Vec::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            sections.push((title.to_owned(), Vec::new()));
            continue;
        }
        let Some(text) = line.strip_prefix("    ") else {
            continue;
        };
        let (_, steps) = sections.last_mut().expect("commands follow a title");
        match text.strip_prefix("$ ") {
            Some(command) => steps.push(Step {
                command: command.to_owned(),
                output: String::new(),
            }),
            None => {
                let step = steps.last_mut().expect("output follows a command");
                step.output.push_str(text);
                step.output.push('\n');
            }
        }
    }
    sections.retain(|(_, steps)| !steps.is_empty());
    sections
}

/// Runs a command of the page. One that only looks is repeated until it prints what the page says.
fn run(step: &Step, directory: &Path) {
    let mut seen = String::new();
    let binaries = binary_directory().display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut run_once = || {
        let output = Command::new("bash")
            .args(["-c", &step.command])
            .current_dir(directory)
            .env("PATH", format!("{binaries}:{path}"))
            // A daemon in the background must not hold the pipe.
            .stdin(Stdio::null())
            .stderr(fs::File::create(directory.join("stderr")).expect("the test's directory"))
            .stdout(fs::File::create(directory.join("stdout")).expect("the test's directory"))
            .status();
        let printed = fs::read_to_string(directory.join("stdout")).expect("it was made");
        seen = format!("{output:?}: {printed}");
        // An answer of HTTP has no line feed at its end.
        printed.trim_end() == step.output.trim_end()
    };
    let only_looks = step.command.starts_with("curl -s") && !step.command.contains(" -X ")
        || step.command.starts_with("grep");
    let is_good = if only_looks && !step.command.contains(" -d ") {
        wait_until(TIMEOUT, run_once)
    } else {
        run_once()
    };
    assert!(is_good, "{step:?}: {seen}\n{}", logs(directory));
}

fn logs(directory: &Path) -> String {
    let files = fs::read_dir(directory).expect("the test's directory");
    let mut text = String::new();
    for file in files.flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        if name.starts_with("log-") || name == "stderr" {
            let content = fs::read_to_string(file.path()).unwrap_or_default();
            let lines: Vec<&str> = content.lines().collect();
            let last = &lines[lines.len().saturating_sub(15)..];
            text.push_str(&format!("{name}:\n{}\n", last.join("\n")));
        }
    }
    text
}

/// Ends the daemons whose process ids are in files of a directory.
struct Daemons<'a>(&'a Path);

impl Drop for Daemons<'_> {
    fn drop(&mut self) {
        for file in fs::read_dir(self.0).into_iter().flatten().flatten() {
            if file.file_name().to_string_lossy().starts_with("pid-") {
                let command = format!("kill -9 $(cat '{}')", file.path().display());
                // Some of the processes have ended before.
                let _ = Command::new("bash").args(["-c", &command]).output();
            }
        }
    }
}

#[test]
fn the_commands_of_the_page_work_and_lose_no_message() {
    if !is_installed("curl", "curl") {
        return;
    }
    let page = test_support::pages::read("operate/cluster.md");
    let sections = sections(&page);
    assert_eq!(sections.len(), 6, "{sections:?}");
    with_own_network(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let _daemons = Daemons(path);
        let address = |host: u8, port: u16| SocketAddr::from(([127, 0, 0, host], port));
        let traffic = Traffic::new([1, 2, 3, 4].map(|host| address(host, 4150)).to_vec());
        traffic.set_lookupds([11, 12, 13].map(|host| address(host, 4161)).to_vec());
        let consumer = Consumer::default();
        thread::scope(|scope| {
            let end = EndOfTraffic(&traffic);
            for (index, (title, steps)) in sections.iter().enumerate() {
                for step in steps {
                    run(step, path);
                }
                if index == 0 {
                    scope.spawn(|| traffic.produce(0));
                    scope.spawn(|| consumer.run(&traffic, scope));
                }
                let before = traffic.acknowledged();
                let grows = wait_until(TIMEOUT, || traffic.acknowledged() > before + 20);
                assert!(grows, "{title}: no node takes messages\n{}", logs(path));
            }
            traffic.is_published.store(true, Ordering::SeqCst);
            traffic.wait_for_all(0);
            drop(end);
        });
    });
}
