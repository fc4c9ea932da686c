use super::*;
use std::time::Duration;

/// The original's report crashes after one of several clients has left.
#[test]
fn the_report_is_the_originals() {
    let streams = Arc::new(Streams::default());
    let begin = Instant::now();
    let open = |port: u16, channel: &str| {
        let subscription = Subscription {
            topic: "ps".to_owned(),
            channel: channel.to_owned(),
            max_in_flight: 1,
        };
        streams.open(
            SocketAddr::from(([127, 0, 0, 1], port)),
            &subscription,
            begin,
        )
    };
    let now = begin + Duration::from_millis(2900);
    assert_eq!(streams.report(now), "Total Messages: 0\n\n");
    let (first, _second) = (open(39020, "web"), open(39021, "b"));
    streams.count_messages(3);
    assert_eq!(
        streams.report(now),
        "Total Messages: 3\n\n[127.0.0.1:39020] [ps : web] connected: 2s\n\
         [127.0.0.1:39021] [ps : b] connected: 2s\n"
    );
    drop(first);
    assert_eq!(
        streams.report(begin),
        "Total Messages: 3\n\n[127.0.0.1:39021] [ps : b] connected: 0s\n"
    );
}
