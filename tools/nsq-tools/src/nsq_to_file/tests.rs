use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use program::log::capture;
use ringq_client::Config as ClientConfig;

use super::*;
use crate::flags::tests::words;

/// Returns the values of a command line that fixes what comes from the system.
pub(super) fn config(args: &str) -> Config {
    let fixed = "-topic=t -nsqd-tcp-address=127.0.0.1:1 -host-identifier=h";
    Config::from_args(words(&format!("{fixed} {args}"))).unwrap()
}

/// Returns an archiver of these topics, which run, and the ends of their threads.
fn archiver(topics: [&str; 3]) -> (Archiver, mpsc::UnboundedReceiver<Ended>) {
    let config = config("");
    let consuming = Consuming::new(&config.consumer).unwrap();
    let (mut archiver, ends) = Archiver::new(config, consuming);
    archiver.running = topics.map(str::to_owned).into();
    (archiver, ends)
}

/// The certificate of one topic was replaced while its archive began again, and the archives of all others ended.
#[tokio::test]
async fn a_topic_that_cannot_be_set_up_ends_no_other() {
    let (mut archiver, _ends) = archiver(["a", "b", "c"]);
    capture::start();
    let mut end = |topic: &str| {
        archiver.end(Ended {
            topic: topic.to_owned(),
            result: Err(TopicError::Start("no certificate".to_owned())),
        })
    };
    assert_eq!((end("a"), end("b")), (Ok(()), Ok(())));
    let why = "couldn't create logger for new topic c: no certificate".to_owned();
    assert_eq!(end("c"), Err(why));
    assert_eq!(capture::stop().len(), 2);
}

/// The stop returned the last failure, and nobody heard of the others.
#[tokio::test]
async fn a_stop_returns_the_first_failure_and_logs_the_others() {
    let (mut archiver, mut ends) = archiver(["a", "b", "c"]);
    for topic in ["a", "b", "c"] {
        let error = DiskError {
            verb: "sync",
            path: PathBuf::from(topic),
            source: ErrorKind::Other.into(),
        };
        let end = Ended {
            topic: topic.to_owned(),
            result: match topic {
                "c" => Ok(()),
                _ => Err(TopicError::Disk(error)),
            },
        };
        archiver.ended.send(end).unwrap();
    }
    capture::start();
    let stopped = archiver.stop(&mut ends).await;
    let log = capture::stop();
    let failure = |topic: &str| format!("[{topic}/nsq_to_file] cannot sync {topic}: other error");
    assert_eq!(stopped, Err(failure("a")));
    assert_eq!(log, [format!("ERROR: {}", failure("b"))]);
}

/// A topic with a zero byte ended the program: a thread cannot have this name.
#[test]
fn topics_with_impossible_names_are_skipped() {
    let pattern = Regex::new("a").unwrap();
    assert_eq!(skipped_line("a#ephemeral", &pattern), None);
    let other = "skipping topic b (doesn't match pattern a)";
    assert_eq!(skipped_line("b", &pattern).as_deref(), Some(other));
    for topic in ["a\0", "", "a b", "../a", "a/b", &"a".repeat(65)] {
        let line = skipped_line(topic, &pattern).unwrap();
        let start =
            format!("skipping an invalid topic name: {topic:?} is not 1 to 64 characters of ");
        assert!(line.starts_with(&start), "{line}");
    }
}

/// Serves one answer. Returns the address, and a thread whose result is the head of the request.
fn serve(status: &'static str, body: &'static str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let head = lines
            .map(Result::unwrap)
            .take_while(|line| !line.is_empty());
        let head: Vec<String> = head.collect();
        let form = "X-NSQ-Content-Type: nsq; version=1.0";
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\n{form}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        head.join("\n")
    });
    (address, served)
}

async fn ask(lookupds: &[String], client: &ClientConfig) -> Answers {
    let limit = Duration::from_secs(30);
    let (connect, request) = (limit, limit);
    let timeouts = QueryTimeouts { connect, request };
    let list = TopicList::new(lookupds, client, timeouts);
    list.unwrap().ask().await
}

#[tokio::test]
async fn the_topics_of_those_that_answer_count() {
    let lookupds = [
        serve("200 OK", r#"{"topics":["b","a"]}"#),
        serve("500 Internal Server Error", r#"{"message":"no"}"#),
        serve("200 OK", r#"{"topics":["c","a"]}"#),
        serve("200 OK", "none"),
        serve("200 OK", r#"{"topics":null}"#),
        // A proxy that leads nowhere.
        serve("404 Not Found", "<html>no</html>"),
    ]
    .map(|(address, _)| address);
    let answers = ask(&lookupds, &ClientConfig::default()).await;
    let topics: Vec<_> = answers.topics.iter().map(String::as_str).collect();
    assert_eq!(topics, ["a", "b", "c"]);
    let expected = [
        format!(r#"nsqlookupd {}: got response 500 "no""#, lookupds[1]),
        format!(
            "nsqlookupd {}: the answer is not understood: expected ident at line 1 column 2",
            lookupds[3]
        ),
    ];
    assert_eq!(answers.errors[..2], expected);
    let [.., error] = &answers.errors[..] else {
        panic!("no error");
    };
    let refused = format!(
        r#"nsqlookupd {}: got response 404 "<html>no</html>""#,
        lookupds[5]
    );
    assert!(error.starts_with(&refused), "{error}");
    assert_eq!(answers.errors.len(), 3);
}

/// The list dropped the path and the query of the URL, and sent no secret.
#[tokio::test]
async fn the_list_lies_beside_the_page_of_lookups_and_gets_the_secret() {
    let (address, served) = serve("200 OK", r#"{"topics":["a"]}"#);
    let client = ClientConfig {
        auth_secret: "hush".to_owned(),
        ..ClientConfig::default()
    };
    let url = format!("http://{address}/nsq/lookup?x=1");
    let answers = ask(&[url], &client).await;
    assert!(answers.topics.contains("a"), "{answers:?}");
    let head = served.join().unwrap();
    assert!(head.starts_with("GET /nsq/topics?x=1 HTTP/1.1\n"), "{head}");
    assert!(head.contains("authorization: Bearer hush"), "{head}");
}
