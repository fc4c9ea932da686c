use super::*;

#[test]
fn spans_read_back_as_written() {
    let check = |text: &str, ns: u64, shown: &str| {
        let span: Span = text.parse().unwrap();
        assert_eq!(span.as_ns(), ns, "{text}");
        assert_eq!(span.to_string(), shown, "{text}");
        assert_eq!(shown.parse(), Ok(span), "{text}");
    };
    check("0", 0, "0s");
    check("250us", 250_000, "250us");
    check("1.5s", 1_500_000_000, "1500ms");
    check("90s", 90_000_000_000, "90s");
    check("12h", 43_200_000_000_000, "12h");
    check("24h", 86_400_000_000_000, "1d");
}

#[test]
fn what_is_no_span_is_refused() {
    for text in ["", "5", "s", "-1s", "1parsec", "1 e9d", "nan s", "1e30d"] {
        assert!(text.parse::<Span>().is_err(), "{text}");
    }
}
