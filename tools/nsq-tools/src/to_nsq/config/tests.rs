use super::*;

fn read(args: &[&str]) -> Result<Config, Exit> {
    Config::from_args(args.iter().map(OsString::from))
}

#[test]
fn flags_become_values() {
    let config = read(&[
        "-topic=t#ephemeral",
        "-nsqd-tcp-address=a:1",
        "--nsqd-tcp-address",
        "/run/b",
        "-nsqd-tcp-address=a:1",
        "--delimiter=,",
        "-rate=0x10",
        "-producer-opt=snappy",
    ])
    .unwrap();
    let addresses = ["a:1", "/run/b"].map(|text| text.parse().unwrap()).to_vec();
    assert_eq!(config.targets, Targets::All(addresses));
    assert_eq!(
        (config.flags.topic.as_str(), config.delimiter),
        ("t#ephemeral", b',')
    );
    assert_eq!((config.flags.rate, config.client.snappy), (16, true));
    assert!(config.client.user_agent.starts_with("to_nsq/1.3.0 "));
    assert_eq!(config.client.write_timeout.as_secs(), 30);
    let config = read(&["-topic=t", "-lookupd-http-address=l:4161"]).unwrap();
    assert_eq!(config.targets, Targets::AnyOf(vec!["l:4161".to_owned()]));
    assert_eq!((config.delimiter, config.flags.rate), (b'\n', 0));
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
        "flag provided but not defined: -nope\nUsage of to_nsq:\n",
    );
    check(&["-h"], 0, "Usage of to_nsq:\n");
    check(
        &["-rate=1.5"],
        2,
        "invalid value \"1.5\" for flag -rate: parse error\n",
    );
    check(
        &["-producer-opt=x,1"],
        2,
        "invalid value \"x,1\" for flag -producer-opt: invalid option x\n",
    );
    // The original has no such flag.
    check(&["-version"], 0, "to_nsq v1.3.0\n");
    check(&["-delimiter="], 1, "--topic required\n");
    for delimiter in ["", "ab", "é"] {
        check(
            &["-topic=t", "-delimiter", delimiter],
            1,
            "--delimiter must be a single byte\n",
        );
    }
    check(&["-topic=t"], 1, "--nsqd-tcp-address required");
    // The original publishes to the topic `bad`.
    check(
        &["-topic=bad topic"],
        1,
        "--topic is invalid: \"bad topic\"",
    );
    check(
        &["-topic=t", "-nsqd-tcp-address=x"],
        1,
        "--nsqd-tcp-address: address \"x\": missing port: write host:port, as in 127.0.0.1:4150 (nsqd has TCP on port 4150 by default)\n",
    );
    check(
        &[
            "-topic=t",
            "-nsqd-tcp-address=a:1",
            "-lookupd-http-address=b:1",
        ],
        1,
        "use --nsqd-tcp-address or --lookupd-http-address not both\n",
    );
    check(
        &[
            "-topic=t",
            "-nsqd-tcp-address=a:1",
            "-producer-opt=heartbeat_interval,70s",
        ],
        1,
        "HeartbeatInterval 1m10s must be less than ReadTimeout 1m0s\n",
    );
}
