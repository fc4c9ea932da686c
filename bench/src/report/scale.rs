//! Where a value lies along an axis, and which values get a tick.

use super::unit::Unit;

/// One axis: what is measured, and how values are spread along it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    /// From zero to `max`: lengths on the page are proportional to the values.
    FromZero { max: f64 },
    /// By orders of magnitude, for latencies that span several.
    Log { min: f64, max: f64 },
    /// A percentile spectrum: the fraction `q` at `log10(1 / (1 - q))`, so that 90 %, 99 % and
    /// 99.9 % are one step apart each. `nines` is the length of the axis in such steps.
    Nines { nines: f64 },
}

/// A value worth a line and a label.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

impl Scale {
    /// An axis from zero that shows `values` whole, and ends at a tick.
    pub(crate) fn from_zero(values: impl IntoIterator<Item = f64>, unit: Unit) -> Scale {
        let largest = finite(values).fold(0.0, f64::max);
        let largest = if largest > 0.0 { largest } else { 1.0 };
        let step = unit.step(largest / 4.0);
        Scale::FromZero {
            max: (largest / step).ceil() * step,
        }
    }

    /// An axis from zero to exactly `max`: for time, where the end of the run is the end.
    pub(crate) fn until(max: f64) -> Scale {
        Scale::FromZero {
            max: if max.is_finite() && max > 0.0 {
                max
            } else {
                1.0
            },
        }
    }

    /// A logarithmic axis that shows all positive `values`.
    pub(crate) fn log(values: impl IntoIterator<Item = f64>) -> Scale {
        let (mut min, mut max) = (f64::INFINITY, 0.0_f64);
        for value in finite(values).filter(|value| *value > 0.0) {
            (min, max) = (min.min(value), max.max(value));
        }
        if max == 0.0 {
            (min, max) = (1.0, 10.0);
        }
        let digits = log_digits((max / min).log10());
        let (min, mut max) = (round_down(min, digits), round_up(max, digits));
        if max <= min {
            max = min * 10.0;
        }
        Scale::Log { min, max }
    }

    /// The axis of a percentile spectrum over `count` values: it ends where one value is left.
    pub(crate) fn nines(count: u64) -> Scale {
        Scale::Nines {
            nines: (count.max(10) as f64).log10(),
        }
    }

    /// Where `value` lies: 0 at the start of the axis, 1 at its end. What is outside, is put at
    /// the edge.
    pub(crate) fn place(self, value: f64) -> f64 {
        let fraction = match self {
            Scale::FromZero { max } => value / max,
            Scale::Log { min, max } => (value.max(min) / min).log10() / (max / min).log10(),
            Scale::Nines { nines } => -(1.0 - value).max(1e-15).log10() / nines,
        };
        if fraction.is_nan() {
            0.0
        } else {
            fraction.clamp(0.0, 1.0)
        }
    }

    /// The ticks of the axis, in ascending order.
    pub(crate) fn ticks(self, unit: Unit) -> Vec<Tick> {
        let values = match self {
            Scale::FromZero { max } => {
                let step = unit.step(max / 5.0);
                let count = (max / step + 1e-9).floor() as u32;
                (0..=count).map(|index| f64::from(index) * step).collect()
            }
            Scale::Log { min, max } => log_ticks(min, max),
            Scale::Nines { nines } => {
                let full = (nines + 1e-9).floor() as i32;
                let mut values = vec![0.0, 0.5];
                values.extend((1..=full).map(|nines| 1.0 - 10f64.powi(-nines)));
                values
            }
        };
        let label = |value| match self {
            Scale::Nines { .. } => percentile(value),
            _ => unit.tick(value),
        };
        values
            .into_iter()
            .map(|value| Tick {
                value,
                label: label(value),
            })
            .collect()
    }
}

/// "99.9 %" for 0.999: as many digits as the fraction has nines, and no more.
pub(crate) fn percentile(fraction: f64) -> String {
    let nines = -(1.0 - fraction).max(1e-12).log10();
    let decimals = (nines + 1e-6).floor().max(2.0) as usize - 2;
    let text = format!("{:.*}", decimals + 2, fraction * 100.0);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} %")
}

fn finite(values: impl IntoIterator<Item = f64>) -> impl Iterator<Item = f64> {
    values.into_iter().filter(|value| value.is_finite())
}

/// One of the digits times a power of ten, not above `value`.
fn round_down(value: f64, digits: &[f64]) -> f64 {
    let value = value * (1.0 + 1e-9);
    let decade = 10f64.powf(value.log10().floor());
    let digit = digits.iter().rev().find(|digit| **digit * decade <= value);
    digit.copied().unwrap_or(1.0) * decade
}

/// One of the digits times a power of ten, not below `value`.
fn round_up(value: f64, digits: &[f64]) -> f64 {
    let value = value * (1.0 - 1e-9);
    let decade = 10f64.powf(value.log10().floor());
    let digit = digits.iter().find(|digit| **digit * decade >= value);
    digit.copied().unwrap_or(10.0) * decade
}

/// The digits that get a tick on a logarithmic axis of so many decades, as far as there is room.
fn log_digits(decades: f64) -> &'static [f64] {
    match decades {
        decades if decades <= 3.0 => &[1.0, 2.0, 5.0],
        decades if decades <= 4.6 => &[1.0, 3.0],
        _ => &[1.0],
    }
}

/// The ticks of a logarithmic axis.
fn log_ticks(min: f64, max: f64) -> Vec<f64> {
    let digits = log_digits((max / min).log10() - 1e-9);
    let (first, last) = (min.log10().floor() as i32, max.log10().ceil() as i32);
    let all = (first..=last)
        .flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)))
        .filter(|value| *value >= min * 0.999 && *value <= max * 1.001);
    all.collect()
}

/// The nice step not below `value`: 1, 2 or 5 times a power of ten.
pub(crate) fn decimal_step(value: f64) -> f64 {
    round_up(value.max(1e-12), &[1.0, 2.0, 5.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, unit: Unit) -> Vec<String> {
        scale
            .ticks(unit)
            .into_iter()
            .map(|tick| tick.label)
            .collect()
    }

    #[test]
    fn from_zero_ends_at_a_tick_above_the_largest_value() {
        let scale = Scale::from_zero([3.0, 870.0, f64::NAN], Unit::Count);
        assert_eq!(scale, Scale::FromZero { max: 1000.0 });
        assert_eq!(
            labels(scale, Unit::Count),
            ["0", "200", "400", "600", "800", "1 k"]
        );
        assert_eq!(scale.place(250.0), 0.25);
        assert_eq!(
            Scale::from_zero([], Unit::Count),
            Scale::FromZero { max: 1.0 }
        );
    }

    #[test]
    fn log_covers_its_values_and_labels_what_fits() {
        // 180 us to 4.2 ms, in nanoseconds.
        let scale = Scale::log([180e3, 4.2e6, 0.0]);
        assert_eq!(
            scale,
            Scale::Log {
                min: 100e3,
                max: 5e6
            }
        );
        let expected = ["100 µs", "200 µs", "500 µs", "1 ms", "2 ms", "5 ms"];
        assert_eq!(labels(scale, Unit::Nanos), expected);
        assert_eq!(scale.place(100e3), 0.0);
        assert_eq!(scale.place(5e6), 1.0);
        assert!(
            (Scale::Log {
                min: 1.0,
                max: 100.0
            }
            .place(10.0)
                - 0.5)
                .abs()
                < 1e-12
        );
        assert_eq!(scale.place(0.0), 0.0);
    }

    #[test]
    fn nines_are_one_step_apart() {
        let scale = Scale::nines(10_000);
        assert!((scale.place(0.9) - 0.25).abs() < 1e-9);
        assert!((scale.place(0.999) - 0.75).abs() < 1e-9);
        assert_eq!(scale.place(1.0), 1.0);
        let expected = ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %"];
        assert_eq!(labels(scale, Unit::Count), expected);
    }

    #[test]
    fn percentiles_keep_their_digits() {
        assert_eq!(percentile(0.5), "50 %");
        assert_eq!(percentile(0.75), "75 %");
        assert_eq!(percentile(0.99999), "99.999 %");
        assert_eq!(percentile(1.0), "100 %");
    }
}
