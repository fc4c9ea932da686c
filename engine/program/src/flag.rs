//! [`Flag`]: one row of a program's table of flags. [`Kind`]: the type of its values.

/// One row of a program's table of flags.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The name without dashes.
    pub name: &'static str,
    /// The type of the values, with the accepted values.
    pub kind: Kind,
    /// The value of a flag that is not given.
    pub(crate) default: DefaultValue,
    /// The text in `--help` and in the documentation.
    pub help: &'static str,
    key: Key,
    field: Option<&'static str>,
    check: Option<Check>,
}

/// A function that returns the reason why a text is not a value of a flag.
pub type Check = fn(&str) -> Result<(), String>;

/// The type of a flag with the accepted values. All bounds are inclusive; [`Options::check_bounds`]
/// compares them.
///
/// [`Options::check_bounds`]: crate::Options::check_bounds
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A boolean. Without a value the flag means true.
    Boolean,
    /// Any text.
    Text,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// One text per occurrence.
    List,
    /// Numbers. One occurrence of the flag may have several, separated by commas. Like nsqd's
    /// percentiles, the numbers of the command line are sorted in descending order.
    Floats,
    /// A number.
    Float,
    /// A level of the log.
    Level,
    /// One of the words of this program.
    Word(&'static Words),
    /// An integer, with its lower and its upper bound.
    Integer(i64, i64),
    /// A duration in nanoseconds, with its lower and its upper bound.
    Duration(i64, i64),
}

/// A type whose values are words. Each word stands for a number, which `/config` shows.
#[derive(Debug)]
pub struct Words {
    /// Returns the number of a word, or the reason why the text is not one of the words.
    pub parse: fn(&str) -> Result<i64, String>,
    /// True when `true` and `false` are among the words. A flag without a value then means `true`,
    /// like a boolean.
    pub is_boolean: bool,
}

/// The value of a flag that is not given, as command-line text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DefaultValue {
    /// This text.
    Fixed(&'static str),
    /// The result of this function for the name of the host.
    OfHost(fn(&str) -> String),
}

/// The key of a flag in the configuration file and in `/config`.
#[derive(Clone, Copy, Debug)]
enum Key {
    /// The name with underscores.
    Name,
    Other(&'static str),
    None,
}

impl Flag {
    /// Returns a flag whose key is its name with underscores.
    pub const fn new(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        help: &'static str,
    ) -> Flag {
        Flag {
            name,
            kind,
            default: DefaultValue::Fixed(default),
            help,
            key: Key::Name,
            field: None,
            check: None,
        }
    }

    /// Returns the flag with a default that depends on the name of the host.
    #[must_use]
    pub const fn of_host(mut self, default: fn(&str) -> String) -> Flag {
        self.default = DefaultValue::OfHost(default);
        self
    }

    /// Returns the flag with this key.
    #[must_use]
    pub const fn with_key(mut self, key: &'static str) -> Flag {
        self.key = Key::Other(key);
        self
    }

    /// Returns the flag without a key: only the command line has it.
    #[must_use]
    pub const fn without_key(mut self) -> Flag {
        self.key = Key::None;
        self
    }

    /// Returns the flag with another field than its name suggests. See [`Flag::field`].
    #[must_use]
    pub const fn with_field(mut self, field: &'static str) -> Flag {
        self.field = Some(field);
        self
    }

    /// Returns the flag with a check for each value on the command line. The check runs before the
    /// type is parsed. A refusal is an error in the flags: it ends the program with code 2.
    #[must_use]
    pub const fn checked_by(mut self, check: Check) -> Flag {
        self.check = Some(check);
        self
    }

    /// Returns the default on this host.
    pub(crate) fn default_on(&self, hostname: &str) -> String {
        match self.default {
            DefaultValue::Fixed(text) => text.to_string(),
            DefaultValue::OfHost(text) => text(hostname),
        }
    }

    /// Returns the key in the configuration file and in `/config`, or `None` if the flag has no
    /// key.
    pub fn key(&self) -> Option<String> {
        match self.key {
            Key::Name => Some(self.name.replace('-', "_")),
            Key::Other(key) => Some(key.to_string()),
            Key::None => None,
        }
    }

    /// Returns the name of the field in NSQ's program. Errors of the configuration file contain
    /// this name.
    pub fn field(&self) -> String {
        if let Some(field) = self.field {
            return field.to_string();
        }
        let mut field = String::new();
        for word in self.name.split('-') {
            match word {
                "acl" | "ca" | "cidr" | "e2e" | "http" | "https" | "tcp" | "tls" | "udp"
                | "url" => {
                    field.push_str(&word.to_ascii_uppercase());
                }
                _ => {
                    let (first, rest) = word.split_at(1);
                    field.push_str(&first.to_ascii_uppercase());
                    field.push_str(rest);
                }
            }
        }
        field
    }

    pub(crate) fn check(&self, text: &str) -> Result<(), String> {
        self.check.map_or(Ok(()), |check| check(text))
    }
}

impl Kind {
    /// Returns the type as Go's usage text names it. Booleans have no name there.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Boolean => "",
            Kind::Text | Kind::Choice(_) => "string",
            Kind::List | Kind::Floats | Kind::Level | Kind::Word(_) => "value",
            Kind::Float => "float",
            Kind::Integer(..) => "int",
            Kind::Duration(..) => "duration",
        }
    }

    /// Returns true for a flag that means `true` without a value.
    pub(crate) fn is_boolean(self) -> bool {
        match self {
            Kind::Boolean => true,
            Kind::Word(words) => words.is_boolean,
            _ => false,
        }
    }
}

/// The flag that prints the version and ends the program.
pub const VERSION: Flag =
    Flag::new("version", Kind::Boolean, "false", "print version string").without_key();

/// The path of the configuration file.
pub const CONFIG: Flag = Flag::new(
    "config",
    Kind::Text,
    "",
    "path to a configuration file (TOML)",
)
.without_key();

/// The lowest level that is logged. [`Options::log_level`](crate::Options::log_level) returns it.
pub const LOG_LEVEL: Flag = Flag::new(
    "log-level",
    Kind::Level,
    "info",
    "set log verbosity: debug, info, warn, error, or fatal",
);

/// The prefix of each log line. `default` is the name of the program in brackets and a space.
pub const fn log_prefix(default: &'static str) -> Flag {
    Flag::new("log-prefix", Kind::Text, default, "log message prefix")
}

/// The form of the log's lines. NSQ's programs have no such flag.
pub const LOG_FORMAT: Flag = Flag::new(
    "log-format",
    Kind::Choice(&["text", "json"]),
    "text",
    "form of log lines: text, or json: one object a line with time, level, program and message",
);

/// The names under which clients may reach the HTTP interface of nsqd and nsqlookupd. NSQ's programs have no such flag.
pub const ALLOWED_HOST: Flag = Flag::new(
    "allowed-host",
    Kind::List,
    "",
    "name under which HTTP clients may reach this process, beside IP addresses, localhost, the machine's name and \
     broadcast-address; other names get 421 (may be given multiple times); none for any name",
);

/// The limits on the time that an HTTP client may take: reading, writing, idle.
/// [`HttpTimeouts`](crate::http::HttpTimeouts) are their values. NSQ's programs have no such flags.
pub const HTTP_TIMEOUTS: [Flag; 3] = [
    Flag::new(
        "http-read-timeout",
        Kind::Duration(i64::MIN, i64::MAX),
        "1m0s",
        "time that an HTTP client may take for a TLS handshake, for the head of a request, and for \
         every 4 KiB of a body; 0 for no limit",
    ),
    Flag::new(
        "http-write-timeout",
        Kind::Duration(i64::MIN, i64::MAX),
        "1m0s",
        "time in which 4 KiB of an answer must leave, for which a client may have to read 128 KiB; 0 \
         for no limit",
    ),
    Flag::new(
        "http-idle-timeout",
        Kind::Duration(i64::MIN, i64::MAX),
        "15m0s",
        "time that an HTTP connection may be open without a request; 0 for no limit",
    ),
];

/// The flags of a listener with TLS: `--https-address`, `--tls-cert`, `--tls-key`, `--tls-client-auth-policy`,
/// `--tls-root-ca-file`, `--tls-min-version`.
pub const HTTPS: [Flag; 6] = [
    Flag::new(
        "https-address",
        Kind::Text,
        "",
        "<addr>:<port> to listen on for HTTPS clients; empty for none",
    ),
    Flag::new(
        "tls-cert",
        Kind::Text,
        "",
        "path to the certificate file (PEM)",
    ),
    Flag::new(
        "tls-key",
        Kind::Text,
        "",
        "path to the private key file (PEM)",
    ),
    Flag::new(
        "tls-client-auth-policy",
        Kind::Choice(&["", "require", "require-verify"]),
        "",
        "client certificate policy: require or require-verify",
    ),
    Flag::new(
        "tls-root-ca-file",
        Kind::Text,
        "",
        "path to the file of the certificate authorities of clients (PEM)",
    ),
    Flag::new(
        "tls-min-version",
        Kind::Choice(&["tls1.2", "tls1.3"]),
        "tls1.2",
        "lowest version of TLS: tls1.2 or tls1.3",
    ),
];

/// A flag without effect that NSQ's daemons still accept.
pub const VERBOSE: Flag = Flag::new(
    "verbose",
    Kind::Boolean,
    "false",
    "[deprecated] has no effect, use --log-level",
)
.without_key();

/// Returns `hostname`, for a flag whose default is the name of the host.
pub fn hostname_itself(hostname: &str) -> String {
    hostname.to_string()
}
