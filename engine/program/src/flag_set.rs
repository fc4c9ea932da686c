//! [`flags!`](crate::flags): the declaration of a program's flags. [`FlagValue`]: the types that their values have.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::Options;
use crate::flag::{Flag, Kind, VERSION};
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

/// The values of some flags, with the rows of the table of flags. [`flags!`](crate::flags) implements it.
pub trait FlagSet: Sized {
    /// The flags of NSQ's program.
    const FLAGS: &'static [Flag];
    /// The flags that NSQ's program does not have.
    const OWN_FLAGS: &'static [Flag] = &[];

    /// Takes the values.
    ///
    /// # Errors
    /// A value is wrong. The error is the reason for the operator.
    fn read(options: &Options) -> Result<Self, String>;
}

/// Every value as it was given. A program that shows its values has them as a field.
impl FlagSet for Options {
    const FLAGS: &'static [Flag] = &[];

    fn read(options: &Options) -> Result<Options, String> {
        Ok(options.clone())
    }
}

/// Declares flags: each row is the row of the table of flags, the field of a struct, and the way from the command line
/// and the configuration file to the field.
///
/// The table has the order of the rows. The flags that NSQ's program does not have follow in `own`. A row without a field
/// is a flag whose value is not needed there. A row without a flag has the rows of another [`FlagSet`].
///
/// ```
/// use program::flag;
/// use program::http::HttpTimeouts;
///
/// program::flags! {
///     /// The values of the flags.
///     pub struct Config {
///         = flag::VERSION;
///         tcp_address: String = flag::new("tcp-address", "0.0.0.0:4160", "address to listen on");
///         inactive: Option<std::time::Duration> = flag::new("inactive-timeout", "5m0s", "0 for no limit").at_least(0);
///     }
///     own {
///         http_timeouts: HttpTimeouts;
///     }
/// }
/// ```
#[macro_export]
macro_rules! flags {
    (@table = $flag:expr) => { &[$flag.row()] };
    (@table $type:ty) => { <$type as $crate::FlagSet>::FLAGS };
    (@table $type:ty = $flag:expr) => {{
        const FLAG: $crate::flag::FlagOf<$type> = $flag;
        &[FLAG.row()]
    }};
    (@joined $($table:expr,)*) => {{
        const TABLES: &[&[$crate::flag::Flag]] = &[$($table),*];
        const ROWS: [$crate::flag::Flag; $crate::count_flags(TABLES)] = $crate::join_flags(TABLES);
        &ROWS
    }};
    (@read $options:ident = $flag:expr) => {};
    (@read $options:ident $field:ident: $type:ty) => {
        let $field = <$type as $crate::FlagSet>::read($options)?;
    };
    (@read $options:ident $field:ident: $type:ty = $flag:expr) => {
        let $field: $type = $options.get(&$flag);
    };
    ($(#[$attribute:meta])* $vis:vis struct $name:ident { $($row:tt)* }) => {
        $crate::flags! { $(#[$attribute])* $vis struct $name { $($row)* } own {} }
    };
    (
        $(#[$attribute:meta])*
        $vis:vis struct $name:ident { $($($field:ident: $type:ty)? $(= $flag:expr)?;)* }
        own { $($($own_field:ident: $own_type:ty)? $(= $own_flag:expr)?;)* }
    ) => {
        $(#[$attribute])*
        $vis struct $name {
            $($(#[doc = concat!("The value of the row `", stringify!($field), "`.")] $vis $field: $type,)?)*
            $($(#[doc = concat!("The value of the row `", stringify!($own_field), "`.")] $vis $own_field: $own_type,)?)*
        }

        impl $crate::FlagSet for $name {
            const FLAGS: &'static [$crate::flag::Flag] =
                $crate::flags!(@joined $($crate::flags!(@table $($type)? $(= $flag)?),)*);
            const OWN_FLAGS: &'static [$crate::flag::Flag] =
                $crate::flags!(@joined $($crate::flags!(@table $($own_type)? $(= $own_flag)?),)*);

            fn read(options: &$crate::Options) -> Result<$name, String> {
                $($crate::flags!(@read options $($field: $type)? $(= $flag)?);)*
                $($crate::flags!(@read options $($own_field: $own_type)? $(= $own_flag)?);)*
                Ok($name { $($($field,)?)* $($($own_field,)?)* })
            }
        }
    };
}

/// Returns the number of rows of tables.
#[doc(hidden)]
pub const fn count_flags(tables: &[&[Flag]]) -> usize {
    let (mut count, mut table) = (0, 0);
    while table < tables.len() {
        count += tables[table].len();
        table += 1;
    }
    count
}

/// Returns the rows of tables, which are `N`, as one table.
#[doc(hidden)]
pub const fn join_flags<const N: usize>(tables: &[&[Flag]]) -> [Flag; N] {
    let mut rows = [VERSION.row(); N];
    let (mut count, mut table) = (0, 0);
    while table < tables.len() {
        let mut row = 0;
        while row < tables[table].len() {
            rows[count] = tables[table][row];
            (count, row) = (count + 1, row + 1);
        }
        table += 1;
    }
    rows
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
