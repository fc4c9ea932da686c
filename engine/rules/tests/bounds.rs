//! What one turn of the broker may allocate, go through and compute, however long its lists are.

mod allocations;
mod counting;
mod large_tables;
mod lists;
mod long_lists;
mod path;
