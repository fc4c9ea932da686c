use program::Exit;

use super::*;
use crate::flags::tests::{check_exits, words};

fn read(args: Vec<std::ffi::OsString>) -> Result<Config, Exit> {
    flags::read(&TO_NSQ, args, Config::new)
}

#[test]
fn flags_become_values() {
    let args = "-topic=t#ephemeral -nsqd-tcp-address=a:1 --nsqd-tcp-address /run/b -nsqd-tcp-address=a:1 --delimiter=, \
                -rate=0x10 -producer-opt=snappy";
    let config = read(words(args)).unwrap();
    let addresses = ["a:1", "/run/b"].map(|text| text.parse().unwrap()).to_vec();
    assert_eq!(config.targets, Targets::All(addresses));
    assert_eq!(
        (&*config.flags.topic, config.delimiter),
        ("t#ephemeral", b',')
    );
    assert_eq!((config.flags.rate, config.client.snappy), (16, true));
    assert!(config.client.user_agent.starts_with("to_nsq/1.3.0 "));
    assert_eq!(config.client.write_timeout.as_secs(), 30);
    let config = read(words("-topic=t -lookupd-http-address=l:4161")).unwrap();
    assert_eq!(config.targets, Targets::AnyOf(vec!["l:4161".to_owned()]));
    assert_eq!((config.delimiter, config.flags.rate), (b'\n', 0));
}

/// The texts and codes are those of the original. It has no flag for the version, and publishes to `bad` for `bad topic`.
#[test]
fn mistakes_are_found_in_the_originals_order() {
    check_exits(
        &TO_NSQ,
        read,
        "-topic=t -nsqd-tcp-address=a:1",
        r#"
        -delimiter= | 1 | --topic required
        -topic=t -delimiter= | 1 | --delimiter must be a single byte
        -topic=bad·topic | 1 | --topic is invalid: "bad topic"...
        -topic=t -nsqd-tcp-address=x | 1 | --nsqd-tcp-address: address "x": missing port: write host:port, as in 127.0.0.1:4150 (nsqd has TCP on port 4150 by default)
        + -lookupd-http-address=b:1 | 1 | use --nsqd-tcp-address or --lookupd-http-address not both
        + -producer-opt=heartbeat_interval,70s | 1 | HeartbeatInterval 1m10s must be less than ReadTimeout 1m0s
        "#,
    );
}
