use super::*;

#[test]
fn only_what_no_nsqd_has_permits_a_retry() {
    let node = || Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 4150)));
    let lost = || Arc::new(ConnectionError::Stopped);
    let refused = |text: &str| PublishError::Refused {
        node: node(),
        error: ErrorFrame::new(text.as_bytes()),
    };
    let timeout = |node| PublishError::Timeout {
        limit: Duration::from_secs(1),
        node,
    };
    let (absent, unknown) = (Outcome::NotStored, Outcome::Unknown);
    let connect = PublishError::Connect {
        node: node(),
        error: lost(),
    };
    let not_sent = PublishError::NotSent {
        node: node(),
        error: lost(),
    };
    let sent = PublishError::Lost {
        node: node(),
        error: lost(),
    };
    assert!(refused("E_BAD_MESSAGE PUB message too big").is_about_message());
    assert!(!refused("E_PUB_FAILED PUB failed exiting").is_about_message());
    assert!(!refused("E_BAD_MESSAGE PUB failed to read message body").is_about_message());
    assert!(PublishError::EmptyMessage.is_about_message() && !connect.is_about_message());
    for (error, permits, outcome) in [
        (connect, true, absent),
        (not_sent, true, absent),
        (PublishError::NoNode(None), true, absent),
        (timeout(None), true, absent),
        (refused("E_PUB_FAILED PUB failed exiting"), true, absent),
        (
            refused("E_BAD_BODY MPUB failed to read body size"),
            true,
            absent,
        ),
        (timeout(Some(node())), false, unknown),
        (sent, false, unknown),
        (refused("E_PUB_FAILED PUB failed disk"), false, unknown),
        (refused("E_BAD_MESSAGE PUB message too big"), false, absent),
        (PublishError::Stopped, false, absent),
        (PublishError::EmptyMessage, false, absent),
    ] {
        assert_eq!(
            (error.permits_retry(), error.outcome()),
            (permits, outcome),
            "{error}"
        );
    }
}
