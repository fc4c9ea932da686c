use super::*;

fn obstacle(status: u16, body: &str) -> Obstacle {
    read(status, body.as_bytes(), false).unwrap_err()
}

fn shown(found: Found, bodies: bool) -> Value {
    let peeked = Peeked {
        node: NodeIdentity::default(),
        url: String::new(),
        found,
    };
    Value::Object(peeked.into_json(bodies))
}

#[test]
fn an_answer_without_messages_says_why() {
    assert_eq!(
        obstacle(404, r#"{"message":"NOT_FOUND"}"#),
        Obstacle::NotServed
    );
    assert_eq!(obstacle(404, "<html>"), Obstacle::NotServed);
    for missing in ["TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND"] {
        let body = json!({ "message": missing }).to_string();
        assert_eq!(obstacle(404, &body), Obstacle::Absent);
    }
    let forbidden = obstacle(403, r#"{"message":"PEEK_FORBIDDEN","reason":"no --peek"}"#);
    assert_eq!(forbidden, Obstacle::Forbidden("no --peek".to_owned()));
    let bad = obstacle(
        400,
        r#"{"message":"INVALID_ARG_FROM","reason":"from is oldest"}"#,
    );
    assert_eq!(
        bad,
        Obstacle::BadQuestion("INVALID_ARG_FROM: from is oldest".to_owned())
    );
    let body = r#"{"message":"INVALID_ARG_FROM","reason":"from is oldest"}"#;
    let older = read(400, body.as_bytes(), true);
    assert_eq!(older, Err(Obstacle::Older));
    assert_eq!(shown(older, true)["outcome"], json!("older"));
    let bad = obstacle(400, r#"{"message":"INVALID_ARG_CHANNEL"}"#);
    assert_eq!(bad, Obstacle::BadQuestion("INVALID_ARG_CHANNEL".to_owned()));
    let busy = obstacle(503, r#"{"message":"BUSY"}"#);
    assert_eq!(busy, Obstacle::Failed("got response 503 BUSY".to_owned()));
    assert!(matches!(obstacle(500, ""), Obstacle::Failed(_)));
    assert!(matches!(obstacle(200, "[]"), Obstacle::Failed(_)));
    let json = shown(Err(Obstacle::NotServed), true);
    assert_eq!(json["outcome"], json!("not_served"));
    assert!(json["reason"].as_str().unwrap().contains("ringq's nsqd"));
}

#[test]
fn an_nsqd_that_refuses_a_newer_list_is_old() {
    let is_newer = |channel: &str, from: &str| {
        let peek = Peek {
            channel: channel.to_owned(),
            parameters: vec![("from", from.to_owned())],
            ..Peek::default()
        };
        peek.is_of_newer_list()
    };
    assert!(is_newer("c", "attempts"));
    assert!(!is_newer("", "attempts"));
    assert!(is_newer("c", "published") && is_newer("", "published"));
    assert!(!is_newer("c", "newest"));
    assert!(!is_newer("c", "middle"));
}

#[test]
fn a_mask_leaves_nothing_of_a_body() {
    let body = r#"{"messages":[{"id":"0f","timestamp":1795525738123456789,"body_bytes":6,
        "encoding":"text","body":"secret"}],"scanned_messages":1,"ended_by":"end"}"#;
    let found = read(200, body.as_bytes(), false);
    let whole = shown(found.clone(), true);
    assert_eq!(whole["messages"][0]["body"], json!("secret"));
    // A time in nanoseconds is beyond 2^53, and stays exact.
    assert!(whole.to_string().contains("1795525738123456789"));
    let masked = shown(found, false);
    assert!(!masked.to_string().contains("secret"), "{masked}");
    assert_eq!(masked["messages"][0]["body_bytes"], json!(6));
    assert_eq!(masked["outcome"], json!("messages"));
}

#[test]
fn filters_look_into_bodies() {
    let peek = |name, value: &str| Peek {
        parameters: vec![("from", "newest".to_owned()), (name, value.to_owned())],
        ..Peek::default()
    };
    for name in ["contains", "json", "equals"] {
        assert!(peek(name, "x").looks_into_bodies(), "{name}");
        assert!(!peek(name, "").looks_into_bodies(), "{name}");
    }
    assert!(!peek("cursor", "1.2").looks_into_bodies());
}

#[test]
fn a_question_names_the_list_of_the_node_and_an_older_one() {
    let peek = |channel: &str, from: &str| Peek {
        topic: "t".to_owned(),
        channel: channel.to_owned(),
        parameters: vec![("from", from.to_owned()), ("limit", "5".to_owned())],
        since: "n1:1/00ff,n2:1/0a/b".to_owned(),
    };
    let shown = |(path, parameters): Question<'_>| {
        let given = parameters
            .into_iter()
            .filter(|(_, value)| !value.is_empty());
        let given = given.map(|(name, value)| format!(" {name}={value}"));
        format!("{path}{}", given.collect::<String>())
    };
    let check = |channel: &str, from: &str, node: &str, expected: &str, older: Option<&str>| {
        let peek = peek(channel, from);
        assert_eq!(shown(peek.question(node)), expected);
        assert_eq!(peek.older_question().map(shown).as_deref(), older);
    };
    let expected = "/channel/peek topic=t channel=c from=newest limit=5";
    check("c", "newest", "n1:1", expected, None);
    check("", "", "n1:1", "/topic/peek topic=t limit=5", None);
    // The list of published messages belongs to the topic, and an older nsqd shows what waits in the channel.
    for (node, since) in [
        ("n1:1", " since=00ff"),
        ("n2:1", " since=0a/b"),
        ("n3:1", ""),
    ] {
        let expected = format!("/topic/peek topic=t from=published{since} limit=5");
        let older = "/channel/peek topic=t channel=c from=newest limit=5";
        check("c", "published", node, &expected, Some(older));
        let older = "/topic/peek topic=t from=newest limit=5";
        check("", "published", node, &expected, Some(older));
    }
}
