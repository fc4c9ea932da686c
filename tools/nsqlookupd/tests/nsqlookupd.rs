//! The tests of nsqlookupd. Each module has the tests of one subject.

mod daemon;
mod differential;
mod mutated;
mod simulation;
mod support;
