//! Checks what each combination of the features `tls` and `compression` builds. `.ci/run` runs this file without both
//! features. Other runs have both.

use std::process::Command;

use ringq_client::testing::{MockConnection, MockNetwork};
use ringq_client::{BuildError, Config, Lookupd, OptionError, Producer, PublishError};

const HAS_TLS: bool = cfg!(feature = "tls");
const HAS_COMPRESSION: bool = cfg!(feature = "compression");

/// Returns the names of the crates that ringq-client is built from with these features.
fn dependencies(features: &str) -> Vec<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--package", "ringq-client"])
        .args(["--no-default-features", "--features", features])
        .args(["--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{errors}");
    let names = String::from_utf8(tree.stdout).expect("text");
    let names = names.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn a_feature_that_is_off_brings_no_dependency() {
    const TLS: [&str; 5] = [
        "rustls",
        "aws-lc-rs",
        "rustls-native-certs",
        "rustls-webpki",
        "hyper-rustls",
    ];
    const COMPRESSION: [&str; 3] = ["crc32c", "flate2", "snap"];
    for (features, has_tls, has_compression) in [
        ("", false, false),
        ("tls", true, false),
        ("compression", false, true),
        ("compression,tls", true, true),
    ] {
        let found = dependencies(features);
        assert!(found.iter().any(|name| name == "reqwest"), "{found:?}");
        let expected = TLS
            .map(|name| (name, has_tls))
            .into_iter()
            .chain(COMPRESSION.map(|name| (name, has_compression)));
        for (name, is_expected) in expected {
            let is_found = found.iter().any(|found| found == name);
            assert_eq!(is_found, is_expected, "features {features:?}: {name}");
        }
    }
}

/// Returns the refusal of an option whose feature is off.
fn refusal(option: &str, feature: &str) -> String {
    format!(
        "{option} needs the feature \"{feature}\" of ringq-client, which this program was built without. Add \
         \"{feature}\" to the features of ringq-client in Cargo.toml and build again, or do without {option}"
    )
}

/// Checks that the text is the refusal of `option` if `feature` is off, and that there is none if it is on.
fn check(error: Option<impl ToString>, option: &str, feature: &str, is_built: bool) {
    let expected = (!is_built).then(|| refusal(option, feature));
    assert_eq!(error.map(|error| error.to_string()), expected, "{option}");
}

#[test]
fn options_as_text_need_their_feature() {
    for (option, value, feature, is_built) in [
        ("tls_v1", "true", "tls", HAS_TLS),
        ("tls_insecure_skip_verify", "true", "tls", HAS_TLS),
        ("tls_min_version", "tls1.2", "tls", HAS_TLS),
        ("tls_cert", "cert.pem", "tls", HAS_TLS),
        ("tls_key", "key.pem", "tls", HAS_TLS),
        ("snappy", "true", "compression", HAS_COMPRESSION),
        ("deflate", "true", "compression", HAS_COMPRESSION),
    ] {
        let mut config = Config::default();
        let error = config.set(option, value).err();
        check(error, option, feature, is_built);
        if !is_built {
            config.validate().expect("a refused value is not kept");
        }
    }
    let mut config = Config::default();
    let error = config
        .set("tls_root_ca_file", "/none")
        .expect_err("no file");
    assert_eq!(
        matches!(error, OptionError::NotBuilt { .. }),
        !HAS_TLS,
        "{error}"
    );
}

#[test]
fn options_that_are_off_need_no_feature() {
    let mut config = Config::default();
    for option in ["tls_v1", "snappy", "deflate"] {
        config.set(option, "false").expect(option);
    }
    config.set("deflate_level", "9").expect("a level");
    config.validate().expect("nothing is asked for");
}

#[tokio::test]
async fn a_client_is_not_built_with_an_option_that_needs_a_feature() {
    type Change = fn(&mut Config);
    let fields: [(&str, Change, &str, bool); 3] = [
        ("tls_v1", |c| c.tls_v1 = true, "tls", HAS_TLS),
        (
            "snappy",
            |c| c.snappy = true,
            "compression",
            HAS_COMPRESSION,
        ),
        (
            "deflate",
            |c| c.deflate = true,
            "compression",
            HAS_COMPRESSION,
        ),
    ];
    for (option, change, feature, is_built) in fields {
        let mut config = Config::default();
        change(&mut config);
        check(config.validate().err(), option, feature, is_built);
        if is_built {
            continue;
        }
        let network = MockNetwork::new();
        let node = network.broker("a:1").address();
        let builder = Producer::builder().node(node).config(config);
        match builder.connector(network).build() {
            Err(BuildError::Option(error)) => check(Some(error), option, feature, is_built),
            other => panic!("{option}: {other:?}"),
        }
    }
}

#[test]
fn https_to_nsqlookupd_needs_tls() {
    let config = Config {
        // The system's authorities are not read, so a machine without any passes, too.
        #[cfg(feature = "tls")]
        tls: ringq_client::TlsSettings {
            insecure_skip_verify: true,
            ..Default::default()
        },
        ..Config::default()
    };
    let error = Lookupd::new("https://127.0.0.1:4161", &config).err();
    let expected = format!(
        "nsqlookupd https://127.0.0.1:4161: {}",
        refusal("https", "tls")
    );
    let text = error.map(|error| error.to_string());
    assert_eq!(text, (!HAS_TLS).then_some(expected));
    Lookupd::new("http://127.0.0.1:4161", &config).expect("HTTP needs no feature");
}

/// Publishes to a scripted nsqd that answers IDENTIFY by `answer`, and returns the result with nsqd's connection.
async fn publish(answer: &str) -> (Result<(), PublishError>, MockConnection) {
    let network = MockNetwork::new();
    let mut server = network.server("a:1");
    let producer = Producer::builder().node(server.address());
    let producer = producer.connector(network).build().expect("a producer");
    let publishing = async { producer.publish("t", "one").await.map(drop) };
    let answering = async {
        let mut nsqd = server.accept().await;
        nsqd.handshake_with(answer).await;
        if let Some(command) = nsqd.command().await {
            assert_eq!(command.to_string(), "PUB t one");
            nsqd.respond("OK").await;
        }
        nsqd
    };
    tokio::join!(publishing, answering)
}

/// A client without TLS and compression speaks plain text, and never takes sealed bytes for plain ones.
#[tokio::test]
async fn plain_connections_need_no_feature() {
    let (published, _nsqd) = publish("{}").await;
    published.expect("plain text");
    for (upgrade, name) in [
        ("tls_v1", "TLS"),
        ("snappy", "snappy"),
        ("deflate", "deflate"),
    ] {
        let (published, _nsqd) = publish(&format!("{{{upgrade:?}:true}}")).await;
        let text = format!("{:?}", published.expect_err("it was not asked for"));
        test_support::assert_like(&text, &format!("…UpgradeUnasked({name:?})…"));
    }
}
