//! The inputs that matter most: each is varied while the others stay, and the needs are computed anew.

use serde::Serialize;

use super::demand::Demand;
use super::needs::{Needs, calculate, per_s};
use crate::result::Profile;
use crate::scenario::unit::{Unit, number};

/// The share by which each input is varied, down and up, to rank the inputs.
pub(super) const VARIED_BY: f64 = 0.25;

/// Finds the value of an input.
type Place = for<'a> fn(&'a mut Demand, &'a mut Profile) -> &'a mut f64;

type Show = fn(f64) -> String;

/// All inputs by key and name, in the order of the command line: of equal ones the first counts more.
const INPUTS: [(&str, &str, Show, Place); 9] = [
    ("per-day", "messages per day", number, |d, _| &mut d.per_day),
    ("size", "message size", bytes, |d, _| &mut d.size_bytes),
    ("channels", "channels", number, |d, _| &mut d.channels),
    ("peak", "peak factor", number, |d, _| &mut d.peak),
    ("retention", "retention", seconds, |d, _| &mut d.retention_s),
    ("utilisation", "utilisation", number, |d, _| {
        &mut d.utilisation
    }),
    ("measured-rate", "measured rate of a node", per_s, |_, p| {
        &mut p.messages_per_s
    }),
    ("stored-overhead", "stored overhead", bytes, |d, _| {
        &mut d.stored_overhead_bytes
    }),
    ("fill", "fill of disk and memory", number, |d, _| {
        &mut d.fill
    }),
];

fn bytes(value: f64) -> String {
    format!("{} bytes", number(value))
}

fn seconds(value: f64) -> String {
    Unit::Seconds.show(value)
}

/// The needs with another value of an input.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Variant {
    pub(super) value: f64,
    pub(super) needs: Needs,
}

impl Variant {
    /// Computes the needs with `factor` times the input's value.
    fn new(place: Place, demand: &Demand, profile: &Profile, factor: f64) -> Variant {
        let (mut demand, mut profile) = (*demand, profile.clone());
        let measured_per_s = profile.messages_per_s;
        *place(&mut demand, &mut profile) *= factor;
        // The daemon's cores were measured at its rate: the CPU per message stays.
        let faster = profile.messages_per_s / measured_per_s;
        profile.daemon_cores_used = profile.daemon_cores_used.map(|cores| cores * faster);
        // Nothing runs fuller than full, and the busiest moment is never below the mean.
        demand.utilisation = demand.utilisation.min(1.0);
        demand.fill = demand.fill.min(1.0);
        demand.peak = demand.peak.max(1.0);
        Variant {
            needs: calculate(&demand, &profile),
            value: *place(&mut demand, &mut profile),
        }
    }
}

/// An input, and how much hangs on it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Sensitivity {
    pub(super) input: &'static str,
    #[serde(skip)]
    pub(super) name: &'static str,
    #[serde(skip)]
    pub(super) show: Show,
    /// The value as planned, and its needs.
    #[serde(skip)]
    pub(super) planned: Variant,
    /// Mean change of what is needed, in percent, over nodes, cores, disk space, disk rate, and
    /// network, when the input is varied by [`VARIED_BY`] down and up.
    pub(super) change_percent: f64,
    /// With half the value, a quarter less, a quarter more and twice the value.
    pub(super) variants: [Variant; 4],
}

/// Varies all inputs; returns those that matter most first.
pub(super) fn sensitivities(demand: &Demand, profile: &Profile) -> Vec<Sensitivity> {
    let sensitivity = |(input, name, show, place): (&'static str, &'static str, Show, Place)| {
        let varied = |factor| Variant::new(place, demand, profile, factor);
        let planned = varied(1.0);
        let variants = [0.5, 1.0 - VARIED_BY, 1.0 + VARIED_BY, 2.0].map(varied);
        let changes = [&variants[1], &variants[2]].map(|to| change(&planned.needs, &to.needs));
        Sensitivity {
            input,
            name,
            show,
            planned,
            change_percent: (changes[0] + changes[1]) / 2.0 * 100.0,
            variants,
        }
    };
    let mut all: Vec<Sensitivity> = INPUTS.into_iter().map(sensitivity).collect();
    // A stable sort: of equal inputs the one that stands first in INPUTS stays first. Rounding
    // errors do not decide.
    let rounded = |sensitivity: &Sensitivity| (sensitivity.change_percent * 1e6).round();
    all.sort_by(|one, other| rounded(other).total_cmp(&rounded(one)));
    all
}

/// Mean relative change of what costs money.
fn change(base: &Needs, varied: &Needs) -> f64 {
    // The nodes are those before rounding: whole nodes would hide a need just short of one more.
    let costs = |needs: &Needs| {
        [
            Some(needs.nodes.exact),
            needs.cores,
            Some(needs.storage.disk_bytes),
            Some(needs.storage.disk_rate),
            Some(needs.network_in + needs.network_out),
        ]
    };
    let changes = costs(base).into_iter().zip(costs(varied));
    let changes = changes.filter_map(|(base, varied)| Some((varied? / base? - 1.0).abs()));
    let changes: Vec<f64> = changes.filter(|change| change.is_finite()).collect();
    changes.iter().sum::<f64>() / changes.len().max(1) as f64
}
