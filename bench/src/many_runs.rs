//! Many runs of one scenario: a staircase of rates, a search for the highest rate, and two daemons in turns.

pub mod compare;
pub mod find_max;
pub mod search;
pub mod slo;
pub mod sweep;
