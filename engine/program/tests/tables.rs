//! Excerpts of the flag tables of NSQ's other programs. Each is read as the original reads it.

use std::ffi::OsString;
use std::time::Duration;

use program::flag;
use program::log::{Format, Level};
use program::{Exit, Options, Program, Value, version};

program::flags! {
    /// A daemon with a configuration file.
    struct Nsqlookupd {
        = flag::VERSION;
        = flag::CONFIG;
        log_level: Level = flag::LOG_LEVEL;
        = flag::log_prefix("[nsqlookupd] ");
        = flag::VERBOSE;
        tcp_address: String = flag::new("tcp-address", "0.0.0.0:4160", "where");
        broadcast_address: String = flag::new("broadcast-address", "", "what is announced").of_host(flag::hostname_itself);
        inactive: Duration = flag::new("inactive-producer-timeout", "5m0s", "how long").at_least(0);
    }
    own {
        = flag::LOG_FORMAT;
    }
}

static NSQLOOKUPD: Program = Program::of::<Nsqlookupd>("nsqlookupd", version::of_daemon);

program::flags! {
    /// A daemon with lists whose keys are not their names.
    struct Nsqadmin {
        = flag::VERSION;
        = flag::CONFIG;
        lookupd_http_addresses: Vec<String> = flag::new("lookupd-http-address", "", "which")
            .with_key("nsqlookupd_http_addresses")
            .with_field("NSQLookupdHTTPAddresses");
        = flag::new::<String>("allow-config-from-cidr", "127.0.0.1/8", "who");
        = flag::new::<String>("acl-http-header", "X-Forwarded-User", "whom");
    }
}

static NSQADMIN: Program = Program::of::<Nsqadmin>("nsqadmin", version::of_daemon);

program::flags! {
    /// A tool without a configuration file. Its options are checked while they are parsed.
    struct NsqTail {
        = flag::VERSION;
        count: u64 = flag::new("n", "0", "total messages").at_least(0);
        prints_topic: bool = flag::new("print-topic", "false", "print the topic");
        sample: f64 = flag::new("sample", "1.0", "fraction of messages");
        consumer_options: Vec<String> = flag::new("consumer-opt", "", "option for the consumer").checked_by(option);
    }
}

static NSQ_TAIL: Program = Program::of::<NsqTail>("nsq_tail", version::of_tool);

fn option(text: &str) -> Result<(), String> {
    match text.split(',').next().unwrap_or(text) {
        "snappy" | "max_attempts" => Ok(()),
        other => Err(format!("invalid option {other}")),
    }
}

fn read(program: &'static Program, args: &[&str]) -> Result<Options, Exit> {
    program.options(args.iter().map(OsString::from), "vm")
}

#[test]
fn a_daemon_is_read_from_flags_file_and_defaults() {
    let options = read(&NSQLOOKUPD, &[]).unwrap();
    let config: Nsqlookupd = options.read().unwrap();
    assert_eq!(config.broadcast_address, "vm");
    assert_eq!(config.inactive.as_secs(), 300);
    let style = options.log_style();
    assert_eq!(
        (style.program, &*style.prefix),
        ("nsqlookupd", "[nsqlookupd] ")
    );
    assert_eq!(style.format, Format::Text);

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nsqlookupd.toml");
    let file = format!("--config={}", path.display());
    std::fs::write(
        &path,
        "tcp_address = \"a:1\"\ninactive_producer_timeout = 7000\nlog_level = \"ERROR\"\nodd = 1\n",
    )
    .unwrap();
    let options = read(&NSQLOOKUPD, &[&file, "--tcp-address", "b:2"]).unwrap();
    let config: Nsqlookupd = options.read().unwrap();
    assert_eq!(config.tcp_address, "b:2");
    assert_eq!(config.inactive.as_secs(), 7);
    assert_eq!(config.log_level, Level::Error);
    assert_eq!(options.unknown_keys(), ["odd"]);
    let options = read(&NSQLOOKUPD, &[&file, "true", "--tcp-address=b:2"]).unwrap();
    let config: Nsqlookupd = options.read().unwrap();
    assert_eq!(config.tcp_address, "a:1");
    assert_eq!(
        options.ignored(),
        [
            "keys in the config file that mean nothing, ignored: odd",
            "everything from a word on that is no flag is ignored: true --tcp-address=b:2 (a value of a boolean flag \
             follows behind =)",
        ]
    );
    let options = read(&NSQLOOKUPD, &["--tcp-address", "b:2"]).unwrap();
    assert_eq!(options.ignored(), [""; 0]);
    let options = read(&NSQLOOKUPD, &[&file, "--tcp-address", "b:2"]).unwrap();
    assert_eq!(
        options.by_key("tcp_address"),
        Some(&Value::Text("b:2".to_string()))
    );

    // These are the recorded start errors of the original, with the key and the file behind.
    let fails = |text: &str, expected: &str| {
        std::fs::write(&path, text).unwrap();
        let exit = read(&NSQLOOKUPD, &[&file]).unwrap_err();
        assert_eq!((exit.code, &*exit.stdout), (1, ""));
        assert!(exit.stderr.ends_with(expected), "{}", exit.stderr);
        exit.stderr
    };
    let line = fails(
        "log_level = \"bogus\"",
        &format!(
            " FATAL: failed parsing log_level bogus (in {})\n",
            path.display()
        ),
    );
    assert!(line.starts_with("[nsqlookupd] 20"), "{line}");
    let line = fails(
        "inactive_producer_timeout = \"abc\"",
        &format!(
            " ERROR: Resolve failed to coerce value abc (5m0s) for field InactiveProducerTimeout - time: invalid duration \
             \"abc\" (key inactive_producer_timeout in {})\n",
            path.display()
        ),
    );
    assert!(line.starts_with("20"), "{line}");
}

#[test]
fn bounds_are_checked_when_the_program_asks() {
    let options = read(&NSQLOOKUPD, &["--inactive-producer-timeout=-1s"]).unwrap();
    assert_eq!(
        options.check_bounds("inactive-producer-timeout"),
        Err("--inactive-producer-timeout must not be negative".to_string())
    );
    assert_eq!(options.check_bounds("tcp-address"), Ok(()));
    let config: Nsqlookupd = options.read().unwrap();
    assert!(config.inactive.is_zero(), "a negative time is none");
}

#[test]
fn a_version_ends_the_program() {
    for (program, line) in [
        (&NSQLOOKUPD, "nsqlookupd v1.3.0 (built w/rust"),
        (&NSQADMIN, "nsqadmin v1.3.0 (built w/rust"),
        (&NSQ_TAIL, "nsq_tail v1.3.0\n"),
    ] {
        let exit = read(program, &["-version", "--odd=1"]).unwrap_err();
        assert_eq!(exit.code, 2, "the command line is read to its end");
        let exit = read(program, &["-version"]).unwrap_err();
        assert_eq!((exit.code, &*exit.stderr), (0, ""));
        assert!(exit.stdout.starts_with(line), "{}", exit.stdout);
        let second = format!("\nringq {}\n", env!("CARGO_PKG_VERSION"));
        assert!(exit.stdout.ends_with(&second), "{}", exit.stdout);
        assert_eq!(exit.stdout.lines().count(), 2, "{}", exit.stdout);
    }
}

#[test]
fn lists_have_keys_and_fields_of_their_own() {
    let flag = |name| NSQADMIN.flag(name).unwrap();
    let addresses = flag("lookupd-http-address");
    assert_eq!(
        addresses.key().as_deref(),
        Some("nsqlookupd_http_addresses")
    );
    assert_eq!(addresses.field(), "NSQLookupdHTTPAddresses");
    assert_eq!(
        flag("allow-config-from-cidr").field(),
        "AllowConfigFromCIDR"
    );
    assert_eq!(flag("acl-http-header").field(), "ACLHTTPHeader");
    let args = [
        "-lookupd-http-address=a:1,b:2",
        "--lookupd-http-address",
        "c:3",
    ];
    let options = read(&NSQADMIN, &args).unwrap();
    let config: Nsqadmin = options.read().unwrap();
    assert_eq!(config.lookupd_http_addresses, ["a:1,b:2", "c:3"]);
}

#[test]
fn a_tool_has_gos_errors_and_usage() {
    let options = read(
        &NSQ_TAIL,
        &["-n", "0x10", "-print-topic", "-consumer-opt=snappy"],
    )
    .unwrap();
    let config: NsqTail = options.read().unwrap();
    assert_eq!(config.count, 16);
    assert!(config.prints_topic);
    assert_eq!(config.consumer_options, ["snappy"]);

    let usage = "Usage of nsq_tail:\n  -consumer-opt value\n    \toption for the consumer\n  -n int\n    \t\
                 total messages\n  -print-topic\n    \tprint the topic\n  -sample float\n    \t\
                 fraction of messages (default 1)\n  -version\n    \tprint version string\n";
    let fails = |args: &[&str], code, line: &str| {
        let exit = read(&NSQ_TAIL, args).unwrap_err();
        assert_eq!((exit.code, exit.stderr), (code, format!("{line}{usage}")));
    };
    fails(&["-h"], 0, "");
    fails(
        &["-config=x"],
        2,
        "flag provided but not defined: -config\n",
    );
    fails(
        &["-consumer-opt", "bogus,1"],
        2,
        "invalid value \"bogus,1\" for flag -consumer-opt: invalid option bogus\n",
    );
    fails(
        &["-n=x"],
        2,
        "invalid value \"x\" for flag -n: parse error\n",
    );
    fails(
        &["-sample", "all"],
        2,
        "invalid value \"all\" for flag -sample: parse error\n",
    );
    assert_eq!(config.sample, 1.0);
    let options = read(&NSQ_TAIL, &["-sample=0.25"]).unwrap();
    assert_eq!(options.read::<NsqTail>().unwrap().sample, 0.25);

    // A value that only all flags together show to be wrong.
    let exit = NSQ_TAIL.refused("consumer-opt", "tls_key,a", "not a key", "vm");
    let line = "invalid value \"tls_key,a\" for flag -consumer-opt: not a key\n";
    assert_eq!((exit.code, exit.stderr), (2, format!("{line}{usage}")));
}

#[test]
fn arguments_after_the_flags_are_kept() {
    let arguments = |args: &[&str]| read(&NSQ_TAIL, args).unwrap().arguments().to_vec();
    assert_eq!(arguments(&["-n", "1"]), [""; 0]);
    assert_eq!(arguments(&["-n", "1", "a", "-n", "2"]), ["a", "-n", "2"]);
    assert_eq!(arguments(&["-n=1", "--", "-a"]), ["-a"]);
    let options = read(&NSQ_TAIL, &["-n", "1", "a", "-sample", "x"]).unwrap();
    assert!(options.is_given("n") && !options.is_given("sample"));
}

#[test]
fn a_tool_may_check_values_before_it_prints_its_version() {
    let check = |options: &Options| match options.arguments() {
        [] => Ok(()),
        arguments => Err(format!("unknown arguments: [{}]", arguments.join(" "))),
    };
    let read = |args: &[&str]| {
        let args = args.iter().map(OsString::from);
        let options = NSQ_TAIL.options_checked_before_version(args, "vm", check);
        let exit = options.err()?;
        Some((exit.code, exit.stdout, exit.stderr))
    };
    let version = |out: &str| Some((0, out.to_owned(), String::new()));
    assert_eq!(read(&["-n=1"]), None);
    assert_eq!(
        read(&["-version"]),
        version(concat!(
            "nsq_tail v1.3.0\nringq ",
            env!("CARGO_PKG_VERSION"),
            "\n"
        ))
    );
    let (code, stdout, stderr) = read(&["-version", "a", "b"]).unwrap();
    assert_eq!((code, &*stdout), (1, ""));
    // The line begins with the time: 2026/11/21 09:17:11.
    assert_eq!(&stderr[19..], " unknown arguments: [a b]\n");
}
