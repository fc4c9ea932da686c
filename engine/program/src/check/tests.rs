use super::finding::bytes_text;
use super::*;

fn report(findings: Vec<(&'static str, Finding)>) -> Report {
    Report { findings }
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
    let not = "This machine is not ready for nsqd with these flags:";
    check(
        vec![odd(), bad(), good()],
        State::Failure,
        &format!("{not} 1 failure, 1 warning."),
    );
}

#[test]
fn text_and_json_say_the_same() {
    let report = report(vec![
        ("cores", Finding::ok("two")),
        ("clock", Finding::warning("slow", "hurry up")),
        ("data-path", Finding::failure("\"gone\"", "find it")),
    ]);
    let text = "\
ok    cores         two
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
            {"name": "cores", "state": "ok", "found": "two", "advice": ""},
            {"name": "clock", "state": "warning", "found": "slow", "advice": "hurry up"},
            {"name": "data-path", "state": "failure", "found": "\"gone\"", "advice": "find it"},
        ],
    });
    assert_eq!(json, expected);
    assert_eq!(report.json().lines().count(), 1);
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
