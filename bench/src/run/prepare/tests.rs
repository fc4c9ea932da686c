use super::*;

#[test]
fn a_message_limit_is_shared_out_exactly() {
    let target = Target {
        tcp: "127.0.0.1:1".parse().unwrap(),
        http: None,
        process: None,
        daemon: crate::result::Daemon::default(),
        rdy_max: None,
        msg_timeout: None,
    };
    let scenario = Scenario {
        producers: 3,
        messages: 1000,
        ..Scenario::default()
    };
    let settings = producers(&target, &scenario, &names("t", 2), 1);
    let limits: Vec<u64> = settings.iter().map(|settings| settings.limit).collect();
    assert_eq!(limits, [334, 333, 333]);
    assert_eq!(names("t", 2), ["t_00000", "t_00001"]);
}
