//! `/debug/*`: nsqd's are the profiler of Go's runtime, of which there is nothing here. What can be
//! answered truly is; the rest says where to look instead.

use http::StatusCode;

use program::go_value::parse_decimal;
use program::http::{End, Io, Query, Reply, RequestBody};

/// A form is read up to here, as in Go's server.
const FORM_BYTES_MAX: u64 = 10 * 1024 * 1024;

/// `/debug/pprof/`
pub(super) fn index() -> Reply {
    let mut page = String::from(
        "<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/\n<br>\n\
         <p>This program is not written in Go: the profiles below are empty.</p>\n<ul>\n",
    );
    for name in [
        "block",
        "cmdline",
        "goroutine",
        "heap",
        "profile",
        "symbol",
        "threadcreate",
    ] {
        page += &format!("<li><a href='{name}?debug=1'>{name}</a></li>\n");
    }
    page += "</ul>\n</body>\n</html>\n";
    Reply::html(page).and_no_sniffing()
}

/// `/debug/pprof/cmdline`: the arguments, separated by NUL.
pub(super) fn command_line() -> Reply {
    let arguments: Vec<String> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    text(arguments.join("\0"))
}

/// `/debug/pprof/symbol`: how a Go tool asks whether there are symbols, and for the names of
/// addresses. Those that nobody knows are left out.
pub(super) fn symbols() -> Reply {
    text("num_symbols: 1\n".to_string())
}

/// The profiles.
pub(super) fn profile() -> Reply {
    let why = "no such profile here: this program is not written in Go. Use perf(1) for where the \
               time goes, /stats for memory.\n";
    text(why.to_string())
}

fn text(body: String) -> Reply {
    Reply::plain(StatusCode::OK, body).and_no_sniffing()
}

/// Serves `PUT /debug/setblockrate`, which has nothing to set. nsqd checks the value, and then answers 500 to a good
/// value by mistake. This is the answer that nsqd meant to give.
pub(super) async fn set_block_rate(raw_query: &str, body: &mut RequestBody<'_, impl Io>) -> Reply {
    let received = body.receive(FORM_BYTES_MAX).await;
    let form = match received.end {
        End::Complete => String::from_utf8_lossy(&received.bytes).into_owned(),
        End::Broken | End::OverLimit => String::new(),
    };
    // Go takes the form's value first, and of something malformed what is not.
    let rate = [form.as_str(), raw_query]
        .iter()
        .find_map(|pairs| Query::parse(pairs).ok()?.get("rate").map(str::to_string))
        .unwrap_or_default();
    match parse_decimal(&rate) {
        Ok(_) => Reply::plain(StatusCode::OK, ""),
        Err(why) => {
            let text = format!("invalid block rate : strconv.Atoi: parsing {rate:?}: {why}");
            Reply::plain(StatusCode::BAD_REQUEST, text)
        }
    }
}

/// `POST /debug/freememory`: nothing is kept that could be given back. For 200 see above.
pub(super) fn free_memory() -> Reply {
    Reply::plain(StatusCode::OK, "")
}
