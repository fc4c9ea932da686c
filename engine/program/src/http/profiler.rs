//! The pages of `/debug/pprof`. NSQ's programs have the profiler of Go's runtime there, of which
//! there is nothing here. The pages answer truly where they can, and otherwise say where to look.

use http::StatusCode;

use super::Reply;

const PAGES: [&str; 7] = [
    "block",
    "cmdline",
    "goroutine",
    "heap",
    "profile",
    "symbol",
    "threadcreate",
];

/// Returns the list of pages, for `/debug/pprof/`. `path` stands in front of the names in the links.
pub fn index(path: &str) -> Reply {
    let mut page = String::from(
        "<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/\n<br>\n\
         <p>This program is not written in Go: the profiles below are empty.</p>\n<ul>\n",
    );
    for name in PAGES {
        page += &format!("<li><a href='{path}{name}?debug=1'>{name}</a></li>\n");
    }
    page += "</ul>\n</body>\n</html>\n";
    Reply::html(page).and_no_sniffing()
}

/// Returns the arguments of the process, separated by NUL, for `/debug/pprof/cmdline`.
pub fn command_line() -> Reply {
    let arguments: Vec<String> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    text(arguments.join("\0"))
}

/// Returns the answer to a Go tool that asks whether there are symbols, and for the names of
/// addresses, for `/debug/pprof/symbol`. Unknown addresses are left out, and all are unknown.
pub fn symbols() -> Reply {
    text("num_symbols: 1\n".to_string())
}

/// Returns the answer for each profile. `elsewhere` says where to look for memory.
pub fn profile(elsewhere: &str) -> Reply {
    text(format!(
        "no such profile here: this program is not written in Go. Use perf(1) for where the time \
         goes, {elsewhere} for memory.\n"
    ))
}

fn text(body: String) -> Reply {
    Reply::plain(StatusCode::OK, body).and_no_sniffing()
}
