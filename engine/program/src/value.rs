//! [`Value`]: the value of a flag or of a key of the configuration file. [`Kind`]: its type in the table of flags.
//! [`FlagValue`]: its type in the program.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use wire::go_json::to_string;

use crate::log::{Format, Level};

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

/// The type of a flag with the accepted values. All bounds are inclusive.
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

/// The type of a flag's values.
pub trait FlagValue: Sized {
    /// The type in the table of flags, without bounds.
    const KIND: Kind;

    /// Takes a value of this type.
    ///
    /// # Panics
    /// The value is of another [`FlagValue::KIND`].
    fn of(value: &Value) -> Self;
}

/// Implements [`FlagValue`]: the type, its kind, and the type's value for each form of a [`Value`].
macro_rules! flag_value {
    ($type:ty, $kind:expr, $($form:pat => $value:expr),+) => {
        impl FlagValue for $type {
            const KIND: Kind = $kind;

            fn of(value: &Value) -> $type {
                match value {
                    $($form => $value,)+
                    other => unreachable!("the table of flags says otherwise than {other:?}"),
                }
            }
        }
    };
}

/// A negative number is 0, and one that does not fit is the largest one.
macro_rules! count {
    ($($type:ty),+) => {$(
        flag_value!($type, INTEGER, Value::Integer(number) => {
            <$type>::try_from((*number).max(0)).unwrap_or(<$type>::MAX)
        });
    )+};
}

const INTEGER: Kind = Kind::Integer(i64::MIN, i64::MAX);
const DURATION: Kind = Kind::Duration(i64::MIN, i64::MAX);

count!(u8, u16, u32, u64, usize);
flag_value!(i64, INTEGER, Value::Integer(number) => *number);
flag_value!(bool, Kind::Boolean, Value::Boolean(value) => *value);
flag_value!(f64, Kind::Float, Value::Float(number) => *number);
flag_value!(String, Kind::Text, Value::Text(text) => text.clone());
flag_value!(PathBuf, Kind::Text, Value::Text(text) => PathBuf::from(text));
flag_value!(Level, Kind::Level, Value::Level(level) => *level);
flag_value!(
    Vec<String>, Kind::List,
    Value::List(texts) => texts.clone(),
    Value::NoList => Vec::new()
);
// An empty list in the configuration file is `None`.
flag_value!(
    Option<Vec<String>>, Kind::List,
    Value::List(texts) => Some(texts.clone()),
    Value::NoList => None
);
flag_value!(
    Vec<f64>, Kind::Floats,
    Value::Floats(numbers) => numbers.clone(),
    Value::NoList => Vec::new()
);
// A negative duration is zero.
flag_value!(
    Duration, DURATION,
    Value::Duration(nanos) => Duration::from_nanos(u64::try_from(*nanos).unwrap_or(0))
);
flag_value!(
    Format, Kind::Choice(&["text", "json"]),
    Value::Text(text) => if text == "json" { Format::Json } else { Format::Text }
);

/// A limit on a time: zero is no limit.
impl FlagValue for Option<Duration> {
    const KIND: Kind = DURATION;

    fn of(value: &Value) -> Option<Duration> {
        Some(Duration::of(value)).filter(|time| !time.is_zero())
    }
}

/// A number of threads. Zero is one per core: the standard library asks `sched_getaffinity` and then the control group's
/// CPU quota. In a container that is allowed two of 64 cores, 64 threads would only throttle each other.
impl FlagValue for NonZeroUsize {
    const KIND: Kind = INTEGER;

    fn of(value: &Value) -> NonZeroUsize {
        NonZeroUsize::new(usize::of(value))
            .or_else(|| std::thread::available_parallelism().ok())
            .unwrap_or(NonZeroUsize::MIN)
    }
}
