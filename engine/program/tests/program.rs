//! The tests of what the programs share. Each module has the tests of one subject.

mod http;
mod tables;
