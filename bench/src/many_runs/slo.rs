//! [`Slo`]: an objective such as `p99<5ms,lost=0`, and whether a run met it.

use std::fmt;
use std::str::FromStr;

use crate::result::{Ended, Headroom, HistogramKind, HistogramRecord, Ledger, RunResult};
use crate::scenario::span::Span;

/// The part of the offered rate that has to be acknowledged, and delivered to each channel, for a rate
/// to count as carried at all. No term states this: it is the meaning of "at that rate".
pub const CARRIED_SHARE: f64 = 0.98;

/// The quantity that a term bounds.
#[derive(Clone, Copy, Debug)]
enum Quantity {
    /// A percentile of the latency that matters: delivery where there are consumers, else publish.
    Latency(f64),
    /// A percentile of publish latency.
    Publish(f64),
    /// A count of the ledger.
    Count(fn(&Ledger) -> u64),
}

/// One term of an objective.
#[derive(Clone, Debug)]
struct Term {
    text: String,
    quantity: Quantity,
    /// The limit, in microseconds or messages.
    limit: f64,
    /// True when the limit itself is allowed.
    inclusive: bool,
}

/// An objective: all of its terms have to be met.
#[derive(Clone, Debug)]
pub struct Slo {
    terms: Vec<Term>,
}

impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Slo, String> {
        let terms: Vec<Term> = text.split(',').map(term).collect::<Result<_, _>>()?;
        Ok(Slo { terms })
    }
}

fn term(text: &str) -> Result<Term, String> {
    let text = text.trim();
    let wrong = || {
        format!(
            "`{text}` is no term of an objective: write p99<5ms, publish-p99.9<20ms, lost=0, \
             duplicated<=10, corrupted=0 or refused=0"
        )
    };
    let at = text.find(['<', '=']).ok_or_else(wrong)?;
    let (name, rest) = text.split_at(at);
    let (inclusive, limit) = match rest.strip_prefix("<=").or(rest.strip_prefix('=')) {
        Some(limit) => (true, limit),
        None => (false, rest.strip_prefix('<').ok_or_else(wrong)?),
    };
    let percentile = |digits: &str| match digits.parse::<f64>() {
        Ok(percentile) if (1.0..=100.0).contains(&percentile) => Ok(percentile),
        _ => Err(wrong()),
    };
    let quantity = match name {
        "lost" => Quantity::Count(|ledger| ledger.lost),
        "duplicated" => Quantity::Count(|ledger| ledger.duplicated),
        "corrupted" => Quantity::Count(|ledger| ledger.corrupted),
        "refused" => Quantity::Count(|ledger| ledger.refused),
        _ => match (name.strip_prefix("publish-p"), name.strip_prefix('p')) {
            (Some(digits), _) => Quantity::Publish(percentile(digits)?),
            (None, Some(digits)) => Quantity::Latency(percentile(digits)?),
            (None, None) => return Err(wrong()),
        },
    };
    let limit = match quantity {
        Quantity::Count(_) => limit.parse::<u64>().map_err(|_| wrong())? as f64,
        _ => limit.parse::<Span>().map_err(|_| wrong())?.as_ns() as f64 / 1000.0,
    };
    Ok(Term {
        text: text.into(),
        quantity,
        limit,
        inclusive,
    })
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms: Vec<&str> = self.terms.iter().map(|term| term.text.as_str()).collect();
        f.write_str(&terms.join(","))
    }
}

impl Slo {
    /// Lists in words what a run missed of the objective; empty when it met all of it. A run that ended
    /// badly or did not carry its rate always misses.
    pub fn missed(&self, run: &RunResult) -> Vec<String> {
        let mut missed = Vec::new();
        if let Ended::Failed { reason } = &run.ended {
            missed.push(reason.clone());
        }
        let totals = &run.totals;
        if let Some(offered) = totals.offered_per_s {
            let channels = f64::from(run.ledger.channels);
            let carried = [
                (totals.acknowledged_per_s / offered, "acknowledged"),
                // Without channels nothing is to be delivered: NaN is not less than anything.
                (totals.delivered_per_s / (offered * channels), "delivered"),
            ];
            for (share, what) in carried
                .into_iter()
                .filter(|(share, _)| *share < CARRIED_SHARE)
            {
                let percent = 100.0 * share;
                missed.push(format!("only {percent:.1} % of the rate were {what}"));
            }
        }
        for term in &self.terms {
            match term.measure(run) {
                Some(value) if term.allows(value) => {}
                Some(value) => {
                    let is_count = matches!(term.quantity, Quantity::Count(_));
                    let unit = if is_count { "" } else { " us" };
                    missed.push(format!("{} was {value:.0}{unit}", term.text));
                }
                None => missed.push(format!("{} could not be measured", term.text)),
            }
        }
        missed
    }

    /// Returns how far a run was from the limit of each term.
    pub fn headroom(&self, run: &RunResult) -> Vec<Headroom> {
        let of = |term: &Term| {
            let measured = term.measure(run)?;
            Some(Headroom {
                term: term.text.clone(),
                measured,
                left_share: (term.limit > 0.0).then(|| 1.0 - measured / term.limit),
            })
        };
        self.terms.iter().filter_map(of).collect()
    }
}

impl Term {
    fn measure(&self, run: &RunResult) -> Option<f64> {
        let publish = || run.histogram(HistogramKind::Publish);
        Some(match self.quantity {
            Quantity::Latency(percentile) => value(run.main_latency()?, percentile),
            Quantity::Publish(percentile) => value(publish()?, percentile),
            Quantity::Count(count) => count(&run.ledger) as f64,
        })
    }

    fn allows(&self, value: f64) -> bool {
        value < self.limit || (self.inclusive && value <= self.limit)
    }
}

/// A percentile: those that are saved, else the next higher saved one, which is the stricter side.
fn value(record: &HistogramRecord, percentile: f64) -> f64 {
    let saved = record.percentiles_us();
    let found = saved.iter().find(|(of, _)| percentile <= *of);
    found.map_or(record.max_us, |(_, value)| *value)
}

#[cfg(test)]
mod tests;
