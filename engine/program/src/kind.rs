//! [`Kind`]: the type of a flag's values.

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
