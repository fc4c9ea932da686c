use parking_lot::Mutex;

use super::*;

fn events() -> Vec<Event> {
    let client = Client {
        number: 1,
        subscription: Some("tailt/tc".into()),
    };
    let producer = Client {
        number: 12,
        subscription: None,
    };
    let node: Address = "127.0.0.1:44150".parse().unwrap();
    vec![
        Event::Connecting {
            client: client.clone(),
            node: node.clone(),
        },
        Event::Stopping {
            client: client.clone(),
        },
        Event::Stopping {
            client: producer.clone(),
        },
        Event::Disconnected {
            client: producer,
            node: node.clone(),
            error: Some(Arc::new(ConnectionError::Closed)),
        },
        Event::ErrorFrame {
            client: client.clone(),
            node,
            error: ErrorFrame::new(b"E_FIN_FAILED FIN 1 failed"),
        },
        Event::NodesIgnored {
            client,
            lookupd: "h:4161".to_owned(),
            ignored: 3,
        },
    ]
}

#[test]
fn events_are_displayed_as_lines_of_the_go_client() {
    let lines: Vec<String> = events().iter().map(Event::to_string).collect();
    assert_eq!(
        lines,
        [
            "INF    1 [tailt/tc] (127.0.0.1:44150) connecting to nsqd",
            "INF    1 [tailt/tc] stopping...",
            "INF   12 stopping",
            "ERR   12 (127.0.0.1:44150) disconnected - nsqd closed the connection",
            "ERR    1 [tailt/tc] (127.0.0.1:44150) protocol error - E_FIN_FAILED FIN 1 failed",
            "WRN    1 [tailt/tc] left out 3 of the nodes and channels that nsqlookupd h:4161 names: a node's address is \
             invalid, or there are more than 10000 nodes",
        ]
    );
}

#[test]
fn clients_are_numbered_together() {
    let (first, second) = (Client::producer(), Client::consumer("t", "c"));
    assert!(second.number() > first.number());
    assert_eq!(second.subscription(), Some("t/c"));
}

#[test]
fn the_callback_gets_each_event() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&seen);
    let callback: Callback = Arc::new(move |event: Event| keep.lock().push(event.name()));
    let sink = Events::new(Client::producer(), Some(callback));
    events().into_iter().for_each(|event| sink.emit(|_| event));
    let names = [
        "connecting",
        "stopping",
        "stopping",
        "disconnected",
        "error_frame",
        "nodes_ignored",
    ];
    assert_eq!(*seen.lock(), names);
}

#[cfg(feature = "tracing")]
#[test]
fn tracing_gets_each_event_with_its_fields() {
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};

    #[derive(Default)]
    struct Lines(Mutex<Vec<String>>);

    struct Line<'a>(&'a mut String);

    impl Visit for Line<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.0.push_str(&format!(" {}={value:?}", field.name()));
        }
    }

    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            let mut line = event.metadata().level().to_string();
            event.record(&mut Line(&mut line));
            self.0.lock().push(line);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    let lines = Arc::new(Lines::default());
    tracing::subscriber::with_default(Arc::clone(&lines), || {
        let sink = Events::new(Client::producer(), None);
        events().into_iter().for_each(|event| sink.emit(|_| event));
    });
    let lines = lines.0.lock();
    assert_eq!(lines.len(), 6);
    for part in [
        "INFO",
        "connecting to nsqd",
        "client=1",
        "127.0.0.1:44150",
        "tailt/tc",
    ] {
        assert!(lines[0].contains(part), "{}", lines[0]);
    }
    assert!(lines[3].starts_with("ERROR"), "{}", lines[3]);
}

#[cfg(feature = "metrics")]
#[test]
fn metrics_count_each_event() {
    let counts = crate::tests::metric_counts::counted(|| {
        let sink = Events::new(Client::producer(), None);
        events().into_iter().for_each(|event| sink.emit(|_| event));
    });
    assert_eq!(counts["nsq_client_events_total stopping"], 2);
    assert_eq!(counts.len(), 5);
}
