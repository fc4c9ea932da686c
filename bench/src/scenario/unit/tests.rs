use super::*;

#[test]
fn figures_read_well() {
    let cases = [
        (Unit::Nanos, 850.0, "850 ns"),
        (Unit::Nanos, 1_234_567.0, "1.23 ms"),
        (Unit::Nanos, 2.5e9, "2.5 s"),
        (Unit::PerSecond, 231_481.4, "231,481/s"),
        (Unit::Count, 0.0, "0"),
        (Unit::Count, 5e9, "5,000,000,000"),
        (Unit::Bytes, 2.25e12, "2.25 TB"),
        (Unit::Bytes, 999.7, "1 kB"),
        (Unit::BytesPerSecond, 104_166_600.0, "104 MB/s"),
        (Unit::Cores, 1.337, "1.34 cores"),
        (Unit::Seconds, 0.25, "250 ms"),
        (Unit::Seconds, 200.0, "3 min 20 s"),
        (Unit::Seconds, 43_200.0, "12 h"),
        (Unit::Seconds, 864_000.0, "10 days"),
    ];
    for (unit, value, expected) in cases {
        assert_eq!(unit.show(value), expected);
    }
    assert_eq!(number(f64::NAN), "n/a");
    assert_eq!(number(-1234.0), "-1,234");
    assert_eq!(number(0.000_123_4), "0.000123");
}
