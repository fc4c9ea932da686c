//! Replaces values that differ from run to run: times, ports, hosts, toolchains, heap sizes.

use test_support::differential::{replace_behind, without_ringq_version};

/// Keys of the `memory` object, in the order of the text.
const MEMORY_KEYS: [&str; 9] = [
    "heap_objects",
    "heap_idle_bytes",
    "heap_in_use_bytes",
    "heap_released_bytes",
    "gc_pause_usec_100",
    "gc_pause_usec_99",
    "gc_pause_usec_95",
    "next_gc_bytes",
    "gc_total_runs",
];

/// Replaces each value that differs from run to run by a name in braces. The text is an answer in
/// its displayed form, in which a line end is a backslash and an `n`.
pub(crate) fn normal(text: &str) -> String {
    // The uptime of a broker in its first millisecond is in µs.
    let mut text = text.replace("\\xc2\\xb5s", "us");
    for marker in ["\"start_time\":", "\"connect_ts\":"] {
        text = replace_behind(&text, marker, "{time}", |c| c.is_ascii_digit());
    }
    for marker in [
        "127.0.0.1:",
        "\"tcp_port\":",
        "\"http_port\":",
        "\"https_port\": ",
    ] {
        text = replace_behind(&text, marker, "{port}", |c| c.is_ascii_digit());
    }
    for marker in ["start_time ", "uptime ", "connected: "] {
        text = replace_behind(&text, marker, "{time}", |c| c != '\\' && c != '"');
    }
    for key in MEMORY_KEYS {
        let in_json = format!("\"{key}\":");
        text = replace_behind(&text, &in_json, "{count}", |c| c.is_ascii_digit());
        let in_text = format!("{key:<25}\\t");
        text = replace_behind(&text, &in_text, "{count}", |c| c.is_ascii_digit());
    }
    text = without_added_keys(&text);
    text = replace_behind(&text, "(built w/", "{toolchain}", |c| c != ')');
    text = hide_ports_of_clients(&text);
    // Only `/info` contains the broker's own address. In other answers the names are those of
    // clients.
    if !text.contains("\"broadcast_address\":") {
        return text;
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    text.replace(&format!("\"{}\"", host.trim()), "\"{host}\"")
}

/// Hides the ports of clients. The text form of the statistics has `[V2 host:port agent   ]`.
fn hide_ports_of_clients(text: &str) -> String {
    let mut parts = text.split("[V2 ");
    let mut hidden = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        hidden.push_str("[V2 ");
        match part.split_once(':') {
            Some((host, rest)) => {
                let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                hidden.push_str(&format!(
                    "{host}:{{port}}{}",
                    rest.trim_start_matches("{port}")
                ));
            }
            None => hidden.push_str(part),
        }
    }
    hidden
}

/// Removes the keys of `/stats` and `/info` that nsqd does not have. docs/reference/differences.md lists them.
fn without_added_keys(text: &str) -> String {
    let mut text = without_ringq_version(text);
    for marker in [
        ",\"oldest_unfinished_ms\":",
        ",\"oldest_failed_attempts\":",
        ",\"shard\":",
    ] {
        let mut parts = text.split(marker);
        let mut kept = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            kept.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
        }
        text = kept;
    }
    text
}
