//! Deliberate bugs: a test plants one bug, and checks that the other tests find it.
//!
//! A plant is a statement of its own at the place where the bug would be. [`plant!`](crate::plant) makes it. Without the
//! feature `planted`, which no release has, this statement is empty. The crate `diskq-sim` lists the bugs.

/// Does something wrong if the bug is planted in this thread. `plant!(CrcLeftOut, return true);` runs an expression, and
/// `plant!(StateCrcLeftOut, let is_whole = true);` gives a local variable another value.
#[cfg(feature = "planted")]
#[macro_export]
macro_rules! plant {
    ($bug:ident, let $name:ident = $wrong:expr) => {
        let $name = if $crate::planted::planted() == Some(stringify!($bug)) {
            $wrong
        } else {
            $name
        };
    };
    ($bug:ident, $wrong:expr) => {
        if $crate::planted::planted() == Some(stringify!($bug)) {
            $wrong;
        }
    };
}

/// Plants nothing.
#[cfg(not(feature = "planted"))]
#[macro_export]
macro_rules! plant {
    ($($_:tt)*) => {};
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in what this thread does from now on, or none.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<&'static str>) {
    PLANTED.set(bug);
}

/// The bug that is planted in this thread.
#[cfg(feature = "planted")]
#[must_use]
pub fn planted() -> Option<&'static str> {
    PLANTED.get()
}
