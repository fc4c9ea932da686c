use super::*;

#[test]
fn fields_have_the_originals_form() {
    for (text, expected) in [
        ("1", "1"),
        ("2.0", "2"),
        ("2.50", "2.5"),
        ("-0.0", "0"),
        ("-0", "0"),
        ("0e5", "0"),
        ("1e3", "1000"),
        ("1E+3", "1000"),
        ("1e18", "1000000000000000000"),
        ("1e20", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("0.1", "0.1"),
        ("0.0000010", "0.000001"),
        ("1e-7", "1e-7"),
        ("0.00000012", "1.2e-7"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("9007199254740992", "9007199254740992"),
    ] {
        let mut out = "x".to_owned();
        push_number(&mut out, text, true);
        assert_eq!(out, format!("x{expected}"));
    }
}

#[test]
fn a_number_that_a_float_would_change_keeps_its_text() {
    for text in [
        "9007199254740993",
        "12345678901234567890",
        "9223372036854775807",
        "9223372036854775808",
        "0.1000000000000000055511151231257827",
        "3.14159265358979323846",
        "1e400",
        "-1e400",
        "1e-400",
        "1e99999999999999999999999999999999999999999999",
    ] {
        for is_field in [true, false] {
            let mut out = String::new();
            push_number(&mut out, text, is_field);
            assert_eq!(out, text);
        }
    }
}

#[test]
fn inner_numbers_are_floats() {
    let check = |text: &str, expected: &str| {
        let mut out = String::new();
        push_number(&mut out, text, false);
        assert_eq!(out, expected);
    };
    check("-0.0", "-0");
    check("2.50", "2.5");
    check("1e3", "1000");
    check("123456789012345680000", "123456789012345680000");
}

#[test]
fn other_values_are_no_numbers() {
    for text in ["\"1\"", "true", "null", "[1]", "inf", "nan"] {
        assert_eq!(number(text), None, "{text}");
    }
    assert_eq!(number("2.0"), Some(2.0));
    assert_eq!(number("1e400"), Some(f64::INFINITY));
}
