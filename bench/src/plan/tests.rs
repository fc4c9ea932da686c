use super::sensitivity::sensitivities;
use super::*;
use crate::result::{Daemon, Machine};

fn demand() -> Demand {
    Demand {
        per_day: 5e9,
        size_bytes: 400.0,
        channels: 3.0,
        peak: 4.0,
        retention_s: 12.0 * 3600.0,
        utilisation: 0.6,
        fill: 0.8,
        replicas: 1.0,
        spare_nodes: 1.0,
        stored_overhead_bytes: 50.0,
        stored_copies: 1.0,
        mem_queue: 100_000.0,
        topics: 2.0,
        clients: None,
        node_disk_bytes: None,
        node_network_bytes: None,
    }
}

fn profile() -> Profile {
    Profile {
        daemon: Daemon {
            kind: "nsqd".into(),
            version: "1.3.0".into(),
            ..Daemon::default()
        },
        machine: Machine {
            cpu_model: "A Processor".into(),
            cores: 4,
            ..Machine::default()
        },
        slo: "p99<5ms,lost=0".into(),
        messages_per_s: 250_000.0,
        generator_limited: false,
        reached_most: false,
        message_bytes: 400.0,
        channels: 3,
        batch: 100,
        cores: 4,
        daemon_cores_used: Some(1.0),
        cpu_s_per_published: Some(1e-6),
        cpu_s_per_delivered: Some(1e-6),
        memory_bytes_per_queued: Some(500.0),
        memory_bytes_idle: Some(60_000_000),
        disk_bytes_per_message: Some(450.0),
    }
}

/// The demand with a change.
fn demanding(change: impl FnOnce(&mut Demand)) -> Demand {
    let mut demand = demand();
    change(&mut demand);
    demand
}

/// The needs of a changed demand.
fn needs_of(change: impl FnOnce(&mut Demand)) -> Needs {
    calculate(&demanding(change), &profile())
}

#[track_caller]
fn check(what: &str, value: impl Into<Option<f64>>, expected: f64) {
    let value = value.into().expect(what);
    let off = (value / expected - 1.0).abs();
    assert!(
        off < 1e-6 || value == expected,
        "{what}: {value}, expected {expected}"
    );
}

#[test]
fn the_worked_example_by_hand() {
    let needs = needs_of(|_| ());
    check("mean rate", needs.mean_rate, 57_870.370_37);
    check("peak rate", needs.peak_rate, 231_481.481_48);
    // The profile is of just such messages: nothing to bridge.
    check("channel factor", needs.channel_factor, 1.0);
    check("size factor", needs.size_factor, 1.0);
    check("planned rate", needs.rate_per_node, 150_000.0);
    check("nodes before rounding", needs.nodes.exact, 1.543_209_876);
    check("working nodes", needs.nodes.working, 2.0);
    check("nodes", needs.nodes.all, 3.0);
    // 1 us + 3 x 1 us a message, 231,481 times a second, at 60 %.
    check("cores", needs.cores, 1.543_209_876);
    // 12 h of the peak would be 10e9, but no stretch within a day holds more than the day.
    check("backlog", needs.storage.backlog_messages, 5e9);
    check("stored", needs.storage.stored_bytes, 450.0);
    check("disk space", needs.storage.disk_bytes, 2.812_5e12);
    check("disk writes", needs.storage.disk_rate, 104_166_666.666);
    // (400 + 25 + 3 x 21) and (3 x 434 + 10) bytes, in packets of 1538 / 1460.
    let packets = 231_481.481_48 * 1538.0 / 1460.0;
    check("network in", needs.network_in, packets * 488.0);
    check("network out", needs.network_out, packets * 1312.0);
    // 2 topics x 100,000 messages x 500 bytes, and 60 MB; 80 % full.
    check("memory", needs.memory_per_node, 200_000_000.0);
    // 5e9 / (2 x 250,000 - 57,870).
    check("catch up", needs.catch_up_s, 11_308.9);
}

#[test]
fn each_client_connects_to_every_node() {
    let clients = demanding(|it| it.clients = Some(500.0));
    let plan = CapacityPlan::of(clients, profile());
    check("connections", plan.needs.nodes.connections, 1_500.0);
    let text = render::text(&plan);
    assert!(
        text.contains("1,500   500 a node, spare ones included"),
        "{text}"
    );
    assert!(text.contains("500 clients x 3 nodes"), "{text}");
    let text = render::text(&CapacityPlan::of(demand(), profile()));
    assert!(!text.contains("connections"), "{text}");
}

#[test]
fn a_backlog_is_bounded_by_the_peak_and_by_the_days() {
    let backlog = |hours: f64, peak: f64| {
        let needs = needs_of(|it| {
            (it.retention_s, it.peak, it.per_day) = (hours * 3600.0, peak, 24e6);
        });
        needs.storage.backlog_messages
    };
    check("3 h of twice a million an hour", backlog(3.0, 2.0), 6e6);
    check("12 h of it", backlog(12.0, 2.0), 24e6);
    check("20 h: not more than the day", backlog(20.0, 2.0), 24e6);
    check("27 h: a day and 3 h", backlog(27.0, 2.0), 30e6);
    check("a flat day", backlog(12.0, 1.0), 12e6);
}

#[test]
fn other_channels_and_sizes_are_bridged() {
    // Twice the channels: 7 us of CPU a message instead of 4. Twice the size: twice the work.
    let more = demanding(|it| (it.channels, it.size_bytes) = (6.0, 800.0));
    let of = |change: fn(&mut Profile)| {
        let mut profile = profile();
        change(&mut profile);
        calculate(&more, &profile)
    };
    let needs = of(|_| ());
    check("channel factor", needs.channel_factor, 1.75);
    check("size factor", needs.size_factor, 2.0);
    check("capacity", needs.capacity_per_node, 250_000.0 / 3.5);
    let cores = 231_481.481_48 * 7e-6 * 2.0 / 0.6;
    check("cores", needs.cores, cores);

    let smaller = needs_of(|it| it.size_bytes = 40.0);
    check("no credit", smaller.capacity_per_node, 250_000.0);

    // Cheap deliveries in the profile: they count as much as publishes all the same. Dear ones count
    // as measured.
    let cheap = of(|it| it.cpu_s_per_delivered = Some(1e-9));
    check("at least by counting", cheap.channel_factor, 1.75);
    let dear = of(|it| it.cpu_s_per_delivered = Some(3e-6));
    check("as measured", dear.channel_factor, 1.9);

    // Without the split: one unit for the publish, one for each delivery.
    let coarse = of(|it| it.cpu_s_per_delivered = None);
    check("by counting", coarse.channel_factor, 1.75);
    let cores = 231_481.481_48 * (1.0 / 250_000.0) * 3.5 / 0.6;
    check("from the cores used", coarse.cores, cores);
}

#[test]
fn replicas_disks_and_networks_ask_for_nodes() {
    let needs = needs_of(|it| it.replicas = 2.0);
    check("nodes", needs.nodes.exact, 2.0 * 1.543_209_876);
    check("disk space", needs.storage.disk_bytes, 2.0 * 2.812_5e12);
    let idle = needs_of(|it| (it.per_day, it.replicas) = (1.0, 2.0));
    check("as many as replicas", idle.nodes.working, 2.0);

    let needs = needs_of(|it| it.node_disk_bytes = Some(0.5e12));
    check("for the disk", needs.nodes.for_disk, 5.625);
    check("working nodes", needs.nodes.working, 6.0);

    // A gigabit.
    let needs = needs_of(|it| it.node_network_bytes = Some(125e6));
    let expected = needs.network_out / 75e6;
    check("for the network", needs.nodes.for_network, expected);
    check("working nodes", needs.nodes.working, 5.0);
}

#[test]
fn what_was_not_measured_is_absent() {
    let remote = Profile {
        daemon_cores_used: None,
        cpu_s_per_published: None,
        cpu_s_per_delivered: None,
        memory_bytes_per_queued: None,
        memory_bytes_idle: None,
        disk_bytes_per_message: None,
        ..profile()
    };
    let plan = CapacityPlan::of(demand(), remote);
    assert_eq!((plan.needs.cores, plan.needs.memory_per_node), (None, None));
    check("nodes", plan.needs.nodes.all, 3.0);
    let text = render::text(&plan);
    assert!(text.contains("cores           not measured"), "{text}");
    assert!(
        text.contains("so the plan has no cores or memory"),
        "{text}"
    );
    let full = needs_of(|it| {
        (it.peak, it.utilisation, it.per_day) = (1.0, 1.0, 250_000.0 * 86_400.0);
    });
    assert_eq!(full.catch_up_s, None, "nothing left to catch up with");
}

/// "4 nodes" stood beside "0.05 cores a node" without a word about the reason.
#[test]
fn the_number_of_nodes_has_its_reason() {
    let check = |change: fn(&mut Demand), used: f64, nodes: &str, cores: &str| {
        let mut profile = profile();
        profile.daemon_cores_used = Some(used);
        let text = render::text(&CapacityPlan::of(demanding(change), profile));
        for (start, end) in [("nodes ", nodes), ("cores ", cores)] {
            let mut lines = text.lines().map(str::trim_start);
            let line = lines.find(|line| line.starts_with(start)).unwrap();
            assert!(line.ends_with(end), "{line}");
        }
    };
    let each = "2 to carry the peak (each 150,000/s), 1 spare";
    let idle = "of 4 a node: CPU did not limit the measured rate";
    check(|_| (), 0.2, each, idle);
    check(|_| (), 3.0, each, "cores a node");
    let disk = "6 to carry the peak (for the disk space), 1 spare";
    let half_terabyte: fn(&mut Demand) = |it| it.node_disk_bytes = Some(0.5e12);
    check(half_terabyte, 0.2, disk, "cores a node");
    let network = "(for the network), 1 spare";
    check(|it| it.node_network_bytes = Some(125e6), 0.2, network, "");
    let replicas = "2 to carry the peak (one for each replica), 1 spare";
    let twice: fn(&mut Demand) = |it| (it.per_day, it.replicas) = (1.0, 2.0);
    check(twice, 0.2, replicas, "");
}

#[test]
fn sensitivities_are_those_of_the_arithmetic() {
    let all = sensitivities(&demand(), &profile());
    // All five needs go with the messages per day, so a quarter more changes each by a quarter.
    assert_eq!(all[0].input, "per-day");
    check("per day", all[0].change_percent, 25.0);
    let of = |input| all.iter().find(|found| found.input == input).unwrap();
    // 12 h at a quarter less of the peak (3 x) are still a day: no change of the disk space, and a
    // quarter of the other four.
    check("peak", of("peak").change_percent, 20.0);
    // At 9 h the peak still fills a day; disk space does not change, and nothing else ever does.
    assert_eq!(of("retention").change_percent, 0.0);
    let backlog = of("retention").variants[0].needs.storage.backlog_messages;
    assert_eq!(backlog, 5e9);
    // Nodes and cores, each 1/0.75 - 1 and 1 - 1/1.25: of five.
    let down = 1.0 / 0.75 - 1.0;
    let mean = (down + 0.2) / 2.0;
    let utilisation = of("utilisation");
    check("utilisation", utilisation.change_percent, mean * 40.0);
    check("fill", of("fill").change_percent, mean * 20.0);
    assert!(all.is_sorted_by(|one, other| one.change_percent >= other.change_percent - 1e-6));
    // Its end is at 1.
    check("utilisation doubled", utilisation.variants[3].value, 1.0);

    // A disk too small for its share turns the order round: the disk's nodes decide.
    let short = demanding(|it| (it.peak, it.node_disk_bytes) = (1.0, Some(1e11)));
    let all = sensitivities(&short, &profile());
    let position = |input| all.iter().position(|found| found.input == input).unwrap();
    assert!(position("retention") < position("measured-rate"));
}

#[test]
fn every_step_has_its_numbers_and_every_key_its_assumption() {
    let bridged = demanding(|it| (it.channels, it.size_bytes, it.replicas) = (5.0, 900.0, 2.0));
    for demand in [demand(), bridged] {
        let plan = CapacityPlan::of(demand, profile());
        let keys: Vec<char> = plan.assumptions.iter().map(|it| it.key).collect();
        for step in &plan.steps {
            let has_number = step.formula.contains(|c: char| c.is_ascii_digit());
            assert!(has_number && step.value.is_finite(), "{step:?}");
            let is_known = step.assumes.iter().all(|key| keys.contains(key));
            assert!(is_known && !step.shown.contains("n/a"), "{step:?}");
        }
        let used: Vec<char> = plan
            .steps
            .iter()
            .flat_map(|it| it.assumes.clone())
            .collect();
        let is_used = keys.iter().all(|key| used.contains(key));
        assert!(is_used, "an assumption that no step makes");
        let text = render::text(&plan);
        assert!(text.lines().all(|line| line.chars().count() <= 100));
    }
}
