//! [`Redacted`]: the text of a secret, which is not shown. Debug texts end up in logs.

use std::borrow::Cow;
use std::fmt;

use super::Config;

/// Shows `***` instead of a secret, and `""` if there is none.
pub(crate) struct Redacted<'a>(pub(crate) &'a str);

impl fmt::Debug for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            "" => "\"\"",
            _ => "***",
        })
    }
}

/// Returns the address of a server without the user and the password, which lie before the last `@` of the host.
pub(crate) fn without_password(address: &str) -> Cow<'_, str> {
    let begin = address.find("://").map_or(0, |at| at + "://".len());
    let rest = &address[begin..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{}***{}", &address[..begin], &rest[at..]).into(),
        None => address.into(),
    }
}

/// Returns the addresses as [`without_password`] does.
pub(crate) fn without_passwords(addresses: &[String]) -> Vec<Cow<'_, str>> {
    let addresses = addresses.iter();
    addresses.map(|address| without_password(address)).collect()
}

/// Shows the fields in their order, and then the secret. A field that is missing here does not compile.
macro_rules! debug_config {
    ($($(#[$attribute:meta])* $field:ident,)*) => {
        impl fmt::Debug for Config {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Config { auth_secret, $($(#[$attribute])* $field,)* } = self;
                let mut text = f.debug_struct("Config");
                $($(#[$attribute])* text.field(stringify!($field), $field);)*
                text.field("auth_secret", &Redacted(auth_secret)).finish()
            }
        }
    };
}

debug_config! {
    dial_timeout,
    read_timeout,
    write_timeout,
    local_addr,
    lookupd_poll_interval,
    lookupd_poll_jitter,
    lookupd_poll_timeout,
    lookupd_authorization,
    max_requeue_delay,
    default_requeue_delay,
    backoff_strategy,
    max_backoff_duration,
    backoff_multiplier,
    max_attempts,
    low_rdy_idle_timeout,
    low_rdy_timeout,
    rdy_redistribute_interval,
    client_id,
    hostname,
    user_agent,
    topology_region,
    topology_zone,
    heartbeat_interval,
    sample_rate,
    tls_v1,
    #[cfg(feature = "tls")]
    tls,
    deflate,
    deflate_level,
    snappy,
    output_buffer_size,
    output_buffer_timeout,
    max_in_flight,
    msg_timeout,
    max_msg_size,
}
