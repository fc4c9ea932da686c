//! The parts of `/debug/*` besides the profiler's pages.

use http::StatusCode;

use program::go_value::parse_decimal;
use program::http::{End, Io, Query, Reply, RequestBody};

/// A form is read up to here, as in Go's server.
const FORM_BYTES_MAX: u64 = 10 * 1024 * 1024;

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
