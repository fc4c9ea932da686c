use std::time::Duration;

use test_support::tables::{of_flags, page_with_table};

use super::*;

fn config(args: &[&str]) -> Result<Config, Exit> {
    Config::from_args(args.iter().map(OsString::from))
}

#[test]
fn flags_come_before_the_file_and_lists_replace_lists() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nsqadmin.cfg");
    let text = "log_level = \"debug\"\nnsqlookupd_http_addresses = [\"a:1\", \"b:2\"]\n\
                admin_users = \"carol,dave\"\ntrusted_proxy_cidr = \"10.0.0.0/8\"\nstatsd_interval = 30000\nbase_path = \"x\"\n\
                proxy_graphite = true\nnothing = 1\n";
    std::fs::write(&path, text).unwrap();
    let file = format!("--config={}", path.display());
    let flags = "-lookupd-http-address c:3 --base-path=admin/nsq/";
    let args: Vec<&str> = flags.split(' ').chain([&*file]).collect();
    let config = config(&args).unwrap();
    assert_eq!(config.log_level, Level::Debug);
    assert_eq!(config.lookupd_http_addresses, ["c:3"]);
    assert_eq!(config.admin_users, ["carol", "dave"]);
    // The default is replaced.
    assert_eq!(config.trusted_proxy_cidrs, ["10.0.0.0/8"]);
    assert_eq!(config.graphite.interval, Duration::from_secs(30));
    assert_eq!(config.base_path, "/admin/nsq");
    assert!(config.graphite.is_proxied);
    let ignored = "keys in the config file that mean nothing, ignored: nothing";
    assert_eq!(config.options.ignored(), [ignored]);
}

#[test]
fn a_base_path_begins_with_a_slash_and_ends_in_none() {
    for (given, expected) in [
        ("", "/"),
        ("/", "/"),
        ("x", "/x"),
        ("/x/", "/x"),
        ("//x/./y/../z", "/x/z"),
        ("..", "/"),
    ] {
        assert_eq!(checks::base_path(given), expected, "{given}");
    }
}

/// Each text is that of the original, if the original makes the check.
#[test]
fn the_checks_say_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let not_pem = write("not.pem", "text");
    // A comma behind the last name of a list in the file made every client without a user an admin.
    let file = write("nsqadmin.cfg", "admin_users = \"carol,\"\n");
    // `@` is the flag of a server, and `·` is a space.
    let cases = format!(
        "
         | --nsqd-http-address or --lookupd-http-address required
        @ --nsqd-http-address=127.0.0.1:4151 | use --nsqd-http-address or --lookupd-http-address not both
        @ --http-client-tls-cert=a | --http-client-tls-key must be specified with --http-client-tls-cert
        @ --http-client-tls-key=a | --http-client-tls-cert must be specified with --http-client-tls-key
        @ --http-client-tls-cert=b --http-client-tls-key=a | failed to LoadX509KeyPair b, a - open b: no such file or directory
        @ --http-client-tls-root-ca-file=/no | failed to read TLS root CA file /no - open /no: no such file or directory
        @ --http-client-tls-root-ca-file={not_pem} | failed to AppendCertsFromPEM 
        @ --max-nodes=0 | --max-nodes must be [1,100000]
        @ --history-max-bytes=0 | fine
        @ --history-max-bytes=0 --history-file=/h | --history-max-bytes=0 keeps no past, and --history-file (/h) would be saved without one
        @ --history-max-bytes=0 --history-file=/h --live-interval=0 | fine
        @ --history-max-bytes=1 --history-file=/h | fine
        @ --allow-config-from-cidr=1.2.3.4 | ! invalid CIDR address: 1.2.3.4
        @ --trusted-proxy-cidr=x | ! invalid CIDR address: x
        @ --allowed-origin=https://a/ | ! an origin is 
        @ --allowed-host=https://a | ! a host is a name 
        @ --nsqd-url-map=x | ! there is no =
        @ --admin-user= | ! an empty name is no user. Is a variable not set, 
        @ --admin-user=·carol | ! a name with a space before or behind it is no user: 
        @ --config={file} | failed to parse --admin-user () - an empty name is no user.
        @ --notification-http-endpoint=foo | ! relative URL without a base; the URL must begin with 
        @ --notification-http-endpoint=ftp://h/ | ! the URL must begin with http:// or https://
        @ --graphite-url=http://[::1 | fine
        @ --proxy-graphite --graphite-url=http://[::1 | ! parse \"http://[::1\": missing ']' in host
        --lookupd-http-address=foo | ? address foo: missing port in address
        --lookupd-http-address=http://127.0.0.1:1 | ? address http://127.0.0.1:1: {one}
        --lookupd-http-address=a:1,b:2 | ? address a:1,b:2: {one}
        --lookupd-http-address=h:x | ? lookup tcp/x: unknown port",
        one = "write one <host>:<port> in each flag, without a scheme and a path"
    );
    let lookupd = "--lookupd-http-address=127.0.0.1:4161";
    for case in cases.lines().skip(1) {
        let (args, why) = case.split_once(" | ").unwrap();
        let args = args.replace('@', lookupd);
        let words = args.split_whitespace();
        let args: Vec<String> = words.map(|word| word.replace('·', " ")).collect();
        // `!` and `?` stand for the last flag and its value.
        let (flag, value) = args
            .last()
            .and_then(|arg| arg.split_once('='))
            .unwrap_or_default();
        let why = why.replace("! ", &format!("failed to parse {flag} ({value}) - "));
        let why = why.replace("? ", &format!("failed to resolve {flag} ({value}) - "));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let error = config(&args).unwrap().check().err();
        let error = error.unwrap_or("fine".to_owned());
        assert!(error.starts_with(&why), "{args:?}: {error}");
    }
    let renamed = config(&[lookupd, "--history-max-series=5"]).unwrap_err();
    let line = "flag provided but not defined: -history-max-series; it is replaced by --history-max-bytes\n";
    assert!(renamed.stderr.starts_with(line), "{}", renamed.stderr);
    assert_eq!(renamed.code, 2);
    let with_slash = config(&[lookupd, "--graphite-url=http://g/x/"]).unwrap();
    assert_eq!(with_slash.graphite.url, "http://g/x");
}

/// The reason was "parse error" alone.
#[test]
fn a_size_with_a_unit_is_refused_with_an_example() {
    for (value, why) in [
        (
            "256MB",
            Some("parse error: this is no whole number of bytes, such as 268435456 for 256 MiB"),
        ),
        ("99999999999999999999", Some("value out of range")),
        ("0x10000000", None),
        ("268_435_456", None),
    ] {
        for name in ["history-max-bytes", "max-answer-size"] {
            let found = config(&[&format!("--{name}={value}")]);
            match why {
                None => assert!(found.is_ok(), "{value}"),
                Some(why) => {
                    let text = found.expect_err("the value is wrong").stderr;
                    assert!(text.contains(&format!("for flag -{name}: {why}")), "{text}");
                }
            }
        }
    }
}

/// docs/reference/flags-nsqadmin.md has the tables of all flags. To write them anew, run this test with UPDATE_DOCS=1.
#[test]
fn the_documentation_has_every_flag() {
    test_support::pages::check("reference/flags-nsqadmin.md", |page| {
        let page = page_with_table(page, "nsqadmin's flags", &of_flags(NSQADMIN.flags));
        page_with_table(
            &page,
            "our flags of nsqadmin",
            &of_flags(NSQADMIN.own_flags),
        )
    });
}

/// A flag's help is one line. What is longer is told in a page.
#[test]
fn the_help_of_each_flag_is_one_line() {
    for flag in NSQADMIN.flags.iter().chain(NSQADMIN.own_flags) {
        let characters = flag.help.chars().count();
        assert!(characters <= 100, "{}: {characters} characters", flag.name);
    }
}
