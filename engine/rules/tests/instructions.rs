//! Counts the broker's instructions per published and per delivered message, with valgrind. Unlike
//! times, these counts have no noise. The test fails if a count is more than 1.5 % above that in
//! `instructions.txt`.
//!
//! If you know why the figures changed, accept the new ones:
//!
//!     RINGQ_ACCEPT_INSTRUCTIONS=1 cargo test -p engine-rules --test instructions -- --ignored
//!
//! Another compiler makes other code. So if the file names another compiler, the test prints the
//! figures and does not compare them. If valgrind is missing, the test prints a notice, or fails if
//! `CI` is set.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The numbers of rounds of the two runs. The difference of their counts belongs to the steady
/// state.
const ROUNDS: [u64; 2] = [100, 300];
/// Less than what `--dedup` once cost the topics without a rule: 3 % of a publish.
const TOLERANCE: f64 = 0.015;
/// The instructions of a published and delivered message before nsqd had `--dedup`: 819 and 247. Topics without a rule may
/// take 1 % more.
const BEFORE_DEDUP: u64 = 819 + 247;
/// The instructions of the overflow checks (Cargo.toml).
const OVERFLOW_CHECKS: u64 = 15 + 9;

fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned() + &stderr
}

fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    output(Command::new(rustc).arg("--version"))
        .trim()
        .to_owned()
}

/// Returns the path of the program to count, as it is shipped.
fn program() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("instructions");
    let mut build = Command::new(env!("CARGO"));
    build
        .args([
            "build",
            "--profile",
            "dist",
            "--locked",
            "-p",
            "message-path",
        ])
        .args(["--example", "message_path", "--target-dir"])
        .arg(&target)
        // An incremental build makes other code: 9 instructions more.
        .env("CARGO_INCREMENTAL", "0")
        // tools/test sets this to time the tests. Some crates build other code with it.
        .env_remove("RUSTC_BOOTSTRAP")
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    output(&mut build);
    target.join("dist/examples/message_path")
}

/// Returns the number of moved messages, and the instructions of `part`.
fn count(program: &Path, part: &str, rounds: u64) -> (u64, u64) {
    let printed = output(
        Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(format!("--toggle-collect=*{part}*"))
            .arg(program)
            .arg(rounds.to_string()),
    );
    let number = |text: Option<&str>| -> u64 {
        let text = text.expect("the program and valgrind say what they counted");
        text.trim().parse().expect("a number")
    };
    // 20000 messages
    let messages = printed
        .lines()
        .find_map(|line| line.strip_suffix(" messages"));
    // ==12== Collected : 123456
    let collected = printed
        .lines()
        .find_map(|line| Some(line.split_once("Collected :")?.1));
    (number(messages), number(collected))
}

fn per_message(program: &Path, part: &str) -> u64 {
    let [short, long] = ROUNDS.map(|rounds| count(program, part, rounds));
    assert!(short.1 > 0, "nothing was collected for {part}");
    (long.1 - short.1) / (long.0 - short.0)
}

#[test]
#[ignore = "it builds the shipped program, which takes minutes; tools/test runs it"]
fn instructions_per_message_do_not_grow() {
    match Command::new("valgrind").arg("--version").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let message = "NOT TESTED: valgrind is missing. Install it: apt-get install valgrind";
            assert!(std::env::var_os("CI").is_none(), "{message}");
            eprintln!("\n{}\n{message}\n{}\n", "=".repeat(80), "=".repeat(80));
            return;
        }
        found => drop(found.unwrap()),
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/instructions.txt");
    let program = program();
    let counts = ["publishing", "delivering"].map(|part| (part, per_message(&program, part)));
    let (compiler, machine) = (compiler(), std::env::consts::ARCH);
    let head = format!("{compiler}, {machine}\n");
    let line = |(part, count): &(&str, u64)| format!("{part} {count}\n");
    let text = head.clone() + &counts.iter().map(line).collect::<String>();
    println!("instructions per message:\n{text}");
    if std::env::var_os("RINGQ_ACCEPT_INSTRUCTIONS").is_some() {
        return fs::write(&file, text).unwrap();
    }
    let accepted = fs::read_to_string(&file).unwrap();
    let Some(accepted) = accepted.strip_prefix(&head) else {
        return println!("not compared with those of another compiler:\n{accepted}");
    };
    let sum: u64 = counts.iter().map(|(_, count)| count).sum();
    assert!(
        sum * 100 <= (BEFORE_DEDUP + OVERFLOW_CHECKS) * 101,
        "{sum} instructions per message, and {BEFORE_DEDUP} before --dedup"
    );
    for (line, (part, count)) in accepted.lines().zip(counts) {
        let most = line.strip_prefix(part).expect("the part's name");
        let most: f64 = most.trim().parse().expect("a number");
        assert!(
            count as f64 <= most * (1.0 + TOLERANCE),
            "{part} takes {count} instructions per message, {most} were accepted: see the head of {}",
            file!()
        );
    }
}
