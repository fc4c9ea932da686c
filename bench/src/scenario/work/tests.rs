use super::*;

#[test]
fn work_times_read_back_and_have_their_mean() {
    let check = |text: &str, mean_us: f64| {
        let work: Work = text.parse().unwrap();
        assert_eq!(work.to_string().parse(), Ok(work), "{text}");
        let mut random = Rng::with_seed(3);
        let total: u64 = (0..20_000).map(|_| work.draw_ns(&mut random)).sum();
        let mean = total as f64 / 20_000.0 / 1000.0;
        assert!((mean - mean_us).abs() <= mean_us * 0.03, "{text}: {mean}");
    };
    check("0", 0.0);
    check("1ms", 1000.0);
    check("uniform:1ms-5ms", 3000.0);
    check("exp:2ms", 2000.0);
    for text in [
        "",
        "1",
        "uniform:1ms",
        "uniform:5ms-1ms",
        "pareto:1ms",
        "exp:",
    ] {
        assert!(text.parse::<Work>().is_err(), "{text}");
    }
}
