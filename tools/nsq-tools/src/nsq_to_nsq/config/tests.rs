use program::Exit;

use super::*;
use crate::flags::tests::{check_exits, words};

fn read(args: Vec<std::ffi::OsString>) -> Result<Config, Exit> {
    flags::read(&NSQ_TO_NSQ, args, Config::new)
}

const GOOD: &str = "-topic=t -nsqd-tcp-address=s:1 -destination-nsqd-tcp-address=d:1";

#[test]
fn flags_become_values() {
    let more = "-topic=u -topic=t -destination-nsqd-tcp-address=/run/d -destination-nsqd-tcp-address=d:1 \
                -destination-topic=x -mode=epsilon-greedy -max-in-flight=7 -whitelist-json-field=a \
                -whitelist-json-field=b,c -require-json-field=r -require-json-value=2 -key-json-field=/k \
                -consumer-opt=max_attempts,3 -producer-opt=snappy";
    let config = read(words(&format!("{GOOD} {more}"))).unwrap();
    assert_eq!(config.flags.topics, ["t", "u"]);
    assert_eq!(config.flags.channel, "nsq_to_nsq");
    assert_eq!(config.destination_topic.as_deref(), Some("x"));
    let addresses = ["d:1", "/run/d"].map(|text| text.parse().unwrap()).to_vec();
    assert_eq!(config.destinations, addresses);
    assert_eq!(
        (config.mode, config.status_every),
        (Mode::EpsilonGreedy, 250)
    );
    let client = &config.consumer.client;
    assert_eq!((client.max_in_flight, client.max_attempts), (7, 3));
    assert!(config.producer.snappy && !client.snappy);
    assert_eq!(config.filter.whitelist, ["a", "b,c"]);
    let require = config.filter.require.unwrap();
    assert_eq!(
        (&*require.field, require.value.as_deref()),
        ("r", Some("2"))
    );
    assert_eq!(config.key, Key::parse("/k").ok());
    let config = read(words(GOOD)).unwrap();
    assert!(config.filter.is_off() && config.key.is_none() && config.destination_topic.is_none());
    let client = &config.consumer.client;
    assert_eq!((config.mode, client.max_in_flight), (Mode::HostPool, 200));
    assert_eq!(client.max_attempts, 0, "no message is given up");
    assert!(config.producer.user_agent.starts_with("nsq_to_nsq/1.3.0 "));
}

/// The texts and codes are those of the original. It takes what comes behind the missing destination, and fails later or
/// does something else.
#[test]
fn mistakes_are_found_in_the_originals_order() {
    check_exits(
        &NSQ_TO_NSQ,
        read,
        GOOD,
        r#"
        -consumer-opt=bogus,1 word | 2 | invalid value "bogus,1" for flag -consumer-opt: invalid option bogus
        -destination-topic=a·b | 1 | --topic and --channel are required
        -topic=t -channel= | 1 | --topic and --channel are required
        -topic=t -topic=a·b -destination-topic=a·b | 1 | --topic is invalid: "a b" is not 1 to 64 characters of a-z A-Z 0-9 . _ -, of which the last 10 may be #ephemeral
        -topic=t -destination-topic=a·b -channel=a·b | 1 | --destination-topic is invalid: "a b" is not 1 to 64 characters of a-z...
        -topic=t -channel=a·b | 1 | --channel is invalid: "a b" is not 1 to 64 characters of a-z...
        + -destination-nsqd-tcp-address=x | 1 | --destination-nsqd-tcp-address: address "x": missing port: write host:port, as in 127.0.0.1:4150 (nsqd has TCP on port 4150 by default)
        + -key-json-field= | 1 | --key-json-field has no value: write the name of a field or a JSON pointer such as /user/id, or leave the flag out
        + -key-json-field=/a~2 | 1 | --key-json-field: the JSON pointer "/a~2" has a tilde that is not followed by 0 or 1; write ~0 for a tilde and ~1 for a slash
        + -key-json-field=/a~ | 1 | --key-json-field: the JSON pointer "/a~" has a tilde that is not followed by 0 or 1; write ~0 for a tilde and ~1 for a slash
        + -mode=bogus | 1 | --mode must be round-robin, hostpool or epsilon-greedy, not "bogus"
        + -status-every=-1 | 1 | --status-every must not be negative
        + -max-in-flight=0 | 1 | --max-in-flight should be positive
        + -max-in-flight=-1 | 1 | --max-in-flight should be positive
        + -max-in-flight=4294967296 | 1 | --max-in-flight must not be above 4294967295
        + -consumer-opt=heartbeat_interval,70s | 1 | HeartbeatInterval 1m10s must be less than ReadTimeout 1m0s
        + -producer-opt=heartbeat_interval,70s | 1 | HeartbeatInterval 1m10s must be less than ReadTimeout 1m0s
        "#,
    );
}

/// A message was copied to its own topic again and again, at the full speed of nsqd.
#[test]
fn a_destination_that_is_a_source_of_the_topic_is_refused() {
    let end = |more: &str| {
        read(words(&format!(
            "-topic=a -topic=b -nsqd-tcp-address=s:1 {more}"
        )))
        .map(|_| ())
    };
    for circle in [
        "-destination-nsqd-tcp-address=s:1",
        "-destination-nsqd-tcp-address=d:1 -destination-nsqd-tcp-address=s:1",
        "-destination-nsqd-tcp-address=s:1 -destination-topic=b",
    ] {
        let exit = end(circle).expect_err(circle);
        let is_told = exit
            .stderr
            .contains("would copy its own copies without end");
        assert!(exit.code == 1 && is_told, "{circle}: {exit:?}");
    }
    assert_eq!(
        end("-destination-nsqd-tcp-address=s:1 -destination-topic=c"),
        Ok(())
    );
    assert_eq!(end("-destination-nsqd-tcp-address=d:1"), Ok(()));
}
