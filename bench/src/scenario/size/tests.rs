use super::*;

#[test]
fn the_drawn_sizes_have_the_mean_that_is_stated() {
    let check = |text: &str, tolerance: f64| {
        let sizes: Sizes = text.parse().unwrap();
        assert_eq!(sizes.to_string().parse(), Ok(sizes.clone()), "{text}");
        let mut random = Rng::with_seed(7);
        let count = 20_000;
        let mut total = 0;
        for _ in 0..count {
            let bytes = sizes.draw(&mut random);
            assert!(
                (HEADER_BYTES..=sizes.bytes_max()).contains(&bytes),
                "{text}"
            );
            total += bytes;
        }
        let mean = total as f64 / f64::from(count);
        let off = (mean / sizes.mean() - 1.0).abs();
        assert!(off <= tolerance, "{text}: {mean} not {}", sizes.mean());
    };
    check("200", 0.0);
    check("uniform:100-4000", 0.03);
    check("lognormal:400,1", 0.06);
    check("list:200*9,10000*1", 0.05);
    check("list:64,128", 0.02);
}

#[test]
fn what_cannot_be_sent_is_refused() {
    for text in [
        "",
        "8",
        "0x10",
        "uniform:9",
        "uniform:400-300",
        "lognormal:400",
        "lognormal:400,9",
        "list:",
        "list:200*0",
        "zipf:3",
        "2000000000",
    ] {
        assert!(text.parse::<Sizes>().is_err(), "{text}");
    }
}
