//! nsqlookupds that are found by DNS, with the system's own resolver and a name server of the test. Each test has a
//! network and an /etc/resolv.conf of its own.

use std::net::Ipv4Addr;

use crate::support::{Broker, Dns, Lookupd, TIMEOUT, wait_until, with_own_network};

fn dns(options: &str, files: &tempfile::TempDir) -> Dns {
    let hosts = "127.0.0.1 localhost\n127.0.0.11 in-hosts\n";
    Dns::start(Ipv4Addr::LOCALHOST, options, hosts, files.path())
}

fn lookupd(address: &str) -> Lookupd {
    Lookupd::start_at(address, 1)
}

fn count(lookupd: &Lookupd, line: &str) -> usize {
    let told = lookupd.told().into_iter();
    told.filter(|told| told == line).count()
}

fn create(broker: &Broker, topic: &str) {
    broker.admin(&format!("/topic/create?topic={topic}"));
}

#[test]
fn every_address_of_a_name_is_an_nsqlookupd() {
    with_own_network(|| {
        let files = tempfile::tempdir().expect("a directory");
        let dns = dns("timeout:2 attempts:2", &files);
        dns.set_a("lookup.example", &["127.0.0.11", "127.0.0.12"]);
        dns.set_a("alias.example", &["127.0.0.12"]);
        let [one, two, three, four] = [
            "127.0.0.11:4160",
            "127.0.0.12:4160",
            "127.0.0.13:4160",
            "127.0.0.14:4160",
        ]
        .map(lookupd);
        let names = ["lookup:4160", "alias.example:4160", "in-hosts:4160"];
        let flags = names.map(|name| format!("--lookupd-tcp-address={name}"));
        let broker = Broker::start(1, &flags.each_ref().map(String::as_str));
        create(&broker, "t");
        for lookupd in [&one, &two] {
            lookupd.wait_for("REGISTER t");
        }
        let shown = broker.get("/config/nsqlookupd_tcp_addresses");
        assert_eq!(shown.json(), serde_json::json!(names));

        // The second nsqlookupd is replaced. The broken connection makes nsqd resolve the name at once.
        dns.set_a("lookup.example", &["127.0.0.11", "127.0.0.13"]);
        dns.set_a("alias.example", &["127.0.0.13"]);
        two.cut();
        create(&broker, "u");
        three.wait_for("REGISTER t");
        three.wait_for("REGISTER u");
        // Either name may have been the last to lead to the second nsqlookupd.
        broker.wait_for_log("): removing peer");
        // Another one is added. nsqd finds it with one of the next PINGs, and leaves one that has gone.
        dns.set_a("lookup.example", &["127.0.0.11", "127.0.0.14"]);
        dns.set_a("alias.example", &["127.0.0.14"]);
        four.wait_for("REGISTER u");
        three.wait_for("closed");

        // While the name server knows nothing, the nsqlookupds stay.
        dns.set_a("lookup.example", &[]);
        dns.set_a("alias.example", &[]);
        four.cut();
        create(&broker, "v");
        broker.wait_for_log("LOOKUP: resolving lookup:4160 - lookup lookup:4160: ");
        let is_told = || {
            create(&broker, "w");
            broker.admin("/topic/delete?topic=w");
            count(&four, "REGISTER v") > 0
        };
        assert!(wait_until(TIMEOUT, is_told), "{:?}", four.told());
        one.wait_for("REGISTER v");
        let late = late_answers(&broker);
        for lookupd in [&one, &three] {
            assert!(
                count(lookupd, "connected") <= 1 + late,
                "{:?}",
                lookupd.told()
            );
        }
    });
}

#[test]
fn srv_records_have_names_and_ports() {
    with_own_network(|| {
        let files = tempfile::tempdir().expect("a directory");
        let dns = dns("timeout:2 attempts:2", &files);
        let service = "_nsqlookupd._tcp.lookup.example";
        dns.set_srv(
            service,
            &[
                ("a.example", 4160),
                ("b.example", 4260),
                ("lost.example", 1),
            ],
        );
        dns.set_a("a.example", &["127.0.0.11"]);
        dns.set_a("b.example", &["127.0.0.11"]);
        let [a, b, c] = ["127.0.0.11:4160", "127.0.0.11:4260", "127.0.0.12:4160"].map(lookupd);
        let broker = Broker::start(1, &["--lookupd-tcp-address=_nsqlookupd._tcp.lookup"]);
        create(&broker, "t");
        a.wait_for("REGISTER t");
        b.wait_for("REGISTER t");
        let line = broker.wait_for_log("LOOKUP: resolving _nsqlookupd._tcp.lookup - ");
        assert!(line.contains("lookup lost.example:1: "), "{line}");

        dns.set_a("c.example", &["127.0.0.12"]);
        dns.set_srv(service, &[("a.example", 4160), ("c.example", 4160)]);
        c.wait_for("REGISTER t");
        b.wait_for("closed");
        dns.set_srv(service, &[]);
        broker.wait_for_log("lookup _nsqlookupd._tcp.lookup: no such host");
        let late = late_answers(&broker);
        assert!(count(&a, "connected") <= 1 + late, "{:?}", a.told());
        assert!(count(&c, "closed") <= late, "{:?}", c.told());
    });
}

/// Returns the number of answers that took longer than nsqd waits, on a busy machine. nsqd connects again then.
fn late_answers(broker: &Broker) -> usize {
    broker.log().matches("i/o timeout").count()
}

/// The resolver waits longer than the test.
#[test]
fn a_silent_name_server_delays_no_other_nsqlookupd() {
    with_own_network(|| {
        let files = tempfile::tempdir().expect("a directory");
        let dns = dns("timeout:30 attempts:5", &files);
        dns.set_silent(true);
        let lookupd = lookupd("127.0.0.11:4160");
        let broker = Broker::start(
            1,
            &[
                "--lookupd-tcp-address=lookup.example:4160",
                "--lookupd-tcp-address=_nsqlookupd._tcp.lookup.example.",
                "--lookupd-tcp-address=127.0.0.11:4160",
            ],
        );
        for name in ["lookup.example", "_nsqlookupd._tcp.lookup.example"] {
            let is_asked = || dns.asked().iter().any(|asked| asked == name);
            assert!(wait_until(TIMEOUT, is_asked), "{:?}", dns.asked());
        }
        create(&broker, "t");
        lookupd.wait_for("REGISTER t");
        lookupd.wait_for("PING");
        assert!(!broker.log().contains("LOOKUP: resolving lookup.example"));
    });
}

/// The end of nsqd waited for the resolver, which waits longer than the test: longer than Kubernetes gives a process.
#[test]
fn a_silent_name_server_delays_no_end() {
    with_own_network(|| {
        let files = tempfile::tempdir().expect("a directory");
        let dns = dns("timeout:30 attempts:5", &files);
        dns.set_silent(true);
        let mut broker = Broker::start(
            1,
            &[
                "--statsd-address=statsd.example:8125",
                "--statsd-interval=1s",
                "--auth-http-address=auth.example:4181",
                "--http-client-connect-timeout=1h",
                "--http-client-request-timeout=1h",
                "--lookupd-tcp-address=lookup.example:4160",
            ],
        );
        let mut client = broker.client();
        client.command("AUTH", b"secret");
        for name in ["statsd.example", "auth.example", "lookup.example"] {
            let is_asked = || dns.asked().iter().any(|asked| asked == name);
            assert!(wait_until(TIMEOUT, is_asked), "{:?}", dns.asked());
        }
        assert!(broker.sigterm_and_wait().success());
    });
}
