use super::*;

fn read(args: &[&str]) -> Result<Config, Exit> {
    Config::from_args(args.iter().map(OsString::from))
}

#[test]
fn flags_become_values() {
    let config = read(&[
        "-topic",
        "t",
        "--channel=c",
        "--count=007",
        "--interval",
        "1.5s",
        "--lookupd-http-address=a:1",
        "--lookupd-http-address=b:2",
        "--http-client-connect-timeout=1s",
    ])
    .unwrap();
    assert_eq!(
        (config.flags.topic.as_str(), config.flags.channel.as_str()),
        ("t", "c")
    );
    assert_eq!(
        (config.count, config.flags.interval),
        (Some(7), Duration::from_millis(1500))
    );
    let lookupds = ["a:1", "b:2"].map(str::to_owned).to_vec();
    assert_eq!(config.sources, Sources::Lookupds(lookupds));
    assert_eq!(config.flags.timeouts.connect, Duration::from_secs(1));
    assert_eq!(config.flags.timeouts.request, Duration::from_secs(5));
    let config = read(&["-topic=t", "-channel=c", "-nsqd-http-address=n:1"]).unwrap();
    assert_eq!(
        (config.count, config.flags.interval),
        (None, Duration::from_secs(2))
    );
    assert_eq!(config.sources, Sources::Nsqds(vec!["n:1".to_owned()]));
}

/// The texts and codes of the original, each for a command line with one more mistake removed.
#[test]
fn mistakes_are_found_in_the_originals_order() {
    let check = |args: &[&str], code: u8, text: &str| {
        let exit = read(args).expect_err("the program ends");
        assert_eq!(exit.code, code, "{args:?}: {exit:?}");
        let found = match code {
            1 => exit.stderr.trim_end().ends_with(text) && exit.stderr.lines().count() == 1,
            _ => exit.stderr.starts_with(text),
        };
        assert!(found, "{args:?}: {exit:?}");
    };
    check(
        &["--nope"],
        2,
        "flag provided but not defined: -nope\nUsage of nsq_stat:\n",
    );
    check(&["--help"], 0, "Usage of nsq_stat:\n");
    for (flag, value, why) in [
        (
            "count",
            "0x5",
            "strconv.ParseInt: parsing \"0x5\": invalid syntax",
        ),
        (
            "count",
            "1_0",
            "strconv.ParseInt: parsing \"1_0\": invalid syntax",
        ),
        (
            "count",
            "",
            "strconv.ParseInt: parsing \"\": invalid syntax",
        ),
        (
            "count",
            "2147483648",
            "strconv.ParseInt: parsing \"2147483648\": value out of range",
        ),
        ("interval", "2", "parse error"),
        ("http-client-connect-timeout", "x", "parse error"),
        ("http-client-request-timeout", "1", "parse error"),
    ] {
        let text = format!("invalid value {value:?} for flag -{flag}: {why}\nUsage of nsq_stat:\n");
        check(&[&format!("-{flag}={value}")], 2, &text);
    }
    let mistakes = [
        (
            "--channel=",
            "--channel=c",
            "--topic and --channel are required",
        ),
        (
            "--topic=",
            "--topic=t",
            "--topic and --channel are required",
        ),
        (
            "--interval=0",
            "--interval=1s",
            "--interval should be positive",
        ),
        (
            "--http-client-connect-timeout=0",
            "--http-client-connect-timeout=1s",
            "--http-client-connect-timeout should be positive",
        ),
        (
            "--http-client-request-timeout=-1s",
            "--http-client-request-timeout=1s",
            "--http-client-request-timeout should be positive",
        ),
        ("--count=0", "--count=1", "--count should be positive"),
    ];
    for right in 0..mistakes.len() {
        let args: Vec<&str> = mistakes
            .iter()
            .enumerate()
            .map(|(index, (bad, good, _))| if index < right { *good } else { *bad })
            .collect();
        check(&args, 1, mistakes[right].2);
    }
    let good = |more: &[&str]| {
        let mut args = vec!["--topic=t", "--channel=c"];
        args.extend(more);
        args.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let lookupd = "--lookupd-http-address=http://a:1";
    let nsqd = "--nsqd-http-address=http://a:1";
    for (more, text) in [
        (
            &[][..],
            "--nsqd-http-address or --lookupd-http-address required",
        ),
        (
            &[nsqd, lookupd],
            "use --nsqd-http-address or --lookupd-http-address not both",
        ),
        (
            &[nsqd],
            "--nsqd-http-address error - address should not contain scheme",
        ),
        (
            &[lookupd],
            "--lookupd-http-address error - address should not contain scheme",
        ),
    ] {
        let args = good(more);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        check(&args, 1, text);
    }
}
