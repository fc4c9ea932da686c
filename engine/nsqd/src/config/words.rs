//! Types of flags whose values are words of nsqd. The numbers are those that `/config` shows, as nsqd does.

use program::flag::Words;
use program::go_value::parse_bool;

/// The clients that have to use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsRequired {
    /// No client.
    No = 0,
    /// TCP clients; plain HTTP is served, too (`tcp-https`).
    ExceptHttp = 1,
    /// All clients.
    Yes = 2,
}

/// The report that `--check` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// No check: a broker is to be started.
    No = 0,
    /// A report to read.
    Text = 1,
    /// A report for programs.
    Json = 2,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// 1.0
    V10 = 0x0301,
    /// 1.1
    V11 = 0x0302,
    /// 1.2
    V12 = 0x0303,
    /// 1.3
    V13 = 0x0304,
}

/// The words of `--tls-required`: `tcp-https` in any case, or a boolean.
pub(super) const TLS_REQUIRED: Words = Words {
    parse: |text| TlsRequired::parse(text).map(|required| required as i64),
    is_boolean: true,
};

/// The words of `--check`: `json`, or a boolean.
pub(super) const CHECK: Words = Words {
    parse: |text| Check::parse(text).map(|check| check as i64),
    is_boolean: true,
};

/// The words of `--tls-min-version`: `tls1.0` to `tls1.3` in any case; empty: the default.
pub(super) const TLS_VERSION: Words = Words {
    parse: |text| TlsVersion::parse(text).map(|version| version as i64),
    is_boolean: false,
};

impl TlsRequired {
    fn parse(text: &str) -> Result<TlsRequired, String> {
        let lower = text.to_ascii_lowercase();
        match lower.as_str() {
            "tcp-https" => Ok(TlsRequired::ExceptHttp),
            _ => match parse_bool(&lower) {
                Ok(true) => Ok(TlsRequired::Yes),
                Ok(false) => Ok(TlsRequired::No),
                Err(_) => Err(format!(
                    "strconv.ParseBool: parsing {text:?}: invalid syntax"
                )),
            },
        }
    }

    /// Returns the value with this number. Panics if there is none.
    pub(super) fn of(number: i64) -> TlsRequired {
        use TlsRequired::{ExceptHttp, No, Yes};
        of_number([No, ExceptHttp, Yes], number, |value| value as i64)
    }
}

impl Check {
    fn parse(text: &str) -> Result<Check, String> {
        match text {
            "json" => Ok(Check::Json),
            _ => match parse_bool(text)? {
                true => Ok(Check::Text),
                false => Ok(Check::No),
            },
        }
    }

    /// Returns the value with this number. Panics if there is none.
    pub(super) fn of(number: i64) -> Check {
        let all = [Check::No, Check::Text, Check::Json];
        of_number(all, number, |value| value as i64)
    }
}

impl TlsVersion {
    fn parse(text: &str) -> Result<TlsVersion, String> {
        match text.to_ascii_lowercase().as_str() {
            "" | "tls1.0" => Ok(TlsVersion::V10),
            "tls1.1" => Ok(TlsVersion::V11),
            "tls1.2" => Ok(TlsVersion::V12),
            "tls1.3" => Ok(TlsVersion::V13),
            other => Err(format!("unknown tlsVersionOption {other:?}")),
        }
    }

    /// Returns the value with this number. Panics if there is none.
    pub(super) fn of(number: i64) -> TlsVersion {
        use TlsVersion::{V10, V11, V12, V13};
        of_number([V10, V11, V12, V13], number, |value| value as i64)
    }
}

fn of_number<T: Copy, const N: usize>(all: [T; N], number: i64, number_of: fn(T) -> i64) -> T {
    let known = all.into_iter().find(|value| number_of(*value) == number);
    known.expect("the table of flags gives no other numbers")
}
