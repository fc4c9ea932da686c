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
    for (name, value, field) in [
        ("dial_timeout", "5s", "dial_timeout: 5s"),
        ("read-timeout", "1m1.5s", "read_timeout: 61.5s"),
        ("write_timeout", "100ms", "write_timeout: 100ms"),
        ("local_addr", "127.0.0.1:0", "local_addr: Some(127.0.0.1:0)"),
        ("local_addr", ":81", "local_addr: Some(0.0.0.0:81)"),
        ("lookupd_poll_interval", "10ms", "poll_interval: 10ms"),
        ("lookupd_poll_jitter", "0.5", "poll_jitter: 0.5"),
        ("lookupd_poll_timeout", "2s", "poll_timeout: 2s"),
        ("max_requeue_delay", "60m", "max_requeue_delay: 3600s"),
        ("default_requeue_delay", "0", "default_requeue_delay: 0ns"),
        ("backoff_strategy", "full_jitter", "strategy: FullJitter"),
        ("max_backoff_duration", "0s", "max_backoff_duration: 0ns"),
        ("backoff_multiplier", "50ms", "backoff_multiplier: 50ms"),
        ("max_attempts", "65535", "max_attempts: 65535"),
        ("low_rdy_idle_timeout", "1s", "low_rdy_idle_timeout: 1s"),
        ("low_rdy_timeout", "5m", "low_rdy_timeout: 300s"),
        ("rdy_redistribute_interval", "1ms", "interval: 1ms"),
        ("client_id", "me", "client_id: \"me\""),
        ("hostname", "here", "hostname: \"here\""),
        ("user_agent", "x/1", "user_agent: \"x/1\""),
        ("topology_region", "r", "topology_region: \"r\""),
        ("topology_zone", "z", "topology_zone: \"z\""),
        ("heartbeat_interval", "60s", "heartbeat_interval: Some(60s)"),
        ("heartbeat_interval", "-1", "heartbeat_interval: None"),
        ("heartbeat_interval", "-1ns", "heartbeat_interval: None"),
        ("sample_rate", "99", "sample_rate: 99"),
        ("deflate_level", "9", "deflate_level: 9"),
        ("output_buffer_size", "-1", "output_buffer_size: None"),
        ("output_buffer_size", "64", "output_buffer_size: Some(64)"),
        ("output_buffer_timeout", "-1", "output_buffer_timeout: None"),
        ("max_in_flight", "+200", "max_in_flight: 200"),
        ("msg_timeout", "3s", "msg_timeout: 3s"),
        ("max_msg_size", "1048576", "max_msg_size: 1048576"),
        ("auth_secret", "s", "auth_secret: ***"),
        ("skip_lookupd_authorization", "0", "authorization: false"),
        ("lookupd_authorization", "f", "authorization: false"),
        ("tls_min_version", "ssl3.0", ""),
        ("tls_insecure_skip_verify", "1", "skip_verify: true"),
    ] {
        let config = set(name, value).unwrap_or_else(|error| panic!("{name}: {error}"));
        let text = format!("{config:?}");
        assert!(text.contains(field), "{name} {value}: {text}");
        let before = format!("{:?}", Config::default());
        assert!(field.is_empty() || !before.contains(field), "{name}");
    }
}

/// The texts are those of nsq_tail 1.3.0 with `--consumer-opt`, except those marked.
#[test]
fn refusals_have_the_texts_of_the_go_client() {
    let check = |name, value, expected: &str| {
        assert_eq!(set(name, value).err().as_deref(), Some(expected));
    };
    check("bogus", "1", "invalid option bogus");
    check("Max_In_Flight", "10", "invalid option Max_In_Flight");
    for (name, value, bound) in [
        ("max_in_flight", "-1", "-1 < 0"),
        ("deflate_level", "10", "10 > 9"),
        ("read_timeout", "10m", "10m0s > 5m0s"),
        ("low_rdy_timeout", "500ms", "500ms < 1s"),
        ("msg_timeout", "-1s", "-1s < 0s"),
        ("sample_rate", "100", "100 > 99"),
        ("lookupd_poll_jitter", "2", "2 > 1"),
        ("lookupd_poll_jitter", "-0.5", "-0.5 < 0"),
    ] {
        check(name, value, &format!("invalid {name} ! {bound}"));
    }
    let coerced = |name: &'static str, value: &'static str, reason: &str| {
        let expected = format!("failed to coerce option {name} ({value}) - {reason}");
        check(name, value, &expected);
    };
    let (syntax, range) = ("invalid syntax", "value out of range");
    for (name, value, function, fault) in [
        ("max_in_flight", "abc", "ParseInt", syntax),
        ("max_in_flight", "", "ParseInt", syntax),
        ("max_in_flight", "0x10", "ParseInt", syntax),
        ("max_in_flight", "1.5", "ParseInt", syntax),
        ("max_in_flight", "99999999999999999999", "ParseInt", range),
        ("max_attempts", "x", "ParseUint", syntax),
        ("max_attempts", "-1", "ParseUint", syntax),
        // The Go client stores 4464.
        ("max_attempts", "70000", "ParseUint", range),
        ("tls_v1", "maybe", "ParseBool", syntax),
        ("tls_insecure_skip_verify", "x", "ParseBool", syntax),
        ("lookupd_poll_jitter", "x", "ParseFloat", syntax),
        // The Go client takes NaN.
        ("lookupd_poll_jitter", "NaN", "ParseFloat", syntax),
    ] {
        let reason = format!("strconv.{function}: parsing {value:?}: {fault}");
        coerced(name, value, &reason);
    }
    let unit = |value| format!("time: missing unit in duration {value:?}");
    coerced("read_timeout", "5", &unit("5"));
    coerced("dial_timeout", "-1", &unit("-1"));
    coerced("read_timeout", "foo", "time: invalid duration \"foo\"");
    coerced("local_addr", "foo", "address foo: missing port in address");
    coerced("local_addr", "127.0.0.1:x", "lookup tcp/x: unknown port");
    // The Go client crashes.
    let strategies = "it must be exponential or full_jitter";
    coerced("backoff_strategy", "foo", strategies);
}

#[test]
fn options_of_tls_read_their_files_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(path("cert.pem"), key.cert.pem()).expect("written");
    std::fs::write(path("key.pem"), key.signing_key.serialize_pem()).expect("written");
    std::fs::write(path("junk.pem"), "junk").expect("written");

    let [cert, key, junk, none] = ["cert.pem", "key.pem", "junk.pem", "none"].map(path);
    let (wrong_ca, no_pem) = (
        "ERROR: failed to append certificates from Certificate Authority file",
        "tls: failed to find any PEM data in certificate input",
    );
    let no_ca = "ERROR: failed to read custom Certificate Authority file open /";
    let no_key = format!("open {none}: ");
    let no_version = "ERROR: tls1.9 is not a tls version";
    for (options, expected) in [
        (&[("tls_root_ca_file", &*cert)][..], None),
        (&[("tls_cert", &cert), ("tls_key", &key)], None),
        (&[("tls-key", &key), ("tls-cert", &cert)], None),
        (&[("tls_min_version", "tls1.9")], Some(no_version)),
        (&[("tls_cert", &none)], None),
        (&[("tls_root_ca_file", &none)], Some(no_ca)),
        (&[("tls_root_ca_file", &junk)], Some(wrong_ca)),
        (&[("tls_cert", &junk), ("tls_key", &junk)], Some(no_pem)),
        (&[("tls_cert", &cert), ("tls_key", &none)], Some(&no_key)),
    ] {
        let mut config = Config::default();
        let mut options = options.iter();
        let done = options.try_for_each(|(name, value)| config.set(name, value));
        let error = done.err().map(|error| error.to_string());
        match (&error, expected) {
            (None, None) => {}
            (Some(error), Some(expected)) if error.starts_with(expected) => {}
            _ => panic!("{error:?}, and {expected:?} is expected"),
        }
    }
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
    let heartbeat = "HeartbeatInterval 1m10s must be less than ReadTimeout 1m0s";
    let long = |c: &mut Config| c.heartbeat_interval = Some(Duration::from_secs(70));
    check(long, Some(heartbeat));
    check(|c| c.heartbeat_interval = Some(c.read_timeout), None);
    let zero = "invalid ReadTimeout ! 0s < 100ms";
    check(|c| c.read_timeout = Duration::ZERO, Some(zero));
    let level = "invalid DeflateLevel ! 0 < 1";
    check(|c| c.deflate_level = 0, Some(level));
    let rate = "invalid SampleRate ! 100 > 99";
    check(|c| c.sample_rate = 100, Some(rate));
    let jitter = "invalid LookupdPollJitter ! NaN < 0";
    check(|c| c.lookupd_poll_jitter = f64::NAN, Some(jitter));
    let backoff = "invalid MaxBackoffDuration ! 2562047h47m16.854775807s > 1h0m0s";
    check(|c| c.max_backoff_duration = Duration::MAX, Some(backoff));
}
