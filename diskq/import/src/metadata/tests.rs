use std::os::unix::fs::PermissionsExt;

use super::*;

/// Captured from nsqd.
const CAPTURED: &str = r#"{"topics":[{"name":"orders","paused":false,"channels":[{"name":"billing","paused":false}]},{"name":"paused","paused":true,"channels":[{"name":"c2","paused":true}]}],"version":"1.3.0"}"#;

fn topic(name: &str, paused: bool, channels: &[(&str, bool)]) -> TopicFacts {
    let channels = channels
        .iter()
        .map(|&(name, paused)| ChannelFacts {
            name: name.to_string(),
            paused,
        })
        .collect();
    TopicFacts {
        name: name.to_string(),
        paused,
        channels,
    }
}

fn captured() -> Metadata {
    Metadata {
        topics: vec![
            topic("orders", false, &[("billing", false)]),
            topic("paused", true, &[("c2", true)]),
        ],
    }
}

#[test]
fn bytes_are_nsqds_both_ways() {
    assert_eq!(parse(CAPTURED.as_bytes()), Ok(captured()));
    assert_eq!(captured().encode(), CAPTURED);
    assert_eq!(
        Metadata::default().encode(),
        r#"{"topics":null,"version":"1.3.0"}"#
    );
    assert_eq!(
        Metadata {
            topics: vec![topic("t", false, &[])]
        }
        .encode(),
        r#"{"topics":[{"name":"t","paused":false,"channels":null}],"version":"1.3.0"}"#
    );
}

#[test]
fn ephemeral_names_are_left_out() {
    let metadata = Metadata {
        topics: vec![
            topic("a#ephemeral", false, &[("c", false)]),
            topic("b", false, &[("x#ephemeral", true)]),
        ],
    };
    assert_eq!(
        metadata.encode(),
        r#"{"topics":[{"name":"b","paused":false,"channels":null}],"version":"1.3.0"}"#
    );
}

#[test]
fn reading_is_lenient() {
    let check = |text: &str, topics: &[TopicFacts]| {
        assert_eq!(
            parse(text.as_bytes()),
            Ok(Metadata {
                topics: topics.to_vec()
            }),
            "{text}"
        );
    };
    check("null", &[]);
    check(" {} \n", &[]);
    check(r#"{"topics":null}"#, &[]);
    check(r#"{"topics":[],"version":5,"other":{"a":[1]}}"#, &[]);
    check(r#"{"topics":[{"name":"t"}]}"#, &[topic("t", false, &[])]);
    check(r#"{"topics":[null]}"#, &[topic("", false, &[])]);
    check(
        r#"{"Topic\u017f":[{"NAME":"t","paused":null}]}"#,
        &[topic("t", false, &[])],
    );
    check(
        r#"{"topics":[{"name":"t","channels":[{"name":"c"},{"name":"c","paused":true}]},
           {"name":"u"},{"name":"t","paused":true,"channels":[{"name":"d"},{"name":"c"}]}]}"#,
        &[
            topic("t", true, &[("c", true), ("d", false)]),
            topic("u", false, &[]),
        ],
    );
    assert_eq!(
        parse(b"{\"topics\":[{\"name\":\"a\xff\"}]}")
            .unwrap()
            .topics[0]
            .name,
        "a\u{fffd}"
    );
}

#[test]
fn invalid_metadata_is_refused() {
    let check = |text: &str, why: &str| {
        let error = parse(text.as_bytes()).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    };
    check("", "unexpected end of JSON input");
    check(r#"{"topics":["#, "unexpected end of JSON input");
    check(
        "[]",
        "json: cannot unmarshal array into the file of type object",
    );
    check("{} x", "trailing characters");
    check(
        r#"{"topics":{}}"#,
        "json: cannot unmarshal object into topics of type array",
    );
    check(
        r#"{"topics":[1]}"#,
        "json: cannot unmarshal number into topics of type object",
    );
    check(
        r#"{"topics":[{"name":1}]}"#,
        "cannot unmarshal number into name of type string",
    );
    check(
        r#"{"topics":[{"paused":1}]}"#,
        "cannot unmarshal number into paused of type bool",
    );
    check(
        r#"{"topics":[{"channels":""}]}"#,
        "cannot unmarshal string into channels",
    );
}

#[test]
fn the_file_is_replaced_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert_eq!(
        Metadata::load(path).unwrap(),
        Metadata::default(),
        "no file"
    );
    Metadata::default().store(&path.into()).unwrap();
    captured().store(&path.into()).unwrap();
    assert_eq!(fs::read_to_string(path.join("nsqd.dat")).unwrap(), CAPTURED);
    assert_eq!(Metadata::load(path).unwrap(), captured());
    let mode = fs::metadata(path.join("nsqd.dat"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        fs::read_dir(path).unwrap().count(),
        1,
        "no temporary file is left"
    );
}

#[test]
fn errors_name_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nsqd.dat");
    fs::write(&path, "").unwrap();
    assert_eq!(
        Metadata::load(directory.path()).unwrap_err().to_string(),
        format!(
            "failed to parse metadata in {} - unexpected end of JSON input",
            path.display()
        )
    );
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = Metadata::load(directory.path()).unwrap_err().to_string();
    assert!(
        error.starts_with("failed to read metadata from "),
        "{error}"
    );
    assert!(error.ends_with(": is a directory"), "{error}");
    let error = captured()
        .store(&directory.path().into())
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("rename "), "{error}");
    assert_eq!(
        fs::read_dir(directory.path()).unwrap().count(),
        1,
        "no temporary file is left"
    );
    let error = captured()
        .store(&path.join("missing").into())
        .unwrap_err()
        .to_string();
    assert!(error.ends_with(": no such file or directory"), "{error}");
}
