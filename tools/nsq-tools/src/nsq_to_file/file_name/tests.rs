use super::*;

fn format(format: &str, suffix: &'static str, needs_revision: bool) -> NameFormat {
    NameFormat {
        format: format.to_owned(),
        date_format: "%Y-%m-%d_%H".to_owned(),
        host: "web1".to_owned(),
        pid: 7,
        suffix,
        needs_revision,
    }
}

fn now() -> Zoned {
    "2026-11-21T09:20:47+00:00[UTC]".parse().unwrap()
}

#[test]
fn tokens_are_replaced_everywhere() {
    let check = |text: &str, suffix, needs_revision, expected: &str| {
        let format = format(text, suffix, needs_revision);
        assert_eq!(format.of_topic("events").at(&now()), expected);
    };
    let default = "<TOPIC>.<HOST><REV>.<DATETIME>.log";
    check(default, "", false, "events.web1.2026-11-21_09.log");
    check(default, "", true, "events.web1<REV>.2026-11-21_09.log");
    check(
        default,
        ".gz",
        true,
        "events.web1<REV>.2026-11-21_09.log.gz",
    );
    check("<REV>.gz", ".gz", true, "<REV>.gz");
    check("<REV>.zst", ".zst", true, "<REV>.zst");
    check("<PID>/<TOPIC>/<TOPIC>", "", false, "7/events/events");
    check("<OTHER>", "", false, "<OTHER>");
}

/// One message to the topic `..` made directories outside of `--output-dir`, or ended the tool.
#[test]
fn no_topic_leads_to_another_directory() {
    for (topic, text) in [(".", "%2E"), ("..", "%2E%2E"), ("...", "..."), (".a", ".a")] {
        for form in [
            "<TOPIC>/<REV>",
            "a/<TOPIC>/b<REV>",
            "<TOPIC><REV>",
            "<TOPIC>/<TOPIC><REV>",
        ] {
            let format = format(form, "", true);
            let found = with_revision(format.of_topic(topic).at(&now()), 0);
            let expected = form.replace("<TOPIC>", text).replace("<REV>", "-000000");
            assert_eq!(found, Path::new(&expected));
            assert!(format.pattern(topic).fits(&found), "{}", found.display());
        }
    }
}

#[test]
fn a_name_changes_with_the_time() {
    let mut names = format("<DATETIME>", "", false).of_topic("events");
    assert_eq!(names.at(&now()), "2026-11-21_09");
    let later = now().checked_add(jiff::Span::new().hours(1)).unwrap();
    assert_eq!(names.at(&later), "2026-11-21_10");
    assert_eq!(names.at(&now()), "2026-11-21_09");
}

#[test]
fn files_that_could_overwrite_each_other_need_revisions() {
    assert_eq!(format("a", "", false).check(), Ok(()));
    assert_eq!(format("<REV>", "", true).check(), Ok(()));
    assert!(format("a", "", true).check().is_err());
}

#[test]
fn paths_are_relative_and_normal() {
    let check = |name: &str, revision, expected: &str| {
        assert_eq!(with_revision(name, revision), Path::new(expected));
    };
    check("a<REV>.log", 0, "a-000000.log");
    check("a<REV>/b<REV>", 1_234_567, "a-1234567/b-1234567");
    check("/a//b/./c", 0, "a/b/c");
    check("a/../../b", 0, "../b");
    let check = |path: &str, expected: &str| {
        assert_eq!(normalized(Path::new(path)), Path::new(expected));
    };
    check("./work/", "work");
    check("/a/../../b", "/b");
    check("", ".");
    check("a/..", ".");
}

#[test]
fn the_host_is_short_unless_it_is_given() {
    assert_eq!(host("", "web1.dc2"), "web1");
    assert_eq!(host("h-<SHORT_HOST>", "web1.dc2"), "h-web1");
    assert_eq!(
        host("<HOSTNAME>/<HOSTNAME>", "web1.dc2"),
        "web1.dc2/web1.dc2"
    );
    assert_eq!(host("x", "web1"), "x");
}
#[test]
fn the_pattern_fits_the_names_of_one_topic() {
    let mut format = format("<TOPIC>.<HOST><REV>.<DATETIME>.log", "", true);
    let check = |format: &NameFormat, path: &str, expected: bool| {
        let pattern = format.pattern("a.b");
        assert_eq!(pattern.fits(Path::new(path)), expected, "{path}");
    };
    for (path, expected) in [
        ("a.b.web1-000000.2026-11-21_09.log", true),
        ("a.b.web1-1234567.2025-01-01_23.log.gz", true),
        ("a.b.web1-000000.2026-11-21_09.log.zst", true),
        ("a.b.web1-000000.2026-11-21_09.log.bz2", false),
        ("a.b.web1-000000.2026-11-21_09.logx", false),
        ("a.b.web2-000000.2026-11-21_09.log", false),
        ("a.b.web1.2026-11-21_09.log", false),
        ("axb.web1-000000.2026-11-21_09.log", false),
        ("b.web1-000000.2026-11-21_09.log", false),
        ("x/a.b.web1-000000.2026-11-21_09.log", false),
    ] {
        check(&format, path, expected);
    }
    // The process id is that of an earlier run, and the suffix may be a part of the format.
    format.format = "/<PID>//<TOPIC>/./<DATETIME><REV>.gz".to_owned();
    format.date_format = "%Y/%m".to_owned();
    format.suffix = ".gz";
    check(&format, "123/a.b/2026/11-000000.gz", true);
    check(&format, "123/a.b/2026-11-000000.gz", false);
    assert_eq!(format.pattern("t").depth, 3);
}

#[test]
fn a_path_has_a_next_revision() {
    let format = format("<TOPIC><REV>/<REV>.log", "", true);
    let next = format
        .pattern("t")
        .next_revision(Path::new("t-000009/-000009.log"));
    assert_eq!(next, Path::new("t-000010/-000010.log"));
}

#[test]
fn directives_are_those_of_the_original() {
    let check = |at: &str, format: &str, expected: &str| {
        let at: Zoned = at.parse().unwrap();
        assert_eq!(date_text(format, &at), expected);
    };
    let at = "2026-11-21T09:20:47.5+00:00[UTC]";
    // The original printed this line.
    check(
        at,
        "%B|%b|%m|%A|%a|%d|%H|%I|%M|%S|%Y|%y|%p|%Z|%z|%%|%j|%Q|%",
        "November|Nov|11|Saturday|Sat|21|09|09|20|47|2026|26|AM|UTC|+0000|%|%j|%Q|%",
    );
    check(at, "%Y-%m-%d_%H", "2026-11-21_09");
    check(at, "", "");
    check(at, "%é%%d", "%é%d");
    // Text that looks like Go's layout of dates is text.
    check(at, "x1 2006 Jan MST PM", "x1 2006 Jan MST PM");
    let berlin = "2026-01-02T15:04:05+01:00[Europe/Berlin]";
    check(berlin, "%I%p %Z %z %d %y", "03PM CET +0100 02 26");
    check("2026-01-02T00:04:05+00:00[UTC]", "%I%p", "12AM");
}
#[test]
fn the_pattern_fits_each_date_of_its_format() {
    let formats = [
        "%B|%b|%m|%A|%a|%d|%H|%I|%M|%S|%Y|%y|%p|%Z|%z|%%|%j|%Q|%",
        "%Y-%m-%d_%H",
        "(%Y)/%m.%é",
        "",
    ];
    let zones = ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu"];
    for (format, zone) in formats.iter().flat_map(|f| zones.map(|zone| (*f, zone))) {
        let pattern = regex::Regex::new(&format!("^{}$", date_pattern(format))).unwrap();
        for month in 1..=12 {
            let at: Zoned = format!("2026-{month:02}-21T09:20:47[{zone}]")
                .parse()
                .unwrap();
            let text = date_text(format, &at);
            assert!(pattern.is_match(&text), "{pattern} {text}");
        }
    }
    assert_eq!(date_pattern("%Y.%m"), r"-?[0-9]{4}\.[0-9]{2}");
}

#[test]
fn unknown_parts_of_names_are_told() {
    let check = |file_name: &str, date: &str, host: &str, expected: &[&str]| {
        assert_eq!(warnings(file_name, date, host), expected);
    };
    let all = "%Y.%y.%m.%B.%b.%d.%A.%a.%H.%I.%M.%S.%p.%Z.%z.%%";
    check(
        "<TOPIC><HOST><PID><DATETIME><REV>",
        all,
        "<SHORT_HOST>.<HOSTNAME>",
        &[],
    );
    check("a<b, c>d, <>, < x >, <<é>", "", "x > y", &[]);
    check(
        "<TOPC>/<TOPC><topic><REV>",
        "%Y-%Q%%Q%é%Q%",
        "<HOST>",
        &[
            "--filename-format has \"<TOPC>\", which is none of the tokens and stays as it is: \
             <TOPIC> <HOST> <PID> <DATETIME> <REV>",
            "--filename-format has \"<topic>\", which is none of the tokens and stays as it is: \
             <TOPIC> <HOST> <PID> <DATETIME> <REV>",
            "--host-identifier has \"<HOST>\", which is none of the tokens and stays as it is: \
             <SHORT_HOST> <HOSTNAME>",
            "--datetime-format has \"%Q\", which is none of the directives and stays as it is: \
             %Y %y %m %B %b %d %A %a %H %I %M %S %p %Z %z %%",
            "--datetime-format has \"%é\", which is none of the directives and stays as it is: \
             %Y %y %m %B %b %d %A %a %H %I %M %S %p %Z %z %%",
            "--datetime-format has \"%\", which is none of the directives and stays as it is: \
             %Y %y %m %B %b %d %A %a %H %I %M %S %p %Z %z %%",
        ],
    );
}
