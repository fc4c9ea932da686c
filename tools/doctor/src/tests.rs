use super::*;

/// Returns one sample of the node `a`, `b` or `c`: see `tests/sentences.case`.
fn node(figures: &str) -> NodeSample {
    let mut node = NodeSample::default();
    for (index, word) in figures.split_whitespace().enumerate() {
        let (name, value) = word.split_once('=').unwrap_or((word, word));
        let number = || value.parse::<i64>().expect(word);
        match (index, name) {
            (0, _) => node.depth = number(),
            (1, _) => node.in_flight = number(),
            (2, _) => node.message_count = number(),
            (_, "rdy") => {
                let each = value.split(',').map(|ready| ready.parse().expect(word));
                node.ready = each.collect();
            }
            (_, "deferred") => node.deferred = number(),
            (_, "requeued") => node.requeue_count = number(),
            (_, "timed_out") => node.timeout_count = number(),
            (_, "oldest") => node.oldest_ms = Some(number()),
            (_, "failed") => node.oldest_failed = number(),
            (_, "topic_depth") => node.topic_depth = number(),
            (_, "up") => node.uptime = Some(Duration::from_secs(number().unsigned_abs())),
            (_, "pause") => node.pause = Some(pause(value)),
            (_, "topic_pause") => node.topic_pause = Some(pause(value)),
            _ => panic!("{figures}: {word}"),
        }
    }
    node
}

fn pause(terms: &str) -> Pause {
    let mut terms = terms.split(':');
    let (left, by, note) = (terms.next(), terms.next(), terms.next());
    Pause {
        left: left.and_then(|seconds| Some(Duration::from_secs(seconds.parse().ok()?))),
        by: by.unwrap_or_default().to_owned(),
        note: note.unwrap_or_default().replace('_', " "),
    }
}

fn sample(nodes: &[NodeSample]) -> ChannelSample {
    let names = ["a:4151", "b:4151", "c:4151"].map(str::to_owned);
    ChannelSample {
        nodes: names.into_iter().zip(nodes.iter().cloned()).collect(),
        dead_letters_of: None,
    }
}

fn at(depth: i64, in_flight: i64, arrived: i64, ready: &[i64]) -> NodeSample {
    NodeSample {
        depth,
        in_flight,
        message_count: arrived,
        ready: ready.to_vec(),
        ..NodeSample::default()
    }
}

#[test]
fn each_channel_has_its_sentence() {
    let mut count = 0;
    for case in include_str!("tests/sentences.case").split("\n\n") {
        let (mut nodes, mut dead_letters_of) = ((Vec::new(), Vec::new()), None);
        for line in case.lines().filter(|line| !line.starts_with('#')) {
            let (name, text) = line.split_once(": ").expect(line);
            if name == "dead letters of" {
                dead_letters_of = Some(text.to_owned());
            } else if let Some((before, after)) = text.split_once(" -> ") {
                let after = if after == "same" { before } else { after };
                nodes.0.push(node(before));
                nodes.1.push(node(after));
            } else {
                let (before, mut after) = (sample(&nodes.0), sample(&nodes.1));
                after.dead_letters_of.clone_from(&dead_letters_of);
                let found = diagnose(&before, &after, Duration::from_secs(2));
                assert_eq!(found.to_string(), text, "{case}\n{found:?}");
                assert_eq!(found.is_problem(), name == "problem", "{case}");
                count += 1;
            }
        }
    }
    assert_eq!(count, 53, "each case is read");
}

#[test]
fn a_low_rdy_gets_a_higher_number() {
    let (before, after) = (at(1000, 1, 0, &[1]), at(3000, 1, 3000, &[1]));
    let elapsed = Duration::from_secs(2);
    let found = diagnose(&sample(&[before]), &sample(&[after]), elapsed);
    let change = Change {
        what: Setting::MaxInFlight,
        from: 1,
        to: 4,
    };
    assert_eq!(found.change, Some(change));
    let quick = [at(3, 2, 0, &[25, 25]), at(3, 2, 2000, &[25, 25])];
    let [before, after] = quick.map(|node| sample(&[node]));
    assert_eq!(diagnose(&before, &after, elapsed).change, None);
}

#[test]
fn a_node_that_is_back_awaits_consumers() {
    for (up, awaits) in [
        ("up=0", true),
        ("up=89", true),
        ("up=90", false),
        ("", false),
    ] {
        let back = node(&format!("6 0 6 {up}"));
        let sample = sample(&[at(0, 1, 200, &[10]), back]);
        assert_eq!(sample.awaits_consumers(), awaits, "{up}");
    }
}

#[test]
fn restarts_and_new_nodes_give_no_wild_rates() {
    let flow = Flow::between(
        &sample(&[at(10, 0, 1_000_000, &[1])]),
        &sample(&[at(10, 0, 20, &[1]), at(5, 3, 900_000, &[1])]),
        Duration::from_secs(2),
    );
    assert_eq!(
        (flow.arrivals, flow.finishes, flow.growth),
        (10.0, 0.0, 0.0)
    );
    assert_eq!((flow.depth, flow.in_flight, flow.connections), (15, 3.0, 2));
    let nothing = Flow::between(&sample(&[]), &sample(&[]), Duration::ZERO);
    assert_eq!(nothing, Flow::default());
    let same = sample(&[at(1, 1, 1, &[1])]);
    let instant = Flow::between(&same, &same, Duration::ZERO);
    assert_eq!((instant.arrivals, instant.in_flight), (0.0, 1.0));
}

#[test]
fn numbers_are_short() {
    for (number, expected) in [
        (0.0, "0"),
        (0.5, "0.5"),
        (9.94, "9.9"),
        (9.96, "10"),
        (999.0, "999"),
        (999.6, "1.0k"),
        (12_345.0, "12k"),
        (999_600.0, "1.0M"),
        (-1500.0, "-1.5k"),
        (7.0, "7"),
        (f64::from(u32::MAX), "4.3G"),
    ] {
        assert_eq!(short(number), expected, "{number}");
    }
    for (seconds, expected) in [
        (0.0, "0us"),
        (0.000_85, "850us"),
        (0.012, "12ms"),
        (3.4, "3.4s"),
        (100.0, "1.7m"),
        (7200.0, "2.0h"),
        (1_000_000.0, "12d"),
    ] {
        assert_eq!(duration(seconds), expected, "{seconds}");
    }
}

/// A node that answered with figures at the end of the range ended the program that asked it.
#[test]
fn absurd_figures_of_a_node_do_no_harm() {
    const MIN: i64 = i64::MIN;
    const MAX: i64 = i64::MAX;
    let full = |count, arrived| NodeSample {
        deferred: count,
        requeue_count: arrived,
        timeout_count: arrived,
        ..at(count, count, arrived, &[MAX, MAX])
    };
    let paused = |sample: &mut ChannelSample| {
        for node in sample.nodes.values_mut() {
            node.topic_pause = Some(Pause::default());
            node.topic_depth = MAX;
        }
    };
    for before in [MIN, -1, 0, MAX] {
        for after in [MIN, -1, 0, MAX] {
            let before = sample(&[
                full(before, before),
                full(MAX, before),
                at(MAX, 0, MAX, &[]),
            ]);
            let mut after = sample(&[full(after, after), full(MAX, after), at(MAX, 0, MAX, &[])]);
            for elapsed in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
                let flow = Flow::between(&before, &after, elapsed);
                assert!(flow.ready == MAX && !flow.arrivals.is_nan(), "{flow:?}");
                assert!(!diagnose(&before, &after, elapsed).to_string().is_empty());
            }
            paused(&mut after);
            let text = diagnose(&before, &after, Duration::from_secs(1)).to_string();
            assert_eq!(text, "Topic paused with 9.2E waiting messages: unpause it");
        }
    }
}
