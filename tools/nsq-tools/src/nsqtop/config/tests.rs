use super::*;
use crate::flags::tests::{check_exits, words};
use crate::nsqtop::table::Sort;

fn read(args: Vec<std::ffi::OsString>) -> Result<Config, program::Exit> {
    flags::read(&NSQTOP, args, Config::new)
}

#[test]
fn flags_become_values() {
    let config = read(words("-nsqd-http-address=a:1")).unwrap();
    assert_eq!(config.sources, Sources::Nsqds(vec!["a:1".to_owned()]));
    assert_eq!(config.start.view, View::Channels);
    assert_eq!(config.start.sort, View::Channels.usual_sort());
    let args = "-lookupd-http-address=l:1 --once --interval=250ms --topic=t --channel=c --view=nodes --sort=-depth \
                --filter=x";
    let config = read(words(args)).unwrap();
    assert_eq!(config.sources, Sources::Lookupds(vec!["l:1".to_owned()]));
    let flags = &config.flags;
    assert_eq!((&*flags.topic, &*flags.channel), ("t", "c"));
    assert_eq!(
        (flags.interval, flags.once),
        (Duration::from_millis(250), true)
    );
    assert_eq!(config.start.view, View::Nodes);
    let depth = Sort {
        column: 5,
        is_reversed: true,
    };
    assert_eq!(config.start.sort, depth);
    assert_eq!(config.start.filter, "x");
}

#[test]
fn mistakes_say_what_is_wrong() {
    check_exits(
        &NSQTOP,
        read,
        "-nsqd-http-address=a:1",
        r#"
         | 1 | --nsqd-http-address or --lookupd-http-address required
        + -lookupd-http-address=l:1 | 1 | use --nsqd-http-address or --lookupd-http-address not both
        -nsqd-http-address=http://a:1 | 1 | --nsqd-http-address error - address should not contain scheme
        -lookupd-http-address=https://a:1 | 1 | --lookupd-http-address error - address should not contain scheme
        --interval=0 + | 1 | --interval should be positive
        --interval=2 + | 2 | invalid value "2" for flag -interval: parse error
        --http-client-connect-timeout=-1s + | 1 | --http-client-connect-timeout should be positive
        --http-client-request-timeout=0 + | 1 | --http-client-request-timeout should be positive
        --view=racks + | 2 | invalid value "racks" for flag -view: must be channels or topics or clients or nodes or shards
        --once=x + | 2 | invalid boolean value "x" for -once: parse error
        --sort=x --view=clients + | 1 | --sort: the view clients has no column "x"; its columns are client, address, reads, writes, rdy, inflt, msg/s, fin/s, req/s, since
        "#,
    );
}
