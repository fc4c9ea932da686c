use std::os::unix::fs::PermissionsExt;

use super::*;

/// Captured from nsqd.
const CAPTURED: &str = r#"{"topics":[{"name":"orders","paused":false,"channels":[{"name":"billing","paused":false}]},{"name":"paused","paused":true,"channels":[{"name":"c2","paused":true}]}],"version":"1.3.0"}"#;

fn topic(name: &str, paused: bool, channels: &[(&str, bool)]) -> TopicFacts {
    let channels = channels.iter().map(|&(name, paused)| ChannelFacts {
        name: name.to_string(),
        paused,
    });
    TopicFacts {
        name: name.to_string(),
        paused,
        channels: channels.collect(),
    }
}

fn metadata<const N: usize>(topics: [TopicFacts; N]) -> Metadata {
    Metadata {
        topics: topics.to_vec(),
    }
}

fn captured() -> Metadata {
    let orders = topic("orders", false, &[("billing", false)]);
    metadata([orders, topic("paused", true, &[("c2", true)])])
}

#[test]
fn bytes_are_nsqds_both_ways() {
    assert_eq!(parse(CAPTURED.as_bytes()), Ok(captured()));
    assert_eq!(captured().encode(), CAPTURED);
}

#[test]
fn what_is_written() {
    let none = r#"{"topics":null,"version":"1.3.0"}"#;
    assert_eq!(Metadata::default().encode(), none);
    let one = r#"{"topics":[{"name":"t","paused":false,"channels":null}],"version":"1.3.0"}"#;
    assert_eq!(metadata([topic("t", false, &[])]).encode(), one);
    let ephemeral = topic("a#ephemeral", false, &[("c", false)]);
    let with_ephemeral = topic("t", false, &[("x#ephemeral", true)]);
    assert_eq!(metadata([ephemeral, with_ephemeral]).encode(), one);
}

#[test]
fn reading_is_lenient() {
    let check = |text: &str, topics: &[TopicFacts]| {
        let topics = topics.to_vec();
        assert_eq!(parse(text.as_bytes()), Ok(Metadata { topics }), "{text}");
    };
    check("null", &[]);
    check(" {} \n", &[]);
    check(r#"{"topics":null}"#, &[]);
    check(r#"{"topics":[],"version":5,"other":{"a":[1]}}"#, &[]);
    check(r#"{"topics":[{"name":"t"}]}"#, &[topic("t", false, &[])]);
    check(r#"{"topics":[null]}"#, &[topic("", false, &[])]);
    let any_case = r#"{"Topic\u017f":[{"NAME":"t","paused":null}]}"#;
    check(any_case, &[topic("t", false, &[])]);
    check(
        r#"{"topics":[{"name":"t","channels":[{"name":"c"},{"name":"c","paused":true}]},
           {"name":"u"},{"name":"t","paused":true,"channels":[{"name":"d"},{"name":"c"}]}]}"#,
        &[
            topic("t", true, &[("c", true), ("d", false)]),
            topic("u", false, &[]),
        ],
    );
    let no_utf8 = parse(b"{\"topics\":[{\"name\":\"a\xff\"}]}").unwrap();
    assert_eq!(no_utf8.topics[0].name, "a\u{fffd}");
}

#[test]
fn invalid_metadata_is_refused() {
    // The text of the file, and the error.
    let cases = r#"
        : unexpected end of JSON input
        {"topics":[: unexpected end of JSON input
        []: json: cannot unmarshal array into the file of type object
        {} x: trailing characters
        {"topics":{}}: json: cannot unmarshal object into topics of type array
        {"topics":[1]}: json: cannot unmarshal number into topics of type object
        {"topics":[{"name":1}]}: cannot unmarshal number into name of type string
        {"topics":[{"paused":1}]}: cannot unmarshal number into paused of type bool
        {"topics":[{"channels":""}]}: cannot unmarshal string into channels
    "#;
    for case in cases.trim().lines() {
        let (text, why) = case.trim_start().split_once(": ").expect("a case");
        let error = parse(text.as_bytes()).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}

/// The number of files in a directory.
fn count(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn the_file_is_replaced_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let empty = Metadata::default();
    assert_eq!(Metadata::load(path).unwrap(), empty, "no file");
    Metadata::default().store(&path.into()).unwrap();
    captured().store(&path.into()).unwrap();
    assert_eq!(fs::read_to_string(path.join("nsqd.dat")).unwrap(), CAPTURED);
    assert_eq!(Metadata::load(path).unwrap(), captured());
    let written = fs::metadata(path.join("nsqd.dat")).unwrap();
    assert_eq!(written.permissions().mode() & 0o777, 0o600);
    assert_eq!(count(path), 1, "no temporary file is left");
}

#[test]
fn errors_name_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nsqd.dat");
    fs::write(&path, "").unwrap();
    let load = || Metadata::load(directory.path()).unwrap_err().to_string();
    let store = |to: &Path| captured().store(&to.into()).unwrap_err().to_string();
    let shown = path.display();
    let expected = format!("failed to parse metadata in {shown} - unexpected end of JSON input");
    assert_eq!(load(), expected);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let expected = format!("failed to read metadata from {shown} - open {shown}: is a directory");
    assert_eq!(load(), expected);
    let error = store(directory.path());
    assert!(error.starts_with("rename "), "{error}");
    assert_eq!(count(directory.path()), 1, "no temporary file is left");
    let error = store(&path.join("missing"));
    assert!(error.ends_with(": no such file or directory"), "{error}");
}
