//! [`flags!`](crate::flags): the declaration of a program's flags.

use crate::Options;
use crate::flag::{Flag, VERSION};

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
