//! Settings are logged without secrets.

use super::*;
use crate::connection::Settings;
use crate::consumer::Consumer;
use crate::lookupd::Lookupd;

/// A consumer's settings of a lookup with a password.
const LOOKUPD: &str = "http://user:pass-word@h:4161";

fn secret_config() -> Config {
    Config {
        auth_secret: "hush".to_owned(),
        ..Config::default()
    }
}

#[test]
fn the_debug_text_of_settings_has_all_fields_and_no_secret() {
    let text = format!("{:?}", secret_config());
    assert!(!text.contains("hush"), "{text}");
    for field in ["dial_timeout: 1s", "auth_secret: ***", "snappy: false"] {
        assert!(text.contains(field), "{field}: {text}");
    }
    let text = format!("{:?}", Config::default());
    assert!(
        text.contains("auth_secret: \"\""),
        "no secret is set: {text}"
    );
    let settings = Settings::new(&secret_config(), None).unwrap();
    let text = format!("{settings:?}");
    assert!(!text.contains("hush"), "{text}");
}

#[test]
fn the_text_of_certificates_has_no_certificate() {
    let certificates = crate::tests::tls::Certificates::new();
    let tls = TlsSettings {
        root_certificates: Some(certificates.authorities()),
        key: Some("key.pem".into()),
        ..TlsSettings::default()
    };
    assert_eq!(
        format!("{tls:?}"),
        "TlsSettings { root_certificates: Some(1), insecure_skip_verify: false, cert: None, key: Some(\"key.pem\") }"
    );
}

#[test]
fn addresses_of_nsqlookupds_are_shown_without_their_password() {
    let lookupd = Lookupd::new(LOOKUPD, &secret_config()).unwrap();
    let builder = Consumer::builder("t", "c").lookupd(LOOKUPD);
    let wrong = Lookupd::new("ftp://user:pass-word@h:4161", &Config::default()).unwrap_err();
    for text in [
        format!("{lookupd:?}"),
        format!("{builder:?}"),
        format!("{wrong:?}"),
        wrong.to_string(),
    ] {
        assert!(
            !text.contains("pass-word") && !text.contains("hush"),
            "{text}"
        );
        assert!(text.contains("h:4161"), "{text}");
    }
    assert_eq!(lookupd.address(), LOOKUPD);
}
