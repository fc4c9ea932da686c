//! Loads an nsqlookupd, ours or the original, and prints what it measured as JSON.
//!
//! ```text
//!   load <TCP address> <HTTP address> <producers> <topics> <nodes per topic> <pollers> <poll interval, s> <seconds>
//! ```
//!
//! All producers connect at the same time, as after a restart of nsqlookupd. Each one registers its
//! topics, 64 commands at a time, as ringq's nsqd does. Then each poller asks for a topic once per
//! interval, on a connection of its own. At last all producers close. docs/measure/lookup.py runs it.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Commands that are sent before their answers are read.
const TOGETHER: usize = 64;

/// Longest wait for the end of all registrations.
const TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let address = |index: usize| -> SocketAddr {
        let text = args.get(index).expect("two addresses are given");
        text.parse().expect("it is an address")
    };
    let number = |index: usize| -> usize {
        let text = args.get(index).expect("all numbers are given");
        text.parse().expect("it is a number")
    };
    let (tcp, http) = (address(0), address(1));
    let (producers, topics, nodes) = (number(2), number(3), number(4));
    let (pollers, interval, seconds) = (number(5), number(6), number(7));
    let interval = Duration::from_secs(interval as u64);

    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for producer in 0..producers {
        // Each topic is on `nodes` neighbouring producers.
        let has = |topic: &usize| (producer + producers - topic % producers) % producers < nodes;
        tasks.spawn(register(tcp, producer, (0..topics).filter(has).collect()));
    }
    let mut connected = Vec::new();
    while let Some(done) = tasks.join_next().await {
        connected.push(done.expect("no task panics")?);
    }
    let registered = started.elapsed();

    let end = Instant::now() + Duration::from_secs(seconds as u64);
    let mut tasks = JoinSet::new();
    for index in 0..pollers {
        let wait = interval.mul_f64(index as f64 / pollers as f64);
        tasks.spawn(poll(http, index % topics, interval, wait, end));
    }
    let mut times = Vec::new();
    let mut answer_bytes = 0;
    while let Some(done) = tasks.join_next().await {
        let (polled, bytes) = done.expect("no task panics")?;
        times.extend(polled);
        answer_bytes = answer_bytes.max(bytes);
    }
    times.sort();
    let quantile = |part: f64| {
        let index = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
        times
            .get(index)
            .map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };

    let started = Instant::now();
    drop(connected);
    let mut stream = TcpStream::connect(http).await?;
    let empty = Instant::now() + TIMEOUT;
    while lookup(&mut stream, topics - 1).await? > 200 && Instant::now() < empty {
        sleep(Duration::from_millis(5)).await;
    }
    let gone = started.elapsed();
    println!(
        "{{\"registrations\":{},\"register_s\":{:.3},\"lookups\":{},\"lookup_bytes\":{answer_bytes},\
         \"lookup_p50_ms\":{:.3},\"lookup_p99_ms\":{:.3},\"lookup_max_ms\":{:.3},\"gone_s\":{:.3}}}",
        nodes * topics,
        registered.as_secs_f64(),
        times.len(),
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
        gone.as_secs_f64(),
    );
    Ok(())
}

/// Connects a producer.
async fn identify(address: SocketAddr, index: usize) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let body = format!(
        r#"{{"broadcast_address":"node-{index}.example.com","hostname":"node-{index}","http_port":4151,"tcp_port":4150,"topology_region":"","topology_zone":"","version":"1.3.0"}}"#
    );
    let size = u32::try_from(body.len()).expect("it is short");
    let bytes = [b"  V1IDENTIFY\n", &size.to_be_bytes()[..], body.as_bytes()].concat();
    stream.write_all(&bytes).await?;
    let size = stream.read_u32().await?;
    stream.read_exact(&mut vec![0; size as usize]).await?;
    Ok(stream)
}

/// Connects a producer, and registers its topics.
async fn register(
    address: SocketAddr,
    producer: usize,
    topics: Vec<usize>,
) -> io::Result<TcpStream> {
    let mut stream = identify(address, producer).await?;
    for together in topics.chunks(TOGETHER) {
        let lines: String = together
            .iter()
            .map(|topic| format!("REGISTER topic-{topic}\n"))
            .collect();
        stream.write_all(lines.as_bytes()).await?;
        let mut answers = vec![0; together.len() * b"\0\0\0\x02OK".len()];
        stream.read_exact(&mut answers).await?;
        let is_good = answers.chunks(6).all(|answer| answer == b"\0\0\0\x02OK");
        assert!(is_good, "a REGISTER was refused");
    }
    Ok(stream)
}

/// Asks once per interval. Returns the time of each answer, and the length of the longest.
async fn poll(
    address: SocketAddr,
    topic: usize,
    interval: Duration,
    wait: Duration,
    end: Instant,
) -> io::Result<(Vec<Duration>, usize)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    sleep(wait).await;
    let mut times = Vec::new();
    let mut longest = 0;
    while Instant::now() < end {
        let started = Instant::now();
        longest = lookup(&mut stream, topic).await?.max(longest);
        times.push(started.elapsed());
        sleep(interval).await;
    }
    Ok((times, longest))
}

/// Sends one `/lookup` and reads its answer. Returns the number of bytes.
async fn lookup(stream: &mut TcpStream, topic: usize) -> io::Result<usize> {
    let request = format!("GET /lookup?topic=topic-{topic} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::with_capacity(64 * 1024);
    loop {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if is_whole(&answer) {
            return Ok(answer.len());
        }
    }
}

/// Returns true when an answer is complete, by its length or by its last chunk.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    match length.and_then(|length| length.parse::<usize>().ok()) {
        Some(length) => answer.len() >= end + 4 + length,
        None => answer.ends_with(b"\r\n0\r\n\r\n"),
    }
}
