use super::*;

#[test]
fn the_distributions_have_their_moments() {
    let mut random = Rng::with_seed(1);
    let count = 100_000;
    let (mut sum, mut squares, mut waits, mut chances) = (0.0, 0.0, 0.0, 0);
    for _ in 0..count {
        let x = normal(&mut random);
        sum += x;
        squares += x * x;
        waits += exponential(&mut random);
        chances += u32::from(chance(&mut random, 0.25));
        assert!(random.u64(..10) < 10);
    }
    let count = f64::from(count);
    assert!((sum / count).abs() < 0.02);
    assert!((squares / count - 1.0).abs() < 0.03);
    assert!((waits / count - 1.0).abs() < 0.03);
    assert!((f64::from(chances) / count - 0.25).abs() < 0.01);
}
