use super::*;

#[test]
fn a_server_is_counted_by_its_host_and_port() {
    assert_eq!(authority("http://u:p@h:4151/stats?a=b"), "h:4151");
    assert_eq!(authority("https://h/x"), "h:443");
    assert_eq!(authority("http://[::1]:1/x"), "[::1]:1");
    assert_eq!(authority("http://h:x/"), "an address that is not a URL");
}

#[test]
fn only_words_of_nsq_about_a_mistake_of_the_client_are_passed_on() {
    let read = |status: u16, body: &str| {
        let status = StatusCode::from_u16(status).unwrap();
        Refused::read(status, body.as_bytes()).map(|refused| refused.text())
    };
    let text = |text: &str| Some(text.to_owned());
    let with_reason = r#"{"message":"INVALID_FOR","reason":"no unit"}"#;
    assert_eq!(read(400, with_reason), text("INVALID_FOR: no unit"));
    let missing = r#"{"message":"CHANNEL_NOT_FOUND"}"#;
    assert_eq!(read(404, missing), text("CHANNEL_NOT_FOUND"));
    let old = r#"{"status_code":404,"status_txt":"TOPIC_NOT_FOUND","data":null}"#;
    assert_eq!(read(404, old), text("TOPIC_NOT_FOUND"));
    for (status, body) in [
        (403, r#"{"message":"TLS_REQUIRED"}"#),
        (404, r#"{"message":"NOT_FOUND"}"#),
        (405, r#"{"message":"METHOD_NOT_ALLOWED"}"#),
        (500, r#"{"message":"INTERNAL_ERROR"}"#),
        (503, r#"{"message":"EXITING"}"#),
        (404, r#"{"message":"no such host"}"#),
        (404, r#"{"message":""}"#),
        (404, "404 page not found"),
    ] {
        assert_eq!(read(status, body), None, "{status} {body}");
    }
}

#[test]
fn a_question_is_not_repeated_for_four_times_the_wait() {
    let unanswered = Unanswered::default();
    let start = Instant::now();
    let second = |number: u64| start + Duration::from_secs(number);
    let failed = || Failed {
        why: "no answer in time".to_owned(),
        kind: FailureKind::NoAnswer,
        refused: None,
    };
    let told = unanswered.add("http://slow/", failed(), start, second(5));
    assert_eq!(told.why, "no answer in time; it is not asked again for 20s");
    let failure = |url: &str, number| unanswered.failure(url, second(number));
    assert_eq!(failure("http://slow/", 24), Some(told));
    assert_eq!(failure("http://slow/", 25), None);
    assert_eq!(failure("http://slow/stats", 6), None);
    // A refused connection.
    let soon = second(30) + Duration::from_millis(1);
    let told = unanswered.add("http://dead/", failed(), second(30), soon);
    assert_eq!(told, failed());
    assert_eq!(unanswered.failure("http://dead/", soon), None);
    // Questions whose pause is over take no memory.
    unanswered.add("http://last/", failed(), second(30), second(31));
    assert_eq!(unanswered.0.lock().len(), 1);
    // nsqadmin stood still for ten minutes, or has no deadline.
    let told = unanswered.add("http://hung/", failed(), start, second(600));
    assert_eq!(told.why, "no answer in time; it is not asked again for 30s");
    assert_eq!(failure("http://hung/", 630), None);
}

#[test]
fn answers_at_the_same_time_count_once_and_gaps_do_not_count() {
    let start = Instant::now();
    let second = |number: u64| start + Duration::from_secs(number);
    let time = AnswerTime::default();
    for (asked, answered) in [(20, 21), (0, 4), (1, 2), (3, 6), (5, 6)] {
        time.clone().add(second(asked), second(answered));
    }
    assert_eq!(time.so_far(), Duration::from_secs(7));
    assert_eq!(time.take(), Duration::from_secs(7));
    assert_eq!(time.take(), Duration::ZERO);
}

#[test]
fn a_url_is_shown_without_its_user() {
    for (url, expected) in [
        ("http://u:p@h:1/x?y=a@b", "http://h:1/x?y=a@b"),
        ("http://token@h", "http://h"),
        ("http://a@b:c@h/", "http://h/"),
        ("http://h/@x", "http://h/@x"),
        ("http://h?u@x", "http://h?u@x"),
        ("h:4151", "h:4151"),
    ] {
        assert_eq!(without_user(url), expected);
    }
}

#[test]
fn secrets_are_masked() {
    for (url, expected) in [
        ("http://u:secret@h/x", "http://u:xxxxx@h/x"),
        ("http://token@h/x", "http://xxxxx@h/x"),
        ("http://h/x?token=secret", "http://h/x?xxxxx"),
        ("http://h/x", "http://h/x"),
        ("http://h", "http://h"),
        ("http://u:pa/ss@h", "xxxxx"),
        ("", ""),
    ] {
        assert_eq!(masked(url), expected);
    }
}
