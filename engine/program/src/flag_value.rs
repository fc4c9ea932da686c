//! [`FlagValue`]: the types of the values of flags.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::kind::Kind;
use crate::log::{Format, Level};
use crate::value::Value;

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
