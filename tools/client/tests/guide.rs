//! Runs the programs of docs/reference/client.md, client-porting.md and README.md with real daemons. A doc test has no
//! daemons, so those that need some are only compiled there. `guide/` has what the pages show, with a function in place of
//! each address.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use test_support::daemon::{Daemon, send_signal};
use test_support::{TIMEOUT, wait_until};

/// The functions of the programs in `guide/`, and the addresses on the pages.
const ADDRESSES: [(&str, &str); 5] = [
    ("first_nsqd()", "\"10.0.0.1:4150\""),
    ("second_nsqd()", "\"10.0.0.2:4150\""),
    ("nsqd()", "\"127.0.0.1:4150\""),
    ("lookupd()", "\"127.0.0.1:4161\""),
    ("lookupd_url()", "\"http://127.0.0.1:4161\""),
];

/// The pages whose programs are in `guide/`.
const PAGES: [&str; 3] = [
    "../../docs/reference/client.md",
    "../../docs/reference/client-porting.md",
    "README.md",
];

fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the blocks of Rust on a page that their doc tests do not run.
fn blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while lines.any(|line| line == "```rust,no_run") {
        let block = lines.by_ref().take_while(|line| *line != "```");
        blocks.push(block.flat_map(|line| [line, "\n"]).collect());
    }
    blocks
}

#[test]
fn each_program_of_the_pages_is_run_here() {
    let shown: Vec<String> = PAGES.iter().flat_map(|page| blocks(&read(page))).collect();
    assert!(shown.len() > 8, "{shown:?}");
    let shown: BTreeSet<String> = shown.into_iter().collect();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guide");
    let files = fs::read_dir(directory).expect("the directory is there");
    let files: Vec<_> = files.map(|entry| entry.expect("readable").path()).collect();
    let run: BTreeSet<String> = files
        .iter()
        .map(|path| {
            let text = read(path);
            let replace =
                |text: String, (function, address): &(&str, &str)| text.replace(function, address);
            ADDRESSES.iter().fold(text, replace)
        })
        .collect();
    let not_run: Vec<_> = shown.difference(&run).collect();
    let not_shown: Vec<_> = run.difference(&shown).collect();
    assert!(
        not_run.is_empty() && not_shown.is_empty(),
        "shown, but not run: {not_run:#?}\nrun, but not shown: {not_shown:#?}"
    );
    // Each file is run by the module of its name.
    let modules = read("tests/guide.rs");
    for path in &files {
        let name = path.file_name().expect("a file has a name").display();
        let included = format!("include!(\"guide/{name}\");");
        assert!(modules.contains(&included), "{name}");
    }
}

/// The first program of the guide ended at the first restart of nsqd: the answer of a message that is lost with its
/// connection was an error of the program.
#[test]
fn no_program_ends_with_a_connection() {
    let others = ["../../docs/explain/deduplication.md", "src/lib.rs"];
    for page in PAGES.into_iter().chain(others) {
        assert!(!read(page).contains(".finish().await?"), "{page}");
    }
}

/// The addresses that tests set before they start their programs, by their functions.
static PLACES: Mutex<BTreeMap<String, &'static str>> = Mutex::new(BTreeMap::new());

/// Declares the functions that return the addresses of a program, and `set`, which sets one by its name.
macro_rules! places {
    ($($name:ident)*) => {
        $(fn $name() -> &'static str {
            super::place(concat!(module_path!(), " ", stringify!($name)))
        })*

        fn set(name: &str, address: impl ToString) {
            let address = address.to_string().leak();
            let name = format!("{} {name}", module_path!());
            super::PLACES.lock().insert(name, address);
        }
    };
}

fn place(name: &str) -> &'static str {
    let places = PLACES.lock();
    places.get(name).expect("the test has set it")
}

/// Runs a program on a thread of its own. Many of them have no end.
fn spawn(
    program: impl FnOnce() -> Result<(), Box<dyn Error>> + Send + 'static,
) -> JoinHandle<Result<(), String>> {
    thread::spawn(|| program().map_err(|error| error.to_string()))
}

/// Runs an async function of a page to its end.
fn block_on<T, E: Into<Box<dyn Error>>>(
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, Box<dyn Error>> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(future).map_err(Into::into)
}

/// Starts an nsqlookupd, and an nsqd that has messages in these channels of `orders`.
fn discovered(channel: &str, bodies: &[&str]) -> (Daemon, Daemon) {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqd = Daemon::nsqd_at(&[&lookupd], &[]).with_messages("orders", channel, bodies);
    lookupd.wait_for_producers("orders", 1);
    (lookupd, nsqd)
}

/// Returns the number of messages that a topic of an nsqd has ever had.
fn message_count(nsqd: &Daemon, topic: &str) -> u64 {
    let stats = nsqd
        .get(&format!("/stats?format=json&topic={topic}"))
        .json();
    stats["topics"][0]["message_count"].as_u64().unwrap_or(0)
}

mod consume_all {
    use super::{discovered, spawn};

    places!(lookupd);

    include!("guide/consume_all.rs");

    #[test]
    fn it_finishes_each_message_also_after_a_restart() {
        let (lookupd, mut nsqd) = discovered("billing", &["one", "two"]);
        set("lookupd", lookupd.http);
        let program = spawn(main);
        nsqd.wait_for_answers("orders", "billing");
        nsqd.restart();
        nsqd.publish("orders", &["three"]);
        nsqd.wait_for_answers("orders", "billing");
        assert!(!program.is_finished());
    }
}

mod first_program {
    use super::{Daemon, message_count};

    places!(nsqd);

    include!("guide/first_program.rs");

    #[test]
    fn it_publishes_a_message_and_consumes_it() {
        let nsqd = Daemon::nsqd(&[]);
        set("nsqd", nsqd.tcp);
        main().expect("nsqd is there");
        nsqd.wait_for_answers("orders", "billing");
        assert_eq!(message_count(&nsqd, "orders"), 1);
    }
}

mod publish {
    use super::{Daemon, block_on, message_count};

    places!(first_nsqd second_nsqd);

    include!("guide/publish.rs");

    #[test]
    fn it_stores_a_message_at_one_of_the_nodes() {
        let mut nsqds = [Daemon::nsqd(&[]), Daemon::nsqd(&[])];
        set("first_nsqd", nsqds[0].tcp);
        set("second_nsqd", nsqds[1].tcp);
        block_on(publish()).expect("a node is there");
        let stored = nsqds.each_ref().map(|nsqd| message_count(nsqd, "orders"));
        assert_eq!(stored.iter().sum::<u64>(), 1);
        // Whichever node is left takes the next message.
        let has_it = usize::from(stored[1] == 1);
        nsqds[has_it].kill();
        block_on(publish()).expect("a node is there");
        assert_eq!(message_count(&nsqds[1 - has_it], "orders"), 1);
    }
}

mod numbered {
    use super::{Daemon, block_on, message_count};

    places!(nsqd);

    include!("guide/numbered.rs");

    #[test]
    fn it_stores_a_numbered_message() {
        let nsqd = Daemon::nsqd(&["--dedup=orders=publisher"]);
        set("nsqd", nsqd.tcp);
        block_on(publish()).expect("nsqd is there");
        assert_eq!(message_count(&nsqd, "orders"), 1);
    }
}

mod numbers_of_the_application {
    use super::{Daemon, block_on, message_count};

    places!(nsqd);

    include!("guide/numbers_of_the_application.rs");

    #[test]
    fn a_row_that_comes_again_is_stored_once() {
        let nsqd = Daemon::nsqd(&["--dedup=orders=publisher"]);
        set("nsqd", nsqd.tcp);
        for _ in 0..2 {
            block_on(publish_row()).expect("nsqd is there");
        }
        assert_eq!(message_count(&nsqd, "orders"), 1);
    }
}

mod consume {
    use super::{block_on, discovered, spawn};

    places!(lookupd);

    include!("guide/consume.rs");

    #[test]
    fn it_finishes_each_message() {
        let (lookupd, nsqd) = discovered("billing", &["one", "two"]);
        set("lookupd", lookupd.http);
        spawn(|| block_on(consume(Config::default())));
        nsqd.wait_for_answers("orders", "billing");
    }
}

mod recognise {
    use ringq_client::dedup::filters::{InverseBloom, KeyHasher};

    use super::{block_on, discovered, spawn};

    places!(lookupd);

    include!("guide/recognise.rs");

    #[test]
    fn it_finishes_each_message() {
        let order = r#"{"order":{"id":7}}"#;
        let (lookupd, nsqd) = discovered("billing", &[order, order]);
        set("lookupd", lookupd.http);
        let filter = InverseBloom::with_hasher(1000, KeyHasher::new([7; 16])).expect("a size");
        spawn(|| block_on(consume(filter.into())));
        nsqd.wait_for_answers("orders", "billing");
    }
}

mod from_go_nsq {
    use super::{TIMEOUT, discovered, message_count, send_signal, spawn, wait_until};

    places!(nsqd lookupd);

    include!("guide/from_go_nsq.rs");

    #[test]
    fn it_publishes_invoices_until_a_signal_comes() {
        let (lookupd, nsqd) = discovered("billing", &["one", "two"]);
        set("nsqd", nsqd.tcp);
        set("lookupd", lookupd.http);
        let program = spawn(main);
        nsqd.wait_for_answers("orders", "billing");
        assert!(wait_until(TIMEOUT, || message_count(&nsqd, "invoices") == 2));
        // The program has taken the signal over: it waits for the signal while its handlers run.
        send_signal(std::process::id(), "INT");
        let end = program.join().expect("it does not panic");
        assert_eq!(end, Ok(()));
    }
}

mod from_tokio_nsq {
    use super::{TIMEOUT, discovered, message_count, spawn, wait_until};

    places!(nsqd lookupd_url);

    include!("guide/from_tokio_nsq.rs");

    #[test]
    fn it_copies_each_message() {
        let (lookupd, nsqd) = discovered("copy", &["one", "two"]);
        set("nsqd", nsqd.tcp);
        set("lookupd_url", format!("http://{}", lookupd.http));
        spawn(main);
        nsqd.wait_for_answers("orders", "copy");
        assert!(wait_until(TIMEOUT, || message_count(&nsqd, "copies") == 2));
    }
}

mod readme {
    use super::{discovered, message_count, spawn};

    places!(nsqd lookupd);

    include!("guide/readme.rs");

    #[test]
    fn it_publishes_and_consumes() {
        let (lookupd, nsqd) = discovered("billing", &["earlier"]);
        set("nsqd", nsqd.tcp);
        set("lookupd", lookupd.http);
        spawn(main);
        super::wait_until(super::TIMEOUT, || message_count(&nsqd, "orders") == 2);
        nsqd.wait_for_answers("orders", "billing");
        assert_eq!(message_count(&nsqd, "orders"), 2);
    }
}
