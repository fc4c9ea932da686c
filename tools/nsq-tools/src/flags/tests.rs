use program::{Exit, Options};

use super::*;

program::flags! {
    struct Flags {
        = flag::VERSION;
        = NSQD_TCP_ADDRESS;
        = LOOKUPD_HTTP_ADDRESS;
        = CONSUMER_OPT;
        = MAX_IN_FLIGHT;
        = http_client_connect_timeout::<Duration>();
        = http_client_request_timeout::<Duration>("20s");
        = new::<bool>("all", "false", "everything");
        = new::<String>("name", "x", "a name");
    }
    own {
        = LOG_FORMAT;
    }
}

static TOOL: Program = Program::of::<Flags>("nsq_tool", version::of_tool);

fn read(args: &[&str]) -> Result<Options, Exit> {
    TOOL.options(args.iter().map(Into::into), "vm")
}

#[test]
fn exactly_one_kind_of_address_is_a_source() {
    let check = |args: &[&str], expected: Result<Sources, SourceError>| {
        assert_eq!(Sources::from_options(&read(args).unwrap()), expected);
    };
    let nsqds = ["-nsqd-tcp-address=a:1,b:2", "--nsqd-tcp-address", "/run/c"];
    let found = vec!["a:1,b:2".to_owned(), "/run/c".to_owned()];
    check(&nsqds, Ok(Sources::Nsqds(found)));
    let lookupd = "-lookupd-http-address=http://h:4161/custom?x=1";
    let found = vec!["http://h:4161/custom?x=1".to_owned()];
    check(&[lookupd], Ok(Sources::Lookupds(found)));
    check(&[], Err(SourceError::Missing));
    check(&[nsqds[0], lookupd], Err(SourceError::Both));
    let texts = [SourceError::Missing, SourceError::Both].map(|error| error.to_string());
    assert_eq!(
        texts,
        [
            "--nsqd-tcp-address or --lookupd-http-address required",
            "use --nsqd-tcp-address or --lookupd-http-address not both",
        ]
    );
}

#[test]
fn max_in_flight_is_a_number_of_messages() {
    let check = |value: &str, expected: Result<u32, &str>| {
        let options = read(&["-max-in-flight", value]).unwrap();
        assert_eq!(max_in_flight(&options), expected.map_err(str::to_owned));
    };
    check("1", Ok(1));
    check("4294967295", Ok(u32::MAX));
    for value in ["0", "-1"] {
        check(value, Err("--max-in-flight should be positive"));
    }
    let too_many = "--max-in-flight must not be above 4294967295";
    check("4294967296", Err(too_many));
}

#[test]
fn wrong_options_of_the_client_end_the_program_with_code_2() {
    let fails = |value: &str, why: &str| {
        let exit = read(&["-consumer-opt", value]).unwrap_err();
        let line = format!("invalid value {value:?} for flag -consumer-opt: {why}\nUsage of ");
        assert_eq!(exit.code, 2);
        assert!(exit.stderr.starts_with(&line), "{}", exit.stderr);
    };
    fails("bogus,1", "invalid option bogus");
    fails("bogus", "invalid option bogus");
    fails(
        "heartbeat_interval,5",
        "failed to coerce option heartbeat_interval (5) - time: missing unit in duration \"5\"",
    );
}

#[test]
fn options_of_the_client_are_set_in_order() {
    let options = read(&[
        "-consumer-opt=max-attempts,3",
        "-consumer-opt=snappy",
        "-consumer-opt",
        "auth_secret,a,b",
        "-consumer-opt=max_attempts,4",
    ])
    .unwrap();
    let mut config = Config::default();
    apply_client_options(&TOOL, &options, &CONSUMER_OPT, &mut config).unwrap();
    assert_eq!((config.max_attempts, config.snappy), (4, true));
    assert_eq!(config.auth_secret, "a,b");
}

#[test]
fn the_usage_lists_the_flags_by_name() {
    let exit = read(&["-h"]).unwrap_err();
    assert_eq!((exit.code, &*exit.stdout), (0, ""));
    let flags = exit.stderr.lines().filter_map(|line| {
        let name = line.strip_prefix("  -")?;
        name.split(' ').next()
    });
    let flags: Vec<_> = flags.collect();
    assert_eq!(
        flags,
        [
            "all",
            "consumer-opt",
            "http-client-connect-timeout",
            "http-client-request-timeout",
            "lookupd-http-address",
            "max-in-flight",
            "name",
            "nsqd-tcp-address",
            "version",
            "log-format",
        ]
    );
    assert!(
        exit.stderr
            .contains("timeout for HTTP request (default 20s)\n")
    );
    assert!(exit.stderr.contains("in flight (default 200)\n"));
}

#[test]
fn a_tool_introduces_itself_with_its_version_and_the_librarys() {
    let agent = user_agent("nsq_tail");
    let expected = format!("nsq_tail/1.3.0 ringq-client/{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(agent, expected);
}
