//! Types of nsqd's flags. The numbers of words are those that `/config` shows, as nsqd does.

use program::flag::{self, Flag, FlagOf, Kind, Words};
use program::go_value::parse_bool;
use program::{FlagSet, FlagValue, Options, Value};

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

/// The permissions of the files of unix sockets, at most 0o777; `None`: the umask decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnixSocketMode(pub Option<u32>);

/// `tcp-https` in any case, or a boolean.
impl FlagValue for TlsRequired {
    const KIND: Kind = Kind::Word(&Words {
        parse: |text| TlsRequired::parse(text).map(|required| required as i64),
        is_boolean: true,
    });

    fn of(value: &Value) -> TlsRequired {
        use TlsRequired::{ExceptHttp, No, Yes};
        of_number([No, ExceptHttp, Yes], value, |required| required as i64)
    }
}

/// `tls1.0` to `tls1.3` in any case; empty: the default.
impl FlagValue for TlsVersion {
    const KIND: Kind = Kind::Word(&Words {
        parse: |text| TlsVersion::parse(text).map(|version| version as i64),
        is_boolean: false,
    });

    fn of(value: &Value) -> TlsVersion {
        use TlsVersion::{V10, V11, V12, V13};
        of_number([V10, V11, V12, V13], value, |version| version as i64)
    }
}

const UNIX_SOCKET_MODE: FlagOf<String> = flag::new(
    "unix-socket-mode",
    "",
    "permissions of the files of all unix sockets, in octal (0660); empty for 0777 minus the umask",
);

/// A wrong text ends the program after the command line was read, so it is no error in the flags.
impl FlagSet for UnixSocketMode {
    const FLAGS: &'static [Flag] = &[UNIX_SOCKET_MODE.row()];

    fn read(options: &Options) -> Result<UnixSocketMode, String> {
        let text = options.get(&UNIX_SOCKET_MODE);
        if text.is_empty() {
            return Ok(UnixSocketMode(None));
        }
        let is_octal = text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
        let mode = u32::from_str_radix(&text, 8).ok();
        match mode.filter(|mode| is_octal && *mode <= 0o777) {
            Some(mode) => Ok(UnixSocketMode(Some(mode))),
            None => Err(format!(
                "--unix-socket-mode must be an octal number up to 0777, as chmod takes it, and not {text:?}"
            )),
        }
    }
}

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
}

/// Returns the word with this number. Panics if there is none.
fn of_number<T: Copy, const N: usize>(all: [T; N], value: &Value, number_of: fn(T) -> i64) -> T {
    let known = all
        .into_iter()
        .find(|word| *value == Value::Word(number_of(*word)));
    known.expect("the table of flags gives no other numbers")
}
