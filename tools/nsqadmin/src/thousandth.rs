//! Numbers for the page, which needs no more than thousandths.

use serde::{Serialize, Serializer};

/// Rounds a number. A server may tell one with which the product is infinite.
pub(crate) fn rounded(value: f64) -> f64 {
    let thousandths = (value * 1000.0).round();
    if thousandths.is_finite() {
        thousandths / 1000.0
    } else {
        value
    }
}

/// Writes a rounded number, or `null`, for `serialize_with`.
pub(crate) fn write_rounded<S: Serializer>(value: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
    value.map(rounded).serialize(to)
}
