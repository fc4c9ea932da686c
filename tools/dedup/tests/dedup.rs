//! The tests of the filters from outside. Each module has the tests of one subject.

mod exactly_once;
mod load;
mod memcached;
mod plots;
mod varying_delays;
