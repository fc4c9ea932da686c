use super::*;

#[test]
fn boundaries_fall_on_the_ends_of_the_parts() {
    let grid = Grid {
        start: 100,
        measure: 125,
        publish_end: 150,
        interval: 10,
    };
    let mut at = grid.start;
    let mut rows = Vec::new();
    while at < 175 {
        at = grid.boundary_after(at);
        rows.push((at, grid.phase_before(at)));
    }
    let times: Vec<u64> = rows.iter().map(|row| row.0).collect();
    assert_eq!(times, [110, 120, 125, 135, 145, 150, 160, 170, 180]);
    assert_eq!(rows[2].1, Phase::WarmUp);
    assert_eq!(rows[3].1, Phase::Measure);
    assert_eq!(rows[5].1, Phase::Measure);
    assert_eq!(rows[6].1, Phase::Drain);
}
