//! Which inputs matter most: each is varied while the others stay, and the needs are computed anew.

use serde::Serialize;

use super::needs::{Demand, Needs};
use crate::result::Profile;

/// By how much every input is varied, down and up.
pub(super) const VARIED_BY: f64 = 0.25;
/// Utilisation and fill end here: nothing runs fuller than full.
const SHARE_MAX: f64 = 1.0;

/// An input that can be varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    /// `--per-day`
    PerDay,
    /// `--size`
    Size,
    /// `--channels`
    Channels,
    /// `--peak`
    Peak,
    /// `--retention`
    Retention,
    /// `--utilisation`
    Utilisation,
    /// The rate of the profile.
    MeasuredRate,
    /// `--stored-overhead`
    StoredOverhead,
    /// `--fill`
    Fill,
}

/// All of them, in the order of the command line: of equal ones the first counts more.
pub(super) const INPUTS: [Input; 9] = [
    Input::PerDay,
    Input::Size,
    Input::Channels,
    Input::Peak,
    Input::Retention,
    Input::Utilisation,
    Input::MeasuredRate,
    Input::StoredOverhead,
    Input::Fill,
];

impl Input {
    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Input::PerDay => "messages per day",
            Input::Size => "message size",
            Input::Channels => "channels",
            Input::Peak => "peak factor",
            Input::Retention => "retention",
            Input::Utilisation => "utilisation",
            Input::MeasuredRate => "measured rate of a node",
            Input::StoredOverhead => "stored overhead",
            Input::Fill => "fill of disk and memory",
        }
    }

    /// Its value.
    #[must_use]
    pub fn value(self, demand: &Demand, profile: &Profile) -> f64 {
        match self {
            Input::PerDay => demand.per_day,
            Input::Size => demand.size_bytes,
            Input::Channels => demand.channels,
            Input::Peak => demand.peak,
            Input::Retention => demand.retention_s,
            Input::Utilisation => demand.utilisation,
            Input::MeasuredRate => profile.messages_per_s,
            Input::StoredOverhead => demand.stored_overhead_bytes,
            Input::Fill => demand.fill,
        }
    }

    /// The needs if its value were `factor` times what it is; and that value.
    fn varied(self, demand: &Demand, profile: &Profile, factor: f64) -> (f64, Needs) {
        let (mut demand, mut profile) = (*demand, profile.clone());
        let mut value = self.value(&demand, &profile) * factor;
        let target = match self {
            Input::PerDay => &mut demand.per_day,
            Input::Size => &mut demand.size_bytes,
            Input::Channels => &mut demand.channels,
            Input::Peak => &mut demand.peak,
            Input::Retention => &mut demand.retention_s,
            Input::Utilisation => &mut demand.utilisation,
            Input::StoredOverhead => &mut demand.stored_overhead_bytes,
            Input::Fill => &mut demand.fill,
            Input::MeasuredRate => {
                // The daemon's cores were measured at its rate: the CPU per message stays.
                profile.daemon_cores_used = profile.daemon_cores_used.map(|cores| cores * factor);
                &mut profile.messages_per_s
            }
        };
        if matches!(self, Input::Utilisation | Input::Fill) {
            value = value.min(SHARE_MAX);
        }
        if self == Input::Peak {
            // Below 1 there is no peak: the busiest moment is never below the mean.
            value = value.max(1.0);
        }
        *target = value;
        (value, Needs::of(&demand, &profile))
    }
}

/// What the needs are with another value of an input.
#[derive(Debug, Clone, Serialize)]
pub struct Variant {
    /// The input's value.
    pub value: f64,
    /// What is needed then.
    pub needs: Needs,
}

/// An input, and how much hangs on it.
#[derive(Debug, Clone, Serialize)]
pub struct Sensitivity {
    /// Which input.
    pub input: Input,
    /// Mean change of what is needed, in percent, over nodes, cores, disk space, disk rate, and
    /// network, when the input is varied by [`VARIED_BY`] down and up.
    pub change_percent: f64,
    /// With half the value, a quarter less, a quarter more and twice the value.
    pub variants: Vec<Variant>,
}

/// All inputs, those that matter most first.
#[must_use]
pub(super) fn sensitivities(demand: &Demand, profile: &Profile) -> Vec<Sensitivity> {
    let base = Needs::of(demand, profile);
    let mut all: Vec<Sensitivity> = INPUTS
        .into_iter()
        .map(|input| {
            let factors = [0.5, 1.0 - VARIED_BY, 1.0 + VARIED_BY, 2.0];
            let variants: Vec<Variant> = factors
                .into_iter()
                .map(|factor| input.varied(demand, profile, factor))
                .map(|(value, needs)| Variant { value, needs })
                .collect();
            let changes = [&variants[1], &variants[2]].map(|varied| change(&base, &varied.needs));
            let change_percent = (changes[0] + changes[1]) / 2.0 * 100.0;
            Sensitivity {
                input,
                change_percent,
                variants,
            }
        })
        .collect();
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
    let costs = |needs: &Needs| {
        let network = needs.network_in + needs.network_out;
        // Nodes before rounding: whole ones would hide what is just short of one more.
        [
            Some(needs.nodes_exact),
            needs.cores,
            Some(needs.disk_bytes),
            Some(needs.disk_rate),
            Some(network),
        ]
    };
    let changes: Vec<f64> = costs(base)
        .into_iter()
        .zip(costs(varied))
        .filter_map(|(base, varied)| Some((varied? / base? - 1.0).abs()))
        .filter(|change| change.is_finite())
        .collect();
    changes.iter().sum::<f64>() / changes.len().max(1) as f64
}
