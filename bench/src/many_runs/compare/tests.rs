use super::*;

#[test]
fn the_spread_is_median_least_and_most() {
    assert_eq!(spread([3.0, 1.0, 2.0].into_iter()), Some((2.0, 1.0, 3.0)));
    assert_eq!(spread([4.0, 1.0].into_iter()), Some((2.5, 1.0, 4.0)));
    assert_eq!(spread(std::iter::empty()), None);
}

#[test]
fn requirements_name_a_metric_and_a_bound() {
    let requirement: Threshold = "delivered_per_s>=0.95".parse().unwrap();
    assert_eq!(requirement.bound, Bound::AtLeast);
    let requirement: Threshold = "cpu_us_per_message <= 0.3".parse().unwrap();
    assert_eq!((requirement.bound, requirement.limit), (Bound::AtMost, 0.3));
    for text in ["", "speed>=1", "delivered_per_s=1", "delivered_per_s>=x"] {
        assert!(text.parse::<Threshold>().is_err(), "{text}");
    }
}
