//! The page docs/tools.md shows what the tools say.

use std::collections::BTreeSet;
use std::process::Command;

use nsq_tools::nsq_forget::NSQ_FORGET;
use nsq_tools::nsq_pubsub::NSQ_PUBSUB;
use nsq_tools::nsq_stat::NSQ_STAT;
use nsq_tools::nsq_tail::NSQ_TAIL;
use nsq_tools::nsq_to_file::NSQ_TO_FILE;
use nsq_tools::nsqtop::NSQTOP;
use program::{Program, page_with_table};
use test_support::TIMEOUT;
use test_support::process::run;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tools.md");

/// The programs whose flags the page lists, with their binaries.
const PROGRAMS: [(&Program, &str); 6] = [
    (&NSQ_TO_FILE, env!("CARGO_BIN_EXE_nsq_to_file")),
    (&NSQ_TAIL, env!("CARGO_BIN_EXE_nsq_tail")),
    (&NSQ_STAT, env!("CARGO_BIN_EXE_nsq_stat")),
    (&NSQTOP, env!("CARGO_BIN_EXE_nsqtop")),
    (&NSQ_PUBSUB, env!("CARGO_BIN_EXE_nsq_pubsub")),
    (&NSQ_FORGET, env!("CARGO_BIN_EXE_nsq_forget")),
];

fn page() -> String {
    std::fs::read_to_string(PAGE).expect("the page exists")
}

/// The page has a table of all flags of each program. To write the tables anew, run this test with
/// UPDATE_DOCS=1.
#[test]
fn the_page_has_every_flag() {
    let page = page();
    let mut updated = page.clone();
    for (program, _) in PROGRAMS {
        let name = program.name;
        let (original, own) = (format!("{name}'s flags"), format!("our flags of {name}"));
        updated = page_with_table(&updated, &original, program.flags);
        if !program.own_flags.is_empty() {
            updated = page_with_table(&updated, &own, program.own_flags);
        }
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, &updated).expect("the page can be written");
    }
    assert!(
        page == updated,
        "out of date: run with UPDATE_DOCS=1 and look at the difference"
    );
}

/// Each command of the page has flags that its program accepts: with `--version` behind them, the
/// program reads them all and ends.
#[test]
fn the_commands_of_the_page_are_read() {
    let page = page().replace("\\\n", " ");
    let mut seen = BTreeSet::new();
    for (program, binary) in PROGRAMS {
        let begin = format!("    {} ", program.name);
        for line in page.lines().filter_map(|line| line.strip_prefix(&begin)) {
            seen.insert(program.name);
            let flags = line.split_whitespace();
            let exit = run(Command::new(binary).args(flags).arg("--version"), TIMEOUT);
            assert_eq!(exit.code(), 0, "{} {line}: {exit}", program.name);
        }
    }
    assert_eq!(seen.len(), PROGRAMS.len(), "{seen:?}");
}
