//! [`GivenKeys`]: keys of the configuration file, with the values that an operator gives them while a program runs.

use std::collections::BTreeMap;

use toml::Value as Toml;

use crate::config_file::{File, FileError};
use crate::flag::Flag;
use crate::options::Options;
use crate::value::Value;

/// The meaning of a key and its value.
#[derive(Clone, Debug, PartialEq)]
pub enum GivenKey {
    /// The name of a flag without dashes, and a value of the flag's type.
    Flag(&'static str, Value),
    /// The key of a flag, with a value that the flag does not take, for this reason.
    Refused(String),
    /// A key that belongs to no flag. `Some` if its value is a boolean.
    Other(Option<bool>),
}

/// The keys of a text, in the order of their names.
pub type GivenKeys = BTreeMap<String, GivenKey>;

impl Options {
    /// Reads keys and values from a text. A text that begins with `{` is a JSON object, and any other text is TOML, as
    /// in a configuration file.
    ///
    /// # Errors
    /// The syntax is wrong. The error says where.
    pub fn read_keys(&self, text: &str) -> Result<GivenKeys, String> {
        let file = if text.trim_start().starts_with('{') {
            File::parse_json(text)?
        } else {
            File::parse(text)?
        };
        let flags: BTreeMap<String, &'static Flag> =
            self.keys().map(|(flag, key, _)| (key, flag)).collect();
        let meaning = |key: &String, given: &Toml| {
            let Some(flag) = flags.get(key) else {
                return GivenKey::Other(given.as_bool());
            };
            match self.value_in(&file, flag) {
                Ok(value) => GivenKey::Flag(flag.name, value),
                Err(FileError::Fatal(why) | FileError::Error(why)) => GivenKey::Refused(why),
            }
        };
        let table = file.table().iter();
        Ok(table
            .map(|(key, given)| (key.clone(), meaning(key, given)))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Program, version};
    use std::time::Duration;

    crate::flags! {
        struct Config {
            = crate::flag::LOG_LEVEL;
            _wait: Duration = crate::flag::new("wait", "1s", "a time");
            _names: Vec<String> = crate::flag::new("names", "", "names");
        }
    }

    static PROGRAM: Program = Program::of::<Config>("prog", version::of_daemon);

    #[test]
    fn json_and_toml_mean_the_same() {
        let options = PROGRAM.options([], "host").expect("there are no flags");
        let json = r#" {"wait": "2s", "names": ["a"], "other": true, "log_level": "loud"}"#;
        let toml = "wait = 2000\nnames = \"a\"\nother = true\nlog_level = \"loud\"\n";
        let keys = options.read_keys(json).expect("it is JSON");
        assert_eq!(options.read_keys(toml), Ok(keys.clone()));
        assert_eq!(
            keys["wait"],
            GivenKey::Flag("wait", Value::Duration(2_000_000_000))
        );
        let names = Value::List(vec!["a".to_owned()]);
        assert_eq!(keys["names"], GivenKey::Flag("names", names));
        assert_eq!(keys["other"], GivenKey::Other(Some(true)));
        assert!(matches!(&keys["log_level"], GivenKey::Refused(why) if why.contains("loud")));
        let changed = options.with(&[("wait", Value::Duration(5))]);
        assert_eq!(changed.value("wait"), &Value::Duration(5));
        assert_eq!(options.value("wait"), &Value::Duration(1_000_000_000));
    }

    #[test]
    fn a_text_with_wrong_syntax_says_where() {
        let options = PROGRAM.options([], "host").expect("there are no flags");
        let error = |text: &str| options.read_keys(text).expect_err("it is wrong");
        assert!(
            error("wait").starts_with("toml: line 1: "),
            "{}",
            error("wait")
        );
        assert!(
            error("{\"wait\": }").starts_with("json: "),
            "{}",
            error("{\"wait\": }")
        );
        assert!(error("{\"wait\": null}").starts_with("json: "));
    }
}
