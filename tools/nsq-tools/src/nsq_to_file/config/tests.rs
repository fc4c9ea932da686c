use super::*;
use crate::flags::tests::{check_exits, words};

/// A command line that is right.
const GOOD: &str = "-topic=events -nsqd-tcp-address=127.0.0.1:4150";

fn read(args: &str) -> Config {
    Config::from_args(words(args)).unwrap()
}

#[test]
fn mistakes_say_what_is_wrong() {
    check_exits(
        &NSQ_TO_FILE,
        Config::from_args,
        GOOD,
        r#"
        -http-client-connect-timeout=-1s | 1 | --http-client-connect-timeout should be positive
        -http-client-request-timeout=0s | 1 | --http-client-request-timeout should be positive
        -http-client-request-timeout=-1s | 1 | --http-client-request-timeout should be positive
        -nsqd-tcp-address=h:1 -gzip-level 0 | 1 | invalid --gzip-level value (0), should be 1-9
        -nsqd-tcp-address=h:1 -gzip-level -1 | 1 | invalid --gzip-level value (-1), should be 1-9
        + -sync-interval=-1s | 1 | --sync-interval should be positive
        + -max-in-flight=0 | 1 | --max-in-flight should be positive
        + -topic-pattern=a(b | 1 | invalid --topic-pattern value (a(b): unclosed group
        + -topic-pattern=^x | 1 | no --topic matches --topic-pattern ^x
        -lookupd-http-address=h:1 -topic-pattern=a -topic-refresh=0s | 1 | --topic-refresh should be positive
        + -gzip -zstd | 1 | use --gzip or --zstd not both
        + -zstd-level 0 | 1 | invalid --zstd-level value (0), should be 1-22
        + -zstd-level 23 | 1 | invalid --zstd-level value (23), should be 1-22
        + -consumer-opt=heartbeat_interval,70s | 1 | HeartbeatInterval 1m10s must be less than ReadTimeout 1m0s
        + -rotate-size=-1 | 1 | --rotate-size must not be negative; 0 sets no limit
        + -filename-format=<TOPIC> -gzip | 1 | missing <REV> in --filename-format when gzip, rotation, or work dir enabled
        + -filename-format=<TOPIC> -zstd | 1 | missing <REV> in --filename-format when gzip, rotation, or work dir enabled
        + -filename-format=<TOPIC> -rotate-size=1 | 1 | missing <REV> in --filename-format when gzip, rotation, or work dir enabled
        + -filename-format=<TOPIC> -rotate-interval=1s | 1 | missing <REV> in --filename-format when gzip, rotation, or work dir enabled
        + -filename-format=<TOPIC> -work-dir=/w | 1 | missing <REV> in --filename-format when gzip, rotation, or work dir enabled
        + -gzip-level=x | 2 | invalid value "x" for flag -gzip-level: parse error
        + -topic | 2 | flag needs an argument: -topic
        -log-level=loud -channel= a | 1 | unknown arguments: [a]
        -log-level=loud -version | 1 | --log-level is invalid
        -gzip-level=0 -lookupd-http-address=a:1 -channel= | 1 | --channel is required
        -version -channel= | 0 | nsq_to_file v1.3.0
        "#,
    );
}

#[test]
fn given_values_replace_the_defaults() {
    let args = "-topic=other -topic-pattern=^e -consumer-opt=max_attempts,3 -consumer-opt=max_in_flight,7 -max-in-flight=2500 -output-dir=./out/ -work-dir=out/../work -zstd -zstd-level=19 -rotate-size=1_000 -rotate-interval=1h -skip-empty-files -log-prefix= -log-level=WARN";
    let config = read(&format!("{GOOD} {args}"));
    assert!(matches!(&config.topics, Topics::Fixed(topics) if topics == &["events"]));
    let client = &config.consumer.client;
    assert_eq!((client.max_in_flight, client.max_attempts), (2500, 3));
    let agent = &client.user_agent;
    assert!(agent.starts_with("nsq_to_file/1.3.0 ringq-client/"));
    let archive = &config.archive;
    assert_eq!(archive.output_dir, Path::new("out"));
    assert_eq!(archive.work_dir, Path::new("work"));
    assert_eq!(archive.compression, Compression::Zstd(19));
    let hour = Duration::from_secs(3600);
    let rotation = (archive.rotate_size, archive.rotate_interval);
    assert_eq!(rotation, (Some(1000), Some(hour)));
    assert!(archive.skips_empty_files && archive.names.needs_revision);
    let log = (config.log_level, &*config.log_style.prefix);
    assert_eq!(log, (Level::Warn, ""));
    // No message is given up, and there is one directory.
    let config = read(GOOD);
    assert_eq!(config.consumer.client.max_attempts, 0);
    let archive = &config.archive;
    assert_eq!(archive.work_dir, archive.output_dir);
    assert_eq!(archive.compression, Compression::None);
    assert_eq!((archive.rotate_size, archive.rotate_interval), (None, None));
    assert!(!archive.names.needs_revision);

    let config = read("-lookupd-http-address=h:1 -topic-pattern=^clicks_ -topic-refresh=5s");
    let Topics::Discovered { pattern } = config.topics else {
        panic!("without --topic, nsqlookupds name the topics");
    };
    let found = (pattern.as_str(), config.flags.topic_refresh.as_secs());
    assert_eq!(found, ("^clicks_", 5));
    // The flag has no meaning for fixed topics in the original, which takes any value.
    let fixed = "-topic=t -lookupd-http-address=h:1 -topic-refresh=0s";
    assert_eq!(read(fixed).flags.topic_refresh.as_secs(), 60);
}
