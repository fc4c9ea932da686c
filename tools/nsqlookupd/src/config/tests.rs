use std::time::Duration;

use test_support::tables::{of_flags, page_with_table};

use super::*;

fn config(args: &[&str]) -> Result<Config, Exit> {
    Config::from_args(args.iter().map(OsString::from))
}

#[test]
fn the_defaults_are_nsqlookupds() {
    let config = config(&[]).unwrap();
    assert_eq!(config.log_level, Level::Info);
    assert_eq!(config.options.log_style().prefix, "[nsqlookupd] ");
    assert_eq!(config.tcp_address, "0.0.0.0:4160");
    assert_eq!(config.http_address, "0.0.0.0:4161");
    assert_eq!(config.broadcast_address, program::hostname());
    assert_eq!(config.lifetimes.inactive, Duration::from_secs(300));
    assert_eq!(config.lifetimes.tombstone, Duration::from_secs(45));
    assert!(config.ignored().is_empty());
}

#[test]
fn flags_come_before_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nsqlookupd.cfg");
    let text = "log_level = \"debug\"\ntcp_address = \"127.0.0.1:1\"\nhttp_address = \"h:2\"\n\
                tombstone_lifetime = 1500\ninactive_producer_timeout = \"1m\"\n\
                broadcast_address = \"lk\"\nlog_prefix = \"x \"\nnothing = 1\n";
    std::fs::write(&path, text).unwrap();
    let file = format!("--config={}", path.display());
    let config = config(&[&file, "-http-address", "127.0.0.1:3", "--verbose"]).unwrap();
    assert_eq!(config.log_level, Level::Debug);
    assert_eq!(config.options.log_style().prefix, "x ");
    assert_eq!(config.tcp_address, "127.0.0.1:1");
    assert_eq!(config.http_address, "127.0.0.1:3");
    assert_eq!(config.broadcast_address, "lk");
    assert_eq!(config.lifetimes.inactive, Duration::from_secs(60));
    assert_eq!(config.lifetimes.tombstone, Duration::from_millis(1500));
    assert_eq!(
        config.ignored(),
        ["keys in the config file that mean nothing, ignored: nothing"]
    );
}

#[test]
fn mistakes_have_the_originals_texts_and_codes() {
    let check = |args: &[&str], code: u8, text: &str| {
        let exit = config(args).expect_err("the program ends");
        assert_eq!(exit.code, code, "{exit:?}");
        assert!(exit.stderr.contains(text), "{exit:?}");
    };
    check(
        &["--nope"],
        2,
        "flag provided but not defined: -nope\nUsage of nsqlookupd:",
    );
    check(
        &["--tombstone-lifetime=x"],
        2,
        "invalid value \"x\" for flag -tombstone-lifetime: parse error",
    );
    check(&["--help"], 0, "Usage of nsqlookupd:");
    check(
        &["--config=/nope/x.toml"],
        1,
        "FATAL: failed to load config file /nope/x.toml - open /nope/x.toml: no such file or",
    );
    let exit = config(&["--version"]).expect_err("the program ends");
    assert_eq!(exit.code, 0);
    assert!(exit.stdout.starts_with("nsqlookupd v1.3.0 (built w/"));

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bad.cfg");
    let file = format!("--config={}", path.display());
    std::fs::write(&path, "log_level = \"bogus\"\n").unwrap();
    check(&[&file], 1, "[nsqlookupd] ");
    check(&[&file], 1, "FATAL: failed parsing log_level bogus");
    std::fs::write(&path, "inactive_producer_timeout = \"abc\"\n").unwrap();
    check(
        &[&file],
        1,
        "ERROR: Resolve failed to coerce value abc (5m0s) for field InactiveProducerTimeout - \
         time: invalid duration \"abc\"",
    );
}

/// docs/reference/flags-nsqlookupd.md has the tables of all flags. To write them anew, run this test with
/// UPDATE_DOCS=1.
#[test]
fn the_documentation_has_every_flag() {
    test_support::pages::check("reference/flags-nsqlookupd.md", |page| {
        let page = page_with_table(page, "nsqlookupd's flags", &of_flags(NSQLOOKUPD.flags));
        page_with_table(
            &page,
            "our flags of nsqlookupd",
            &of_flags(NSQLOOKUPD.own_flags),
        )
    });
}

/// A flag's help is one line. What is longer is told in a page.
#[test]
fn the_help_of_each_flag_is_one_line() {
    for flag in NSQLOOKUPD.flags.iter().chain(NSQLOOKUPD.own_flags) {
        let characters = flag.help.chars().count();
        assert!(characters <= 100, "{}: {characters} characters", flag.name);
    }
}
