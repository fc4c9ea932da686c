use super::*;
use crate::nsqtop::tests::samples;

fn pair<'a>(before: &'a Sample, after: &'a Sample) -> Pair<'a> {
    let before = Some(before);
    Pair { before, after }
}

/// Returns the rows of a view, in its usual order.
fn table(view: View, pair: Pair<'_>) -> Table {
    view.table(pair, &Filter::default(), view.usual_sort())
}

/// Returns the view of the two samples as plain text, without the spaces between the columns.
fn shown(view: View, filter: &str, sort: Sort) -> Vec<String> {
    let filter = Filter::Text(filter.to_owned());
    let [before, after] = samples();
    let text = view
        .table(pair(&before, &after), &filter, sort)
        .plain_text();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).collect()
}

#[track_caller]
fn check(view: View, expected: &str) {
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    assert_eq!(shown(view, "", view.usual_sort()), expected);
}

#[test]
fn channels_have_rates_and_a_diagnosis() {
    check(
        View::Channels,
        "CHANNEL IN/S OUT/S DEPTH INFLT DEFER REQ/S E2E AGE CONNS DOCTOR
         orders/audit 100 0 1.2k 0 0 0 - 60s 0 No consumers: 1.2k messages wait and 100/s arrive; start a consumer
         orders/billing 100 10 680 1 3 0 250ms 4.5s 2 Handlers too slow: 1 consumer finishes 10 of \
             100/s at 100ms a message; run 13 consumers instead of 1, or as many more handlers (only at a:4151)
         quiet/archive#ephemeral 0 0 7 0 0 0 - - 0 Paused with 7 waiting messages: unpause the channel",
    );
}

/// The doctor asked to end a pause that a colleague had made with an end and a note.
#[test]
fn a_pause_with_terms_is_told_and_nobody_is_asked_to_end_it() {
    let [before, mut after] = samples();
    let node = "b:4151";
    let figures = after.nodes.get_mut(node).expect("the node is there");
    let channel = &mut figures.stats.topics[1].channels[0];
    channel.pause_until_ms = Some((after.unix_seconds + 77) * 1000);
    channel.paused_by = "ann".to_owned();
    channel.pause_note = "deploying".to_owned();
    let table = table(View::Channels, pair(&before, &after));
    let sentence = "Paused for another 77s by ann (deploying); 7 messages wait";
    assert!(table.plain_text().contains(sentence), "{table:?}");
}

#[test]
fn topics_are_summed_over_the_nodes() {
    check(
        View::Topics,
        "TOPIC IN/S B/S DEPTH MSGS CHANS NODES CONNS E2E AGE STATE
         orders 100 10k 0 1.2k 2 2 2 - 60s
         other 5 0 2 10 0 1 0 - - no channel
         quiet 0 0 0 7 1 1 0 - -",
    );
}

#[test]
fn clients_are_consumers_and_producers() {
    check(
        View::Clients,
        "CLIENT ADDRESS READS, WRITES RDY INFLT MSG/S FIN/S REQ/S SINCE
         billing-1 10.0.0.1:40000 orders/billing 1 1 10 10 0 10m
         billing-1 10.0.0.1:40000 orders/billing 1 1 0 0 0 10m
         shop 10.0.0.9:5000 >orders - - 100 - - 62s",
    );
}

#[test]
fn nodes_have_shards_if_they_are_ours() {
    check(
        View::Nodes,
        "NODE VERSION SHARDS IN/S B/S DEPTH INFLT CONNS TOPICS UP HEALTH
         a:4151 1.3.0 4 105 10k 1.9k 1 2 2 2.0h OK
         b:4151 1.2.1 - 0 0 7 0 1 2 12d NOK - disk full",
    );
}

/// An nsqd without shards has no rows.
#[test]
fn shards_name_their_busiest_topic() {
    check(
        View::Shards,
        "NODE SHARD TOPICS IN/S B/S DEPTH INFLT DEFER CONNS BUSIEST TOPIC
         a:4151 3 2 105 10k 1.9k 1 3 1 orders",
    );
}

#[test]
fn rows_are_filtered_and_sorted() {
    let names = |filter, sort| -> Vec<String> {
        let rows = shown(View::Channels, filter, sort);
        let name = |row: &String| row.split(' ').next().unwrap_or_default().to_owned();
        rows.iter().skip(1).map(name).collect()
    };
    let by = |name| View::Channels.sort_by_name(name).unwrap();
    let (audit, billing, archive) = ("orders/audit", "orders/billing", "quiet/archive#ephemeral");
    assert_eq!(names("", by("channel")), [audit, billing, archive]);
    assert_eq!(names("", by("-Channel")), [archive, billing, audit]);
    assert_eq!(names("", by("-depth")), [archive, billing, audit]);
    // Unknown numbers come last, or first in the reversed order.
    assert_eq!(names("", by("e2e"))[0], billing);
    assert_eq!(names("", by("-e2e"))[2], billing);
    assert_eq!(names("ORDERS/", by("channel")), [audit, billing]);
    assert_eq!(names("too slow", by("channel")), [billing]);
    assert_eq!(names("nothing like it", by("channel")), [""; 0]);
}

#[test]
fn one_sample_has_no_rates() {
    let [_, after] = samples();
    let pair = Pair {
        before: None,
        after: &after,
    };
    for view in VIEWS {
        for row in table(view, pair).rows {
            for (cell, column) in row.cells.iter().zip(view.columns()) {
                if column.title.ends_with("/S") {
                    assert_eq!(cell.shown(), "-", "{row:?}");
                }
            }
        }
    }
    let table = table(View::Channels, pair);
    test_support::assert_like(&table.rows[0].detail, "waiting for a second sample…");
}

#[test]
fn a_client_without_names_leaves_no_gap() {
    let [before, after] = samples();
    let table = table(View::Clients, pair(&before, &after));
    let details: Vec<_> = table.rows.iter().map(|row| row.detail.as_str()).collect();
    assert!(
        details.contains(&"shop at a:4151, connected for 62s"),
        "{details:#?}"
    );
}

#[test]
fn no_text_controls_the_terminal() {
    let [before, mut after] = samples();
    for node in after.nodes.values_mut() {
        node.stats.health = "NOK - \u{1b}[2J\n".to_owned();
    }
    for view in VIEWS {
        for row in table(view, pair(&before, &after)).rows {
            assert!(!row.detail.contains(char::is_control), "{row:?}");
            let texts = row.cells.iter().map(Cell::shown);
            assert!(
                !texts.collect::<String>().contains(char::is_control),
                "{row:?}"
            );
        }
    }
}

#[test]
fn every_view_fits_80_columns() {
    for view in VIEWS {
        let columns = view.columns();
        let width: u16 = columns.iter().map(|column| column.width).sum();
        assert!(width + columns.len() as u16 - 1 <= 80, "{view:?}");
    }
}

#[test]
fn numbers_fit_their_column() {
    for number in [0.0, 999.4, 12_345.0, 1e9, 1e15, -123.0] {
        let shown = Cell::Number(Some(number)).shown();
        assert!(shown.len() <= 5, "{shown}");
    }
}
