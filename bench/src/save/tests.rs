use super::*;
use crate::result::HistogramKind;
use crate::result::tally::latencies;
use hdrhistogram::serialization::Serializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

#[test]
fn an_interval_log_reads_back() {
    let mut histogram = latencies();
    histogram.saturating_record(2_000_000);
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(&histogram, &mut bytes)
        .unwrap();
    let logged = LoggedHistogram {
        kind: HistogramKind::Publish,
        start_s: 1.0,
        length_s: 0.5,
        bytes,
    };
    let text = interval_log("publish", 1_700_000_000_000, [&logged, &logged].into_iter()).unwrap();
    let entries: Vec<LogEntry<'_>> = IntervalLogIterator::new(&text)
        .collect::<Result<_, _>>()
        .unwrap();
    let intervals: Vec<_> = entries
        .iter()
        .filter_map(|entry| match entry {
            LogEntry::Interval(interval) => Some(interval),
            _ => None,
        })
        .collect();
    assert_eq!(intervals.len(), 2);
    assert_eq!(intervals[0].start_timestamp(), Duration::from_secs(1));
    assert_eq!(intervals[0].duration(), Duration::from_millis(500));
    assert!((intervals[0].max() - 2.0).abs() < 0.01);
    assert_eq!(intervals[0].tag().map(|tag| tag.as_str()), Some("publish"));
}
