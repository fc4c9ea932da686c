//! Draws the plots of docs/explain/filters.md: `cargo run --release -p ringq-dedup --example plots --
//! docs/explain/filters`.
//!
//! Lines are formulas. Points are measured with the filters themselves.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plotters::chart::SeriesAnno;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;
use ringq_dedup::{
    Filter, Fingerprint, ForgetfulBloom, ForgetfulOptions, InverseBloom, KeyHasher, UnixTime,
    arithmetic,
};

type Outcome = Result<(), Box<dyn Error>>;
type Chart<'a, X, Y> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>;

const SIZE: (u32, u32) = (800, 420);
const START: UnixTime = UnixTime::from_secs(1_000_000);
const WINDOW: Duration = Duration::from_secs(60);
/// The rate for which the filter of the second and third plot is made, in keys per second.
const RATE: f64 = 500.0;
const BOUND: f64 = 0.001;
const COLORS: [RGBColor; 3] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
];

fn main() -> Outcome {
    let folder = std::env::args_os().nth(1).ok_or("usage: plots FOLDER")?;
    let folder = PathBuf::from(folder);
    std::fs::create_dir_all(&folder)?;
    forgetting(&folder.join("forgetting.svg"))?;
    let loads: Vec<Load> = (-4..=8)
        .map(|step| 2_f64.powf(f64::from(step) / 2.0))
        .map(measure)
        .collect();
    false_positives(&folder.join("false-positives.svg"), &loads)?;
    windows(&folder.join("window.svg"), &loads)
}

fn key(number: u64) -> Fingerprint {
    KeyHasher::new([7; 16]).fingerprint(&number.to_le_bytes())
}

/// Draws the probability that an inverse Bloom filter has forgotten a key, over further keys, for three sizes.
fn forgetting(path: &Path) -> Outcome {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((100.0..1e7).log_scale(), 0.0..1.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("further keys")
        .y_desc("probability that a key is forgotten")
        .x_label_formatter(&|x| format!("{x:e}"))
        .draw()?;
    for (slots, color) in [10_000_u64, 100_000, 1_000_000].into_iter().zip(COLORS) {
        let steps = (0..=200).map(|step| 10_f64.powf(2.0 + f64::from(step) * 5.0 / 200.0));
        let line = steps.map(|x| (x, arithmetic::forgotten(slots, x)));
        let series = chart.draw_series(LineSeries::new(line, color.stroke_width(2)))?;
        label(
            series,
            format!("{slots} slots: formula, and measured"),
            color,
        );
        let measured = [0.05, 0.2, 0.5, 1.0, 2.0, 4.0].map(|part| {
            let further = (slots as f64 * part) as u64;
            (further as f64, measured_forgetting(slots, further))
        });
        chart.draw_series(measured.map(|point| Circle::new(point, 4, color.filled())))?;
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)?;
    area.present()?;
    Ok(())
}

/// Returns the part of 20,000 keys that a filter has forgotten after `further` further keys each.
fn measured_forgetting(slots: u64, further: u64) -> f64 {
    const KEYS: u64 = 20_000;
    let mut filter = InverseBloom::new(slots).expect("a valid size");
    let mut lost = 0_u64;
    for number in 0..KEYS + further {
        filter.remember(key(number), START);
        if number >= further {
            lost += u64::from(!filter.remembers(key(number - further), START));
        }
    }
    lost as f64 / KEYS as f64
}

/// The figures of two filters with equal memory at one load.
struct Load {
    /// The load, as a multiple of the rate for which the forgetful filter is made.
    factor: f64,
    /// False positives per check: inverse, forgetful.
    false_positives: [f64; 2],
    /// The time after which the filter has forgotten 1 % of the keys, or a key at all, in windows.
    windows: [f64; 2],
}

fn measure(factor: f64) -> Load {
    let options = ForgetfulOptions {
        filters: 5,
        window: WINDOW,
        rate: RATE,
        false_positives_max: BOUND,
        hasher: KeyHasher::new([7; 16]),
    };
    let mut forgetful = ForgetfulBloom::new(options, START).expect("valid options");
    let slots = forgetful.bytes() / 16;
    let mut inverse = InverseBloom::new(slots).expect("a valid size");
    let rate = RATE * factor;
    let false_positives = [run(&mut inverse, rate), run(&mut forgetful, rate)];
    let kept = forgetful.shortest_window().unwrap_or(WINDOW);
    let of_inverse = arithmetic::delay_for(slots, rate, 0.01).expect("valid options");
    Load {
        factor,
        false_positives,
        windows: [of_inverse, kept].map(|window| window.as_secs_f64() / WINDOW.as_secs_f64()),
    }
}

/// Feeds a filter for three windows, and returns the part of fresh keys that it takes for known ones.
fn run<F: Filter<Key = Fingerprint>>(filter: &mut F, rate: f64) -> f64 {
    const PROBES: u64 = 400_000;
    let seconds = 3.0 * WINDOW.as_secs_f64();
    let count = (rate * seconds) as u64;
    for number in 0..count {
        filter.remember(
            key(number),
            START + Duration::from_secs_f64(number as f64 / rate),
        );
    }
    let now = START + Duration::from_secs_f64(seconds);
    let wrong = (0..PROBES)
        .filter(|probe| filter.remembers(key(1 << 50 | probe), now))
        .count();
    wrong as f64 / PROBES as f64
}

const NAMES: [&str; 2] = ["inverse Bloom", "forgetful Bloom"];

/// Draws false positives over the load, of the two filters with equal memory.
fn false_positives(path: &Path, loads: &[Load]) -> Outcome {
    over_load(
        path,
        loads,
        "fresh keys taken for known ones",
        0.0..1.5 * BOUND,
        |load| load.false_positives,
    )
}

/// Draws the window that is kept over the load, of the two filters with equal memory.
fn windows(path: &Path, loads: &[Load]) -> Outcome {
    over_load(
        path,
        loads,
        "window kept, as a part of the window asked for",
        0.0..1.2,
        |load| load.windows.map(|window| window.min(1.2)),
    )
}

fn over_load(
    path: &Path,
    loads: &[Load],
    what: &str,
    range: std::ops::Range<f64>,
    values: impl Fn(&Load) -> [f64; 2],
) -> Outcome {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((0.25..16.0).log_scale(), range)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("load, as a multiple of the usual rate")
        .y_desc(what)
        .x_label_formatter(&|x| format!("{x}"))
        .y_label_formatter(&|y| format!("{}", (y * 1e6).round() / 1e6))
        .draw()?;
    for (index, (name, color)) in NAMES.into_iter().zip(COLORS).enumerate() {
        let points: Vec<_> = loads
            .iter()
            .map(|load| (load.factor, values(load)[index]))
            .collect();
        let line = LineSeries::new(points.clone(), color.stroke_width(2));
        label(chart.draw_series(line)?, name.to_owned(), color);
        chart.draw_series(
            points
                .into_iter()
                .map(|point| Circle::new(point, 4, color.filled())),
        )?;
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)?;
    area.present()?;
    Ok(())
}

fn label(series: &mut SeriesAnno<'_, SVGBackend<'_>>, text: String, color: RGBColor) {
    series
        .label(text)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
}

fn legend<X, Y>(chart: &mut Chart<'_, X, Y>, position: SeriesLabelPosition) -> Outcome
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}
