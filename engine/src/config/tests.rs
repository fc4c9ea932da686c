use super::*;

fn parse(args: &[&str]) -> Result<Config, ConfigExit> {
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

#[test]
fn defaults_are_nsqds() {
    let config = good(&[]);
    assert_eq!(config.log_level, Level::Info);
    assert_eq!(config.log_prefix, "[nsqd] ");
    assert_eq!(config.node_id, 617);
    assert_eq!(config.tcp_address, "0.0.0.0:4150");
    assert_eq!(config.http_address, "0.0.0.0:4151");
    assert_eq!(config.broadcast_address, "vm");
    assert_eq!(
        (config.broadcast_tcp_port, config.broadcast_http_port),
        (0, 0)
    );
    assert_eq!(config.data_path, std::env::current_dir().unwrap());
    assert_eq!(config.mem_queue_count, 10_000);
    assert_eq!(config.file_bytes_max, 104_857_600);
    assert_eq!(config.sync_every, 2500);
    assert_eq!(config.sync_timeout, Duration::from_secs(2));
    assert_eq!(config.msg_timeout, Duration::from_secs(60));
    assert_eq!(config.msg_timeout_max, Duration::from_secs(900));
    assert_eq!(config.msg_bytes_max, 1_048_576);
    assert_eq!(config.body_bytes_max, 5_242_880);
    assert_eq!(config.req_timeout_max, Duration::from_secs(3600));
    assert_eq!(config.heartbeat_interval_max, Duration::from_secs(60));
    assert_eq!(config.rdy_count_max, 2500);
    assert_eq!(config.output_buffer_bytes_max, 65_536);
    assert_eq!(config.output_buffer_timeout_max, Duration::from_secs(30));
    assert_eq!(config.output_buffer_timeout_min, Duration::from_millis(25));
    assert_eq!(config.output_buffer_timeout, Duration::from_millis(250));
    assert_eq!(config.channel_consumers_max, 0);
    assert_eq!(config.deflate_level_max, 6);
    assert_eq!(
        config.shard_count,
        std::thread::available_parallelism().unwrap()
    );
    assert!(!config.pin_shards);
}

#[test]
fn flags_are_read_as_go_reads_them() {
    assert_eq!(good(&["-node-id", "5"]).node_id, 5);
    assert_eq!(good(&["--node-id=0x1f"]).node_id, 31);
    assert_eq!(good(&["--node-id=1", "-node-id=2"]).node_id, 2, "last wins");
    assert_eq!(good(&["--log-prefix="]).log_prefix, "");
    assert_eq!(
        good(&["--log-prefix", "--x"]).log_prefix,
        "--x",
        "a value may look like a flag"
    );
    assert_eq!(good(&["--log-prefix=a=b,c d"]).log_prefix, "a=b,c d");
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
    assert_eq!(good(&["--queue-scan-selection-count=0"]), good(&[]));
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

#[test]
fn flag_errors_are_gos_and_exit_2() {
    assert_eq!(bad(2, &["-foo"]), "flag provided but not defined: -foo");
    assert_eq!(bad(2, &["--foo=1"]), "flag provided but not defined: -foo");
    assert_eq!(
        bad(2, &["--mem-queue-size"]),
        "flag needs an argument: -mem-queue-size"
    );
    assert_eq!(bad(2, &["---x"]), "bad flag syntax: ---x");
    assert_eq!(bad(2, &["--=x"]), "bad flag syntax: --=x");
    assert_eq!(bad(2, &["-=x"]), "bad flag syntax: -=x");
    assert_eq!(
        bad(2, &["--mem-queue-size=abc"]),
        "invalid value \"abc\" for flag -mem-queue-size: parse error"
    );
    assert_eq!(
        bad(2, &["--mem-queue-size=99999999999999999999"]),
        "invalid value \"99999999999999999999\" for flag -mem-queue-size: value out of range"
    );
    assert_eq!(
        bad(2, &["--msg-timeout", "5"]),
        "invalid value \"5\" for flag -msg-timeout: parse error"
    );
    assert_eq!(
        bad(2, &["--node-id="]),
        "invalid value \"\" for flag -node-id: parse error"
    );
    assert_eq!(
        bad(2, &["--worker-id=5"]),
        "invalid boolean value \"5\" for -worker-id: parse error"
    );
    assert_eq!(
        bad(2, &["--log-level=foo"]),
        "invalid value \"foo\" for flag -log-level: invalid log level 'foo' \
         (debug, info, warn, error, fatal)"
    );
}

#[test]
fn the_first_error_from_the_left_wins() {
    assert_eq!(
        bad(2, &["--foo", "--node-id=x"]),
        "flag provided but not defined: -foo"
    );
    assert_eq!(
        bad(2, &["--node-id=x", "--foo"]),
        "invalid value \"x\" for flag -node-id: parse error"
    );
    assert_eq!(
        bad(2, &["--node-id=x", "--help"]),
        "invalid value \"x\" for flag -node-id: parse error"
    );
    let exit = parse(&["--help", "--node-id=x"]).unwrap_err();
    assert_eq!(exit.code, 0);
}

#[test]
fn flags_of_a_later_stage_are_refused_by_name() {
    for name in FLAGS_NOT_YET {
        let exit = parse(&[&format!("--{name}=x")]).unwrap_err();
        assert_eq!(exit.code, 2);
        let mut lines = exit.stderr.lines();
        assert_eq!(
            lines.next().unwrap(),
            format!("flag provided but not defined: -{name}")
        );
        assert_eq!(
            lines.next().unwrap(),
            format!("this version of ringq does not support -{name} yet")
        );
        assert_eq!(lines.next(), Some("Usage of nsqd:"));
    }
}

#[test]
fn help_and_version_exit_0() {
    for help in ["-h", "-help", "--help", "--h"] {
        let exit = parse(&[help]).unwrap_err();
        assert_eq!((exit.code, exit.stdout.as_str()), (0, ""));
        assert!(
            exit.stderr
                .starts_with("Usage of nsqd:\n  -auth-http-address value\n    \t")
        );
    }
    let help = parse(&["-h"]).unwrap_err().stderr;
    assert!(
        help.contains("\n  -log-prefix string\n    \tlog message prefix (default \"[nsqd] \")")
    );
    assert!(help.contains("\n  -msg-timeout duration\n    \tdefault duration to wait"));
    assert!(help.contains(" before requeueing a message (default 1m0s)\n"));
    assert!(help.contains("\n  -pin-shards\n    \tbind each shard to a core\n"));
    assert!(help.contains("from the host name (default 617)\n"));
    let exit = parse(&["--version"]).unwrap_err();
    assert_eq!((exit.code, exit.stderr.as_str()), (0, ""));
    assert!(
        exit.stdout.starts_with("nsqd v1.3.0 (built w/rust"),
        "{}",
        exit.stdout
    );
    assert!(exit.stdout.ends_with(")\n"));
    assert!(parse(&["--version=false"]).is_ok());
}

#[test]
fn refused_values_are_fatal_lines() {
    let check = |arg: &str, why: &str| {
        let line = bad(1, &[arg]);
        assert!(line.starts_with("[nsqd] "), "{line}");
        assert!(
            line.ends_with(&format!(" FATAL: failed to instantiate nsqd - {why}")),
            "{line}"
        );
    };
    check("--max-deflate-level=0", "--max-deflate-level must be [1,9]");
    check(
        "--max-deflate-level=10",
        "--max-deflate-level must be [1,9]",
    );
    check("--node-id=1024", "--node-id must be [0,1024)");
    check("--node-id=-1", "--node-id must be [0,1024)");
    check(
        "--output-buffer-timeout=0",
        "--output-buffer-timeout must be greater than 0s",
    );
    check(
        "--sync-timeout=-1s",
        "--sync-timeout must be greater than 0s",
    );
    check(
        "--mem-queue-size=-1",
        "--mem-queue-size must not be negative",
    );
    check(
        "--max-channel-consumers=-1",
        "--max-channel-consumers must not be negative",
    );
    check(
        "--broadcast-tcp-port=65536",
        "--broadcast-tcp-port must be [0,65535]",
    );
    check("--shards=1025", "--shards must be [0,1024]");
    let line = bad(1, &["--node-id=-1", "--max-deflate-level=0"]);
    assert!(
        line.ends_with("--max-deflate-level must be [1,9]"),
        "nsqd's order: {line}"
    );
}

#[test]
fn the_command_passes_claps_own_checks() {
    command("vm").debug_assert();
}
