//! Random and spoiled input of both protocols, cut anywhere. The seeds count from 0. `RINGQ_SEED` repeats one input,
//! `RINGQ_SIM_COUNT` sets the number of inputs, and more than 20,000 are new ones. The fuzz target `session` makes the
//! same checks with inputs that coverage chooses.

mod exchange;
mod input;
mod session;

use fastrand::Rng;
use input::mutated;
use program::log::{self, Level};

/// Calls `check` with one seed, or with many.
fn for_each_seed(check: impl Fn(&mut Rng)) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>());
    let number = |name: &str| number(name).map(|number| number.expect("it is a number"));
    let seeds = match number("RINGQ_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("RINGQ_SIM_COUNT").unwrap_or(20_000)).collect(),
    };
    for seed in seeds {
        let check = std::panic::AssertUnwindSafe(|| check(&mut Rng::with_seed(seed)));
        if let Err(panic) = std::panic::catch_unwind(check) {
            eprintln!("RINGQ_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn name(random: &mut Rng) -> String {
    let names = ["t", "c", "a.b-c_d", "e#ephemeral", "", "*", "bad$name", "é"];
    match random.u8(0..10) {
        0 => "n".repeat(random.usize(60..70)),
        1 => format!("n{}", random.u8(..)),
        _ => (*random.choice(&names).expect("there are names")).to_string(),
    }
}

fn identify(random: &mut Rng) -> Vec<u8> {
    let body = match random.u8(0..6) {
        0 => "{}".to_string(),
        1 => "[".repeat(random.usize(0..200)),
        2 => r#"{"tcp_port":"4150"}"#.to_string(),
        _ => format!(
            r#"{{"broadcast_address":"{}","hostname":"h","tcp_port":{},"http_port":4151,"version":"1.3.0"}}"#,
            name(random),
            random.i64(-2..70_000)
        ),
    };
    let size = match random.u8(0..10) {
        0 => random.i32(..),
        _ => i32::try_from(body.len()).expect("bodies in tests are small"),
    };
    [b"IDENTIFY\n", &size.to_be_bytes()[..], body.as_bytes()].concat()
}

fn ping(_: &mut Rng) -> Vec<u8> {
    b"PING\n".to_vec()
}

fn registration(random: &mut Rng) -> Vec<u8> {
    let verb = ["REGISTER", "UNREGISTER"][random.usize(0..2)];
    let end = ["\n", "\r\n", " \n", " extra\n"][random.usize(0..4)];
    format!("{verb} {} {}{end}", name(random), name(random)).into_bytes()
}

fn long_line(random: &mut Rng) -> Vec<u8> {
    let mut line = b"PING ".to_vec();
    line.resize(random.usize(100..70_000), b'x');
    line.push(b'\n');
    line
}

fn any_line(random: &mut Rng) -> Vec<u8> {
    match random.u8(0..100) {
        0 => long_line(random),
        1..40 => ping(random),
        _ => registration(random),
    }
}

#[test]
fn any_session_means_the_same_however_it_is_cut() {
    for_each_seed(|random| {
        let mut data = vec![random.u8(..), random.u8(1..)];
        if random.u8(0..20) > 0 {
            data.extend_from_slice(b"  V1");
        }
        data.extend(mutated(
            random,
            &[any_line, registration, any_line, identify],
        ));
        session::check(&data);
        // Behind the first line, the connection is as if it had identified itself before.
        data.splice(2..6.min(data.len()), []);
        session::check(&data);
    });
}

fn request(random: &mut Rng) -> Vec<u8> {
    let method = ["GET", "GET", "POST", "POST", "HEAD", "OPTIONS", "PUT"][random.usize(0..7)];
    let paths = [
        "/ping",
        "/info",
        "/lookup",
        "/topics",
        "/channels",
        "/nodes",
        "/debug",
        "/topic/create",
        "/topic/delete",
        "/topic/tombstone",
        "/channel/create",
        "/channel/delete",
        "/create_topic",
        "/Topic/Create/",
        "/debug/pprof/cmdline",
        "/%2e%2e/ping",
        "//",
        "*",
    ];
    let path = random.choice(&paths).expect("there are paths");
    let encoded = |text: String| text.replace('#', "%23");
    let (topic, channel) = (encoded(name(random)), encoded(name(random)));
    let query = match random.u8(0..6) {
        0 => String::new(),
        1 => format!("?topic={topic};x=%zz"),
        2 => format!("?topic={topic}&node=b:1"),
        _ => format!("?topic={topic}&channel={channel}"),
    };
    let version = ["1.1", "1.1", "1.1", "1.0", "2.0", "1.10"][random.usize(0..6)];
    let mut head = format!("{method} {path}{query} HTTP/{version}\r\nHost: x\r\n");
    let headers = [
        "Accept: application/vnd.nsq; version=1.0\r\n",
        "Connection: keep-alive\r\n",
        "Connection: close\r\n",
        "X-Long: ",
        "Host: y\r\n",
        "Content-Length: 3\r\n",
        " folded: yes\r\n",
    ];
    for _ in 0..random.usize(0..3) {
        match *random.choice(&headers).expect("there are headers") {
            "X-Long: " => head += &format!("X-Long: {}\r\n", "y".repeat(random.usize(0..9000))),
            header => head += header,
        }
    }
    match random.u8(0..6) {
        0 => head += "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        1 => head += "Content-Length: 3\r\n\r\nabc",
        2 => head += "Content-Length: 99999999999\r\n\r\nabc",
        _ => head += "\r\n",
    }
    head.into_bytes()
}

#[test]
fn any_http_request_means_the_same_however_it_is_cut() {
    log::set_level(Level::Fatal);
    for_each_seed(|random| {
        let input = mutated(random, &[request]);
        let (cut, step) = (random.usize(0..=input.len()), random.usize(1..300));
        exchange::check(&input, cut, step);
    });
}

/// The client ends its side behind an empty line. If a read ended inside this line, the server took it for a request.
#[test]
fn an_empty_line_means_nothing_however_it_is_cut() {
    let input = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n\r\n\r\n";
    exchange::check(input, input.len() - 1, 1);
    exchange::check(input, input.len() - 3, 2);
}
