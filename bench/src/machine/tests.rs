use super::*;

#[test]
fn a_machine_has_cores_and_memory() {
    let machine = fingerprint();
    assert!(machine.cores > 0 && machine.memory_bytes > 0);
    assert!(machine.kernel.starts_with("Linux"));
    assert_eq!(field("a : 1\nb\t: 2 kB\n", "b"), Some("2 kB"));
    assert_eq!(field("a : 1\n", "b"), None);
}

#[test]
fn stolen_time_is_a_part_of_all_time() {
    let ticks = |text| ProcessorTicks::parse(text).unwrap();
    let earlier = ticks("cpu  100 0 50 800 10 0 0 40 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
    let later = ticks("cpu  150 0 50 900 10 0 0 90 7 0\n");
    assert_eq!((earlier.all, earlier.stolen), (1000, 40));
    assert_eq!(later.stolen_percent_since(earlier), Some(25.0));
    assert_eq!(later.stolen_percent_since(later), None);
    // Kernels before 2.6.11 have no such column.
    assert_eq!(ProcessorTicks::parse("cpu  1 2 3 4 5 6 7\n"), None);
    assert_eq!(ProcessorTicks::parse(""), None);
    assert!(ProcessorTicks::now().is_some_and(|now| now.all > now.stolen));
}
