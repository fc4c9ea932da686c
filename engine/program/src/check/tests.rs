use std::ffi::OsString;

use super::*;
use crate::{Program, version};

fn report(findings: Vec<(&'static str, Finding)>) -> Report {
    Report {
        program: "nsqd",
        findings,
    }
}

#[test]
fn a_report_is_as_bad_as_its_worst_finding() {
    let good = || ("cores", Finding::ok("two"));
    let odd = || ("clock", Finding::warning("slow", "hurry up"));
    let bad = || ("data-path", Finding::failure("gone", "find it"));
    let check = |findings: Vec<(&'static str, Finding)>, state, summary: &str| {
        let report = report(findings);
        assert_eq!(report.state(), state);
        let text = report.text();
        assert_eq!(text.lines().last(), Some(summary), "{text}");
    };
    let ready = "This machine is ready for nsqd";
    check(vec![good(), good()], State::Ok, &format!("{ready}."));
    let with = |warnings: &str| format!("{ready}, with {warnings}.");
    check(vec![good(), odd()], State::Warning, &with("1 warning"));
    check(vec![odd(), odd()], State::Warning, &with("2 warnings"));
    let busy = || ("tcp-address", in_use("127.0.0.1:4150", "nsqd"));
    let once = format!("{ready} once that nsqd has stopped");
    check(vec![busy(), good()], State::Waiting, &format!("{once}."));
    let warned = format!("{once}, with 1 warning.");
    check(vec![busy(), odd()], State::Waiting, &warned);
    let not = "This machine is not ready for nsqd with these flags:";
    check(
        vec![odd(), bad(), good()],
        State::Failure,
        &format!("{not} 1 failure, 1 warning."),
    );
    let alone = format!("{not} 1 failure, 0 warnings.");
    check(vec![bad(), busy()], State::Failure, &alone);
}

#[test]
fn text_and_json_say_the_same() {
    let report = report(vec![
        (
            "cores",
            Finding::ok("two").with(vec!["a".to_owned(), "b".to_owned()], json!(["a", "b"])),
        ),
        ("clock", Finding::warning("slow", "hurry up")),
        ("data-path", Finding::failure("\"gone\"", "find it")),
    ]);
    let text = "\
ok    cores         two
                    a
                    b
warn  clock         slow
                    What to do: hurry up
FAIL  data-path     \"gone\"
                    What to do: find it
This machine is not ready for nsqd with these flags: 1 failure, 1 warning.
";
    assert_eq!(report.text(), text);
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    let expected = serde_json::json!({
        "state": "failure",
        "checks": [
            {"name": "cores", "state": "ok", "found": "two", "advice": "", "data": ["a", "b"]},
            {"name": "clock", "state": "warning", "found": "slow", "advice": "hurry up"},
            {"name": "data-path", "state": "failure", "found": "\"gone\"", "advice": "find it"},
        ],
    });
    assert_eq!(json, expected);
    assert_eq!(report.json().lines().count(), 1);
}

/// A client's name for itself could forge a line.
#[test]
fn control_characters_are_quoted() {
    let details = vec!["x\x1b[2J\nFAIL  forged".to_owned()];
    let finding = Finding::warning("a\nb", "c\td").with(details, json!(null));
    let text = report(vec![("clients", finding)]).text();
    let expected = "\
warn  clients       a\\nb
                    x\\x1b[2J\\nFAIL  forged
                    What to do: c\\td
";
    assert!(text.starts_with(expected), "{text}");
}

crate::flags! {
    /// A daemon.
    #[expect(dead_code, reason = "a report reads the rows, not the values")]
    struct Daemon {
        = flag::CONFIG;
        = flag::VERBOSE;
        address: String = flag::new("address", "", "where");
        = flag::new::<u64>("size", "1", "how much").differing("not above 5");
        = flag::new::<u64>("count", "1", "how many");
    }
    own {
        = FLAG;
        = flag::new::<bool>("extra", "false", "what else");
    }
}

static DAEMON: Program = Program::of::<Daemon>("nsqd", version::of_daemon);

fn options(args: &[&str]) -> Options {
    let args = args.iter().map(OsString::from);
    DAEMON.options(args, "host").expect("good flags")
}

#[test]
fn each_flag_that_is_set_is_compared_with_nsqs() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("nsqd.toml");
    std::fs::write(&file, "size = 7\n").expect("written");
    let config = format!("--config={}", file.display());
    // The flags of the other daemon follow a mark.
    let set = options(&[
        "--check",
        &config,
        "--",
        "--address=a",
        "--verbose",
        "--extra",
    ]);
    let finding = flags(&set, None, &[]);
    let found = "4 set: 1 the same as in NSQ, 1 differ, 1 ignored";
    assert_eq!((finding.state, &*finding.found), (State::Ok, found));
    let lines = [
        "--verbose is ignored: NSQ ignores it, too",
        "--size differs: not above 5",
        "only in ringq: --extra",
        "the same: --address",
    ];
    assert_eq!(finding.details, lines);
    let data = json!([
        {"flag": "--verbose", "effect": "ignored", "how": "NSQ ignores it, too"},
        {"flag": "--address", "effect": "same", "how": ""},
        {"flag": "--size", "effect": "differs", "how": "not above 5"},
        {"flag": "--extra", "effect": "own", "how": ""},
    ]);
    assert_eq!(finding.data, Some(data));
    let doubts = ["odd".to_owned()];
    assert_eq!(flags(&set, None, &doubts).state, State::Warning);
    let refused = flags(&set, Some("bad".to_owned()), &doubts);
    assert_eq!(refused.state, State::Failure);
}

#[test]
fn only_a_check_skips_a_mark_and_only_one() {
    let arguments = |args: &[&str]| options(args).arguments().to_vec();
    assert_eq!(arguments(&["--", "--verbose"]), ["--verbose"]);
    assert_eq!(arguments(&["--check", "--", "--verbose"]), [""; 0]);
    let twice = ["--check", "--", "--verbose", "--", "--extra"];
    assert_eq!(arguments(&twice), ["--extra"]);
}

#[test]
fn bytes_are_read_by_people() {
    let check = |bytes, text| assert_eq!(bytes_text(bytes), text);
    check(0, "0 bytes");
    check(1023, "1023 bytes");
    check(1024, "1.0 KiB");
    check(10 << 20, "10 MiB");
    check(u64::MAX, "16384 PiB");
}
