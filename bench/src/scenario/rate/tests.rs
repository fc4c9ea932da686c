use super::*;

#[test]
fn rates_read_back_as_written() {
    let check = |text: &str, expected: Option<f64>| {
        let rate: Rate = text.parse().unwrap();
        assert_eq!(rate.per_second(), expected, "{text}");
        assert_eq!(rate.to_string().parse(), Ok(rate), "{text}");
    };
    check("max", None);
    check("50000", Some(50_000.0));
    check("50k", Some(50_000.0));
    check("1.5M", Some(1_500_000.0));
    check("5e9", Some(5e9));
    for text in ["", "0", "-1", "fast", "inf", "NaN", "k", "1kk"] {
        assert!(text.parse::<Rate>().is_err(), "{text}");
    }
}
