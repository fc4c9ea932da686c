//! A plan as text, for a terminal of 100 columns.

use std::fmt::Write;

use super::needs::Needs;
use super::sensitivity::{Input, Sensitivity, VARIED_BY};
use super::{Plan, Step};
use crate::report::unit::{Unit, significant};

const COLUMNS: usize = 100;
/// How many inputs are shown with their variants.
const DETAILED: usize = 2;

/// Appends a formatted line; writing to a `String` cannot fail.
macro_rules! line {
    ($out:expr) => { $out.push('\n') };
    ($out:expr, $($arguments:tt)*) => {
        writeln!($out, $($arguments)*).expect("writing to a String cannot fail")
    };
}

pub(super) fn text(plan: &Plan) -> String {
    let mut out = String::with_capacity(8 << 10);
    head(plan, &mut out);
    answer(plan, &mut out);
    arithmetic(&plan.steps, &mut out);
    line!(out);
    line!(out, "What it assumes");
    for assumption in &plan.assumptions {
        wrapped(
            &format!("  {}  ", assumption.key),
            &assumption.text,
            &mut out,
        );
    }
    sensitivities(plan, &mut out);
    if !plan.notes.is_empty() {
        line!(out);
        line!(out, "Mind");
        for note in &plan.notes {
            wrapped("  -  ", note, &mut out);
        }
    }
    out
}

fn head(plan: &Plan, out: &mut String) {
    let (demand, profile) = (&plan.demand, &plan.profile);
    let text = format!(
        "{} messages a day of {} bytes to {} channels, {} times the mean at the peak; consumers \
         may be away for {}",
        Unit::Count.show(demand.per_day),
        significant(demand.size_bytes),
        significant(demand.channels),
        significant(demand.peak),
        Unit::Seconds.show(demand.retention_s)
    );
    wrapped("Demand   ", &text, out);
    let text = format!(
        "{} {} carried {} of {} bytes to {} channels within {}, on {} ({} cores)",
        profile.daemon.kind,
        profile.daemon.version,
        Unit::PerSecond.show(profile.messages_per_s),
        significant(profile.message_bytes),
        profile.channels,
        profile.slo,
        profile.machine.cpu_model,
        profile.cores
    );
    wrapped("Profile  ", &text, out);
}

fn answer(plan: &Plan, out: &mut String) {
    let needs = &plan.needs;
    let working = needs.nodes_working;
    let split = |unit: Unit, all: f64| {
        (
            unit.show(all),
            format!("{} a node", unit.show(all / working)),
        )
    };
    let absent = || ("not measured".to_owned(), String::new());
    let memory = needs.memory_per_node;
    let rows = [
        (
            "nodes",
            (
                significant(needs.nodes),
                format!(
                    "{} to carry the peak, {} spare",
                    significant(working),
                    significant(plan.demand.spare_nodes)
                ),
            ),
        ),
        (
            "cores",
            needs
                .cores
                .map_or_else(absent, |cores| split(Unit::Cores, cores)),
        ),
        (
            "memory",
            memory.map_or_else(absent, |memory| split(Unit::Bytes, memory * working)),
        ),
        ("disk space", split(Unit::Bytes, needs.disk_bytes)),
        ("disk writes", split(Unit::BytesPerSecond, needs.disk_rate)),
        ("network in", network(needs.network_in, working)),
        ("network out", network(needs.network_out, working)),
    ];
    line!(out);
    line!(
        out,
        "What it takes                 the working nodes together, at the peak"
    );
    for (what, (all, each)) in rows {
        let row = format!("  {what:<13} {all:>14}   {each}");
        line!(out, "{}", row.trim_end());
    }
}

fn network(bytes: f64, working: f64) -> (String, String) {
    let gbit = |bytes: f64| format!("{} Gbit/s", significant(bytes * 8.0 / 1e9));
    (gbit(bytes), format!("{} a node", gbit(bytes / working)))
}

fn arithmetic(steps: &[Step], out: &mut String) {
    line!(out);
    line!(out, "How it comes about");
    for (index, step) in steps.iter().enumerate() {
        let keys: Vec<String> = step.assumes.iter().map(char::to_string).collect();
        let keys = match keys.is_empty() {
            true => String::new(),
            false => format!("  [{}]", keys.join(" ")),
        };
        let front = format!("  {:>2}  {:<23}", index + 1, step.what);
        wrapped(&front, &format!("= {}{keys}", step.shown), out);
        wrapped("                             ", &step.formula, out);
    }
}

fn sensitivities(plan: &Plan, out: &mut String) {
    let percent = significant(VARIED_BY * 100.0);
    line!(out);
    line!(out, "What matters most");
    let text = format!(
        "each input varied by {percent} % down and up, the others unchanged; the mean change of \
         nodes (before rounding), cores, disk space, disk writes and network"
    );
    wrapped("  ", &text, out);
    line!(out);
    for sensitivity in &plan.sensitivities {
        line!(
            out,
            "  {:<26} {:>8}",
            sensitivity.input.name(),
            format!("{:.1} %", sensitivity.change_percent)
        );
    }
    for sensitivity in plan.sensitivities.iter().take(DETAILED) {
        line!(out);
        line!(
            out,
            "  {:<26} {:>6} {:>7} {:>11} {:>12} {:>14}",
            sensitivity.input.name(),
            "nodes",
            "cores",
            "disk space",
            "disk writes",
            "network out"
        );
        detail(plan, sensitivity, out);
    }
}

fn detail(plan: &Plan, sensitivity: &Sensitivity, out: &mut String) {
    let input = sensitivity.input;
    let given = input.value(&plan.demand, &plan.profile);
    let planned = std::iter::once((given, &plan.needs, "  as planned"));
    let variants = sensitivity
        .variants
        .iter()
        .map(|variant| (variant.value, &variant.needs, ""));
    let mut rows: Vec<(f64, &Needs, &str)> = planned.chain(variants).collect();
    rows.sort_by(|one, other| one.0.total_cmp(&other.0));
    // Where an input has an end (a utilisation of 1), two variants are the same.
    rows.dedup_by(|one, other| one.0 == other.0 && one.2.is_empty());
    for (value, needs, remark) in rows {
        line!(
            out,
            "  {:<26} {:>6} {:>7} {:>11} {:>12} {:>14}{remark}",
            shown(input, value),
            significant(needs.nodes),
            needs.cores.map_or_else(|| "-".to_owned(), significant),
            Unit::Bytes.show(needs.disk_bytes),
            Unit::BytesPerSecond.show(needs.disk_rate),
            format!("{} Gbit/s", significant(needs.network_out * 8.0 / 1e9))
        );
    }
}

fn shown(input: Input, value: f64) -> String {
    match input {
        Input::PerDay => Unit::Count.show(value),
        Input::Size | Input::StoredOverhead => format!("{} bytes", significant(value)),
        Input::Retention => Unit::Seconds.show(value),
        Input::MeasuredRate => Unit::PerSecond.show(value),
        Input::Channels | Input::Peak | Input::Utilisation | Input::Fill => significant(value),
    }
}

/// Appends `text` behind `front`, broken at spaces, the following lines indented as far.
fn wrapped(front: &str, text: &str, out: &mut String) {
    let indent = front.chars().count();
    let mut column = indent;
    out.push_str(front);
    let mut is_first = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if !is_first && column + 1 + length > COLUMNS {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if !is_first {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
        is_first = false;
    }
    out.push('\n');
}
