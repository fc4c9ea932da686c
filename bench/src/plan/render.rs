//! A plan as text, for a terminal of 100 columns.

use super::needs::{bytes, bytes_per_s};
use super::sensitivity::{Sensitivity, VARIED_BY};
use super::{CapacityPlan, is_cpu_left};
use crate::scenario::unit::{Unit, number};

const COLUMNS: usize = 100;
/// The number of inputs that are shown with their variants.
const DETAILED: usize = 2;

/// Writes the whole plan.
pub(super) fn text(plan: &CapacityPlan) -> String {
    let mut out = String::with_capacity(8 << 10);
    head(plan, &mut out);
    answer(plan, &mut out);
    out.push_str("\nHow it comes about\n");
    for (index, step) in plan.steps.iter().enumerate() {
        let keys: Vec<String> = step.assumes.iter().map(char::to_string).collect();
        let keys = match &keys[..] {
            [] => String::new(),
            keys => format!("  [{}]", keys.join(" ")),
        };
        let front = format!("  {:>2}  {:<23}", index + 1, step.what);
        wrapped(&front, &format!("= {}{keys}", step.shown), &mut out);
        wrapped(&" ".repeat(29), &step.formula, &mut out);
    }
    out.push_str("\nWhat it assumes\n");
    for assumption in &plan.assumptions {
        let front = format!("  {}  ", assumption.key);
        wrapped(&front, &assumption.text, &mut out);
    }
    out.push_str("\nWhat matters most\n");
    sensitivities(&plan.sensitivities, &mut out);
    if !plan.notes.is_empty() {
        out.push_str("\nMind\n");
    }
    for note in &plan.notes {
        wrapped("  -  ", note, &mut out);
    }
    out
}

fn head(plan: &CapacityPlan, out: &mut String) {
    let (demand, profile) = (&plan.demand, &plan.profile);
    let text = format!(
        "{} messages a day of {} bytes to {} channels, {} times the mean at the peak; consumers \
         may be away for {}",
        number(demand.per_day),
        number(demand.size_bytes),
        number(demand.channels),
        number(demand.peak),
        Unit::Seconds.show(demand.retention_s)
    );
    wrapped("Demand   ", &text, out);
    let text = format!(
        "{} {} carried {} of {} bytes to {} channels within {}, on {} ({} cores)",
        profile.daemon.kind,
        profile.daemon.version,
        Unit::PerSecond.show(profile.messages_per_s),
        number(profile.message_bytes),
        profile.channels,
        profile.slo,
        profile.machine.cpu_model,
        profile.cores
    );
    wrapped("Profile  ", &text, out);
}

fn answer(plan: &CapacityPlan, out: &mut String) {
    let needs = &plan.needs;
    let working = needs.nodes.working;
    out.push_str("\nWhat it takes                 the working nodes together, at the peak\n");
    let (carrying, spare) = (number(working), number(plan.demand.spare_nodes));
    put!(
        out,
        "  nodes         {:>14}   {carrying} to carry the peak ",
        number(needs.nodes.all)
    );
    put!(out, "({}), {spare} spare\n", needs.reason());
    // Without the reason, many nodes beside a small part of a core look like a mistake.
    let is_cpu_left = is_cpu_left(&plan.profile) && needs.nodes.for_rate == needs.nodes.exact;
    let cores_each = match plan.profile.cores {
        cores if is_cpu_left => format!(" of {cores} a node: CPU did not limit the measured rate"),
        _ => " a node".to_owned(),
    };
    let memory = needs.memory_per_node.map(|memory| memory * working);
    let storage = &needs.storage;
    let rows: [(_, _, &dyn Fn(f64) -> String); 6] = [
        ("cores", needs.cores, &|cores| Unit::Cores.show(cores)),
        ("memory", memory, &bytes),
        ("disk space", Some(storage.disk_bytes), &bytes),
        ("disk writes", Some(storage.disk_rate), &bytes_per_s),
        ("network in", Some(needs.network_in), &gigabits),
        ("network out", Some(needs.network_out), &gigabits),
    ];
    for (what, all, show) in rows {
        let each = if what == "cores" {
            &cores_each
        } else {
            " a node"
        };
        match all {
            Some(all) => {
                let (together, part) = (show(all), show(all / working));
                put!(out, "  {what:<13} {together:>14}   {part}{each}\n");
            }
            None => put!(out, "  {what:<13} {:>14}\n", "not measured"),
        }
    }
    if let Some((all, each)) = needs.nodes.connections.zip(plan.demand.clients) {
        let (all, each) = (number(all), number(each));
        put!(
            out,
            "  connections   {all:>14}   {each} a node, spare ones included\n"
        );
    }
}

fn gigabits(bytes: f64) -> String {
    format!("{} Gbit/s", number(bytes * 8.0 / 1e9))
}

fn sensitivities(all: &[Sensitivity], out: &mut String) {
    let percent = number(VARIED_BY * 100.0);
    let text = format!(
        "each input varied by {percent} % down and up, the others unchanged; the mean change of \
         nodes (before rounding), cores, disk space, disk writes and network"
    );
    wrapped("  ", &text, out);
    out.push('\n');
    for sensitivity in all {
        let change = format!("{:.1} %", sensitivity.change_percent);
        put!(out, "  {:<26} {change:>8}\n", sensitivity.name);
    }
    for sensitivity in all.iter().take(DETAILED) {
        out.push('\n');
        let mut line = |[input, nodes, cores]: [&str; 3], bytes: [&str; 3], remark: &str| {
            let [space, writes, network] = bytes;
            put!(out, "  {input:<26} {nodes:>6} {cores:>7} ");
            put!(out, "{space:>11} {writes:>12} {network:>14}{remark}\n");
        };
        let headings = ["disk space", "disk writes", "network out"];
        line([sensitivity.name, "nodes", "cores"], headings, "");
        let mut rows = vec![(&sensitivity.planned, "  as planned")];
        rows.extend(sensitivity.variants.iter().map(|row| (row, "")));
        rows.sort_by(|one, other| one.0.value.total_cmp(&other.0.value));
        // Where an input has an end (a utilisation of 1), two variants are the same.
        rows.dedup_by(|one, other| one.0.value == other.0.value && one.1.is_empty());
        for (variant, remark) in rows {
            let needs = &variant.needs;
            let (input, nodes) = ((sensitivity.show)(variant.value), number(needs.nodes.all));
            let cores = needs.cores.map_or_else(|| "-".to_owned(), number);
            let space = bytes(needs.storage.disk_bytes);
            let writes = bytes_per_s(needs.storage.disk_rate);
            let network = gigabits(needs.network_out);
            line(
                [&input, &nodes, &cores],
                [&space, &writes, &network],
                remark,
            );
        }
    }
}

/// Appends `text` behind `front`, broken at spaces, the following lines indented as far.
fn wrapped(front: &str, text: &str, out: &mut String) {
    let indent = front.chars().count();
    let mut column = indent;
    out.push_str(front);
    for (index, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length > COLUMNS {
            put!(out, "\n{}", " ".repeat(indent));
            column = indent;
        } else if index > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
}
