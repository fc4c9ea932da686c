//! [`Sources`]: the addresses that a user names.

use program::Options;
use program::flag::FlagOf;

use crate::flags::{self, LOOKUPD_HTTP_ADDRESS};

/// The addresses of nsqds, of which each is asked.
pub const NSQD_HTTP_ADDRESS: FlagOf<Vec<String>> = flags::new(
    "nsqd-http-address",
    "",
    "nsqd HTTP address (may be given multiple times)",
);

/// The addresses of the programs that know the cluster. The user names exactly one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sources {
    /// `host:port` of the HTTP interfaces of nsqlookupds, which know the nsqds.
    Lookupds(Vec<String>),
    /// `host:port` of the HTTP interfaces of nsqds.
    Nsqds(Vec<String>),
}

impl Sources {
    /// Returns the addresses of [`NSQD_HTTP_ADDRESS`] or [`LOOKUPD_HTTP_ADDRESS`].
    ///
    /// # Errors
    /// Both or none have a value, or an address has a scheme. The error is the text of NSQ's tools.
    pub fn from_options(options: &Options) -> Result<Sources, String> {
        let nsqds = options.get(&NSQD_HTTP_ADDRESS);
        let lookupds = options.get(&LOOKUPD_HTTP_ADDRESS);
        let has_scheme = |addresses: &[String]| addresses.iter().any(|a| a.starts_with("http"));
        let scheme = |flag| {
            Err(format!(
                "--{flag} error - address should not contain scheme"
            ))
        };
        match (nsqds.is_empty(), lookupds.is_empty()) {
            (true, true) => {
                Err("--nsqd-http-address or --lookupd-http-address required".to_owned())
            }
            (false, false) => {
                Err("use --nsqd-http-address or --lookupd-http-address not both".to_owned())
            }
            (false, true) if has_scheme(&nsqds) => scheme("nsqd-http-address"),
            (true, false) if has_scheme(&lookupds) => scheme("lookupd-http-address"),
            (false, true) => Ok(Sources::Nsqds(nsqds)),
            (true, false) => Ok(Sources::Lookupds(lookupds)),
        }
    }
}
