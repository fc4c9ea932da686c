//! Which inputs matter most: each is varied while the others stay, and the needs are computed anew.

use serde::Serialize;

use super::demand::Demand;
use super::needs::Needs;
use crate::result::Profile;

/// By how much every input is varied, down and up, to rank it.
pub(super) const VARIED_BY: f64 = 0.25;

/// An input that can be varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Input {
    PerDay,
    Size,
    Channels,
    Peak,
    Retention,
    Utilisation,
    MeasuredRate,
    StoredOverhead,
    Fill,
}

/// Finds the value of an input.
type Place = for<'a> fn(&'a mut Demand, &'a mut Profile) -> &'a mut f64;

/// All inputs in the order of the command line: of equal ones the first counts more.
const INPUTS: [(Input, &str, Place); 9] = [
    (Input::PerDay, "messages per day", |demand, _| {
        &mut demand.per_day
    }),
    (Input::Size, "message size", |demand, _| {
        &mut demand.size_bytes
    }),
    (Input::Channels, "channels", |demand, _| {
        &mut demand.channels
    }),
    (Input::Peak, "peak factor", |demand, _| &mut demand.peak),
    (Input::Retention, "retention", |demand, _| {
        &mut demand.retention_s
    }),
    (Input::Utilisation, "utilisation", |demand, _| {
        &mut demand.utilisation
    }),
    (
        Input::MeasuredRate,
        "measured rate of a node",
        |_, profile| &mut profile.messages_per_s,
    ),
    (Input::StoredOverhead, "stored overhead", |demand, _| {
        &mut demand.stored_overhead_bytes
    }),
    (Input::Fill, "fill of disk and memory", |demand, _| {
        &mut demand.fill
    }),
];

/// Computes the needs with `factor` times the input's value.
fn varied(input: Input, place: Place, demand: &Demand, profile: &Profile, factor: f64) -> Variant {
    let (mut demand, mut profile) = (*demand, profile.clone());
    if input == Input::MeasuredRate {
        // The daemon's cores were measured at its rate: the CPU per message stays.
        profile.daemon_cores_used = profile.daemon_cores_used.map(|cores| cores * factor);
    }
    let place = place(&mut demand, &mut profile);
    *place *= factor;
    match input {
        // Nothing runs fuller than full.
        Input::Utilisation | Input::Fill => *place = place.min(1.0),
        // The busiest moment is never below the mean.
        Input::Peak => *place = place.max(1.0),
        _ => {}
    }
    let value = *place;
    Variant {
        value,
        needs: Needs::of(&demand, &profile),
    }
}

/// The needs with another value of an input.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Variant {
    /// The input's value.
    pub(super) value: f64,
    pub(super) needs: Needs,
}

/// An input, and how much hangs on it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Sensitivity {
    pub(super) input: Input,
    #[serde(skip)]
    pub(super) name: &'static str,
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
    let sensitivity = |(input, name, place): (Input, &'static str, Place)| {
        let varied = |factor| varied(input, place, demand, profile, factor);
        let planned = varied(1.0);
        let variants = [0.5, 1.0 - VARIED_BY, 1.0 + VARIED_BY, 2.0].map(varied);
        let changes = [&variants[1], &variants[2]].map(|to| change(&planned.needs, &to.needs));
        Sensitivity {
            input,
            name,
            planned,
            change_percent: (changes[0] + changes[1]) / 2.0 * 100.0,
            variants,
        }
    };
    let mut all: Vec<Sensitivity> = INPUTS.into_iter().map(sensitivity).collect();
    // A stable sort: of equal inputs the one that stands first in INPUTS stays first. Rounding
    // errors do not decide.
    all.sort_by(|one, other| {
        let rounded = |sensitivity: &Sensitivity| (sensitivity.change_percent * 1e6).round();
        rounded(other).total_cmp(&rounded(one))
    });
    all
}

/// Mean relative change of what costs money.
fn change(base: &Needs, varied: &Needs) -> f64 {
    // Nodes before rounding: whole ones would hide what is just short of one more.
    let costs = |needs: &Needs| {
        [
            Some(needs.nodes_exact),
            needs.cores,
            Some(needs.disk_bytes),
            Some(needs.disk_rate),
            Some(needs.network_in + needs.network_out),
        ]
    };
    let changes = costs(base).into_iter().zip(costs(varied));
    let changes = changes.filter_map(|(base, varied)| Some((varied? / base? - 1.0).abs()));
    let changes: Vec<f64> = changes.filter(|change| change.is_finite()).collect();
    changes.iter().sum::<f64>() / changes.len().max(1) as f64
}
