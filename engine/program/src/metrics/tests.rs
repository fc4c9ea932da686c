use std::time::SystemTime;

use super::*;

const SENT: Family = Family::new("sent_total", Kind::Counter, "Things sent.");
const HELD: Family = Family::new("held_bytes", Kind::Gauge, "Bytes held.");
const NEVER: Family = Family::new("never", Kind::Gauge, "No sample.");

/// Returns the parts of a text.
fn parts(write: impl FnOnce(&mut Exposition<'_>)) -> Vec<String> {
    let mut parts = Vec::new();
    let mut out = Exposition::new(|part| parts.push(part));
    write(&mut out);
    out.end();
    parts
}

#[test]
fn labels_are_escaped_and_a_family_without_samples_leaves_no_trace() {
    let mut labels = String::new();
    push_label(&mut labels, "node", "a\\b\"c\nd{}");
    push_label(&mut labels, "zone", "ä");
    let parts = parts(|out| {
        out.begin(SENT);
        out.sample(&labels, u64::MAX);
        out.sample("", 0.25);
        out.begin(NEVER);
        out.single(HELD, f64::NAN);
    });
    let expected = r#"# HELP sent_total Things sent.
# TYPE sent_total counter
sent_total{node="a\\b\"c\nd{}",zone="ä"} 18446744073709551615
sent_total 0.25
# HELP held_bytes Bytes held.
# TYPE held_bytes gauge
held_bytes NaN
"#;
    assert_eq!(parts.concat(), expected);
}

#[test]
fn a_histogram_with_and_without_labels() {
    const TOOK: Family = Family::new("took_seconds", Kind::Histogram, "Time.");
    let parts = parts(|out| {
        out.begin(TOOK);
        out.histogram("a=\"b\"", &[0.00025, 1.0], &[1, 1, 3], 2.5);
        out.histogram("", &[1.0], &[0, u64::MAX], 3.0);
    });
    let expected = r#"# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{a="b",le="0.00025"} 1
took_seconds_bucket{a="b",le="1.0"} 1
took_seconds_bucket{a="b",le="+Inf"} 3
took_seconds_count{a="b"} 3
took_seconds_sum{a="b"} 2.5
took_seconds_bucket{le="1.0"} 0
took_seconds_bucket{le="+Inf"} 18446744073709551615
took_seconds_count 18446744073709551615
took_seconds_sum 3
"#;
    assert_eq!(parts.concat(), expected);
}

#[test]
fn a_long_text_is_cut_between_lines() {
    let parts = parts(|out| {
        out.begin(HELD);
        for value in 0..20_000_u64 {
            out.sample("a=\"b\"", value);
        }
    });
    assert!(parts.len() > 4, "{}", parts.len());
    assert!(
        parts
            .iter()
            .all(|part| part.ends_with('\n') && part.len() < PART_BYTES + 100)
    );
    assert_eq!(parts.concat().lines().count(), 20_002);
}

/// A part grew with its last histogram, and was copied as a whole.
#[test]
fn a_part_has_room_for_its_last_histogram() {
    let bounds: Vec<f64> = (1..24).map(f64::from).collect();
    let labels = format!("topic=\"{0}\",channel=\"{0}\"", "n".repeat(64));
    let parts = parts(|out| {
        out.begin(Family::new("took_seconds", Kind::Histogram, "Time."));
        for _ in 0..200 {
            out.histogram(&labels, &bounds, &[1; 24], 2.5);
        }
    });
    assert!(parts.len() > 3, "{}", parts.len());
    // The first part begins without room, and grows step by step.
    let rooms: Vec<usize> = parts[1..].iter().map(String::capacity).collect();
    let room = PART_BYTES + PART_EXCESS;
    assert!(rooms.iter().all(|it| *it == room), "{rooms:?}");
}

#[test]
fn the_figures_of_this_process_are_plausible() {
    let text = parts(|out| append_process(out, SystemTime::now())).concat();
    let value = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|line| line.trim().parse().ok());
        value.unwrap_or_else(|| panic!("{name}: {text}"))
    };
    for family in PROCESS {
        assert!(value(family.name) > 0.0, "{}", family.name);
    }
    assert!(value("process_resident_memory_bytes") <= value("process_virtual_memory_bytes"));
    assert!(value("process_open_fds") <= value("process_max_fds"));
    assert!(value("process_start_time_seconds") > 1.7e9);
}
