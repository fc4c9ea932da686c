//! The tests of the filters from outside. Each module has the tests of one subject.

mod exactly_once;
mod load;
mod memcached;
mod plots;
mod varying_delays;

use std::time::Duration;

use ringq_dedup::{Fingerprint, ForgetfulBloom, ForgetfulOptions, KeyHasher, UnixTime};

const START: UnixTime = UnixTime::from_secs(1_000_000);

fn hasher() -> KeyHasher {
    KeyHasher::new([9; 16])
}

fn key(number: u64) -> Fingerprint {
    hasher().fingerprint(&number.to_le_bytes())
}

/// Returns a forgetful filter for this number of keys a second.
fn forgetful(filters: usize, window: Duration, rate: f64, bound: f64) -> ForgetfulBloom {
    let options = ForgetfulOptions {
        filters,
        window,
        rate,
        false_positives_max: bound,
        hasher: hasher(),
    };
    ForgetfulBloom::new(options, START).expect("valid options")
}
