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

fn options(args: &str) -> Result<Options, Exit> {
    TOOL.options(words(args), "vm")
}

/// Returns the arguments of a command line. `·` stands for a space within an argument.
pub(crate) fn words(args: &str) -> Vec<OsString> {
    let words = args.split_whitespace();
    words.map(|word| word.replace('·', " ").into()).collect()
}

/// Checks command lines that end a program, each a line of `cases`: the arguments, the exit code and the line of the output,
/// with bars between them. `+` stands for the arguments in `good`, and `...` for any end of the line. Every program also
/// has a help text, a version, and an error for an unknown flag.
#[track_caller]
pub(crate) fn check_exits<C: std::fmt::Debug>(
    program: &Program,
    read: impl Fn(Vec<OsString>) -> Result<C, Exit>,
    good: &str,
    cases: &str,
) {
    let name = program.name;
    let of_all = format!(
        "--nope | 2 | flag provided but not defined: -nope
         -h | 0 | Usage of {name}:
         -version | 0 | {name} v1.3.0"
    );
    for case in of_all.lines().chain(cases.trim().lines()) {
        let case = format!(" {}", case.trim());
        let parts: Vec<&str> = case.splitn(3, " | ").collect();
        let [args, code, expected] = parts[..] else {
            panic!("a case has three parts: {case}");
        };
        let exit = read(words(&args.replacen('+', good, 1))).expect_err(&case);
        assert_eq!(exit.code.to_string(), code, "{case}: {exit:?}");
        let usage = format!("\nUsage of {name}:\n");
        let shown = exit.stdout.clone() + &exit.stderr;
        let output = match exit.code {
            // One line, which begins with the time: 2026/11/21 09:17:11.
            1 => exit
                .stderr
                .get(20..)
                .and_then(|line| line.strip_suffix('\n')),
            2 => exit.stderr.split_once(&usage).map(|(line, _)| line),
            _ => shown.lines().next(),
        };
        let output = output.unwrap_or_else(|| panic!("{case}: {}", exit.stderr));
        match expected.strip_suffix("...") {
            Some(begin) => assert!(output.starts_with(begin), "{case}: {output}"),
            None => assert_eq!(output, expected, "{case}"),
        }
    }
}

#[test]
fn exactly_one_kind_of_address_is_a_source() {
    let sources = |args: &str| Sources::from_options(&options(args).unwrap(), &NSQD_TCP_ADDRESS);
    let found = vec!["a:1,b:2".to_owned(), "/run/c".to_owned()];
    let nsqds = "-nsqd-tcp-address=a:1,b:2 --nsqd-tcp-address /run/c";
    assert_eq!(sources(nsqds), Ok(Sources::Nsqds(found)));
    let lookupd = "http://h:4161/custom?x=1".to_owned();
    let flag = format!("-lookupd-http-address={lookupd}");
    assert_eq!(sources(&flag), Ok(Sources::Lookupds(vec![lookupd])));
    let missing = "--nsqd-tcp-address or --lookupd-http-address required";
    assert_eq!(sources(""), Err(missing.to_owned()));
    let both = "use --nsqd-tcp-address or --lookupd-http-address not both";
    assert_eq!(sources(&format!("{nsqds} {flag}")), Err(both.to_owned()));
}

#[test]
fn max_in_flight_is_a_number_of_messages() {
    let check = |value: &str, expected: Result<u32, &str>| {
        let options = options(&format!("-max-in-flight {value}")).unwrap();
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
    check_exits(
        &TOOL,
        |args| TOOL.options(args, "vm"),
        "",
        r#"
        -consumer-opt bogus,1 | 2 | invalid value "bogus,1" for flag -consumer-opt: invalid option bogus
        -consumer-opt bogus | 2 | invalid value "bogus" for flag -consumer-opt: invalid option bogus
        -consumer-opt heartbeat_interval,5 | 2 | invalid value "heartbeat_interval,5" for flag -consumer-opt: failed to coerce option heartbeat_interval (5) - time: missing unit in duration "5"
        "#,
    );
}

#[test]
fn options_of_the_client_are_set_in_order() {
    let options = options(
        "-consumer-opt=max-attempts,3 -consumer-opt=snappy -consumer-opt auth_secret,a,b -consumer-opt=max_attempts,4",
    );
    let options = options.unwrap();
    let config = client_with_options(&TOOL, &options, &CONSUMER_OPT, Config::default()).unwrap();
    assert_eq!((config.max_attempts, config.snappy), (4, true));
    assert_eq!(config.auth_secret, "a,b");
}

#[test]
fn the_usage_lists_the_flags_by_name() {
    let exit = options("-h").unwrap_err();
    assert_eq!((exit.code, &*exit.stdout), (0, ""));
    let flags = exit.stderr.lines().filter_map(|line| {
        let name = line.strip_prefix("  -")?;
        name.split(' ').next()
    });
    assert_eq!(
        flags.collect::<Vec<_>>().join(" "),
        "all consumer-opt http-client-connect-timeout http-client-request-timeout lookupd-http-address \
         max-in-flight name nsqd-tcp-address version log-format"
    );
    for text in [
        "timeout for HTTP request (default 20s)\n",
        "in flight (default 200)\n",
    ] {
        assert!(exit.stderr.contains(text), "{}", exit.stderr);
    }
}

#[test]
fn a_tool_introduces_itself_with_its_version_and_the_librarys() {
    let agent = user_agent("nsq_tail");
    let expected = format!("nsq_tail/1.3.0 ringq-client/{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(agent, expected);
}
