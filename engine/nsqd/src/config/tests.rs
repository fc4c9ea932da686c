use program::Value;
use program::log::Format;
use test_support::tables::{of_flags, page_with_table};
use test_support::{assert_like, pages, rows};

use super::*;

fn parse(args: &[&str]) -> Result<Config, Exit> {
    Config::from_args_on_host(args.iter().map(OsString::from), "vm")
}

fn good(args: &[&str]) -> Config {
    parse(args).unwrap_or_else(|exit| panic!("{args:?}: {exit:?}"))
}

/// The first line on stderr of a command line that fails with `code`.
fn bad(code: u8, args: &[&str]) -> String {
    let exit = parse(args).expect_err("must fail");
    assert_eq!(exit.code, code, "{args:?}: {exit:?}");
    assert_eq!(exit.stdout, "");
    exit.stderr.lines().next().unwrap_or_default().to_string()
}

/// The other defaults are recorded (`tests/differential/http_config.case`).
#[test]
fn defaults_are_nsqds() {
    let config = good(&[]);
    assert_eq!(config.log_level, Level::Info);
    assert_eq!(config.options.log_style().prefix, "[nsqd] ");
    assert_eq!(config.node_id, 617);
    assert_eq!(config.tcp_address, "0.0.0.0:4150");
    assert_eq!(config.http_address, "0.0.0.0:4151");
    assert_eq!(config.broadcast_address, "vm");
    let ports = (config.broadcast_tcp_port, config.broadcast_http_port);
    assert_eq!(ports, (0, 0));
    assert_eq!(config.data_path, std::env::current_dir().unwrap());
    let cores = std::thread::available_parallelism().unwrap();
    assert_eq!(config.shard_count, cores);
    assert!(!config.pin_shards);
}

#[test]
fn flags_are_read_as_go_reads_them() {
    assert_eq!(good(&["-node-id", "5"]).node_id, 5);
    assert_eq!(good(&["--node-id=0x1f"]).node_id, 31);
    assert_eq!(good(&["--node-id=1", "-node-id=2"]).node_id, 2, "last wins");
    assert_eq!(good(&["--log-prefix="]).options.log_style().prefix, "");
    assert_eq!(
        good(&["--log-prefix", "--x"]).options.log_style().prefix,
        "--x",
        "a value may look like a flag"
    );
    assert_eq!(
        good(&["--log-prefix=a=b,c d"]).options.log_style().prefix,
        "a=b,c d"
    );
    assert_eq!(good(&["-log-level", "WARN"]).log_level, Level::Warn);
    assert_eq!(
        good(&["--msg-timeout", "1h1h"]).msg_timeout,
        Duration::from_secs(7200)
    );
    assert_eq!(good(&["--msg-timeout=-1s"]).msg_timeout, Duration::ZERO);
    assert_eq!(good(&["--max-msg-size", "-1"]).msg_bytes_max, 0);
    assert_eq!(good(&["--sync-every=-5"]).sync_every, 0);
    assert_eq!(good(&["--http-address="]).http_address, "");
    assert_eq!(good(&["--data-path=/x/y"]).data_path, PathBuf::from("/x/y"));
    assert_eq!(
        good(&["--data-path", "first", "--data-path", ""]).data_path,
        good(&[]).data_path
    );
    assert!(good(&["--pin-shards"]).pin_shards);
    assert!(!good(&["--pin-shards=F"]).pin_shards);
    assert_eq!(good(&["--shards", "3"]).shard_count.get(), 3);
    assert_eq!(
        good(&["--verbose", "--worker-id", "--node-id=5"]).node_id,
        5
    );
}

#[test]
fn everything_after_a_non_flag_is_ignored() {
    for stop in ["foo", "--", "-", ""] {
        assert_eq!(
            good(&[stop, "--node-id=5", "--nope"]).node_id,
            617,
            "{stop:?}"
        );
    }
    assert_eq!(good(&["--worker-id", "5", "--node-id=5"]).node_id, 617);
}

/// Command lines, and behind each one the first line of the answer, which is Go's. The leftmost error wins.
const REFUSED_ARGUMENTS: &str = r#"
-foo                                  | flag provided but not defined: -foo
--foo=1                               | flag provided but not defined: -foo
--mem-queue-size                      | flag needs an argument: -mem-queue-size
---x                                  | bad flag syntax: ---x
--=x                                  | bad flag syntax: --=x
-=x                                   | bad flag syntax: -=x
--mem-queue-size=abc                  | invalid value "abc" for flag -mem-queue-size: parse error
--mem-queue-size=99999999999999999999 | invalid value "99999999999999999999" for flag -mem-queue-size: value out of range
--msg-timeout=5                       | invalid value "5" for flag -msg-timeout: parse error
--node-id=                            | invalid value "" for flag -node-id: parse error
--worker-id=5                         | invalid boolean value "5" for -worker-id: parse error
--log-level=foo                       | invalid value "foo" for flag -log-level: invalid log level 'foo' (debug, info, warn, error, fatal)
--log-format=xml                      | invalid value "xml" for flag -log-format: must be text or json
--check=xml                           | invalid boolean value "xml" for -check: parse error
--deflate=maybe                       | invalid boolean value "maybe" for -deflate: parse error
--tls-required=foo                    | invalid boolean value "foo" for -tls-required: strconv.ParseBool: parsing "foo": invalid syntax
--tls-min-version=ssl3.0              | invalid value "ssl3.0" for flag -tls-min-version: unknown tlsVersionOption "ssl3.0"
--foo --node-id=x                     | flag provided but not defined: -foo
--node-id=x --foo                     | invalid value "x" for flag -node-id: parse error
--node-id=x --help                    | invalid value "x" for flag -node-id: parse error
"#;

#[test]
fn flag_errors_are_gos_and_exit_2() {
    for [line, expected] in rows(REFUSED_ARGUMENTS) {
        let args: Vec<&str> = line.split(' ').collect();
        assert_eq!(bad(2, &args), expected);
    }
}

#[test]
fn help_and_version_exit_0() {
    for help in ["-h", "-help", "--help", "--h"] {
        let exit = parse(&[help]).unwrap_err();
        assert_eq!((exit.code, exit.stdout.as_str()), (0, ""));
        assert_like(
            &exit.stderr,
            "Usage of nsqd:\n  -auth-http-address value\n    \t…",
        );
    }
    let help = parse(&["-h"]).unwrap_err().stderr;
    assert_like(
        &help,
        "…\n  -log-prefix string\n    \tlog message prefix (default \"[nsqd] \")…",
    );
    assert!(help.contains("\n  -msg-timeout duration\n    \tdefault duration to wait"));
    assert!(help.contains(" before requeueing a message (default 1m0s)\n"));
    assert!(help.contains("\n  -pin-shards\n    \tbind each shard to a core\n"));
    assert!(help.contains("from the host name (default 617)\n"));
    let (nsqds, ours) = help
        .split_once("Flags of ringq that the original nsqd does not have:\n")
        .expect("ours stand apart");
    assert!(ours.starts_with("  -allowed-host value\n"), "{ours}");
    assert!(!nsqds.contains("shards"), "{nsqds}");
    assert!(help.contains("\n  -log-level value\n    \tset log verbosity: debug, info, warn, error, or fatal (default INFO)\n"));
    let exit = parse(&["--version"]).unwrap_err();
    assert_eq!((exit.code, exit.stderr.as_str()), (0, ""));
    assert!(
        exit.stdout.starts_with("nsqd v1.3.0 (built w/rust"),
        "{}",
        exit.stdout
    );
    assert_eq!(exit.stdout.lines().count(), 2, "{}", exit.stdout);
    assert!(parse(&["--version=false"]).is_ok());
    assert_eq!(parse(&["--help", "--node-id=x"]).unwrap_err().code, 0);
}

#[test]
fn the_form_of_log_lines_is_text_or_json() {
    let check = |args: &[&str], expected| {
        assert_eq!(good(args).options.log_style().format, expected, "{args:?}");
    };
    check(&[], Format::Text);
    check(&["--log-format=json"], Format::Json);
    check(&["-log-format", "json", "--log-format=text"], Format::Text);
    let in_file = |line| parse_file(line).map(|config| config.options.log_style().format);
    assert_eq!(in_file("log_format = \"json\""), Ok(Format::Json));
    assert_eq!(
        file_error("log_format = \"xml\""),
        "FATAL: failed parsing log_format xml"
    );
}

#[test]
fn a_check_is_asked_for_with_or_without_a_word() {
    let check = |args: &[&str], expected| assert_eq!(good(args).check, expected, "{args:?}");
    check(&[], Check::No);
    check(&["--check"], Check::Text);
    check(&["-check", "--shards=3"], Check::Text);
    check(&["--check=true"], Check::Text);
    check(&["--check=json"], Check::Json);
    check(&["--check=json", "--check=false"], Check::No);
    assert_eq!(flag("check").key(), None, "a file cannot ask for it");
    let config = good(&["--check", "--shards=3"]);
    assert_eq!(config.shard_count.get(), 3, "what follows counts");
    let config = good(&["--check", "--", "--shards=3", "--like=a:1"]);
    assert_eq!((config.shard_count.get(), &*config.like), (3, "a:1"));
}

/// Returns the answer of the checks, which are made in their order.
fn refused(args: &[&str]) -> String {
    let config = good(args);
    config
        .check_before_tls()
        .and_then(|()| config.check_after_tls().map(drop))
        .expect_err("must be refused")
}

#[test]
fn values_are_checked_in_nsqds_order_and_words() {
    for (flag, value, why) in [
        ("--max-deflate-level", "0", "must be [1,9]"),
        ("--max-deflate-level", "10", "must be [1,9]"),
        ("--node-id", "1024", "must be [0,1024)"),
        ("--node-id", "-1", "must be [0,1024)"),
        ("--output-buffer-timeout", "0", "must be greater than 0s"),
        ("--sync-timeout", "-1s", "must be greater than 0s"),
        ("--mem-queue-size", "-1", "must not be negative"),
        ("--max-channel-consumers", "-1", "must not be negative"),
        ("--broadcast-tcp-port", "65536", "must be [0,65535]"),
        ("--shards", "1025", "must be [0,1024]"),
        ("--look", "5s", "must be [0s,1ms]"),
    ] {
        let arg = format!("{flag}={value}");
        assert_eq!(refused(&[&arg]), format!("{flag} {why}"));
    }
    assert_eq!(
        refused(&["--shards=-1", "--node-id=-1", "--max-deflate-level=0"]),
        "--max-deflate-level must be [1,9]"
    );
    assert_eq!(
        refused(&["--shards=-1", "--node-id=-1"]),
        "--node-id must be [0,1024)"
    );
    // The rest of the table, whose flags may not be offered yet.
    let mut config = good(&[]);
    config.e2e_percentiles = vec![1.0, 1.5];
    let check = |config: &Config, expected: Result<(), &str>| {
        assert_eq!(
            config.check_after_tls().map(drop),
            expected.map_err(str::to_string),
            "{config:?}"
        );
    };
    check(
        &config,
        Err("invalid E2E processing latency percentile: 1.5"),
    );
    config.auth_http_request_method = "POST".to_string();
    check(
        &config,
        Err("--auth-http-request-method must be post or get"),
    );
    config.auth_http_request_method = "post".to_string();
    for bad in [0.0, -0.5, f64::NAN, 1.1] {
        config.e2e_percentiles = vec![bad];
        assert!(config.check_after_tls().is_err(), "{bad}");
    }
    config.e2e_percentiles = vec![1.0, 0.00001];
    check(&config, Ok(()));
}

fn flag(name: &str) -> &'static program::flag::Flag {
    NSQD.flag(name).expect("in the table")
}

fn value(args: &[&str], name: &str) -> Value {
    good(args).options.value(name).clone()
}

#[test]
fn values_of_each_type_are_parsed() {
    let arg = |name: &str, text: &str| format!("--{name}={text}");
    let good = |name: &str, text: &str| value(&[&arg(name, text)], name);
    for (text, expected) in [
        ("true", TlsRequired::Yes),
        ("TRUE", TlsRequired::Yes),
        ("TCP-https", TlsRequired::ExceptHttp),
        ("0", TlsRequired::No),
    ] {
        assert_eq!(good("tls-required", text), Value::Word(expected as i64));
    }
    for (text, expected) in [
        ("", TlsVersion::V10),
        ("TLS1.3", TlsVersion::V13),
        ("tls1.1", TlsVersion::V11),
    ] {
        assert_eq!(good("tls-min-version", text), Value::Word(expected as i64));
    }
    assert_eq!(
        good("lookupd-tcp-address", "a:1,b:2"),
        Value::List(vec!["a:1,b:2".to_string()]),
        "no comma splitting"
    );
    assert_eq!(
        good("e2e-processing-latency-percentile", "0.5,1e-3"),
        Value::Floats(vec![0.5, 0.001])
    );
    for (text, part) in [("abc", "abc"), ("0.5,,x", ""), ("0.5, 1", " 1")] {
        let exit = parse(&[&arg("e2e-processing-latency-percentile", text)]).unwrap_err();
        let line = format!("Could not parse: {part}\n");
        assert!(exit.stderr.ends_with(&line), "{}", exit.stderr);
        assert_eq!((exit.code, exit.stderr.lines().count()), (1, 1));
    }
}

/// Starts with a configuration file.
fn parse_file(text: &str) -> Result<Config, Exit> {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let path = directory.path().join("nsqd.toml");
    std::fs::write(&path, text).expect("the directory can be written");
    parse(&[&format!("--config={}", path.display())])
}

/// The line of a configuration file that is refused, without its time. A wrong value has its place in the file behind
/// nsqd's text, which this function checks and leaves out.
fn file_error(text: &str) -> String {
    let exit = parse_file(text).expect_err(text);
    assert_eq!((exit.code, exit.stderr.lines().count()), (1, 1));
    let line = exit.stderr.trim_end_matches('\n');
    let at = ["ERROR: ", "FATAL: "]
        .iter()
        .find_map(|word| line.find(word));
    let line = &line[at.expect("a level")..];
    let Some((line, place)) = line.rsplit_once(" (") else {
        return line.to_string();
    };
    let key = text.split([' ', '=']).next().expect("a key");
    let is_named = place.starts_with(&format!("key {key} in /")) || line.contains(key);
    assert!(
        is_named && place.ends_with("/nsqd.toml)"),
        "{line} ({place}"
    );
    line.to_string()
}

fn file_value(name: &str, text: &str) -> Value {
    let config = parse_file(text).unwrap_or_else(|exit| panic!("{text}: {exit:?}"));
    config.options.value(name).clone()
}

/// Lines of a configuration file, and behind each one how nsqd refuses its value.
const REFUSED_VALUES: &str = r#"
msg_timeout = 1.5                            | 1.5 (1m0s) for field MsgTimeout - invalid time.Duration value type float64
msg_timeout = true                           | true (1m0s) for field MsgTimeout - invalid time.Duration value type bool
msg_timeout = []                             | [] (1m0s) for field MsgTimeout - invalid time.Duration value type []interface {}
msg_timeout = {a = 1}                        | map[a:1] (1m0s) for field MsgTimeout - invalid time.Duration value type map[string]interface {}
msg_timeout = "5"                            | 5 (1m0s) for field MsgTimeout - time: missing unit in duration "5"
msg_timeout = "5d"                           | 5d (1m0s) for field MsgTimeout - time: unknown unit "d" in duration "5d"
msg_timeout = "x"                            | x (1m0s) for field MsgTimeout - time: invalid duration "x"
mem_queue_size = 1.0                         | 1 (10000) for field MemQueueSize - invalid int64 value type float64
mem_queue_size = "0x10"                      | 0x10 (10000) for field MemQueueSize - strconv.ParseInt: parsing "0x10": invalid syntax
mem_queue_size = [1, 2.5]                    | [1 2.5] (10000) for field MemQueueSize - invalid int64 value type []interface {}
id = "99999999999999999999"                  | 99999999999999999999 (617) for field ID - strconv.ParseInt: parsing "99999999999999999999": value out of range
deflate = "nope"                             | nope (true) for field DeflateEnabled - strconv.ParseBool: parsing "nope": invalid syntax
deflate = 1.0                                | 1 (true) for field DeflateEnabled - invalid bool value type float64
broadcast_tcp_port = true                    | true (0) for field BroadcastTCPPort - invalid int64 value type bool
e2e_processing_latency_percentiles = "0.5, x" | 0.5, x ([]) for field E2EProcessingLatencyPercentiles - strconv.ParseFloat: parsing "x": invalid syntax
"#;

/// nsqd takes these values for something else, or crashes.
const OURS_REFUSED_VALUES: &str = r#"
tcp_address = 5                              | 5 (0.0.0.0:4150) for field TCPAddress - invalid string value type int64
deflate = 1                                  | 1 (true) for field DeflateEnabled - write true or false: nsqd takes 0 for true
nsqlookupd_tcp_addresses = true              | true ([]) for field NSQLookupdTCPAddresses - invalid []string value type bool
nsqlookupd_tcp_addresses = [1]               | [1] ([]) for field NSQLookupdTCPAddresses - 1 in an array that takes only strings
e2e_processing_latency_percentiles = [0.5, 1] | [0.5 1] ([]) for field E2EProcessingLatencyPercentiles - 1 in an array that takes only floats (1.0, not 1)
e2e_processing_latency_percentiles = 0.5     | 0.5 ([]) for field E2EProcessingLatencyPercentiles - invalid []float64 value type float64
"#;

#[test]
fn values_in_a_file_are_refused_in_nsqds_words() {
    for table in [REFUSED_VALUES, OURS_REFUSED_VALUES] {
        for [line, why] in rows(table) {
            let expected = format!("ERROR: Resolve failed to coerce value {why}");
            assert_eq!(file_error(line), expected, "{line}");
        }
    }
    for (line, expected) in [
        ("tls_required = \"maybe\"", "tls_required maybe"),
        ("tls_required = 5", "tls_required 5"),
        ("tls_required = \"\"", "tls_required "),
        ("tls_min_version = \"ssl3.0\"", "tls_min_version ssl3.0"),
        ("tls_min_version = 5", "tls_min_version 5"),
        ("log_level = \"warning\"", "log_level warning"),
        ("log_level = 5", "log_level 5"),
    ] {
        assert_eq!(
            file_error(line),
            format!("FATAL: failed parsing {expected}")
        );
    }
}

#[test]
fn values_in_a_file_are_converted_as_nsqd_converts_them() {
    let check = |name: &str, line: &str, expected: Value| {
        assert_eq!(file_value(name, line), expected, "{line}");
    };
    let texts = |texts: &[&str]| Value::List(texts.iter().map(|text| text.to_string()).collect());
    check("node-id", "id = 5", Value::Integer(5));
    check("node-id", "id = \"+12\"", Value::Integer(12));
    check(
        "mem-queue-size",
        "mem_queue_size = 0x10",
        Value::Integer(16),
    );
    let second = Value::Duration(1_000_000_000);
    check("msg-timeout", "msg_timeout = 1000", second.clone());
    check("msg-timeout", "msg_timeout = \"1s\"", second);
    check("deflate", "deflate = false", Value::Boolean(false));
    check("deflate", "deflate = \"T\"", Value::Boolean(true));
    check(
        "log-level",
        "log_level = \"Debug\"",
        Value::Level(Level::Debug),
    );
    let yes = Value::Word(TlsRequired::Yes as i64);
    check("tls-required", "tls_required = true", yes.clone());
    check("tls-required", "tls_required = \"True\"", yes);
    let default = Value::Word(TlsVersion::V10 as i64);
    check("tls-min-version", "tls_min_version = \"\"", default);
    let name = "lookupd-tcp-address";
    let key = "nsqlookupd_tcp_addresses";
    check(name, &format!("{key} = \"a, b\""), texts(&["a", " b"]));
    check(
        name,
        &format!("{key} = [\"a,b\", \"c\"]"),
        texts(&["a,b", "c"]),
    );
    check(
        "auth-http-address",
        "auth_http_addresses = []",
        Value::NoList,
    );
    let name = "e2e-processing-latency-percentile";
    let key = "e2e_processing_latency_percentiles";
    let numbers = Value::Floats(vec![0.5, 0.99]);
    check(name, &format!("{key} = \"0.5, 0.99\""), numbers.clone());
    check(name, &format!("{key} = [0.5, 0.99]"), numbers);
    check(name, &format!("{key} = []"), Value::NoList);
    check("shards", "shards = 3", Value::Integer(3));
    let not_keys = file_value("node-id", "node_id = 5\nID = 5");
    assert_eq!(not_keys, value(&[], "node-id"));
    let config = parse_file("node_id = 5\nid = 6\nverbose = true\n[x]\ny = 1").unwrap();
    assert_eq!(config.options.unknown_keys(), ["node_id", "verbose", "x"]);
}

/// Only a ring looks for answers. A start with epoll took the flag without a word.
#[test]
fn a_look_without_a_ring_is_named() {
    let named = |args: &[&str]| {
        let args = args.iter().map(|&arg| arg.into());
        Config::from_args(args).expect("it is allowed").useless()
    };
    let text = "--look has no effect with --io=epoll";
    assert_eq!(named(&["--io=epoll", "--look=20us"]), [text]);
    for good in [&["--io=epoll"][..], &["--look=20us"]] {
        assert_eq!(named(good), [""; 0]);
    }
}

/// Values that nsqd takes, and with which somebody looks for the cause for a long time. Behind each one stands the begin of
/// what ringq says.
const DOUBTFUL: &str = "
--broadcast-address=              | --broadcast-address is empty, so consumers
--broadcast-address=$(POD_IP)     | --broadcast-address=$(POD_IP): a variable was not replaced
--broadcast-address=h:4150        | --broadcast-address=h:4150: consumers take it for a host
--broadcast-address=http://h      | --broadcast-address=http://h: consumers take it for a host
--auth-http-address=h             | --auth-http-address=h: missing port in address: write <host>:<port>; without a port, 80 is asked
--auth-http-address=a:1,b:2       | --auth-http-address=a:1,b:2: write one <host>:<port> in each flag
--auth-http-address=h:1/auth      | --auth-http-address=h:1/auth: write one <host>:<port> in each flag
--auth-http-address=http://${H}:1 | --auth-http-address=http://${H}:1: a variable was not replaced
--statsd-address=h                | --statsd-address=h: missing port in address
--lookupd-tcp-address=h           | --lookupd-tcp-address=h: missing port in address: write <host>:<port>; consumers that ask
--lookupd-tcp-address=a:1,b:2     | --lookupd-tcp-address=a:1,b:2: write one <host>:<port> in each flag
--max-body-size=10                | --max-body-size is too small
--max-rdy-count=-1                | --max-rdy-count lets no RDY above 0 pass
";

#[test]
fn doubtful_values_are_named() {
    let doubts = |flag: &str| {
        let config = Config::from_args([flag.into()]).expect("it is allowed");
        config.useless().join("\n")
    };
    for good in [
        "--broadcast-address=10.0.0.1",
        "--broadcast-address=::1",
        "--broadcast-address=[::1]",
        "--auth-http-address=h:4181",
        "--auth-http-address=https://h/a,b",
        "--statsd-address=h:8125",
        "--statsd-address=",
        "--lookupd-tcp-address=h:4160",
        "--lookupd-tcp-address=_nsqlookupd._tcp.example.com",
        "--max-body-size=512",
        "--max-rdy-count=1",
    ] {
        assert_eq!(doubts(good), "", "{good}");
    }
    for [flag, begin] in rows(DOUBTFUL) {
        let found = doubts(flag);
        assert!(found.starts_with(begin), "{flag}: {found}");
    }
}

#[test]
fn flags_overrule_the_file_and_the_file_the_defaults() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let path = directory.path().join("nsqd.toml");
    std::fs::write(
        &path,
        "id = 7\nmsg_timeout = \"2s\"\nmax_rdy_count = true\nlog_level = \"error\"\ntypo = 1\n",
    )
    .expect("the directory can be written");
    let file = format!("--config={}", path.display());
    let config = good(&[&file, "--max-rdy-count=9", "--log-level=warn"]);
    assert_eq!(config.node_id, 7);
    assert_eq!(config.msg_timeout, Duration::from_secs(2));
    assert_eq!(config.rdy_count_max, 9, "what is overruled is not judged");
    assert_eq!(config.log_level, Level::Warn);
    assert_eq!(config.msg_bytes_max, 1_048_576);
    assert_eq!(config.options.unknown_keys(), ["typo"]);
    assert_eq!(
        good(&["--node-id=617", &file, "--max-rdy-count=1"]).node_id,
        617,
        "also if the flag says what is the default"
    );
    let line = bad(1, &[&file]);
    let expected = format!(
        " ERROR: Resolve failed to coerce value true (2500) for field MaxRdyCount - invalid int64 value type bool (key \
         max_rdy_count in {})",
        path.display()
    );
    assert!(line.ends_with(&expected), "{line}");
    assert!(line.starts_with("20"), "no prefix: {line}");

    std::fs::write(&path, "log_level = \"loud\"").expect("the directory can be written");
    let line = bad(1, &[&file, "--log-level=debug"]);
    let expected = format!(
        " FATAL: failed parsing log_level loud (in {})",
        path.display()
    );
    assert!(
        line.starts_with("[nsqd] ") && line.ends_with(&expected),
        "checked even if overruled: {line}"
    );
    assert_eq!(parse(&[&file, "--version"]).unwrap_err().code, 0);
    assert_eq!(good(&["--config="]), good(&[]));

    std::fs::write(&path, "a = 1\na = ").expect("the directory can be written");
    let line = bad(1, &[&file]);
    let why = format!(
        "failed to load config file {} - toml: line 2: ",
        path.display()
    );
    assert!(line.contains(&why), "{line}");
    let line = bad(1, &["--config=/nope"]);
    let why = "FATAL: failed to load config file /nope - open /nope: no such file or directory";
    assert!(line.ends_with(why), "{line}");
    let line = bad(1, &[&format!("--config={}", directory.path().display())]);
    assert!(line.ends_with(": is a directory"), "{line}");
}

/// Flags, the field of nsqd's options, and the key of a file if there is one.
const FIELDS_AND_KEYS: &str = "
tcp-address TCPAddress tcp_address
tls-min-version TLSMinVersion tls_min_version
tls-root-ca-file TLSRootCAFile tls_root_ca_file
statsd-udp-packet-size StatsdUDPPacketSize statsd_udp_packet_size
http-client-connect-timeout HTTPClientConnectTimeout http_client_connect_timeout
e2e-processing-latency-window-time E2EProcessingLatencyWindowTime e2e_processing_latency_window_time
enable-experiment Experiments enable_experiment
snappy SnappyEnabled snappy
auth-http-address AuthHTTPAddresses auth_http_addresses
verbose Verbose
worker-id WorkerId
";

#[test]
fn fields_and_keys_are_named_as_nsqd_names_them() {
    for line in FIELDS_AND_KEYS.trim().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let flag = flag(words[0]);
        assert_eq!(flag.field(), words[1], "{line}");
        assert_eq!(flag.key().as_deref(), words.get(2).copied(), "{line}");
    }
    let options = good(&["--max-rdy-count=-3"]).options;
    assert_eq!(options.by_key("max_rdy_count"), Some(&Value::Integer(-3)));
    for name in [
        "node_id",
        "lookupd_tcp_address",
        "config",
        "version",
        "ID",
        "",
    ] {
        assert_eq!(options.by_key(name), None, "{name}");
    }
}

/// docs/reference/flags-nsqd.md has the tables of all flags. To write them anew, run this test with UPDATE_DOCS=1.
#[test]
fn the_documentation_has_every_flag() {
    pages::check("reference/flags-nsqd.md", |page| {
        let page = page_with_table(page, "nsqd's flags", &of_flags(NSQD.flags));
        page_with_table(&page, "our flags", &of_flags(NSQD.own_flags))
    });
}

/// docs/reference/differences.md says which flags nsqd lacks, and which keys of `/config`.
#[test]
fn the_page_of_differences_names_every_own_flag_and_its_key() {
    let page = pages::read("reference/differences.md");
    let (of_nsqd, _) = page
        .split_once("\n## nsqlookupd\n")
        .expect("a part for nsqd");
    let flags = NSQD.own_flags.iter();
    let keys = flags.clone().filter_map(program::flag::Flag::key);
    let names = flags.map(|flag| format!("`--{}`", flag.name));
    let names = names.chain(keys.map(|key| format!("/config/{key}`")));
    let missing: Vec<String> = names.filter(|name| !of_nsqd.contains(name)).collect();
    assert_eq!(missing, [""; 0]);
}

/// A flag's help is one line. What is longer is told in a page.
#[test]
fn the_help_of_each_flag_is_one_line() {
    for flag in NSQD.flags.iter().chain(NSQD.own_flags) {
        let characters = flag.help.chars().count();
        assert!(characters <= 100, "{}: {characters} characters", flag.name);
    }
}
