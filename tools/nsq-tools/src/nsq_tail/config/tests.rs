use super::*;

fn read(args: &[&str]) -> Result<Config, Exit> {
    Config::from_args(args.iter().map(Into::into))
}

/// A command line that is right.
const GOOD: [&str; 2] = ["-topic=events", "-nsqd-tcp-address=127.0.0.1:4150"];

fn read_with(args: &[&str]) -> Result<Config, Exit> {
    read(&[&GOOD[..], args].concat())
}

#[test]
fn each_wrong_value_has_its_message() {
    let fails = |args: &[&str], expected: &str| {
        let exit = read(args).expect_err("the command line is wrong");
        // The line begins with the time: 2026/11/21 09:17:11.
        let line = exit.stderr.get(20..).unwrap_or_default();
        assert_eq!(
            (exit.code, line),
            (1, &*format!("{expected}\n")),
            "{args:?}"
        );
    };
    fails(&[], "--nsqd-tcp-address or --lookupd-http-address required");
    fails(
        &["-lookupd-http-address=a:1", GOOD[1]],
        "use --nsqd-tcp-address or --lookupd-http-address not both",
    );
    fails(&[GOOD[1]], "--topic required");
    let with = |arg: &str, expected| fails(&[GOOD[0], GOOD[1], arg], expected);
    with("-max-in-flight=0", "--max-in-flight should be positive");
    with("-max-in-flight=-1", "--max-in-flight should be positive");
    with(
        "-output-dir=",
        "--output-dir has no value: write the name of a directory, or leave the flag out",
    );
    fails(
        &[GOOD[0], GOOD[1], "-output-dir=d", "-print-topic"],
        "--print-topic has no use with --output-dir: the name of each file begins with the topic",
    );
    with(
        "-consumer-opt=heartbeat_interval,70s",
        "HeartbeatInterval 1m10s must be less than ReadTimeout 1m0s",
    );
}

#[test]
fn the_parser_of_flags_refuses_with_code_2() {
    let fails = |args: &[&str], expected: &str| {
        let exit = read_with(args).unwrap_err();
        let line = exit.stderr.lines().next();
        assert_eq!((exit.code, line), (2, Some(expected)));
        assert!(exit.stderr.contains("\nUsage of nsq_tail:\n"));
    };
    fails(&["-xyz"], "flag provided but not defined: -xyz");
    fails(
        &["-consumer-opt=bogus,1"],
        "invalid value \"bogus,1\" for flag -consumer-opt: invalid option bogus",
    );
    for name in ["n", "max-in-flight"] {
        let expected = format!("invalid value \"x\" for flag -{name}: parse error");
        fails(&[&format!("-{name}=x")], &expected);
    }
    fails(
        &["-print-topic=x"],
        "invalid boolean value \"x\" for -print-topic: parse error",
    );
}

#[test]
fn a_channel_is_invented_for_each_run() {
    let config = read_with(&[]).unwrap();
    let number = config.channel.strip_prefix("tail");
    let number = number
        .and_then(|rest| rest.strip_suffix("#ephemeral"))
        .unwrap();
    assert!(
        number.len() == 6 && number.parse::<u32>().is_ok(),
        "{number}"
    );
    assert_eq!(read_with(&["-channel=c"]).unwrap().channel, "c");
}

#[test]
fn a_small_number_of_messages_limits_those_in_flight() {
    let check = |args: &[&str], count, max_in_flight| {
        let config = read_with(args).unwrap();
        assert_eq!(
            (config.message_count, config.client.max_in_flight),
            (count, max_in_flight)
        );
    };
    check(&[], None, 200);
    check(&["-n=3"], Some(3), 3);
    check(&["-n=0x200"], Some(512), 200);
    check(&["-n=0"], None, 200);
    check(&["-n=5", "-max-in-flight=2"], Some(5), 2);
    // The flag counts more than the option.
    check(&["-consumer-opt=max_in_flight,7"], None, 200);
}

#[test]
fn a_negative_number_of_messages_is_refused() {
    let exit = read_with(&["-n=-1"]).unwrap_err();
    let why = "--n must not be negative; 0 sets no limit\n";
    assert_eq!(exit.code, 1);
    assert!(exit.stderr.ends_with(why), "{}", exit.stderr);
}

#[test]
fn topics_are_distinct() {
    let config = read_with(&["-topic=a", "-topic=events", "-print-topic"]).unwrap();
    assert_eq!(config.topics, ["events", "a"]);
    assert!(config.prints_topic);
    assert_eq!(config.output_dir, None);
    let config = read_with(&["-output-dir=a/b"]).unwrap();
    assert_eq!(config.output_dir, Some("a/b".into()));
    assert_eq!(config.client.max_attempts, 0);
    let config = read_with(&["-consumer-opt=max_attempts,3", "-output-dir=d"]).unwrap();
    assert_eq!(config.client.max_attempts, 3);
    assert!(
        config
            .client
            .user_agent
            .starts_with("nsq_tail/1.3.0 ringq-client/")
    );
}
