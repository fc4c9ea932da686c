use super::*;
use hdrhistogram::serialization::Deserializer;

#[test]
fn a_saved_histogram_reads_back() {
    let mut split = Split::default();
    split.record(true, 5_000, 99);
    split.record(true, 200_000_000, 1);
    split.record(false, u64::MAX, 1);
    let record = record(HistogramKind::Publish, &split.measured).unwrap();
    assert_eq!(record.count, 100);
    assert!((record.p50_us - 5.0).abs() < 0.01);
    assert!((record.max_us / 200_000.0 - 1.0).abs() < 0.001);
    let bytes = STANDARD.decode(&record.hdr_base64).unwrap();
    let histogram: Latencies = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
    assert_eq!(histogram, split.measured);
    assert_eq!(split.both().len(), 101);
    assert_eq!(super::record(HistogramKind::Delivery, &latencies()), None);
}
