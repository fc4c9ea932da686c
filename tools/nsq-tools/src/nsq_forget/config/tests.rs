use super::*;

fn read(args: &[&str]) -> Result<Config, Exit> {
    Config::from_args(args.iter().map(OsString::from))
}

const GOOD: [&str; 4] = [
    "-topic=t",
    "-channel=c",
    "-field=f",
    "-nsqd-tcp-address=a:1",
];

fn with(more: &[&str]) -> Result<Config, Exit> {
    read(&[&GOOD[..], more].concat())
}

#[test]
fn flags_become_values() {
    let config = with(&[]).unwrap();
    assert_eq!(
        (config.distribution.as_str(), config.distribution_field),
        ("t", None)
    );
    assert_eq!(
        (
            config.flags.rate,
            config.limits.bins_max,
            config.limits.distributions_max
        ),
        (0.02, 1000, 1000)
    );
    assert_eq!(
        (config.flags.http_address.as_str(), config.state_file),
        ("0.0.0.0:8080", None)
    );
    assert_eq!(
        (config.flags.save_interval, config.client.max_in_flight),
        (Duration::from_secs(10), 200)
    );
    assert!(config.client.user_agent.starts_with("nsq_forget/1.3.0 "));
    assert_eq!(config.client.write_timeout.as_secs(), 30);
    let config = with(&[
        "--distribution=d",
        "--distribution-field=/x/y",
        "--rate=1e-4",
        "--bins-max=2",
        "--distributions-max=3",
        "--state-file=s.json",
        "--save-interval=1m",
        "--max-in-flight=7",
        "--http-address=:1",
    ])
    .unwrap();
    assert_eq!(
        (config.distribution.as_str(), config.flags.rate),
        ("d", 1e-4)
    );
    assert_eq!(
        config.distribution_field,
        Some(Field::parse("/x/y").unwrap())
    );
    assert_eq!(
        (config.limits.bins_max, config.limits.distributions_max),
        (2, 3)
    );
    assert_eq!(config.state_file, Some(PathBuf::from("s.json")));
    assert_eq!(
        (config.flags.save_interval, config.client.max_in_flight),
        (Duration::from_secs(60), 7)
    );
}

#[test]
fn mistakes_say_what_is_wrong() {
    let check = |exit: Result<Config, Exit>, code: u8, text: &str| {
        let exit = exit.expect_err("the program ends");
        assert_eq!(exit.code, code, "{exit:?}");
        assert!(exit.stderr.contains(text), "{text}: {exit:?}");
    };
    check(
        read(&["--nope"]),
        2,
        "flag provided but not defined: -nope\nUsage of nsq_forget:\n",
    );
    check(read(&["--help"]), 0, "Usage of nsq_forget:\n");
    for missing in 0..3 {
        let mut args = GOOD.to_vec();
        args.remove(missing);
        check(
            read(&args),
            1,
            "--topic, --channel and --field are required",
        );
    }
    check(
        read(&GOOD[..3]),
        1,
        "--nsqd-tcp-address or --lookupd-http-address required",
    );
    let long = format!("--distribution={}", "x".repeat(1025));
    for (flag, code, text) in [
        (
            "--topic=a b",
            1,
            "--topic is invalid: \"a b\" is not 1 to 64 characters of a-z A-Z 0-9 . _ -, of which the last 10 may be #ephemeral",
        ),
        (
            "--channel=a/b",
            1,
            "--channel is invalid: \"a/b\" is not 1 to 64 characters of a-z A-Z 0-9 . _ -, of which the last 10 may be #ephemeral",
        ),
        (
            "--field=/~x",
            1,
            "--field: the JSON pointer \"/~x\" has a tilde that",
        ),
        (
            "--distribution-field=/~",
            1,
            "--distribution-field: the JSON pointer \"/~\" has a tilde that",
        ),
        (&*long, 1, "--distribution has more than 1024 bytes"),
        ("--rate=0", 1, "--rate should be positive"),
        ("--rate=-1", 1, "--rate should be positive"),
        ("--rate=NaN", 1, "--rate should be positive"),
        ("--rate=Inf", 1, "--rate should be positive"),
        ("--rate=x", 2, "invalid value \"x\" for flag -rate: "),
        ("--bins-max=0", 1, "--bins-max should be positive"),
        (
            "--distributions-max=-1",
            1,
            "--distributions-max should be positive",
        ),
        (
            "--bins-max=x",
            2,
            "invalid value \"x\" for flag -bins-max: ",
        ),
        ("--save-interval=0", 1, "--save-interval should be positive"),
        (
            "--save-interval=10",
            2,
            "invalid value \"10\" for flag -save-interval: ",
        ),
        ("--max-in-flight=0", 1, "--max-in-flight should be positive"),
        (
            "--max-in-flight=5000000000",
            1,
            "--max-in-flight must not be above 4294967295",
        ),
        (
            "--lookupd-http-address=l:1",
            1,
            "use --nsqd-tcp-address or --lookupd-http-address not both",
        ),
        (
            "--consumer-opt=nope,1",
            2,
            "invalid value \"nope,1\" for flag -consumer-opt: invalid option nope",
        ),
        (
            "--log-format=x",
            2,
            "invalid value \"x\" for flag -log-format: ",
        ),
    ] {
        check(with(&[flag]), code, text);
    }
}
