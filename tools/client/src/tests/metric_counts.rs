//! The counters that a piece of code adds to in the recorder of `metrics`, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use parking_lot::Mutex;

#[derive(Default)]
struct Counts(Mutex<BTreeMap<String, Arc<Count>>>);

#[derive(Default)]
struct Count(AtomicU64);

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }
    fn absolute(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let label = key.labels().next().map_or("", |label| label.value());
        let mut counts = self.0.lock();
        let count = counts.entry(format!("{} {label}", key.name())).or_default();
        Counter::from_arc(Arc::clone(count))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Returns the counters to which `act` adds on this thread, by their names and their first labels.
pub(crate) fn counted(act: impl FnOnce()) -> BTreeMap<String, u64> {
    let counts = Counts::default();
    metrics::with_local_recorder(&counts, act);
    let counts = counts.0.lock();
    let values = counts
        .iter()
        .map(|(name, count)| (name.clone(), count.0.load(Ordering::Relaxed)));
    values.collect()
}
