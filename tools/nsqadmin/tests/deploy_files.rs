//! The unit of tools/deploy: nsqadmin starts with its flags and its configuration file.

use std::fs;
use std::path::PathBuf;

use crate::support::{Admin, cluster};
use test_support::daemon::Daemon;

fn text(name: &str) -> String {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd");
    fs::read_to_string(directory.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the value of a setting that the unit has once.
fn setting<'a>(unit: &'a str, name: &str) -> &'a str {
    let mut values = unit
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = values.next().unwrap_or_else(|| panic!("{name} is missing"));
    assert_eq!(values.next(), None, "{name}");
    value
}

#[test]
fn nsqadmin_starts_as_its_unit_says_and_keeps_the_past_in_its_state() {
    let unit = text("nsqadmin.service");
    let state = format!("/var/lib/{}", setting(&unit, "StateDirectory"));
    let own = tempfile::tempdir().unwrap();
    let own_path = |name: &str| own.path().join(name).display().to_string();
    // The examples in comments count, too.
    let config = text("nsqadmin.toml");
    let lines = config.lines().map(|line| match line.strip_prefix("# ") {
        Some(example) if example.contains(" = ") => example,
        _ => line,
    });
    let content = lines.collect::<Vec<_>>().join("\n");
    let content = content.replace(&state, &own_path("state"));
    fs::create_dir(own_path("state")).unwrap();
    fs::write(own_path("nsqadmin.toml"), content).unwrap();

    let mut words = setting(&unit, "ExecStart").split(' ');
    assert_eq!(words.next(), Some("/usr/local/bin/nsqadmin"));
    let flags: Vec<String> = words
        .map(|flag| flag.replace(&state, &own_path("state")))
        .map(|flag| flag.replace("/etc/nsq/nsqadmin.toml", &own_path("nsqadmin.toml")))
        .collect();
    assert_eq!(flags.len(), 2, "{flags:?}");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let lookupd = Daemon::nsqlookupd(&[]);
    let _nsqds = cluster(&[&lookupd], 1);
    // The command line goes before the file.
    let mut admin = Admin::start_at(&[&lookupd], &flags);
    admin.wait_for("/api/live/history?topic=clicks", |past| past["step"] == 1);
    assert!(!admin.log().contains("ignored"), "{}", admin.log());
    let audit = admin.get("/config/audit_log_file").text();
    assert!(audit.contains("state/audit.log"), "{audit}");
    admin.signal("TERM");
    assert_eq!(admin.wait().code(), Some(0));
    assert!(fs::metadata(own_path("state/history")).unwrap().len() > 100);
}
