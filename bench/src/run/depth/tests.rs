use super::*;

#[test]
fn the_run_s_topics_are_summed() {
    let body = br#"{"version":"1.3.0","topics":[
        {"topic_name":"b_1","depth":5,"channels":[
            {"depth":7,"in_flight_count":2,"deferred_count":1,"clients":null},
            {"depth":1,"in_flight_count":0,"deferred_count":0}]},
        {"topic_name":"other","depth":100,"channels":[]}],"producers":null}"#;
    let expected = Depth {
        depth: 13,
        in_flight: 2,
        deferred: 1,
    };
    assert_eq!(parse(body, "b_"), Ok(expected));
    assert!(parse(b"hello", "b_").is_err());
}
