//! The tests of the client library with real daemons. Each module has the tests of one subject.

mod closed;
mod consumer;
mod cuts;
mod dedup;
mod drained;
mod examples;
mod guide;
mod killed_consumer;
mod local_addr;
mod numbers;
mod pages;
mod producer;
mod too_large;
