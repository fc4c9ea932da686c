use super::*;

fn read(args: &[&str]) -> Result<Config, Exit> {
    Config::from_args(args.iter().map(OsString::from))
}

const GOOD: [&str; 3] = ["-topic=t", "-nsqd-tcp-address=s:1", "-post=http://h/"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    GOOD.iter().chain(more).copied().collect()
}

fn names(headers: &Headers) -> Vec<&str> {
    headers
        .others
        .iter()
        .map(|(name, _)| name.as_str())
        .collect()
}

#[test]
fn flags_become_values() {
    let config = read(&with(&[
        "-channel=c",
        "-post=http://i/",
        "-mode=round-robin",
        "-n=3",
        "-max-in-flight=7",
        "-sample=0.25",
        "-content-type=a/b",
        "-header=x: y",
        "-status-every=0",
        "-http-client-connect-timeout=0",
        "-http-client-request-timeout=1m",
    ]))
    .unwrap();
    assert_eq!(config.flags.topics, ["t"]);
    assert_eq!(config.flags.channel, "c");
    let urls: Vec<&str> = config
        .endpoints
        .iter()
        .map(|endpoint| endpoint.name.as_str())
        .collect();
    assert_eq!(urls, ["http://h/", "http://i/"]);
    assert_eq!(
        (config.mode, config.flags.concurrency),
        (Some(Mode::RoundRobin), 3)
    );
    assert_eq!((config.flags.sample, config.status_every), (0.25, 0));
    assert_eq!(config.flags.connect_timeout, None);
    assert_eq!(config.flags.request_timeout, Some(Duration::from_secs(60)));
    assert_eq!(config.client.max_in_flight, 7);
    assert!(config.client.user_agent.starts_with("nsq_to_http/1.3.0 "));
    assert_eq!(names(&config.headers), ["content-type", "x"]);

    let get = [
        "-topic=t",
        "-lookupd-http-address=l:1",
        "-get=http://h/%s",
        "-mode=multicast",
    ];
    let config = read(&get).unwrap();
    assert_eq!(
        (config.flags.channel.as_str(), config.mode),
        ("nsq_to_http", None)
    );
    assert_eq!(
        (
            config.flags.concurrency,
            config.status_every,
            config.flags.sample
        ),
        (100, 250, 1.0)
    );
    assert_eq!(config.flags.connect_timeout, Some(Duration::from_secs(2)));
    assert_eq!(config.flags.request_timeout, Some(Duration::from_secs(20)));
    // A GET has no content type.
    assert!(names(&config.headers).is_empty());
}

/// The last topic counted, and the others were ignored without a word.
#[test]
fn each_topic_counts_once() {
    let config = read(&with(&["-topic=u", "-topic=a", "-topic=t"])).unwrap();
    assert_eq!(config.flags.topics, ["a", "t", "u"]);
    // A wrong name is found wherever it stands.
    for wrong in ["", "a b"] {
        let exit = read(&with(&["-topic", wrong, "-topic=u"])).unwrap_err();
        let text = format!("invalid topic name: {wrong:?} is not 1 to 64 characters of ");
        assert!(exit.code == 1 && exit.stderr.contains(&text), "{exit:?}");
    }
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
    let invalid = |flag: &str, value: &str, why: &str| {
        let line = format!("invalid value {value:?} for flag -{flag}: {why}");
        check(&[&format!("-{flag}={value}")], 2, &line);
    };
    check(
        &["-nope"],
        2,
        "flag provided but not defined: -nope\nUsage of nsq_to_http:\n",
    );
    check(&["-h"], 0, "Usage of nsq_to_http:\n");
    check(&["-version"], 0, "nsq_to_http v1.3.0\n");
    invalid("n", "1e3", "parse error\n");
    invalid("sample", "half", "parse error\n");
    invalid("consumer-opt", "bogus,1", "invalid option bogus\n");
    invalid("http-client-request-timeout", "5", "parse error\n");
    // The original's text names another format, `key=value`.
    check(
        &["-header=a=b"],
        1,
        "--header value format should be 'name: value', not \"a=b\"\n",
    );
    check(
        &["-content-type=x/y"],
        1,
        "--topic and --channel are required\n",
    );
    for args in [["-topic=t", "-channel="], ["-topic=", "-channel=c"]] {
        check(&args, 1, "--topic and --channel are required\n");
    }
    check(
        &["-topic=t", "-content-type=x/y"],
        1,
        "--content-type only used with --post\n",
    );
    let empty = ["-topic=t", "-post=http://h", "-content-type="];
    check(&empty, 1, "--content-type requires a value when used\n");
    check(
        &["-topic=t"],
        1,
        "--nsqd-tcp-address or --lookupd-http-address required\n",
    );
    let both = "use --nsqd-tcp-address or --lookupd-http-address not both\n";
    check(&with(&["-lookupd-http-address=l:1"]), 1, both);
    check(&GOOD[..2], 1, "--get or --post required\n");
    check(
        &with(&["-get=http://h"]),
        1,
        "use --get or --post not both\n",
    );
    for url in ["http://h", "http://h/%s/%s", "http://h/%d"] {
        let args = ["-topic=t", "-nsqd-tcp-address=s:1", "-get", url];
        check(&args, 1, "invalid GET address - must be a printf string");
    }
    for sample in ["-0.1", "1.1", "NaN"] {
        let args = with(&["-sample", sample]);
        check(&args, 1, "ERROR: --sample must be between 0.0 and 1.0\n");
    }
    check(
        &with(&["-topic=a b", "-channel=a b"]),
        1,
        "invalid topic name",
    );
    check(&with(&["-channel=a b"]), 1, "invalid channel name");
    for n in ["0", "-1"] {
        check(&with(&["-n", n]), 1, "no handlers");
    }
    // The original takes the rest, and fails later or does something else.
    check(&with(&["-post=h/"]), 1, "invalid POST address \"h/\" - ");
    let modes =
        "--mode must be round-robin, hostpool, epsilon-greedy or multicast, not \"bogus\"\n";
    check(&with(&["-mode=bogus"]), 1, modes);
    check(
        &with(&["-status-every=-1"]),
        1,
        "--status-every must not be negative\n",
    );
    check(
        &with(&["-max-in-flight=0"]),
        1,
        "--max-in-flight should be positive\n",
    );
    let heartbeat = with(&["-consumer-opt=heartbeat_interval,70s"]);
    check(
        &heartbeat,
        1,
        "HeartbeatInterval 1m10s must be less than ReadTimeout 1m0s\n",
    );
}
