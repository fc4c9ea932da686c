//! [`Settings`]: the options behind the key in the value of `--dedup`.

use std::time::Duration;

use wire::go_value::parse_duration;

/// The options that no one has taken yet, in their order.
#[derive(Debug)]
pub(super) struct Settings {
    left: Vec<(String, String)>,
    /// The names that the filter knows, for the error about one that it does not know.
    known: Vec<&'static str>,
}

impl Settings {
    /// Reads texts in the form `name=value`.
    pub(super) fn parse<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Settings, String> {
        let mut left: Vec<(String, String)> = Vec::new();
        for text in texts {
            let Some((name, value)) = text.split_once('=') else {
                return Err(format!("{text:?} is no option: write name=value"));
            };
            if value.is_empty() {
                return Err(format!("{name} has no value"));
            }
            if left.iter().any(|(known, _)| known == name) {
                return Err(format!("{name} is given twice"));
            }
            left.push((name.to_owned(), value.to_owned()));
        }
        Ok(Settings {
            left,
            known: Vec::new(),
        })
    }

    /// Returns true if the option is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.left.iter().any(|(known, _)| known == name)
    }

    /// Takes the value of an option.
    pub(super) fn text(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        let index = self.left.iter().position(|(known, _)| known == name)?;
        Some(self.left.remove(index).1)
    }

    /// Takes the value of an option that must be there.
    pub(super) fn needed(&mut self, name: &'static str, what: &str) -> Result<String, String> {
        self.text(name)
            .ok_or_else(|| format!("this filter needs {name}={what}"))
    }

    /// Takes a duration above zero.
    pub(super) fn duration(&mut self, name: &'static str) -> Result<Option<Duration>, String> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let ns = parse_duration(&text)
            .ok()
            .and_then(|ns| u64::try_from(ns).ok());
        match ns.filter(|ns| *ns > 0) {
            Some(ns) => Ok(Some(Duration::from_nanos(ns))),
            None => Err(format!(
                "{name} is {text:?}, and must be a duration above zero, such as 1h30m"
            )),
        }
    }

    /// Takes a duration that must be there.
    pub(super) fn needed_duration(&mut self, name: &'static str) -> Result<Duration, String> {
        self.duration(name)?
            .ok_or_else(|| format!("this filter needs {name}, a duration such as 1h"))
    }

    /// Takes a rate in messages per second, which must be there.
    pub(super) fn needed_rate(&mut self, name: &'static str) -> Result<f64, String> {
        let text = self.text(name).ok_or_else(|| {
            format!("window needs {name}, the usual number of messages per second")
        })?;
        let rate = text.parse().ok();
        let rate = rate.filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
        rate.ok_or_else(|| {
            format!("{name} is {text:?}, and must be a number of messages per second above zero")
        })
    }

    /// Takes a number above zero.
    pub(super) fn count(&mut self, name: &'static str, default: u64) -> Result<u64, String> {
        let Some(text) = self.text(name) else {
            return Ok(default);
        };
        let count = text.parse().ok().filter(|count| *count > 0);
        count.ok_or_else(|| format!("{name} is {text:?}, and must be a whole number above zero"))
    }

    /// Takes a probability that is neither 0 nor 1.
    pub(super) fn probability(&mut self, name: &'static str, default: f64) -> Result<f64, String> {
        let Some(text) = self.text(name) else {
            return Ok(default);
        };
        let value = text.parse().ok();
        let value = value.filter(|value: &f64| *value > 0.0 && *value < 1.0);
        value
            .ok_or_else(|| format!("{name} is {text:?}, and must be a probability between 0 and 1"))
    }

    /// Refuses options that the filter does not know.
    pub(super) fn end(self) -> Result<(), String> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => Err(format!(
                "this filter has no option {name}; it has: {}",
                self.known.join(", ")
            )),
        }
    }
}
