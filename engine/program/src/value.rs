//! [`Value`]: the value of a flag or of a key of the configuration file.

use wire::go_json::to_string;

use crate::log::Level;

/// A value of one of the types in a table of flags.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A boolean.
    Boolean(bool),
    /// A text.
    Text(String),
    /// Texts, in order.
    List(Vec<String>),
    /// Numbers, in order.
    Floats(Vec<f64>),
    /// A number.
    Float(f64),
    /// An empty list in the configuration file. NSQ's programs store a nil slice for it and show
    /// `null`.
    NoList,
    /// A level of the log.
    Level(Level),
    /// The number of a word.
    Word(i64),
    /// An integer.
    Integer(i64),
    /// Nanoseconds.
    Duration(i64),
}

/// The reason why a text is not a value of a flag. The text is complete, because only the parser
/// knows flag, value and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadValue {
    pub(crate) text: String,
    /// True when the program ends at once, with code 1 and without the usage text.
    pub(crate) is_final: bool,
}

impl Value {
    /// Adds another occurrence of the flag. Lists grow; for other types the last value is kept.
    pub(crate) fn add(&mut self, next: Value) {
        match (self, next) {
            (Value::List(texts), Value::List(more)) => texts.extend(more),
            (Value::Floats(numbers), Value::Floats(more)) => numbers.extend(more),
            (value, next) => *value = next,
        }
    }
}

impl Value {
    /// Returns the value as JSON in the form of `/config`, which shows texts in another form.
    /// Durations are in nanoseconds; levels and words are numbers.
    pub fn json(&self) -> String {
        match self {
            Value::Text(text) => to_string(text),
            Value::List(texts) => to_string(texts),
            Value::NoList => to_string(&()),
            Value::Floats(numbers) => to_string(numbers),
            Value::Float(number) => to_string(number),
            Value::Boolean(value) => to_string(value),
            Value::Integer(number) | Value::Duration(number) | Value::Word(number) => {
                to_string(number)
            }
            Value::Level(level) => to_string(&(*level as i64)),
        }
    }
}

impl Value {
    /// Returns true if the value means the same as the other one: all empty lists do.
    pub fn means(&self, other: &Value) -> bool {
        let is_empty = |value: &Value| match value {
            Value::NoList => true,
            Value::List(texts) => texts.is_empty(),
            Value::Floats(numbers) => numbers.is_empty(),
            _ => false,
        };
        self == other || (is_empty(self) && is_empty(other))
    }
}

/// Returns the text if it is one of the choices. The error is the reason for the operator.
pub(crate) fn choice(choices: &[&str], text: &str) -> Result<Value, String> {
    if choices.contains(&text) {
        Ok(Value::Text(text.to_string()))
    } else {
        Err(format!("must be {}", choices.join(" or ")))
    }
}
