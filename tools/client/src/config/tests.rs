mod secrets;

use super::*;

fn set(name: &str, value: &str) -> Result<Config, String> {
    let mut config = Config::default();
    config.set(name, value).map_err(|error| error.to_string())?;
    config.validate().map_err(|error| error.to_string())?;
    Ok(config)
}

#[test]
fn every_option_takes_a_value() {
    let check = |name, value, is_set: fn(&Config) -> bool| {
        let config = set(name, value).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(is_set(&config), "{name} {value}");
    };
    const MS: fn(u64) -> Duration = Duration::from_millis;
    check("dial_timeout", "5s", |c| c.dial_timeout == MS(5000));
    check("read-timeout", "1m1.5s", |c| c.read_timeout == MS(61_500));
    check("write_timeout", "100ms", |c| c.write_timeout == MS(100));
    check("local_addr", "127.0.0.1:0", |c| {
        c.local_addr == Some(([127, 0, 0, 1], 0).into())
    });
    check("local_addr", ":81", |c| {
        c.local_addr == Some(([0, 0, 0, 0], 81).into())
    });
    check("lookupd_poll_interval", "10ms", |c| {
        c.lookupd_poll_interval == MS(10)
    });
    check("lookupd_poll_jitter", "0.5", |c| {
        c.lookupd_poll_jitter == 0.5
    });
    check("lookupd_poll_timeout", "2s", |c| {
        c.lookupd_poll_timeout == MS(2000)
    });
    check("max_requeue_delay", "60m", |c| {
        c.max_requeue_delay == MS(3_600_000)
    });
    check("default_requeue_delay", "0", |c| {
        c.default_requeue_delay == MS(0)
    });
    check("backoff_strategy", "full_jitter", |c| {
        c.backoff_strategy == BackoffStrategy::FullJitter
    });
    check("max_backoff_duration", "0s", |c| {
        c.max_backoff_duration == MS(0)
    });
    check("backoff_multiplier", "50ms", |c| {
        c.backoff_multiplier == MS(50)
    });
    check("max_attempts", "65535", |c| c.max_attempts == 65_535);
    check("low_rdy_idle_timeout", "1s", |c| {
        c.low_rdy_idle_timeout == MS(1000)
    });
    check("low_rdy_timeout", "5m", |c| {
        c.low_rdy_timeout == MS(300_000)
    });
    check("rdy_redistribute_interval", "1ms", |c| {
        c.rdy_redistribute_interval == MS(1)
    });
    check("client_id", "me", |c| c.client_id == "me");
    check("hostname", "here", |c| c.hostname == "here");
    check("user_agent", "x/1", |c| c.user_agent == "x/1");
    check("topology_region", "r", |c| c.topology_region == "r");
    check("topology_zone", "z", |c| c.topology_zone == "z");
    check("heartbeat_interval", "60s", |c| {
        c.heartbeat_interval == Some(MS(60_000))
    });
    check("heartbeat_interval", "-1", |c| {
        c.heartbeat_interval.is_none()
    });
    check("heartbeat_interval", "-1ns", |c| {
        c.heartbeat_interval.is_none()
    });
    check("sample_rate", "99", |c| c.sample_rate == 99);
    check("deflate_level", "9", |c| c.deflate_level == 9);
    check("output_buffer_size", "-1", |c| {
        c.output_buffer_size.is_none()
    });
    check("output_buffer_size", "64", |c| {
        c.output_buffer_size == Some(64)
    });
    check("output_buffer_timeout", "-1", |c| {
        c.output_buffer_timeout.is_none()
    });
    check("max_in_flight", "+200", |c| c.max_in_flight == 200);
    check("msg_timeout", "3s", |c| c.msg_timeout == MS(3000));
    check("max_msg_size", "1048576", |c| c.max_msg_size == 1 << 20);
    check("auth_secret", "s", |c| c.auth_secret == "s");
    check("skip_lookupd_authorization", "false", |c| {
        !c.lookupd_authorization
    });
    check("lookupd_authorization", "f", |c| !c.lookupd_authorization);
    check("tls_min_version", "ssl3.0", |_| true);
    check("tls_insecure_skip_verify", "1", |c| {
        c.tls.insecure_skip_verify
    });
}

/// The texts are those of nsq_tail 1.3.0 with `--consumer-opt`, except those marked.
#[test]
fn refusals_have_the_texts_of_the_go_client() {
    let check = |name, value, expected: &str| {
        assert_eq!(set(name, value).err().as_deref(), Some(expected));
    };
    check("bogus", "1", "invalid option bogus");
    check("Max_In_Flight", "10", "invalid option Max_In_Flight");
    check("max_in_flight", "-1", "invalid max_in_flight ! -1 < 0");
    check("deflate-level", "10", "invalid deflate_level ! 10 > 9");
    check("read_timeout", "10m", "invalid read_timeout ! 10m0s > 5m0s");
    check(
        "low_rdy_timeout",
        "500ms",
        "invalid low_rdy_timeout ! 500ms < 1s",
    );
    check("msg_timeout", "-1s", "invalid msg_timeout ! -1s < 0s");
    check("sample_rate", "100", "invalid sample_rate ! 100 > 99");
    check(
        "lookupd_poll_jitter",
        "2",
        "invalid lookupd_poll_jitter ! 2 > 1",
    );
    check(
        "lookupd_poll_jitter",
        "-0.5",
        "invalid lookupd_poll_jitter ! -0.5 < 0",
    );
    for (name, value, reason) in [
        (
            "max_in_flight",
            "abc",
            "strconv.ParseInt: parsing \"abc\": invalid syntax",
        ),
        (
            "max_in_flight",
            "",
            "strconv.ParseInt: parsing \"\": invalid syntax",
        ),
        (
            "max_in_flight",
            "0x10",
            "strconv.ParseInt: parsing \"0x10\": invalid syntax",
        ),
        (
            "max_in_flight",
            "1.5",
            "strconv.ParseInt: parsing \"1.5\": invalid syntax",
        ),
        (
            "max_in_flight",
            "99999999999999999999",
            "strconv.ParseInt: parsing \"99999999999999999999\": value out of range",
        ),
        (
            "max_attempts",
            "x",
            "strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
        (
            "max_attempts",
            "-1",
            "strconv.ParseUint: parsing \"-1\": invalid syntax",
        ),
        // The Go client stores 4464.
        (
            "max_attempts",
            "70000",
            "strconv.ParseUint: parsing \"70000\": value out of range",
        ),
        ("read_timeout", "5", "time: missing unit in duration \"5\""),
        (
            "dial_timeout",
            "-1",
            "time: missing unit in duration \"-1\"",
        ),
        ("read_timeout", "foo", "time: invalid duration \"foo\""),
        (
            "tls_v1",
            "maybe",
            "strconv.ParseBool: parsing \"maybe\": invalid syntax",
        ),
        (
            "tls_insecure_skip_verify",
            "x",
            "strconv.ParseBool: parsing \"x\": invalid syntax",
        ),
        (
            "lookupd_poll_jitter",
            "x",
            "strconv.ParseFloat: parsing \"x\": invalid syntax",
        ),
        // The Go client takes NaN.
        (
            "lookupd_poll_jitter",
            "NaN",
            "strconv.ParseFloat: parsing \"NaN\": invalid syntax",
        ),
        ("local_addr", "foo", "address foo: missing port in address"),
        ("local_addr", "127.0.0.1:x", "lookup tcp/x: unknown port"),
        // The Go client crashes.
        (
            "backoff_strategy",
            "foo",
            "it must be exponential or full_jitter",
        ),
    ] {
        check(
            name,
            value,
            &format!("failed to coerce option {name} ({value}) - {reason}"),
        );
    }
}

#[test]
fn options_of_tls_read_their_files_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(path("cert.pem"), key.cert.pem()).expect("written");
    std::fs::write(path("key.pem"), key.signing_key.serialize_pem()).expect("written");
    std::fs::write(path("junk.pem"), "junk").expect("written");

    let check = |options: &[(&str, String)], expected: Option<String>| {
        let mut config = Config::default();
        let done = options
            .iter()
            .try_for_each(|(name, value)| config.set(name, value));
        assert_eq!(done.err().map(|error| error.to_string()), expected);
    };
    let (cert, key, junk, none) = (
        path("cert.pem"),
        path("key.pem"),
        path("junk.pem"),
        path("none"),
    );
    check(&[("tls_root_ca_file", cert.clone())], None);
    check(
        &[("tls_cert", cert.clone()), ("tls_key", key.clone())],
        None,
    );
    check(&[("tls-key", key), ("tls-cert", cert.clone())], None);
    check(
        &[("tls_min_version", "tls1.9".to_owned())],
        Some("ERROR: tls1.9 is not a tls version".to_owned()),
    );
    check(&[("tls_cert", none.clone())], None);
    let refused = |options: &[(&str, String)]| {
        let mut config = Config::default();
        let done = options
            .iter()
            .try_for_each(|(name, value)| config.set(name, value));
        done.expect_err("the file is refused").to_string()
    };
    let text = refused(&[("tls_root_ca_file", none.clone())]);
    let expected = "ERROR: failed to read custom Certificate Authority file open /";
    assert!(text.starts_with(expected), "{text}");
    let text = refused(&[("tls_root_ca_file", junk.clone())]);
    let expected = "ERROR: failed to append certificates from Certificate Authority file";
    assert!(text.starts_with(expected), "{text}");
    let text = refused(&[("tls_cert", junk.clone()), ("tls_key", junk.clone())]);
    let expected = "tls: failed to find any PEM data in certificate input";
    assert!(text.starts_with(expected), "{text}");
    let text = refused(&[("tls_cert", cert), ("tls_key", none.clone())]);
    assert!(text.starts_with(&format!("open {none}: ")), "{text}");
}

#[test]
fn validation_checks_fields_that_were_assigned() {
    let check = |change: fn(&mut Config), expected: Option<&str>| {
        let mut config = Config::default();
        change(&mut config);
        let error = config.validate().err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), expected);
    };
    check(|_| {}, None);
    check(
        |c| c.heartbeat_interval = Some(Duration::from_secs(70)),
        Some("HeartbeatInterval 1m10s must be less than ReadTimeout 1m0s"),
    );
    check(|c| c.heartbeat_interval = Some(c.read_timeout), None);
    check(
        |c| c.read_timeout = Duration::ZERO,
        Some("invalid ReadTimeout ! 0s < 100ms"),
    );
    check(
        |c| c.deflate_level = 0,
        Some("invalid DeflateLevel ! 0 < 1"),
    );
    check(
        |c| c.sample_rate = 100,
        Some("invalid SampleRate ! 100 > 99"),
    );
    check(
        |c| c.lookupd_poll_jitter = f64::NAN,
        Some("invalid LookupdPollJitter ! NaN < 0"),
    );
    check(
        |c| c.max_backoff_duration = Duration::MAX,
        Some("invalid MaxBackoffDuration ! 2562047h47m16.854775807s > 1h0m0s"),
    );
}
