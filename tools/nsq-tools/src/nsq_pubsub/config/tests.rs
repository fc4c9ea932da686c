use super::*;

fn read(args: &[&str]) -> Result<Config, Exit> {
    Config::from_args(args.iter().map(OsString::from))
}

#[test]
fn flags_become_values() {
    let config = read(&["-nsqd-tcp-address=a:1"]).unwrap();
    assert_eq!(config.flags.http_address, "0.0.0.0:8080");
    assert_eq!(
        (config.consumer.max_in_flight, config.consumer.max_attempts),
        (100, 0)
    );
    assert_eq!(config.flags.heartbeat_interval, Duration::from_secs(30));
    assert_eq!(config.flags.client_timeout, Duration::from_secs(60));
    assert_eq!(
        (
            config.flags.has_ephemeral_channels,
            config.flags.body_bytes_max
        ),
        (false, 1 << 20)
    );
    let config = read(&[
        "-lookupd-http-address=l:1",
        "--http-address=:0",
        "--max-in-flight=7",
        "--ephemeral-channel",
        "--heartbeat-interval=1s",
        "--client-timeout=2s",
        "--max-body-size=3",
        "--consumer-opt=max_attempts,4",
        "--consumer-opt=max_in_flight,9",
        "--producer-opt=heartbeat_interval,5s",
    ])
    .unwrap();
    assert_eq!(config.sources, Sources::Lookupds(vec!["l:1".to_owned()]));
    assert_eq!(
        (config.consumer.max_in_flight, config.consumer.max_attempts),
        (7, 4)
    );
    assert!(config.consumer.user_agent.starts_with("nsq_pubsub/1.3.0 "));
    assert_eq!(
        config.producer.heartbeat_interval,
        Some(Duration::from_secs(5))
    );
    assert_eq!(config.flags.heartbeat_interval, Duration::from_secs(1));
    assert_eq!(config.flags.client_timeout, Duration::from_secs(2));
    assert_eq!(
        (
            config.flags.has_ephemeral_channels,
            config.flags.body_bytes_max
        ),
        (true, 3)
    );
}

#[test]
fn mistakes_say_what_is_wrong() {
    let check = |args: &[&str], code: u8, text: &str| {
        let exit = read(args).expect_err("the program ends");
        assert_eq!(exit.code, code, "{args:?}: {exit:?}");
        let found = match code {
            1 => exit.stderr.ends_with(&format!(" {text}\n")),
            _ => exit.stderr.starts_with(text),
        };
        assert!(found, "{args:?}: {exit:?}");
    };
    let nsqd = "-nsqd-tcp-address=a:1";
    check(
        &["--nope"],
        2,
        "flag provided but not defined: -nope\nUsage of nsq_pubsub:\n",
    );
    check(&["--help"], 0, "Usage of nsq_pubsub:\n");
    check(&["--max-in-flight=0"], 1, "--max-in-flight must be > 0");
    check(
        &["--max-in-flight=-1", nsqd],
        1,
        "--max-in-flight must be > 0",
    );
    check(
        &[],
        1,
        "--nsqd-tcp-address or --lookupd-http-address required.",
    );
    check(
        &[nsqd, "-lookupd-http-address=l:1"],
        1,
        "use --nsqd-tcp-address or --lookupd-http-address not both",
    );
    for (flag, code, text) in [
        (
            "--heartbeat-interval=0",
            1,
            "--heartbeat-interval must be > 0",
        ),
        (
            "--heartbeat-interval=1",
            2,
            "invalid value \"1\" for flag -heartbeat-interval: ",
        ),
        ("--client-timeout=-1s", 1, "--client-timeout must be > 0"),
        (
            "--client-timeout=x",
            2,
            "invalid value \"x\" for flag -client-timeout: ",
        ),
        ("--max-body-size=0", 1, "--max-body-size must be > 0"),
        (
            "--max-body-size=x",
            2,
            "invalid value \"x\" for flag -max-body-size: ",
        ),
        (
            "--ephemeral-channel=x",
            2,
            "invalid boolean value \"x\" for -ephemeral-channel: ",
        ),
        (
            "--consumer-opt=nope",
            2,
            "invalid value \"nope\" for flag -consumer-opt: invalid option nope",
        ),
        (
            "--producer-opt=nope",
            2,
            "invalid value \"nope\" for flag -producer-opt: invalid option nope",
        ),
        (
            "--log-format=x",
            2,
            "invalid value \"x\" for flag -log-format: ",
        ),
    ] {
        check(&[nsqd, flag], code, text);
    }
}
