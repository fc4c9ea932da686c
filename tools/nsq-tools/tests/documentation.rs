//! Runs the examples of docs/reference/tools.md. Each block marked `sh` is a script for bash, and must succeed.
//! If a block marked `text` follows, this is the output of the script. An indented command of a tool must succeed when
//! it ends, and SIGTERM ends it after a moment.
//!
//! All scripts share one directory, an nsqd, a second nsqd, an nsqlookupd and an HTTP server. The
//! addresses of the page stand for the real ones.

use std::path::Path;
use std::process::Command;

use test_support::TIMEOUT;
use test_support::daemon::Daemon;
use test_support::dead_port::DeadPort;
use test_support::http_server::{Answer, HttpServer};
use test_support::process::run;
use test_support::skip::not_tested;

/// An example of the page.
#[derive(Debug)]
struct Example {
    /// The number of the line on which the script begins.
    line: usize,
    script: String,
    output: Option<String>,
}

/// Returns the examples of a page.
fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut lines = page.lines().enumerate();
    let mut is_after_script = false;
    while let Some((number, line)) = lines.next() {
        let Some(mark) = line.strip_prefix("```") else {
            is_after_script &= line.is_empty();
            continue;
        };
        let block = lines.by_ref().map(|(_, line)| line);
        let text: String = block
            .take_while(|line| *line != "```")
            .flat_map(|line| [line, "\n"])
            .collect();
        match (mark, examples.last_mut()) {
            ("text", Some(example)) if is_after_script => example.output = Some(text),
            ("sh", _) => examples.push(Example {
                line: number + 2,
                script: text,
                output: None,
            }),
            _ => {}
        }
        is_after_script = mark == "sh";
    }
    examples
}

/// Returns the indented commands of a page, each with the number of its first line.
fn commands(page: &str) -> Vec<(usize, String)> {
    let mut commands: Vec<(usize, String)> = Vec::new();
    let mut is_in_block = false;
    let mut continues = false;
    for (number, line) in page.lines().enumerate() {
        is_in_block ^= line.starts_with("```");
        let Some(line) = line.strip_prefix("    ").filter(|_| !is_in_block) else {
            continue;
        };
        match commands.last_mut() {
            Some((_, command)) if continues => command.push_str(line.trim_start()),
            _ if line.starts_with("nsq") => commands.push((number + 1, line.to_owned())),
            _ => continue,
        }
        let (_, command) = commands.last_mut().expect("the line is in it");
        continues = command.ends_with('\\');
        if continues {
            command.pop();
        }
    }
    commands
}

/// Returns true if the example can run here. The standard error has a line about one that cannot.
fn can_run(script: &str, line: usize) -> bool {
    let is_missing = |program: &str| Command::new(program).arg("--version").output().is_err();
    if !script.contains("curl ") || !is_missing("curl") {
        return true;
    }
    not_tested(&format!(
        "docs/reference/tools.md, line {line}, because curl is missing"
    ));
    false
}

#[test]
fn the_examples_of_the_page_work() {
    let page = test_support::pages::read("reference/tools.md");
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqd = Daemon::nsqd_at(&[&lookupd], &[]);
    let second = Daemon::nsqd_at(&[&lookupd], &[]);
    let http = HttpServer::start(|_, _| Answer::new(200, ""));
    // Tools listen there in the last examples.
    let ports = [DeadPort::bind(), DeadPort::bind()];
    let addresses = [
        ("127.0.0.1:4150", nsqd.tcp),
        ("127.0.0.1:4151", nsqd.http),
        ("127.0.0.1:4250", second.tcp),
        ("127.0.0.1:4251", second.http),
        ("127.0.0.1:4160", lookupd.tcp),
        ("127.0.0.1:4161", lookupd.http),
        ("127.0.0.1:8080", http.address),
        ("127.0.0.1:8082", ports[0].address),
        ("127.0.0.1:8083", ports[1].address),
    ];
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let addresses = addresses.map(|(on_page, real)| (on_page, real.to_string()));
    let archive = directory.path().join("archive").display().to_string();
    let tools = Path::new(env!("CARGO_BIN_EXE_nsq_tail")).parent();
    let tools = tools.expect("a program is in a directory").display();
    let search = format!("{tools}:{}", std::env::var("PATH").unwrap_or_default());
    let mut examples = examples(&page);
    assert!(examples.len() > 2, "{examples:?}");
    let commands = commands(&page);
    assert!(commands.len() > 2, "{commands:?}");
    examples.extend(commands.into_iter().map(|(line, command)| {
        // nsqtop ends by itself, because it has no terminal here.
        let seconds = if command.starts_with("nsqtop ") {
            30
        } else {
            3
        };
        Example {
            line,
            script: format!("timeout --preserve-status {seconds} {command}"),
            output: None,
        }
    }));
    for Example {
        line,
        script,
        output,
    } in examples
    {
        if !can_run(&script, line) {
            continue;
        }
        let script = replace_all(&script.replace("/srv/archive", &archive), &addresses);
        // Monitor mode numbers the jobs of a script. Their messages go to stderr.
        let script = format!("set -euo pipefail\nset -m\n{script}");
        let mut command = Command::new("bash");
        command
            .args(["-c", &script])
            .env("PATH", &search)
            .current_dir(directory.path());
        let exit = run(&mut command, TIMEOUT);
        assert!(
            exit.status.success(),
            "docs/reference/tools.md, line {line}: {exit}"
        );
        if let Some(output) = output {
            assert_eq!(
                exit.stdout, output,
                "docs/reference/tools.md, line {line}: {exit}"
            );
        }
    }
}

/// Replaces each address of the page with the real one, in one pass: a real address may begin like one of the page.
fn replace_all(script: &str, addresses: &[(&str, String)]) -> String {
    let on_page: Vec<_> = addresses
        .iter()
        .map(|(on_page, _)| regex::escape(on_page))
        .collect();
    let on_page = regex::Regex::new(&on_page.join("|")).expect("escaped texts are a pattern");
    let real = |found: &regex::Captures<'_>| {
        let (_, real) = addresses
            .iter()
            .find(|(on_page, _)| *on_page == &found[0])
            .expect("the pattern has this address");
        real.clone()
    };
    on_page.replace_all(script, real).into_owned()
}

#[test]
fn a_real_address_that_begins_like_one_of_the_page_stays() {
    let addresses = [
        ("127.0.0.1:4150", "127.0.0.1:41615".to_owned()),
        ("127.0.0.1:4161", "127.0.0.1:38193".to_owned()),
    ];
    assert_eq!(
        replace_all("a 127.0.0.1:4150 127.0.0.1:4161", &addresses),
        "a 127.0.0.1:41615 127.0.0.1:38193"
    );
}

#[test]
fn examples_are_found_with_their_output() {
    let page = "```sh\na\nb\n```\n\n```text\nc\n```\ntext\n```text\nd\n```\n```sh\ne\n```\nmore\n```text\nf\n```\n";
    let found = examples(page);
    let found: Vec<_> = found
        .iter()
        .map(|example| (example.line, &*example.script, example.output.as_deref()))
        .collect();
    assert_eq!(found, [(2, "a\nb\n", Some("c\n")), (14, "e\n", None)]);
}

#[test]
fn commands_are_found_with_their_continuation() {
    let page =
        "text\n\n    nsq_a --b \\\n        --c\n\n    docs/x\n```sh\n    nsq_d\n```\n    nsqtop\n";
    let expected = [(3, "nsq_a --b --c".to_owned()), (10, "nsqtop".to_owned())];
    assert_eq!(commands(page), expected);
}
