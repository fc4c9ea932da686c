use program::Exit;

use super::*;
use crate::flags::tests::{check_exits, words};

fn read(args: Vec<std::ffi::OsString>) -> Result<Config, Exit> {
    flags::read(&NSQ_PUBSUB, args, Config::new)
}

#[test]
fn flags_become_values() {
    let config = read(words("-nsqd-tcp-address=a:1")).unwrap();
    assert_eq!(config.consumer.client.max_attempts, 0);
    let config = read(words(
        "-lookupd-http-address=l:1 --http-address=:0 --max-in-flight=7 --ephemeral-channel --heartbeat-interval=1s \
         --client-timeout=2s --max-body-size=3 --consumer-opt=max_attempts,4 --consumer-opt=max_in_flight,9 \
         --producer-opt=heartbeat_interval,5s",
    ))
    .unwrap();
    let (flags, consumer) = (config.flags, config.consumer);
    assert_eq!(consumer.sources, Sources::Lookupds(vec!["l:1".to_owned()]));
    let client = consumer.client;
    assert_eq!((client.max_in_flight, client.max_attempts), (7, 4));
    assert!(client.user_agent.starts_with("nsq_pubsub/1.3.0 "));
    let heartbeats = config.producer.heartbeat_interval;
    assert_eq!(heartbeats, Some(Duration::from_secs(5)));
    assert_eq!(flags.heartbeat_interval, Duration::from_secs(1));
    assert_eq!(flags.client_timeout, Duration::from_secs(2));
    assert!(flags.has_ephemeral_channels && flags.body_bytes_max == 3);
}

#[test]
fn mistakes_say_what_is_wrong() {
    check_exits(
        &NSQ_PUBSUB,
        read,
        "-nsqd-tcp-address=a:1",
        r#"
        --max-in-flight=0 | 1 | --max-in-flight must be > 0
        + --max-in-flight=-1 | 1 | --max-in-flight must be > 0
         | 1 | --nsqd-tcp-address or --lookupd-http-address required.
        + -lookupd-http-address=l:1 | 1 | use --nsqd-tcp-address or --lookupd-http-address not both
        + --heartbeat-interval=0 | 1 | --heartbeat-interval must be > 0
        + --heartbeat-interval=1 | 2 | invalid value "1" for flag -heartbeat-interval: ...
        + --client-timeout=-1s | 1 | --client-timeout must be > 0
        + --client-timeout=x | 2 | invalid value "x" for flag -client-timeout: ...
        + --max-body-size=0 | 1 | --max-body-size must be > 0
        + --max-body-size=x | 2 | invalid value "x" for flag -max-body-size: ...
        + --ephemeral-channel=x | 2 | invalid boolean value "x" for -ephemeral-channel: ...
        + --consumer-opt=nope | 2 | invalid value "nope" for flag -consumer-opt: invalid option nope
        + --producer-opt=nope | 2 | invalid value "nope" for flag -producer-opt: invalid option nope
        + --log-format=x | 2 | invalid value "x" for flag -log-format: ...
        "#,
    );
}
