//! The process of a tool: its command line, log, threads, signals and exit code, the end of its consumers and producers,
//! the line with its progress, and the listener of a tool that serves HTTP.

use std::ffi::OsString;
use std::future::Future;
use std::io::{self, Error, ErrorKind, IsTerminal, Write};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::future::join_all;
use program::http::{Failure, PageMarks};
use program::log::{self, Level, Style};
use program::{Options, Program, log_fatal, log_warn, tcp_address, thread_refused};
use ringq_client::{Acker, Consumer, Control, Message, Producer};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, timeout};
use wire::go_error::system_text;

use crate::flags::{self, Refusal};

/// Runs a tool with a valid command line, and otherwise prints why the tool ends. `config` checks the values of the flags,
/// and `work` does the tool's work until a signal comes. An error of the work is the reason for the user: it becomes the
/// last log line, with exit code 1.
pub fn run_tool<C, W>(
    program: &'static Program,
    args: impl IntoIterator<Item = OsString>,
    config: impl FnOnce(&Options) -> Result<C, Refusal>,
    work: impl FnOnce(C, StopSignals) -> W,
) -> ExitCode
where
    W: Future<Output = Result<(), String>>,
{
    let read = |options: &Options| Ok((options.log_style_of_tool(), config(options)?));
    match flags::read(program, args, read) {
        Ok((style, config)) => run_with_log(Level::Info, style, |signals| work(config, signals)),
        Err(exit) => exit.print(),
    }
}

/// Does the work of a tool, as [`run_tool`] says. `level` is the lowest level that is logged.
pub fn run_with_log<W>(level: Level, style: Style, work: impl FnOnce(StopSignals) -> W) -> ExitCode
where
    W: Future<Output = Result<(), String>>,
{
    let logs = log::init_tool(level, style);
    let logs = logs.map_err(|error| thread_refused("the log's thread", &error));
    let runtime = logs
        .and_then(|()| Runtime::new().map_err(|error| format!("cannot start threads: {error}")));
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(why) => {
            log_fatal!("{why}");
            return ExitCode::from(1);
        }
    };
    let end = runtime.block_on(async {
        let signals = StopSignals::catch();
        let signals = signals.map_err(|error| format!("cannot receive signals: {error}"))?;
        work(signals).await
    });
    // The process ends now, whatever its threads do. A runtime that shuts down panics in those that still use it, and a
    // thread that still works could log a line behind the reason.
    std::mem::forget(runtime);
    log::set_level(Level::Fatal);
    log::flush();
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            log_fatal!("{why}");
            ExitCode::from(1)
        }
    }
}

/// The longest time that a stopping tool waits for the answers to the messages that it has.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(30);

/// The further time in which consumers save the filter of `--dedup`, after they have ended.
const SAVE_TIME_MAX: Duration = Duration::from_secs(1);

/// The longest time that messages are touched while they wait for a slow disk or client, from their delivery. nsqd has the
/// same limit by default.
pub const TOUCH_TIME_MAX: Duration = Duration::from_secs(15 * 60);

/// The longest time that the end after a failure waits for nsqd.
const GIVE_BACK_TIME_MAX: Duration = Duration::from_secs(5);

/// The signals that end a tool: SIGINT and SIGTERM.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Takes the signals over. A tool calls this, inside its runtime, before it starts consumers.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn catch() -> io::Result<StopSignals> {
        Ok(StopSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for a signal. The future may be dropped, and no signal is lost.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Stops consumers. Returns when each message has its answer. After [`STOP_TIME_MAX`], which is also the limit of a
/// consumer, the consumers say in the log which messages have none: these come again from nsqd. Somebody must go on to
/// take the consumers' messages meanwhile.
pub async fn shut_down(controls: impl IntoIterator<Item = Control>) {
    if !have_ended(controls, STOP_TIME_MAX + SAVE_TIME_MAX).await {
        log_warn!("ending although the filter of --dedup is not saved");
    }
}

/// Stops consumers, and waits until all have ended and their filter is saved. Returns false if that takes longer than
/// `limit`.
async fn have_ended(controls: impl IntoIterator<Item = Control>, limit: Duration) -> bool {
    let stops = controls
        .into_iter()
        .map(|control| async move { control.shutdown().await });
    timeout(limit, join_all(stops)).await.is_ok()
}

/// Waits for the end of the work of consumers, which are stopping, as [`within_stop_time`] does. `controls` are those of the
/// consumers that are running then.
pub async fn consumers_within_stop_time<C: IntoIterator<Item = Control>>(
    work: impl Future,
    controls: impl FnOnce() -> C,
) {
    if timeout(STOP_TIME_MAX, work).await.is_ok() {
        return;
    }
    // A consumer that has given up its messages by now ends at once, unless its filter is being saved.
    if have_ended(controls(), SAVE_TIME_MAX).await {
        warn_of_unanswered()
    } else {
        // These two reasons look the same from outside.
        log_warn!(
            "ending although messages are not answered, or the filter of --dedup is not saved, after 30 seconds"
        )
    }
}

/// Stops a consumer as [`shut_down`] does, and passes the messages that it still has to `take`. The stream of a consumer
/// ends when its filter is saved, so nobody may wait for the end of the stream without a limit.
pub async fn drain(consumer: &mut Consumer, mut take: impl FnMut(Message)) {
    let mut stopped = pin!(shut_down([consumer.control()]));
    loop {
        tokio::select! {
            biased;
            () = &mut stopped => return,
            Some(message) = consumer.next() => take(message),
        }
    }
}

/// Closes a producer. Publishes without a confirmation get a line in the log.
pub async fn close(producer: &Producer) {
    if let Err(unanswered) = producer.close().await {
        log_warn!("{unanswered}");
    }
}

/// Waits for the end of work that a stop began, for at most [`STOP_TIME_MAX`].
pub async fn within_stop_time(work: impl Future) {
    if timeout(STOP_TIME_MAX, work).await.is_err() {
        warn_of_unanswered();
    }
}

fn warn_of_unanswered() {
    let seconds = STOP_TIME_MAX.as_secs();
    log_warn!("not all messages were answered within {seconds} seconds, ending without them");
}

/// Ends consumers after a failure: these messages, and those that nobody has taken, go back to nsqd, which can deliver
/// them at once.
pub async fn give_back(
    consumers: impl IntoIterator<Item = Consumer>,
    messages: impl IntoIterator<Item = Acker>,
) {
    let consumers: Vec<Consumer> = consumers.into_iter().collect();
    let controls: Vec<Control> = consumers.iter().map(Consumer::control).collect();
    controls.iter().for_each(begin_shutdown);
    messages
        .into_iter()
        .for_each(|message| give_one_back(&message));
    // The consumers give back the messages that nobody has taken.
    drop(consumers);
    let ends = controls.iter().map(Control::shutdown);
    if timeout(GIVE_BACK_TIME_MAX, join_all(ends)).await.is_err() {
        log_warn!("nsqd gets some messages back only when they time out");
    }
}

/// Gives a message that the tool has not handled back to nsqd. If the connection is lost, nsqd has it back in any case.
pub fn give_one_back(message: &Acker) {
    drop(message.give_back());
}

/// Sends CLS, so that nsqd does not deliver messages here again that come back from here.
fn begin_shutdown(control: &Control) {
    // The first poll begins the end. Its result does not matter here.
    let _ = control.shutdown().now_or_never();
}

/// The time between two states of the line.
const INTERVAL: Duration = Duration::from_secs(1);

/// The figures of a tool at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The number of messages that are done.
    pub count: u64,
    /// The name of these messages in the line: `messages`.
    pub name: &'static str,
    /// The figures behind the rate, without control characters: `3 in flight, 0 errors`.
    pub others: String,
}

impl Figures {
    /// Returns the figures of messages that leave for another place. `errors` is the number of failures so far.
    pub fn of_transfer(count: u64, in_flight: u64, errors: u64) -> Figures {
        Figures {
            count,
            name: "messages",
            others: format!("{in_flight} in flight, {errors} errors"),
        }
    }

    /// Returns the sums of the consumers behind these controls. An error is a message that went back to nsqd.
    pub fn of_consumers(controls: &[Control]) -> Figures {
        let (mut finished, mut in_flight, mut requeued) = (0, 0, 0);
        for control in controls {
            let stats = control.stats();
            finished += stats.finished;
            in_flight += stats.in_flight;
            requeued += stats.requeued;
        }
        Figures::of_transfer(finished, in_flight, requeued)
    }
}

/// Does `work`, and shows the figures below the log meanwhile. Without a terminal as stderr, nothing is shown, and
/// `figures` is not called. The line disappears with the end of the work.
pub async fn beside<T>(work: impl Future<Output = T>, mut figures: impl FnMut() -> Figures) -> T {
    if !io::stderr().is_terminal() {
        return work.await;
    }
    let mut work = pin!(work);
    let mut last = (figures().count, Instant::now());
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once, and would show no rate.
    ticks.reset();
    loop {
        tokio::select! {
            biased;
            result = &mut work => {
                log::show_status(String::new());
                return result;
            }
            _ = ticks.tick() => log::show_status(progress_line(&mut last, &figures(), Instant::now())),
        }
    }
}

/// Returns the line for these figures. The rate is that since `last`, the count and the time of the last line.
fn progress_line(last: &mut (u64, Instant), figures: &Figures, now: Instant) -> String {
    let Figures {
        count,
        name,
        others,
    } = figures;
    let (old_count, at) = std::mem::replace(last, (*count, now));
    let time = now.saturating_duration_since(at).as_secs_f64();
    let new = count.saturating_sub(old_count);
    let rate = (new as f64 / time.max(0.001)).round();
    format!("{count} {name} ({rate}/s), {others}")
}

/// Returns what a user can do after this failure of a file. `None` means that the failure says too little.
pub fn advice(error: &Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some("free some space"),
        ErrorKind::PermissionDenied => Some("let this user write there"),
        ErrorKind::ReadOnlyFilesystem => Some("mount the file system for writing"),
        ErrorKind::NotADirectory => Some("move the file that is in the way"),
        _ => None,
    }
}

/// Writes bytes to standard output. Blocks while nobody reads them.
///
/// # Errors
/// The write fails.
pub fn print(bytes: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(bytes)?;
    output.flush()
}

/// Listens on `<host>:<port>`, as operators write it. An empty host means all addresses. `tool` is the
/// tool's own name. Must be called inside the runtime.
///
/// # Errors
/// The address cannot be listened on. The error is the text of NSQ's programs, with advice.
pub fn listen(address: &str, tool: &str) -> Result<(TcpListener, SocketAddr), String> {
    let refuse = |why: String| format!("listen ({address}) failed - {why}");
    let resolved = tcp_address::resolve(address).map_err(refuse)?;
    let bound = StdListener::bind(resolved).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    bound.map_err(|error| {
        let why = format!("listen tcp {resolved}: bind: {}", system_text(&error));
        refuse(match tcp_address::bind_hint(&error, tool) {
            hint if hint.is_empty() => why,
            hint => format!("{why} - {hint}"),
        })
    })
}

/// Refuses a request that a browser marks as sent by a page of another site. A layer of the routes that change something.
pub async fn refuse_other_sites(request: Request, next: Next) -> Response {
    if PageMarks::from(request.headers()).are_of_other_site() {
        let text = format!("{}\n", Failure::FORBIDDEN_ORIGIN.code);
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use program::log::capture;
    use ringq_client::testing::{MockConnection, MockNetwork};
    use tokio::time;

    use super::*;

    /// Connects a consumer, and returns its connection as nsqd has it. After a shutdown, the consumer waits as long for its
    /// messages.
    async fn consumer(topic: &str, drain_seconds: u64) -> (Consumer, MockConnection) {
        let network = MockNetwork::new();
        let mut server = network.server("n1:4150");
        let builder = Consumer::builder(topic, "c").node(server.address());
        let builder = builder.drain_limit(Duration::from_secs(drain_seconds));
        let consumer = builder.connector(network).connect().await;
        let mut nsqd = server.accept().await;
        nsqd.handshake().await;
        nsqd.expect(&format!("SUB {topic} c")).await;
        nsqd.respond("OK").await;
        nsqd.expect("RDY 1").await;
        (consumer.expect("complete"), nsqd)
    }

    /// A filter that is being saved on a disk that hangs holds up the end of the stream, too.
    #[tokio::test(start_paused = true)]
    async fn a_stream_that_does_not_end_does_not_hold_up_the_tool() {
        let (mut consumer, mut nsqd) = consumer("t", 3600).await;
        let began = time::Instant::now();
        drain(&mut consumer, drop).await;
        let seconds = (STOP_TIME_MAX + SAVE_TIME_MAX).as_secs();
        assert_eq!(began.elapsed().as_secs(), seconds);
        nsqd.expect("CLS").await;
    }

    /// nsq_to_file said that messages were not answered, when only the save of the filter hung. Then it blamed the filter
    /// when a disk held up the messages.
    #[tokio::test(start_paused = true)]
    async fn consumers_that_do_not_end_are_told_from_those_that_gave_up() {
        // A consumer whose filter is being saved does not end, as one that waits for its messages does not.
        for (drain_seconds, seconds, line) in [
            (
                3600,
                31,
                "WARNING: ending although messages are not answered, or the filter of --dedup is not saved, \
                 after 30 seconds",
            ),
            (
                1,
                30,
                "WARNING: not all messages were answered within 30 seconds, ending without them",
            ),
        ] {
            let (consumer, _nsqd) = consumer("t", drain_seconds).await;
            let control = consumer.control();
            begin_shutdown(&control);
            let began = time::Instant::now();
            capture::start();
            consumers_within_stop_time(pending::<()>(), || [control]).await;
            assert_eq!(capture::stop(), [line]);
            assert_eq!(began.elapsed().as_secs(), seconds);
        }
    }

    /// The topics waited one after the other, each for 5 s.
    #[tokio::test(start_paused = true)]
    async fn consumers_that_give_back_wait_together() {
        let (mut consumers, mut connections) = (Vec::new(), Vec::new());
        for topic in ["a", "b", "c"] {
            let (consumer, nsqd) = consumer(topic, 30).await;
            consumers.push(consumer);
            connections.push(nsqd);
        }
        let began = time::Instant::now();
        // No nsqd answers CLS.
        give_back(consumers, []).await;
        assert_eq!(began.elapsed().as_secs(), GIVE_BACK_TIME_MAX.as_secs());
        for nsqd in &mut connections {
            nsqd.expect("CLS").await;
        }
    }

    #[test]
    fn the_rate_is_that_of_the_time_since_the_last_line() {
        let began = Instant::now();
        let mut last = (0, began);
        let mut check = |count, milliseconds, expected: &str| {
            let figures = Figures::of_transfer(count, 3, 1);
            let now = began + Duration::from_millis(milliseconds);
            assert_eq!(progress_line(&mut last, &figures, now), expected);
        };
        check(100, 1000, "100 messages (100/s), 3 in flight, 1 errors");
        // A busy machine was late by half a second.
        check(400, 2500, "400 messages (200/s), 3 in flight, 1 errors");
        check(400, 3500, "400 messages (0/s), 3 in flight, 1 errors");
        check(401, 3500, "401 messages (1000/s), 3 in flight, 1 errors");
    }

    #[test]
    fn the_largest_figures_fit_into_a_narrow_terminal() {
        let now = Instant::now();
        let figures = Figures::of_transfer(999_999_999_999, 2500, 999_999_999);
        let text = progress_line(&mut (999_990_000_000, now), &figures, now + INTERVAL);
        assert!(text.len() < 80, "{text}");
    }
}
