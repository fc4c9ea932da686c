//! The program `manual`: writes the manual pages and the shell completions of all programs, for tools/release. Both come
//! from what the programs read: their tables of flags, and the clap commands of `nsq-bench` and `diskq`.
//!
//! ```text
//!   manual DIR ──► DIR/man/man1/nsq_tail.1, DIR/man/man8/nsqd.8, ...
//!             └──► DIR/bash-completion/completions/nsqd, DIR/zsh/site-functions/_nsqd, DIR/fish/.../nsqd.fish
//! ```
//!
//! A new program is a row of [`programs`].

#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::iter;
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgAction, Command};
use clap_complete::Shell;
use nsq_tools::{
    nsq_forget::NSQ_FORGET, nsq_pubsub::NSQ_PUBSUB, nsq_stat::NSQ_STAT, nsq_tail::NSQ_TAIL,
    nsq_to_file::NSQ_TO_FILE, nsq_to_http::NSQ_TO_HTTP, nsq_to_nsq::NSQ_TO_NSQ, nsqtop::NSQTOP,
    to_nsq::TO_NSQ,
};
use nsqadmin::config::NSQADMIN;
use nsqd::config::NSQD;
use nsqlookupd::config::NSQLOOKUPD;
use program::Program;
use program::flag::{DefaultValue, Flag, Kind};

/// Below the flags of a program that reads them as Go does.
const SYNTAX: &str = "-name and --name are the same. A value follows after = or as the next argument, and that of a \
                      boolean only after =.";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let (Some(directory), None) = (args.next(), args.next()) else {
        eprintln!("usage: manual DIRECTORY");
        return ExitCode::from(2);
    };
    if let Err(error) = write_all(Path::new(&directory)) {
        eprintln!("manual: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The daemons are in section 8 of the manual, the other programs in section 1.
fn programs() -> Vec<(&'static str, Command)> {
    let daemon = |program, about| ("8", command(program, about));
    let tool = |program, about| ("1", command(program, about));
    vec![
        daemon(&NSQD, "NSQ's broker, with every message in files"),
        daemon(&NSQLOOKUPD, "tells consumers of NSQ where topics are"),
        daemon(&NSQADMIN, "shows an NSQ cluster in the browser"),
        tool(&NSQ_TO_FILE, "archives NSQ topics to files"),
        tool(&NSQ_TAIL, "prints the messages of NSQ topics"),
        tool(&NSQ_TO_HTTP, "makes an HTTP request for each NSQ message"),
        tool(&NSQ_TO_NSQ, "copies NSQ messages to other nsqds"),
        tool(&TO_NSQ, "publishes the records of standard input to nsqd"),
        tool(&NSQ_STAT, "prints the figures of an NSQ channel"),
        tool(&NSQTOP, "shows topics, channels, clients and nodes of NSQ"),
        tool(&NSQ_PUBSUB, "lets HTTP clients subscribe and publish"),
        tool(
            &NSQ_FORGET,
            "counts the recent values of a field in NSQ messages",
        ),
        ("1", nsq_bench::cli::command().disable_help_subcommand(true)),
        ("1", diskq_program::command().disable_help_subcommand(true)),
    ]
}

/// Returns a table of flags as a command of clap. Only pages and completions are made of it.
fn command(program: &'static Program, about: &'static str) -> Command {
    let original = program.flags.iter().map(arg);
    let own = program.own_flags.iter();
    let own = own.map(|flag| arg(flag).help_heading("Flags that the original does not have"));
    Command::new(program.name)
        .version(program::version::RINGQ_VERSION)
        .about(about)
        .after_help(SYNTAX)
        .disable_version_flag(true)
        .args(original.chain(own))
}

fn arg(flag: &Flag) -> Arg {
    let default = match flag.default {
        // The help says how a default follows from the name of the host.
        DefaultValue::OfHost(_) | DefaultValue::Fixed("" | "0" | "0s" | "false") => String::new(),
        DefaultValue::Fixed(text) => format!(" [default: {}]", text.replace('\n', "\\n")),
    };
    let arg = Arg::new(flag.name)
        .long(flag.name)
        .help(format!("{}{default}", flag.help));
    match flag.kind {
        kind if kind.is_boolean() => arg.action(ArgAction::SetTrue),
        Kind::Choice(words) => arg.value_name("string").value_parser(words.to_vec()),
        kind => arg.value_name(kind.word()),
    }
}

fn write_all(directory: &Path) -> io::Result<()> {
    for (section, mut command) in programs() {
        let name = command.get_name().to_owned();
        let man = directory.join("man").join(format!("man{section}"));
        fs::create_dir_all(&man)?;
        // Gives each subcommand the name of its page: `diskq-export`.
        command.build();
        for command in iter::once(&command).chain(command.get_subcommands()) {
            let name = command.get_display_name().unwrap_or(command.get_name());
            let page = clap_mangen::Man::new(command.clone()).section(section);
            // No date: the same source makes the same page.
            let page = page.date("").source("ringq").manual("ringq");
            let mut text = Vec::new();
            page.render(&mut text)?;
            fs::write(man.join(format!("{name}.{section}")), text)?;
        }
        for (shell, place) in [
            (Shell::Bash, "bash-completion/completions"),
            (Shell::Zsh, "zsh/site-functions"),
            (Shell::Fish, "fish/vendor_completions.d"),
        ] {
            let place = directory.join(place);
            fs::create_dir_all(&place)?;
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, &name, &mut script);
            let file = match shell {
                Shell::Zsh => format!("_{name}"),
                Shell::Fish => format!("{name}.fish"),
                _ => name.clone(),
            };
            fs::write(place.join(file), script)?;
        }
    }
    Ok(())
}
