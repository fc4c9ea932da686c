use super::*;
use crate::preflight::{self, bytes_text};
use crate::reactor::Engine;

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

fn engine(chosen: Result<preflight::Chosen, Finding>) -> io::Answer {
    io::Answer {
        chosen,
        system: "Linux 6.18.1".to_owned(),
        memlock_bytes: Some(8 << 20),
        shows_io_wait: false,
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_engine_is_told_with_its_price() {
    let works = |engine, passed_over| {
        Ok(preflight::Chosen {
            engine,
            receives: engine.is_io_uring(),
            passed_over,
        })
    };
    let best = io::judge(&engine(works(Engine::IoUring, vec![])), "2 shards");
    let text = "io_uring works for 2 shards on Linux 6.18.1, with up to 8.0 MiB of locked memory";
    assert_eq!(best, Finding::ok(text));
    let older = io::Answer {
        shows_io_wait: true,
        memlock_bytes: None,
        ..engine(works(Engine::IoUring, vec![]))
    };
    let found = io::judge(&older, "2 shards").found;
    assert!(
        found.contains("no limit") && found.contains("as I/O wait"),
        "{found}"
    );
    let refused = Ok(preflight::Chosen {
        engine: Engine::IoUring,
        receives: false,
        passed_over: vec![],
    });
    let text = format!("{text}; {}", preflight::LACKS_RECEIVING);
    let refused = io::judge(&engine(refused), "2 shards");
    assert_eq!(refused, Finding::ok(text));
    let free = io::Answer {
        memlock_bytes: Some(0),
        ..engine(works(Engine::IoUring, vec![]))
    };
    let found = io::judge(&free, "2 shards").found;
    assert!(
        found.ends_with("6.18.1, and needs no locked memory here"),
        "{found}"
    );
    // The engine is the one that was asked for.
    let asked = io::judge(&engine(works(Engine::Epoll, vec![])), "2 shards");
    let text = "epoll works for 2 shards on Linux 6.18.1";
    assert_eq!(asked, Finding::ok(text));
    let forbidden = preflight::io_uring::forbidden;
    let passed_over = vec![(Engine::IoUring, forbidden())];
    let second = io::judge(&engine(works(Engine::Epoll, passed_over)), "2 shards");
    assert_eq!(second.state, State::Warning);
    for part in [
        "not allowed to use io_uring",
        "2 shards will wait for sockets with epoll; it takes more processor time for many small",
    ] {
        assert!(second.found.contains(part), "{second:?}");
    }
    assert!(second.advice.contains("seccomp=<profile>"), "{second:?}");
    let none = io::judge(&engine(Err(forbidden())), "2 shards");
    assert_eq!(none.state, State::Failure);
    assert_eq!(none.advice, second.advice);
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
