use std::collections::HashMap;

use super::{STYLE, json};

#[test]
fn json_cannot_end_its_element() {
    let data = ["</script><script>alert(1)</script>", "<!--", "a\"b"];
    let text = json(&data);
    assert!(!text.contains('<'), "{text}");
    assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), data);
    assert_eq!(json(&[1.5, f64::NAN, f64::INFINITY]), "[1.5,null,null]");
}

/// The variables of the nth `:root` block: 0 is light, 1 is dark.
fn scheme(nth: usize) -> HashMap<&'static str, [f64; 3]> {
    let block = STYLE
        .split(":root {")
        .nth(nth + 1)
        .unwrap()
        .split('}')
        .next()
        .unwrap();
    let colours = block.split(';').filter_map(|entry| {
        let (name, value) = entry.trim().split_once(": #")?;
        let channel = |at: usize| u8::from_str_radix(&value[at..at + 2], 16).unwrap();
        Some((name.trim(), [0, 2, 4].map(channel).map(linear)))
    });
    colours.collect()
}

fn linear(channel: u8) -> f64 {
    let value = f64::from(channel) / 255.0;
    if value <= 0.040_45 {
        value / 12.92
    } else {
        ((value + 0.055) / 1.055).powf(2.4)
    }
}

fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let luminance = |[r, g, b]: [f64; 3]| 0.2126 * r + 0.7152 * g + 0.0722 * b;
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// The colours are readable on their grounds by the rules of WCAG.
#[test]
fn colours_are_readable_in_light_and_dark() {
    for (nth, name) in ["light", "dark"].into_iter().enumerate() {
        let colours = scheme(nth);
        let check = |ink: &str, ground: &str, least: f64| {
            let found = contrast(
                colours[format!("--{ink}").as_str()],
                colours[format!("--{ground}").as_str()],
            );
            assert!(
                found >= least,
                "{name}: {ink} on {ground} has a contrast of {found:.2}"
            );
        };
        for ground in ["page", "card", "band", "code"] {
            check("ink", ground, 7.0);
            check("muted", ground, 4.5);
        }
        for tone in ["good", "warn", "bad"] {
            check(tone, &format!("{tone}-ground"), 4.5);
            check("ink", &format!("{tone}-ground"), 7.0);
            check(tone, "card", 4.5);
        }
        for series in ["c1", "c2", "c3", "c4", "c5", "c6"] {
            check(series, "card", 4.5);
            check(series, "band", 4.5);
        }
    }
}
