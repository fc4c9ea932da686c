use super::*;

fn read(args: &[&str]) -> Result<Config, Exit> {
    Config::from_args(args.iter().map(OsString::from))
}

const GOOD: [&str; 3] = [
    "-topic=t",
    "-nsqd-tcp-address=s:1",
    "-destination-nsqd-tcp-address=d:1",
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    GOOD.iter().chain(more).copied().collect()
}

#[test]
fn flags_become_values() {
    let config = read(&with(&[
        "-topic=u",
        "-topic=t",
        "-destination-nsqd-tcp-address=/run/d",
        "-destination-nsqd-tcp-address=d:1",
        "-destination-topic=x",
        "-mode=epsilon-greedy",
        "-max-in-flight=7",
        "-whitelist-json-field=a",
        "-whitelist-json-field=b,c",
        "-require-json-field=r",
        "-require-json-value=2",
        "-key-json-field=/k",
        "-consumer-opt=max_attempts,3",
        "-producer-opt=snappy",
    ]))
    .unwrap();
    assert_eq!(config.flags.topics, ["t", "u"]);
    assert_eq!(config.flags.channel, "nsq_to_nsq");
    assert_eq!(config.destination_topic.as_deref(), Some("x"));
    let addresses = ["d:1", "/run/d"].map(|text| text.parse().unwrap()).to_vec();
    assert_eq!(config.destinations, addresses);
    assert_eq!(
        (config.mode, config.status_every),
        (Mode::EpsilonGreedy, 250)
    );
    let consumer = &config.consumer;
    assert_eq!((consumer.max_in_flight, consumer.max_attempts), (7, 3));
    assert!(config.producer.snappy && !config.consumer.snappy);
    assert_eq!(config.filter.whitelist, ["a", "b,c"]);
    let require = config.filter.require.unwrap();
    assert_eq!(
        (require.field.as_str(), require.value.as_deref()),
        ("r", Some("2"))
    );
    assert_eq!(config.key, Key::parse("/k").ok());
    let config = read(&with(&[])).unwrap();
    assert!(config.filter.is_off() && config.key.is_none() && config.destination_topic.is_none());
    assert_eq!(
        (config.mode, config.consumer.max_in_flight),
        (Mode::HostPool, 200)
    );
    assert_eq!(config.consumer.max_attempts, 0, "no message is given up");
    assert!(config.producer.user_agent.starts_with("nsq_to_nsq/1.3.0 "));
}

/// The texts and codes are those of the original, except where a comment says otherwise.
#[test]
fn mistakes_are_found_in_the_originals_order() {
    let check = |args: &[&str], code: u8, text: &str| {
        let exit = read(args).expect_err("the program ends");
        let shown = format!("{}{}", exit.stdout, exit.stderr);
        assert!(
            exit.code == code && shown.contains(text),
            "{args:?}: {exit:?}"
        );
    };
    check(
        &["-nope"],
        2,
        "flag provided but not defined: -nope\nUsage of nsq_to_nsq:\n",
    );
    check(&["-h"], 0, "Usage of nsq_to_nsq:\n");
    check(&["-version"], 0, "nsq_to_nsq v1.3.0\n");
    check(
        &["-max-in-flight=x"],
        2,
        "invalid value \"x\" for flag -max-in-flight: parse error\n",
    );
    for flag in ["consumer-opt", "producer-opt"] {
        let line = format!("invalid value \"bogus,1\" for flag -{flag}: invalid option bogus\n");
        check(&[&format!("-{flag}=bogus,1")], 2, &line);
    }
    check(
        &["-destination-topic=a b"],
        1,
        "--topic and --channel are required\n",
    );
    check(
        &["-topic=t", "-channel="],
        1,
        "--topic and --channel are required\n",
    );
    check(
        &["-topic=t", "-topic=a b", "-destination-topic=a b"],
        1,
        "--topic is invalid: \"a b\" is not 1 to 64 characters of a-z A-Z 0-9 . _ -, of which the last 10 may be #ephemeral",
    );
    check(
        &["-topic=t", "-destination-topic=a b", "-channel=a b"],
        1,
        "--destination-topic is invalid: \"a b\" is not 1 to 64 characters of a-z",
    );
    check(
        &["-topic=t", "-channel=a b"],
        1,
        "--channel is invalid: \"a b\" is not 1 to 64 characters of a-z",
    );
    check(
        &["-topic=t"],
        1,
        "--nsqd-tcp-address or --lookupd-http-address required\n",
    );
    let both = "use --nsqd-tcp-address or --lookupd-http-address not both\n";
    check(&with(&["-lookupd-http-address=l:1"]), 1, both);
    check(&GOOD[..2], 1, "--destination-nsqd-tcp-address required\n");
    // The original takes the rest, and fails later or does something else.
    let port = "--destination-nsqd-tcp-address: address \"x\": missing port: write host:port, as in 127.0.0.1:4150 (nsqd has TCP on port 4150 by default)\n";
    check(&with(&["-destination-nsqd-tcp-address=x"]), 1, port);
    let empty = "--key-json-field has no value: write the name of a field or a JSON pointer such as /user/id, or leave the flag out\n";
    check(&with(&["-key-json-field="]), 1, empty);
    for wrong in ["/a~2", "/a~"] {
        let escape = format!(
            "--key-json-field: the JSON pointer {wrong:?} has a tilde that is not followed by 0 or 1; write ~0 for a tilde \
             and ~1 for a slash\n"
        );
        let flag = format!("-key-json-field={wrong}");
        check(&with(&[&flag]), 1, &escape);
    }
    let field = "--require-json-value needs --require-json-field\n";
    check(&with(&["-require-json-value=5"]), 1, field);
    let modes = "--mode must be round-robin, hostpool or epsilon-greedy, not \"bogus\"\n";
    check(&with(&["-mode=bogus"]), 1, modes);
    check(
        &with(&["-status-every=-1"]),
        1,
        "--status-every must not be negative\n",
    );
    for value in ["0", "-1"] {
        let args = with(&["-max-in-flight", value]);
        check(&args, 1, "--max-in-flight should be positive\n");
    }
    let too_many = with(&["-max-in-flight=4294967296"]);
    let bound = "--max-in-flight must not be above 4294967295\n";
    check(&too_many, 1, bound);
    for flag in ["consumer-opt", "producer-opt"] {
        let heartbeat = format!("-{flag}=heartbeat_interval,70s");
        let line = "HeartbeatInterval 1m10s must be less than ReadTimeout 1m0s\n";
        check(&with(&[&heartbeat]), 1, line);
    }
}

/// A message was copied to its own topic again and again, at the full speed of nsqd.
#[test]
fn a_destination_that_is_a_source_of_the_topic_is_refused() {
    let check = |more: &[&str], is_circle: bool| {
        let mut args = vec!["-topic=a", "-topic=b", "-nsqd-tcp-address=s:1"];
        args.extend(more);
        match read(&args) {
            Ok(_) => assert!(!is_circle, "{args:?}"),
            Err(exit) => assert!(
                is_circle
                    && exit.code == 1
                    && exit
                        .stderr
                        .contains("would copy its own copies without end"),
                "{args:?}: {exit:?}"
            ),
        }
    };
    check(&["-destination-nsqd-tcp-address=s:1"], true);
    check(
        &[
            "-destination-nsqd-tcp-address=d:1",
            "-destination-nsqd-tcp-address=s:1",
        ],
        true,
    );
    check(
        &["-destination-nsqd-tcp-address=s:1", "-destination-topic=b"],
        true,
    );
    check(
        &["-destination-nsqd-tcp-address=s:1", "-destination-topic=c"],
        false,
    );
    check(&["-destination-nsqd-tcp-address=d:1"], false);
}
