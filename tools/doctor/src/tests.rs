use super::*;

/// The figures of one node: depth, in flight, deferred, arrived, requeued, timed out, and RDY of each client.
#[derive(Clone, Copy)]
struct At {
    depth: i64,
    in_flight: i64,
    deferred: i64,
    arrived: i64,
    requeued: i64,
    timed_out: i64,
    ready: &'static [i64],
}

const fn at(depth: i64, in_flight: i64, arrived: i64, ready: &'static [i64]) -> At {
    At {
        depth,
        in_flight,
        deferred: 0,
        arrived,
        requeued: 0,
        timed_out: 0,
        ready,
    }
}

fn sample(nodes: &[At]) -> ChannelSample {
    let nodes = nodes.iter().enumerate().map(|(index, at)| {
        let name = format!("{}:4151", ["a", "b", "c"][index]);
        let node = NodeSample {
            depth: at.depth,
            in_flight: at.in_flight,
            deferred: at.deferred,
            message_count: at.arrived,
            requeue_count: at.requeued,
            timeout_count: at.timed_out,
            ready: at.ready.to_vec(),
            ..NodeSample::default()
        };
        (name, node)
    });
    ChannelSample {
        nodes: nodes.collect(),
        dead_letters_of: None,
    }
}

/// Checks the sentence for two samples that are two seconds apart.
#[track_caller]
fn check(before: &[At], after: &[At], sentence: &str) -> Diagnosis {
    let (before, after) = (sample(before), sample(after));
    let diagnosis = diagnose(&before, &after, Duration::from_secs(2));
    assert_eq!(diagnosis.to_string(), sentence, "{diagnosis:?}");
    diagnosis
}

#[test]
fn a_channel_without_a_problem_says_so() {
    let idle = check(
        &[at(0, 0, 7, &[])],
        &[at(0, 0, 7, &[])],
        "Idle: no messages and no consumers",
    );
    assert!(!idle.is_problem());
    check(
        &[at(0, 0, 7, &[1])],
        &[at(0, 0, 7, &[1])],
        "Idle: no messages",
    );
    // 2 in flight at 1,000/s: 2 ms each. RDY 50 allows 25,000/s.
    let keeps_up = check(
        &[at(3, 2, 0, &[25, 25])],
        &[at(3, 2, 2000, &[25, 25])],
        "Keeps up: 1.0k/s arrive, RDY allows about 25k/s",
    );
    assert!(!keeps_up.is_problem() && keeps_up.change.is_none());
    check(
        &[at(9000, 10, 0, &[10])],
        &[at(6000, 10, 1000, &[10])],
        "Catches up: the 6.0k waiting messages take 4.0s more",
    );
}

#[test]
fn a_stopped_channel_says_who_stopped_it() {
    check(
        &[at(0, 0, 0, &[])],
        &[at(250, 0, 250, &[])],
        "No consumers: 250 messages wait and 125/s arrive; start a consumer",
    );
    let mut paused = sample(&[at(5, 0, 5, &[10])]);
    let diagnose_alone =
        |sample: &ChannelSample| diagnose(sample, sample, Duration::from_secs(1)).to_string();
    for node in paused.nodes.values_mut() {
        node.topic_pause = Some(Pause::default());
        node.topic_depth = 12_345;
    }
    assert_eq!(
        diagnose_alone(&paused),
        "Topic paused with 12k waiting messages: unpause it"
    );
    for node in paused.nodes.values_mut() {
        node.pause = Some(Pause::default());
    }
    // Both pauses have to end before messages flow.
    assert_eq!(
        diagnose_alone(&paused),
        "Paused with 5 waiting messages: unpause the channel. Topic paused with 12k waiting messages: unpause it"
    );
}

#[test]
fn a_low_rdy_gets_a_higher_number() {
    // 1 in flight for 2 ms: 500/s of 1,500/s. 1 * 3 * 1.25 = 3.75.
    let diagnosis = check(
        &[at(1000, 1, 0, &[1])],
        &[at(3000, 1, 3000, &[1])],
        "RDY too low: 1 consumer finishes 500 of 1.5k/s at 2.0ms a message; raise max_in_flight from \
         1 to 4",
    );
    assert!(diagnosis.is_problem());
    let change = Change {
        what: Setting::MaxInFlight,
        from: 1,
        to: 4,
    };
    assert_eq!(diagnosis.change, Some(change));
}

#[test]
fn slow_handlers_need_more_consumers() {
    // 2 in flight for 100 ms: 20/s of 50/s. 2 * 2.5 * 1.25 = 6.25.
    check(
        &[at(100, 2, 0, &[1, 1])],
        &[at(160, 2, 100, &[1, 1])],
        "Handlers too slow: 2 consumers finish 20 of 50/s at 100ms a message; run 7 consumers \
         instead of 2, or as many more handlers",
    );
    // A consumer with 200 messages of its own is not helped by a higher RDY.
    check(
        &[at(100, 200, 0, &[200])],
        &[at(20_100, 200, 60_000, &[200])],
        "Handlers too slow: 1 consumer finishes 20k of 30k/s at 10ms a message; run 2 consumers \
         instead of 1, or as many more handlers",
    );
    check(
        &[at(100, 5, 0, &[5])],
        &[at(150, 5, 50, &[5])],
        "Stuck: none of the 5 messages in flight was finished; see what the handlers wait for",
    );
}

#[test]
fn failures_are_named_before_speed() {
    let failing = |requeued, timed_out| At {
        requeued,
        timed_out,
        ..at(200, 10, 100, &[10])
    };
    check(
        &[at(200, 10, 0, &[10])],
        &[failing(60, 0)],
        "Handlers fail: 30/s are requeued and 50/s finished; see the consumers' logs",
    );
    // 50 of 60 deliveries a second are finished in time: 10 * 5/6 / 1.25 = 6.67.
    check(
        &[at(200, 10, 0, &[10])],
        &[failing(0, 20)],
        "Timeouts, 10/s: raise msg_timeout or touch messages, or lower max_in_flight from \
         10 to 6",
    );
    check(
        &[at(200, 1, 0, &[1])],
        &[At {
            timed_out: 2,
            ..at(200, 1, 2, &[1])
        }],
        "Timeouts, 1/s: raise msg_timeout or touch messages",
    );
}

#[test]
fn rdy_0_is_backoff_or_a_number_below_the_nodes() {
    check(
        &[at(5, 0, 5, &[0, 0])],
        &[at(5, 0, 5, &[0, 0])],
        "Backoff: 2 of 2 connections have RDY 0; see the consumers' logs for failed messages",
    );
    check(
        &[at(500, 0, 500, &[0, 20])],
        &[at(600, 20, 700, &[0, 20])],
        "Backoff: 1 of 2 connections have RDY 0; see the consumers' logs for failed messages",
    );
    let (before, after) = (at(500, 1, 500, &[1]), at(500, 1, 600, &[1]));
    check(
        &[before, at(50, 0, 0, &[0])],
        &[after, at(500, 0, 600, &[0])],
        "One node at a time: consumers have fewer messages in flight than the 2 nodes; raise \
         max_in_flight from 1 to 2",
    );
}

#[test]
fn every_node_needs_consumers() {
    let served = at(0, 0, 100, &[10]);
    check(
        &[served, at(7, 0, 7, &[])],
        &[served, at(9, 0, 9, &[])],
        "No consumer at b:4151, where 9 messages wait: connect the consumers to every node",
    );
    let full = at(9, 0, 9, &[]);
    check(
        &[full, full, full],
        &[full, full, at(9, 0, 9, &[1])],
        "No consumer at a:4151, b:4151, where 18 messages wait: connect the consumers to every node",
    );
}

#[test]
fn a_backlog_at_one_node_is_named() {
    check(
        &[at(0, 0, 0, &[5]), at(100, 5, 0, &[5])],
        &[at(0, 0, 10, &[5]), at(2000, 5, 3900, &[5])],
        "RDY too low: 1 consumer finishes 1.0k of 1.9k/s at 5.0ms a message; raise max_in_flight from \
         10 to 25 (only at b:4151)",
    );
    check(
        &[at(100, 2, 0, &[50])],
        &[at(300, 2, 210, &[50])],
        "Consumers read slowly: 2 messages are in flight and RDY allows 50; see their network and CPU",
    );
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

#[test]
fn deferred_messages_need_a_consumer_too() {
    let deferred = |ready, deferred| At {
        deferred,
        ..at(0, 0, 7, ready)
    };
    let alone = check(
        &[deferred(&[], 2)],
        &[deferred(&[], 2)],
        "No consumers: 0 messages wait, 2 messages are deferred and 0/s arrive; start a consumer",
    );
    assert!(alone.is_problem());
    let idle = check(
        &[deferred(&[1], 1)],
        &[deferred(&[1], 1)],
        "Idle: 1 message is deferred",
    );
    assert!(!idle.is_problem());
}

#[test]
fn one_message_waits() {
    check(
        &[at(1, 0, 7, &[])],
        &[at(1, 0, 7, &[])],
        "No consumers: 1 message waits and 0/s arrive; start a consumer",
    );
}

/// A node that answered with figures at the end of the range ended the program that asked it.
#[test]
fn absurd_figures_of_a_node_do_no_harm() {
    const MIN: i64 = i64::MIN;
    const MAX: i64 = i64::MAX;
    let full = |count, arrived| At {
        deferred: count,
        requeued: arrived,
        timed_out: arrived,
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

/// Six messages at a node without consumers hid a backlog of thousands.
#[test]
fn the_finding_about_more_messages_comes_first() {
    let slow = (at(90_000, 2, 0, &[1, 1]), at(90_060, 2, 100, &[1, 1]));
    let lonely = at(6, 0, 6, &[]);
    let diagnosis = check(
        &[slow.0, lonely],
        &[slow.1, lonely],
        "Handlers too slow: 2 consumers finish 20 of 50/s at 100ms a message; run 7 consumers \
         instead of 2, or as many more handlers (and no consumer at b:4151, where 6 messages wait)",
    );
    assert!(diagnosis.is_problem());
    // The backlog that becomes shorter is no problem.
    let quick = (at(9000, 10, 0, &[10]), at(6000, 10, 1000, &[10]));
    check(
        &[quick.0, lonely],
        &[quick.1, lonely],
        "No consumer at b:4151, where 6 messages wait: connect the consumers to every node",
    );
    // The messages of the other problem are fewer.
    let few = (at(2, 1, 0, &[1]), at(3, 1, 1, &[1]));
    check(
        &[few.0, lonely],
        &[few.1, lonely],
        "No consumer at b:4151, where 6 messages wait: connect the consumers to every node",
    );
    check(
        &[at(500, 0, 500, &[0, 0]), lonely],
        &[at(500, 0, 500, &[0, 0]), lonely],
        "Backoff: 2 of 2 connections have RDY 0; see the consumers' logs for failed messages \
         (and no consumer at b:4151, where 6 messages wait)",
    );
}

/// Returns the sentence about a channel at two nodes, of which the first one is paused.
fn with_a_pause(paused: At, pause: Pause, running: [At; 2]) -> String {
    let [before, mut after] = running.map(|running| sample(&[paused, running]));
    let node = after.nodes.values_mut().next().expect("two nodes");
    node.pause = Some(pause);
    diagnose(&before, &after, Duration::from_secs(2)).to_string()
}

/// A pause at one node of two read as a pause of the channel, and hid what was wrong at the other node.
#[test]
fn a_pause_at_some_nodes_hides_nothing_at_the_others() {
    let paused = at(30, 0, 30, &[1]);
    let by_ann = || Pause::until(Some(61_000), 1000, "ann", "deploying");
    let quiet = at(0, 0, 7, &[1]);
    assert_eq!(
        with_a_pause(paused, Pause::default(), [quiet, quiet]),
        "Paused at 1 of 2 nodes with 30 waiting messages there: unpause the channel"
    );
    assert_eq!(
        with_a_pause(paused, by_ann(), [quiet, quiet]),
        "Paused at 1 of 2 nodes for another 60s by ann (deploying); 30 messages wait there"
    );
    // RDY 0 without messages is no reason to speak of the other node.
    let backing_off = at(0, 0, 7, &[0]);
    assert_eq!(
        with_a_pause(at(1, 0, 1, &[1]), by_ann(), [backing_off, backing_off]),
        "Paused at 1 of 2 nodes for another 60s by ann (deploying); 1 message waits there"
    );
    let lonely = [at(5000, 0, 5000, &[]), at(5200, 0, 5200, &[])];
    assert_eq!(
        with_a_pause(paused, by_ann(), lonely),
        "No consumers: 5.2k messages wait and 100/s arrive; start a consumer. \
         Paused at 1 of 2 nodes for another 60s by ann (deploying); 30 messages wait there"
    );
}

#[test]
fn a_pause_of_a_topic_tells_its_terms_and_the_longest_pause_comes_first() {
    let mut paused = sample(&[at(0, 0, 5, &[10]), at(0, 0, 5, &[10])]);
    let terms = [
        Pause::until(Some(5000), 9000, "bob", "soon over"),
        Pause::until(None, 9000, "ann", ""),
    ];
    for (node, terms) in paused.nodes.values_mut().zip(terms) {
        node.topic_pause = Some(terms);
        node.topic_depth = 600;
    }
    let sentence =
        |sample: &ChannelSample| diagnose(sample, sample, Duration::from_secs(1)).to_string();
    assert_eq!(
        sentence(&paused),
        "Topic paused by ann, elsewhere for another 0us by bob (soon over); 1.2k messages wait"
    );
    paused.nodes.retain(|name, _| name == "a:4151");
    assert_eq!(
        sentence(&paused),
        "Topic paused for another 0us by bob (soon over); 600 messages wait"
    );
}

/// The pause of the topic at one node was hidden by the pause of the channel at another, so its messages stayed where they
/// were after the channel had been unpaused.
#[test]
fn a_pause_of_the_topic_is_told_beside_a_pause_of_the_channel() {
    let mut paused = sample(&[at(30, 0, 30, &[1]), at(0, 0, 7, &[1]), at(0, 0, 7, &[1])]);
    let sentence =
        |sample: &ChannelSample| diagnose(sample, sample, Duration::from_secs(1)).to_string();
    let change = |sample: &mut ChannelSample, node: &str, change: &dyn Fn(&mut NodeSample)| {
        change(sample.nodes.get_mut(node).expect("the node is there"));
    };
    change(&mut paused, "a:4151", &|node| {
        node.pause = Some(Pause::until(Some(61_000), 1000, "ann", "deploying"));
    });
    change(&mut paused, "b:4151", &|node| {
        node.topic_pause = Some(Pause::default());
        node.topic_depth = 1200;
    });
    let of_both = "Paused at 1 of 3 nodes for another 60s by ann (deploying); 30 messages wait there. \
                   Topic paused at 1 of 3 nodes with 1.2k waiting messages there: unpause it";
    assert_eq!(sentence(&paused), of_both);
    // The problem of the third node comes first.
    change(&mut paused, "c:4151", &|node| {
        node.ready.clear();
        node.depth = 5000;
    });
    let expected =
        format!("No consumers: 5.0k messages wait and 0/s arrive; start a consumer. {of_both}");
    assert_eq!(sentence(&paused), expected);
}

/// A pause with a note ("db repair dont touch") was followed by the advice to unpause the channel, because another node was paused
/// without a note.
#[test]
fn a_pause_without_terms_hides_no_terms_of_another_node() {
    let sentence = |pauses: &[Pause]| {
        let mut paused = sample(&[at(30, 0, 30, &[1]), at(30, 0, 30, &[1]), at(0, 0, 7, &[1])]);
        for (node, pause) in paused.nodes.values_mut().zip(pauses) {
            node.pause = Some(pause.clone());
        }
        diagnose(&paused, &paused, Duration::from_secs(1)).to_string()
    };
    let repair = |left: Option<i64>| {
        let end = left.map(|seconds| seconds * 1000);
        Pause::until(end, 0, "", "db repair dont touch")
    };
    let expected = "Paused at 2 of 3 nodes (db repair dont touch), and at 1 node without a reason; 60 messages wait there";
    assert_eq!(sentence(&[repair(None), Pause::default()]), expected);
    assert_eq!(sentence(&[Pause::default(), repair(None)]), expected);
    assert_eq!(
        sentence(&[Pause::default(), repair(Some(60)), Pause::default()]),
        "Paused for another 60s (db repair dont touch), and at 2 nodes without a reason; 60 messages wait"
    );
    // The nodes of one pause end it some milliseconds apart.
    assert_eq!(
        sentence(&[repair(Some(59)), repair(Some(60))]),
        "Paused at 2 of 3 nodes for another 60s (db repair dont touch); 60 messages wait there"
    );
}

/// Right after a node was back, the advice was to connect the consumers to every node, until they had asked nsqlookupd again.
#[test]
fn consumers_have_time_to_find_a_node_that_is_back() {
    let after_uptime = |seconds: Option<u64>| {
        let mut samples =
            [100, 200].map(|arrived| sample(&[at(0, 1, arrived, &[10]), at(6, 0, 6, &[])]));
        for sample in &mut samples {
            let node = sample.nodes.get_mut("b:4151").expect("the node is there");
            node.uptime = seconds.map(Duration::from_secs);
        }
        let [before, after] = samples;
        assert_eq!(after.awaits_consumers(), seconds.is_some_and(|up| up < 90));
        diagnose(&before, &after, Duration::from_secs(2)).to_string()
    };
    for seconds in [0, 5, 89] {
        assert_eq!(
            after_uptime(Some(seconds)),
            "Keeps up: 50/s arrive, RDY allows about 500/s"
        );
    }
    for seconds in [Some(90), None] {
        assert_eq!(
            after_uptime(seconds),
            "No consumer at b:4151, where 6 messages wait: connect the consumers to every node"
        );
    }
    // Nobody has consumers, so there is nobody who could find the node.
    let mut alone = sample(&[at(6, 0, 6, &[])]);
    for node in alone.nodes.values_mut() {
        node.uptime = Some(Duration::from_secs(1));
    }
    let text = diagnose(&alone, &alone, Duration::from_secs(2)).to_string();
    assert!(text.starts_with("No consumers: 6 messages wait"), "{text}");
}

/// Returns a sample of one node whose oldest message has this age and these failed deliveries.
fn with_oldest(at: At, oldest_ms: i64, failed: i64) -> ChannelSample {
    let mut sample = sample(&[at]);
    for node in sample.nodes.values_mut() {
        node.oldest_ms = Some(oldest_ms);
        node.oldest_failed = failed;
    }
    sample
}

/// The sentence was "Keeps up", because the messages sat in `deferred` at the moment.
#[test]
fn a_message_that_fails_again_and_again_comes_first() {
    let elapsed = Duration::from_secs(2);
    let deferred = |arrived| At {
        deferred: 3,
        ..at(0, 1, arrived, &[10])
    };
    let poison = "The oldest message has failed 15 times: look at it";
    let check = |before: ChannelSample, after: ChannelSample, sentence: &str, is_problem| {
        let found = diagnose(&before, &after, elapsed);
        assert_eq!(found.to_string(), sentence, "{found:?}");
        assert_eq!(found.is_problem(), is_problem, "{sentence}");
    };
    let before = || with_oldest(deferred(0), 60_000, 15);
    check(
        before(),
        with_oldest(deferred(100), 62_000, 15),
        poison,
        true,
    );
    // Nothing else arrives.
    check(before(), with_oldest(deferred(0), 62_000, 15), poison, true);
    // The rest is a problem, too.
    let behind = At {
        deferred: 3,
        ..at(5_000, 0, 6_000, &[0])
    };
    let both = format!(
        "{poison}. Backoff: 1 of 1 connections have RDY 0; see the consumers' logs for failed messages"
    );
    check(before(), with_oldest(behind, 62_000, 15), &both, true);
    let keeps_up = "Keeps up: 50/s arrive, RDY allows about 500/s";
    // Another message is the oldest one now.
    check(
        before(),
        with_oldest(deferred(100), 30_000, 15),
        keeps_up,
        false,
    );
    // One failure is none yet.
    check(
        before(),
        with_oldest(deferred(100), 62_000, 1),
        keeps_up,
        false,
    );
    // It was published a moment ago.
    let young = with_oldest(deferred(0), 1_000, 3);
    check(young, with_oldest(deferred(100), 3_000, 9), keeps_up, false);
    // Without consumers, a consumer is missing.
    let none = with_oldest(at(3, 0, 100, &[]), 62_000, 15);
    let sentence = "No consumers: 3 messages wait and 50/s arrive; start a consumer";
    check(before(), none, sentence, true);
}

#[test]
fn dead_letters_wait_for_a_person_and_not_for_a_consumer() {
    let mut after = sample(&[at(3, 0, 3, &[])]);
    after.dead_letters_of = Some("orders/billing".to_owned());
    let found = diagnose(&after, &after, Duration::from_secs(2));
    assert_eq!(
        found.to_string(),
        "Dead letters of orders/billing: 3 messages wait; look at them, then publish them again or empty the channel"
    );
    assert!(found.is_problem());
}
