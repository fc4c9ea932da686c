use program::Exit;

use super::*;
use crate::flags::tests::{check_exits, words};

fn read(args: Vec<std::ffi::OsString>) -> Result<Config, Exit> {
    flags::read(&NSQ_TO_HTTP, args, Config::new)
}

const GOOD: &str = "-topic=t -nsqd-tcp-address=s:1 -post=http://h/";

fn with(more: &str) -> Result<Config, Exit> {
    read(words(&format!("{GOOD} {more}")))
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
    let config = with(
        "-channel=c -post=http://i/ -mode=round-robin -n=3 -max-in-flight=7 -sample=0.25 -content-type=a/b \
         -header=x:·y -status-every=0 -http-client-connect-timeout=0 -http-client-request-timeout=1m",
    )
    .unwrap();
    assert_eq!(config.flags.topics, ["t"]);
    assert_eq!(config.flags.channel, "c");
    let urls = config.endpoints.iter().map(|endpoint| &*endpoint.name);
    assert_eq!(urls.collect::<Vec<_>>(), ["http://h/", "http://i/"]);
    let flags = &config.flags;
    assert_eq!(
        (config.mode, flags.concurrency),
        (Some(Mode::RoundRobin), 3)
    );
    assert_eq!((flags.sample, config.status_every), (0.25, 0));
    assert_eq!(config.flags.connect_timeout, None);
    assert_eq!(config.flags.request_timeout, Some(Duration::from_secs(60)));
    let client = config.consumer.client;
    assert_eq!(client.max_in_flight, 7);
    assert!(client.user_agent.starts_with("nsq_to_http/1.3.0 "));
    assert_eq!(names(&config.headers), ["content-type", "x"]);

    let get = "-topic=t -lookupd-http-address=l:1 -get=http://h/%s -mode=multicast";
    let config = read(words(get)).unwrap();
    assert_eq!((&*config.flags.channel, config.mode), ("nsq_to_http", None));
    // A GET has no content type.
    assert!(names(&config.headers).is_empty());
}

/// The last topic counted, and the others were ignored without a word.
#[test]
fn each_topic_counts_once() {
    let config = with("-topic=u -topic=a -topic=t").unwrap();
    assert_eq!(config.flags.topics, ["a", "t", "u"]);
}

/// The texts and codes are those of the original, but for the format in the first line, where the original has `key=value`.
/// The original takes what comes behind the handlers, and fails later or does something else.
#[test]
fn mistakes_are_found_in_the_originals_order() {
    check_exits(
        &NSQ_TO_HTTP,
        read,
        GOOD,
        r#"
        -http-client-request-timeout=5 | 2 | invalid value "5" for flag -http-client-request-timeout: parse error
        -content-type=x/y | 1 | --topic and --channel are required
        -topic=t -channel= | 1 | --topic and --channel are required
        -topic= -channel=c | 1 | --topic and --channel are required
        -topic=t -content-type=x/y | 1 | --content-type only used with --post
        -topic=t -post=http://h -content-type= | 1 | --content-type requires a value when used
        -topic=t -nsqd-tcp-address=s:1 -get http://h/%d | 1 | invalid GET address - must be a printf string...
        + -sample -0.1 | 1 | ERROR: --sample must be between 0.0 and 1.0
        + -sample NaN | 1 | ERROR: --sample must be between 0.0 and 1.0
        + -topic=a·b -channel=a·b | 1 | invalid topic name: "a b" is not 1 to 64 characters of ...
        + -topic=a·b -topic=u | 1 | invalid topic name: "a b" is not 1 to 64 characters of ...
        + -topic= -topic=u | 1 | invalid topic name: "" is not 1 to 64 characters of ...
        + -channel=a·b | 1 | invalid channel name: ...
        + -n -1 | 1 | no handlers: ...
        + -post=h/ | 1 | invalid POST address "h/" - ...
        + -mode=bogus | 1 | --mode must be round-robin, hostpool, epsilon-greedy or multicast, not "bogus"
        + -status-every=-1 | 1 | --status-every must not be negative
        + -max-in-flight=0 | 1 | --max-in-flight should be positive
        + -consumer-opt=heartbeat_interval,70s | 1 | HeartbeatInterval 1m10s must be less than ReadTimeout 1m0s
        "#,
    );
}
