//! What is checked of the values themselves, in nsqd's order and words. It comes after the lock of
//! the data path and around the loading of TLS material: nsqd fails in this order.

use super::table::{self, Flag, Kind};
use super::{Config, go_value};

impl Config {
    /// nsqd's checks before TLS material is loaded.
    ///
    /// # Errors
    /// Why the program cannot start, for the FATAL line.
    pub fn check_before_tls(&self) -> Result<(), String> {
        let text = "--max-deflate-level must be [1,9]";
        self.check_bounds("max-deflate-level", text)?;
        self.check_bounds("node-id", "--node-id must be [0,1024)")
    }

    /// nsqd's checks after TLS material is loaded, then our own: values with which nsqd crashes
    /// later, or which are of no use.
    ///
    /// # Errors
    /// Why the program cannot start, for the FATAL line.
    pub fn check_after_tls(&self) -> Result<(), String> {
        if !matches!(self.auth_http_request_method.as_str(), "get" | "post") {
            return Err("--auth-http-request-method must be post or get".to_string());
        }
        for percentile in &self.e2e_percentiles {
            if !(*percentile > 0.0 && *percentile <= 1.0) {
                let percentile = go_value::float_text(*percentile);
                return Err(format!(
                    "invalid E2E processing latency percentile: {percentile}"
                ));
            }
        }
        for flag in table::flags() {
            let is_used = flag.name != "statsd-interval" || !self.statsd_address.is_empty();
            if let Some((min, max, zero)) = bounds(flag)
                && is_used
            {
                self.check_bounds(flag.name, &bounds_text(flag, min, max, zero))?;
            }
        }
        Ok(())
    }

    fn check_bounds(&self, name: &str, text: &str) -> Result<(), String> {
        let bounds = table::find(name).and_then(bounds);
        let value = self.options.number(name);
        match bounds {
            Some((min, max, _)) if value < min || value > max => Err(text.to_string()),
            _ => Ok(()),
        }
    }
}

/// Both bounds of a number, and how its zero is written.
fn bounds(flag: &Flag) -> Option<(i64, i64, &'static str)> {
    match flag.kind {
        Kind::Integer(min, max) => Some((min, max, "0")),
        Kind::Span(min, max) => Some((min, max, "0s")),
        _ => None,
    }
}

fn bounds_text(flag: &Flag, min: i64, max: i64, zero: &str) -> String {
    let name = flag.name;
    match (min, max) {
        (0, i64::MAX) => format!("--{name} must not be negative"),
        (1, i64::MAX) => format!("--{name} must be greater than {zero}"),
        _ => format!("--{name} must be [{min},{max}]"),
    }
}
