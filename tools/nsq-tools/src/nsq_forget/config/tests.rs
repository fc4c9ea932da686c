use program::Exit;

use super::*;
use crate::flags::tests::{check_exits, words};

fn read(args: Vec<std::ffi::OsString>) -> Result<Config, Exit> {
    flags::read(&NSQ_FORGET, args, Config::new)
}

const GOOD: &str = "-topic=t -channel=c -field=f -nsqd-tcp-address=a:1";

#[test]
fn flags_become_values() {
    let config = read(words(GOOD)).unwrap();
    assert_eq!(&*config.distribution, "t");
    let client = config.consumer.client;
    assert!(client.user_agent.starts_with("nsq_forget/1.3.0 "));
    assert_eq!(client.write_timeout.as_secs(), 30);
    let more = "--distribution=d --distribution-field=/x/y --rate=1e-4 --bins-max=2 --distributions-max=3 \
                --state-file=s.json --save-interval=1m --max-in-flight=7 --http-address=:1";
    let config = read(words(&format!("{GOOD} {more}"))).unwrap();
    assert_eq!((&*config.distribution, config.flags.rate), ("d", 1e-4));
    assert_eq!(config.distribution_field, Field::parse("/x/y").ok());
    let limits = config.limits;
    assert_eq!((limits.bins_max, limits.distributions_max), (2, 3));
    assert_eq!(config.state_file, Some(PathBuf::from("s.json")));
    assert_eq!(config.flags.save_interval.as_secs(), 60);
    assert_eq!(config.consumer.client.max_in_flight, 7);
}

#[test]
fn mistakes_say_what_is_wrong() {
    let long = "x".repeat(1025);
    let cases = r#"
        -channel=c -field=f -nsqd-tcp-address=a:1 | 1 | --topic, --channel and --field are required
        -topic=t -field=f -nsqd-tcp-address=a:1 | 1 | --topic, --channel and --field are required
        -topic=t -channel=c -nsqd-tcp-address=a:1 | 1 | --topic, --channel and --field are required
        -topic=t -channel=c -field=f | 1 | --nsqd-tcp-address or --lookupd-http-address required
        + --topic=a·b | 1 | --topic is invalid: "a b" is not 1 to 64 characters of a-z A-Z 0-9 . _ -, of which the last 10 may be #ephemeral
        + --channel=a/b | 1 | --channel is invalid: "a/b" is not 1 to 64 characters of a-z A-Z 0-9 . _ -, of which the last 10 may be #ephemeral
        + --field=/~x | 1 | --field: the JSON pointer "/~x" has a tilde that...
        + --distribution-field=/~ | 1 | --distribution-field: the JSON pointer "/~" has a tilde that...
        + --distribution=LONG | 1 | --distribution has more than 1024 bytes
        + --rate=0 | 1 | --rate should be positive
        + --rate=-1 | 1 | --rate should be positive
        + --rate=NaN | 1 | --rate should be positive
        + --rate=Inf | 1 | --rate should be positive
        + --rate=x | 2 | invalid value "x" for flag -rate: ...
        + --bins-max=0 | 1 | --bins-max should be positive
        + --distributions-max=-1 | 1 | --distributions-max should be positive
        + --bins-max=x | 2 | invalid value "x" for flag -bins-max: ...
        + --save-interval=0 | 1 | --save-interval should be positive
        + --save-interval=10 | 2 | invalid value "10" for flag -save-interval: ...
        + --max-in-flight=0 | 1 | --max-in-flight should be positive
        + --max-in-flight=5000000000 | 1 | --max-in-flight must not be above 4294967295
        + --lookupd-http-address=l:1 | 1 | use --nsqd-tcp-address or --lookupd-http-address not both
        + --consumer-opt=nope,1 | 2 | invalid value "nope,1" for flag -consumer-opt: invalid option nope
        + --log-format=x | 2 | invalid value "x" for flag -log-format: ...
        "#;
    check_exits(&NSQ_FORGET, read, GOOD, &cases.replace("LONG", &long));
}

#[track_caller]
fn check_field(field: &str, message: &str, expected: &[&str]) {
    let message = parse_message(message.as_bytes()).unwrap();
    assert_eq!(Field::parse(field).unwrap().values(&message), expected);
}

#[test]
fn values_are_found() {
    let message =
        r#"{"a":"x","b":{"c/d":2.50,"e":[1,"two",null,{},true,[3]]},"n":null,"o":{},"/s":1}"#;
    check_field("a", message, &["x"]);
    check_field("/a", message, &["x"]);
    check_field("/b/c~1d", message, &["2.5"]);
    check_field("/b/e", message, &["1", "two", "true"]);
    check_field("/b/e/1", message, &["two"]);
    for nothing in ["n", "o", "absent", "/b/absent", "b/c"] {
        check_field(nothing, message, &[]);
    }
    check_field("a", "[1]", &[]);
    check_field("/0", "[\"\\u0041\"]", &["A"]);
}

#[test]
fn wrong_fields_and_messages_say_what_is_wrong() {
    assert_eq!(
        Field::parse("").unwrap_err(),
        "the name of a field is empty"
    );
    let error = Field::parse("/a~2").unwrap_err();
    assert_eq!(
        error,
        "the JSON pointer \"/a~2\" has a tilde that is not followed by 0 or 1; write ~0 for a tilde and ~1 for a slash"
    );
    assert!(Field::parse("a~2").is_ok() && Field::parse("/a~0~1").is_ok());
    let error = parse_message(b"{").unwrap_err();
    assert!(error.starts_with("the message is not JSON: "), "{error}");
}
