//! [`LatencyFigures`]: the percentiles of a latency, of one nsqd or of several.

use serde::{Serialize, Serializer};

/// The latency from publish to finish.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatencyFigures {
    /// The number of messages.
    pub count: i64,
    /// The percentiles, in the order of the nsqd. `None` if no nsqd has any configured.
    pub percentiles: Option<Vec<PercentileFigures>>,
    /// The topic of a total. Empty in a part.
    pub topic: String,
    /// The channel of a channel's total. Empty elsewhere.
    pub channel: String,
    /// `*` in a total. Empty in a part.
    pub host: &'static str,
}

/// One percentile. All values are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PercentileFigures {
    /// The mean, weighted with the numbers of messages.
    #[serde(serialize_with = "finite")]
    pub average: f64,
    /// The number of messages.
    pub count: i64,
    /// The highest value of an nsqd.
    pub max: f64,
    /// The lowest value of an nsqd with messages.
    pub min: f64,
    /// The quantile, between 0 and 1.
    pub quantile: f64,
    /// The value of the one nsqd. `None` in a total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

impl LatencyFigures {
    /// Returns the latency of one nsqd.
    pub fn of_node(latency: &nsq_http::LatencyStats) -> LatencyFigures {
        let count = latency.count;
        let percentiles = latency.percentiles.as_ref().map(|percentiles| {
            let figures = percentiles.iter().map(|given| PercentileFigures {
                quantile: given.quantile,
                value: Some(given.value),
                min: given.value,
                max: given.value,
                average: given.value,
                count,
            });
            figures.collect()
        });
        LatencyFigures {
            count,
            percentiles,
            ..LatencyFigures::default()
        }
    }

    /// Returns an empty total.
    pub fn total(topic: &str, channel: &str) -> LatencyFigures {
        LatencyFigures {
            topic: topic.to_owned(),
            channel: channel.to_owned(),
            host: super::ALL_NODES,
            ..LatencyFigures::default()
        }
    }

    /// Adds the latency of another nsqd to a total.
    pub fn add(&mut self, other: &LatencyFigures) {
        self.count = self.count.saturating_add(other.count);
        let Some(others) = &other.percentiles else {
            return;
        };
        let own = self.percentiles.get_or_insert_default();
        for other in others {
            // Exact values: both come from the same text in a configuration.
            let quantile = other.quantile;
            let mut known = own.iter();
            let known = known.position(|own| own.quantile.to_bits() == quantile.to_bits());
            let place = known.unwrap_or(own.len());
            if known.is_none() {
                own.push(PercentileFigures {
                    quantile,
                    ..PercentileFigures::default()
                });
            }
            own[place].add(other);
        }
    }
}

impl PercentileFigures {
    fn add(&mut self, other: &PercentileFigures) {
        self.max = self.max.max(other.max);
        // An nsqd without messages has no latency, and reports 0.
        if other.count > 0 {
            self.min = match self.count {
                0 => other.min,
                _ => self.min.min(other.min),
            };
        }
        self.count = self.count.saturating_add(other.count);
        if self.count == 0 {
            self.average = 0.0;
            return;
        }
        #[allow(clippy::cast_precision_loss)] // Counts below 2^53 are exact.
        let (part, all) = (other.count as f64, self.count as f64);
        // The order of the operations is the original's, because it decides about the last digit.
        self.average += (other.average - self.average) * part / all;
    }
}

/// Writes 0 in place of infinity, to which absurd figures of an nsqd can lead: JSON has none.
fn finite<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(if value.is_finite() { *value } else { 0.0 })
}
