//! The program `manual` writes a page and three completions for each program.

use std::fs;
use std::process::Command;

use nsq_tools::nsq_tail::NSQ_TAIL;
use nsqd::config::NSQD;
use program::Program;

/// Each page has every flag, and each completion the flags of its program.
#[test]
fn pages_and_completions_have_every_flag() {
    let directory = tempfile::tempdir().expect("a directory");
    let done = Command::new(env!("CARGO_BIN_EXE_manual"))
        .arg(directory.path())
        .status();
    assert!(done.expect("the program runs").success());
    let text = |path: &str| {
        let path = directory.path().join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let check = |program: &Program, page: &str| {
        let name = program.name;
        let page = text(page);
        let bash = text(&format!("bash-completion/completions/{name}"));
        let zsh = text(&format!("zsh/site-functions/_{name}"));
        let fish = text(&format!("fish/vendor_completions.d/{name}.fish"));
        for flag in program.all_flags() {
            let long = format!("--{}", flag.name);
            assert!(page.contains(&long.replace('-', "\\-")), "{name} {long}");
            assert!(bash.contains(&long) && zsh.contains(&long), "{name} {long}");
            assert!(
                fish.contains(&format!("-l {} ", flag.name)),
                "{name} {long}"
            );
        }
    };
    check(&NSQD, "man/man8/nsqd.8");
    check(&NSQ_TAIL, "man/man1/nsq_tail.1");
    // Each subcommand has a page of its own.
    assert!(text("man/man1/nsq-bench.1").contains("nsq\\-bench\\-find\\-max(1)"));
    assert!(text("man/man1/nsq-bench-find-max.1").contains("\\-\\-"));
    assert!(text("man/man1/diskq-export.1").contains("\\-\\-output"));
}
