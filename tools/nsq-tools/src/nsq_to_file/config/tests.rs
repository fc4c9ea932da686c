use std::path::PathBuf;

use super::*;

fn read(args: &[&str]) -> Result<Config, Exit> {
    Config::from_args(args.iter().map(Into::into))
}

/// A command line that is right.
const GOOD: [&str; 2] = ["-topic=events", "-nsqd-tcp-address=127.0.0.1:4150"];

fn read_with(args: &[&str]) -> Result<Config, Exit> {
    read(&[&GOOD[..], args].concat())
}

/// Expects the end of the program with code 1 and this line.
fn fails(args: &[&str], expected: &str) {
    let exit = read(args).expect_err("the command line is wrong");
    // The line begins with the time: 2026/11/21 09:17:11.
    let line = exit.stderr.get(20..).unwrap_or_default();
    assert_eq!(
        (exit.code, line),
        (1, &*format!("{expected}\n")),
        "{args:?}"
    );
}

#[test]
fn each_wrong_value_has_its_message() {
    fails(&["a", "b"], "unknown arguments: [a b]");
    fails(&["-log-level=loud"], "--log-level is invalid");
    fails(&["-channel="], "--channel is required");
    for name in ["http-client-connect-timeout", "http-client-request-timeout"] {
        let expected = format!("--{name} should be positive");
        fails(&[&format!("-{name}=0s")], &expected);
        fails(&[&format!("-{name}=-1s")], &expected);
    }
    let missing = "--nsqd-tcp-address or --lookupd-http-address required.";
    fails(&["-topic=a"], missing);
    let lookupd = "-lookupd-http-address=127.0.0.1:4161";
    let both = "use --nsqd-tcp-address or --lookupd-http-address not both";
    fails(&[lookupd, GOOD[1]], both);
    for level in ["0", "10", "-1"] {
        let expected = format!("invalid --gzip-level value ({level}), should be 1-9");
        fails(&[GOOD[1], "-gzip-level", level], &expected);
    }
    fails(&[GOOD[1]], "--topic or --topic-pattern required");
    fails(
        &[GOOD[1], "-topic-pattern=a"],
        "--lookupd-http-address must be specified when no --topic specified",
    );
    let fails_with = |args: &[&str], expected: &str| fails(&[&GOOD[..], args].concat(), expected);
    fails_with(&["-sync-interval=0s"], "--sync-interval should be positive");
    fails_with(
        &["-sync-interval=-1s"],
        "--sync-interval should be positive",
    );
    fails_with(&["-max-in-flight=0"], "--max-in-flight should be positive");
    fails_with(
        &["-topic-pattern=a(b"],
        "invalid --topic-pattern value (a(b): unclosed group",
    );
    fails_with(
        &["-topic-pattern=^x"],
        "no --topic matches --topic-pattern ^x",
    );
    fails(
        &[lookupd, "-topic-pattern=a", "-topic-refresh=0s"],
        "--topic-refresh should be positive",
    );
    fails_with(&["-gzip", "-zstd"], "use --gzip or --zstd not both");
    for level in ["0", "23"] {
        let expected = format!("invalid --zstd-level value ({level}), should be 1-22");
        fails_with(&["-zstd-level", level], &expected);
    }
    fails_with(
        &["-consumer-opt=heartbeat_interval,70s"],
        "HeartbeatInterval 1m10s must be less than ReadTimeout 1m0s",
    );
    fails_with(
        &["-rotate-size=-1"],
        "--rotate-size must not be negative; 0 sets no limit",
    );
    let revision = "missing <REV> in --filename-format when gzip, rotation, or work dir enabled";
    for flag in [
        "-gzip",
        "-zstd",
        "-rotate-size=1",
        "-rotate-interval=1s",
        "-work-dir=/w",
    ] {
        fails_with(&["-filename-format=<TOPIC>", flag], revision);
    }
}

#[test]
fn several_wrong_values_are_checked_in_the_order_of_the_original() {
    fails(
        &["-log-level=loud", "-channel=", "a"],
        "unknown arguments: [a]",
    );
    fails(&["-log-level=loud", "-version"], "--log-level is invalid");
    fails(
        &["-gzip-level=0", "-lookupd-http-address=a:1", "-channel="],
        "--channel is required",
    );
    let exit = read(&["-version", "-channel="]).unwrap_err();
    let version = concat!(
        "nsq_to_file v1.3.0\nringq ",
        env!("CARGO_PKG_VERSION"),
        "\n"
    );
    assert_eq!((exit.code, &*exit.stdout), (0, version));
}

#[test]
fn the_parser_of_flags_refuses_with_code_2() {
    let fails = |args: &[&str], expected: &str| {
        let exit = read_with(args).unwrap_err();
        let line = exit.stderr.lines().next();
        assert_eq!((exit.code, line), (2, Some(expected)));
        assert!(exit.stderr.contains("\nUsage of nsq_to_file:\n"));
    };
    fails(&["-xyz"], "flag provided but not defined: -xyz");
    fails(&["-topic"], "flag needs an argument: -topic");
    // The original ignores these errors of options.
    fails(
        &["-consumer-opt=bogus,1"],
        "invalid value \"bogus,1\" for flag -consumer-opt: invalid option bogus",
    );
    let values = [
        ("gzip-level", "x"),
        ("max-in-flight", "1.5"),
        ("rotate-size", "1M"),
        ("zstd-level", ""),
        ("rotate-interval", "5"),
        ("sync-interval", "1d"),
        ("topic-refresh", "soon"),
        ("http-client-connect-timeout", "1"),
        ("http-client-request-timeout", "1"),
    ];
    for (name, value) in values {
        let expected = format!("invalid value {value:?} for flag -{name}: parse error");
        fails(&[&format!("-{name}={value}")], &expected);
    }
    for name in ["gzip", "zstd", "skip-empty-files"] {
        let expected = format!("invalid boolean value \"maybe\" for -{name}: parse error");
        fails(&[&format!("-{name}=maybe")], &expected);
    }
}

#[test]
fn defaults_are_those_of_the_original() {
    let config = read_with(&[]).unwrap();
    assert!(matches!(&config.topics, Topics::Fixed(topics) if topics == &["events"]));
    assert_eq!(config.flags.channel, "nsq_to_file");
    assert_eq!(config.flags.sync_interval, Duration::from_secs(30));
    assert_eq!(config.client.max_in_flight, 200);
    assert_eq!(config.client.max_attempts, 0, "no message is given up");
    assert!(
        config
            .client
            .user_agent
            .starts_with("nsq_to_file/1.3.0 ringq-client/")
    );
    let second = Duration::from_secs(1);
    let timeouts = config.flags.timeouts;
    assert_eq!(
        (timeouts.connect, timeouts.request),
        (2 * second, 5 * second)
    );
    let archive = &config.archive;
    assert_eq!(archive.output_dir, PathBuf::from("/tmp"));
    assert_eq!(archive.work_dir, archive.output_dir);
    assert_eq!(archive.compression, Compression::None);
    assert_eq!((archive.rotate_size, archive.rotate_interval), (None, None));
    assert!(!archive.skips_empty_files && !archive.names.needs_revision);
    assert_eq!(config.log_style.prefix, "[nsq_to_file] ");
}

#[test]
fn given_values_replace_the_defaults() {
    let config = read_with(&[
        "-topic=other",
        "-topic-pattern=^e",
        "-consumer-opt=max_attempts,3",
        "-consumer-opt=max_in_flight,7",
        "-max-in-flight=2500",
        "-output-dir=./out/",
        "-work-dir=out/../work",
        "-zstd",
        "-zstd-level=19",
        "-rotate-size=1_000",
        "-rotate-interval=1h",
        "-skip-empty-files",
        "-log-prefix=",
        "-log-level=WARN",
    ])
    .unwrap();
    assert!(matches!(&config.topics, Topics::Fixed(topics) if topics == &["events"]));
    assert_eq!(
        (config.client.max_in_flight, config.client.max_attempts),
        (2500, 3)
    );
    let archive = &config.archive;
    assert_eq!(archive.output_dir, PathBuf::from("out"));
    assert_eq!(archive.work_dir, PathBuf::from("work"));
    assert_eq!(archive.compression, Compression::Zstd(19));
    let hour = Duration::from_secs(3600);
    assert_eq!(
        (archive.rotate_size, archive.rotate_interval),
        (Some(1000), Some(hour))
    );
    assert!(archive.skips_empty_files && archive.names.needs_revision);
    assert_eq!(
        (config.log_level, &*config.log_style.prefix),
        (Level::Warn, "")
    );

    let args = [
        "-lookupd-http-address=h:1",
        "-topic-pattern=^clicks_",
        "-topic-refresh=5s",
    ];
    let config = read(&args).unwrap();
    let Topics::Discovered { pattern } = config.topics else {
        panic!("without --topic, nsqlookupds name the topics");
    };
    let found = (pattern.as_str(), config.flags.topic_refresh.as_secs());
    assert_eq!(found, ("^clicks_", 5));
    // The flag has no meaning for fixed topics in the original, which takes any value.
    let fixed = ["-topic=t", "-lookupd-http-address=h:1", "-topic-refresh=0s"];
    assert_eq!(read(&fixed).unwrap().flags.topic_refresh.as_secs(), 60);
}
