//! [`Dedup`]: what topics with a rule of `--dedup` tell about duplicates. Only ringq's nsqds have such rules.

use serde::Serialize;

/// Declares [`Dedup`] with nsqd's names. Behind each name is the function that adds the figure of another nsqd.
macro_rules! dedup {
    ($($field:ident: $add:ident,)*) => {
        /// The figures of a topic with a rule. Those that the rule does not have are `None`.
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        pub struct Dedup {
            $(#[serde(skip_serializing_if = "Option::is_none")] $field: Option<i64>,)*
        }

        impl Dedup {
            /// Returns the figures of a topic on one nsqd.
            pub fn of_topic(given: &nsq_http::TopicStats) -> Dedup {
                Dedup { $($field: given.$field,)* }
            }

            /// Adds the figures of another nsqd.
            pub fn add(&mut self, part: &Dedup) {
                $($add(&mut self.$field, part.$field);)*
            }
        }
    };
}

dedup! {
    dedup_duplicate_count: sum,
    dedup_unchecked_count: sum,
    dedup_publisher_count: sum,
    dedup_publisher_count_max: sum,
    dedup_publisher_evicted_count: sum,
    dedup_unverified_count: sum,
    dedup_keyless_count: sum,
    dedup_unremembered_count: sum,
    dedup_key_count: sum,
    dedup_key_count_max: sum,
    dedup_memory_bytes: sum,
    dedup_memory_bytes_max: sum,
    dedup_memory_refused_count: sum,
    dedup_reach_ms: least,
}

/// Adds to a sum. A sum beyond the range stays at its end.
fn sum(total: &mut Option<i64>, part: Option<i64>) {
    if let Some(part) = part {
        *total = Some(total.unwrap_or(0).saturating_add(part));
    }
}

/// Keeps the smaller figure.
fn least(total: &mut Option<i64>, part: Option<i64>) {
    if let Some(part) = part {
        *total = Some(total.unwrap_or(part).min(part));
    }
}
