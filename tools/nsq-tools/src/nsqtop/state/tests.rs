use ratatui::crossterm::event::KeyCode::*;

use super::*;
use crate::nsqtop::tests::{self, samples};
use serde_json::json;

fn state() -> State {
    tests::state(View::Channels, samples())
}

fn text(text: &str) -> Filter {
    Filter::Text(text.to_owned())
}

fn parent(key: &str) -> Filter {
    Filter::Parent(key.to_owned())
}

/// Presses keys, each written as one letter or symbol.
#[track_caller]
fn press(state: &mut State, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '⏎' => Enter,
            '⎋' => Esc,
            '⌫' => Backspace,
            '←' => Left,
            '↑' => Up,
            '↓' => Down,
            '⇥' => Tab,
            '⇤' => BackTab,
            '⇞' => PageUp,
            '⇟' => PageDown,
            '⇱' => Home,
            '⇲' => End,
            '⎀' => Insert,
            '⑤' => F(5),
            letter => Char(letter),
        };
        let next = state.on_key(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(next, Next::Draw, "{key}");
    }
}

fn names(state: &State) -> Vec<String> {
    state.table().rows.into_iter().map(|row| row.key).collect()
}

fn selected(state: &State) -> String {
    let table = state.table();
    table.rows[state.selected_row(&table)].key.clone()
}

#[test]
fn keys_quit() {
    let control_c = KeyEvent::new(Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state().on_key(control_c), Next::Quit);
    let control_z = KeyEvent::new(Char('z'), KeyModifiers::CONTROL);
    assert_eq!(state().on_key(control_z), Next::Suspend);
    let q = KeyEvent::new(Char('q'), KeyModifiers::NONE);
    assert_eq!(state().on_key(q), Next::Quit);
    let mut typing = state();
    press(&mut typing, "/q");
    assert_eq!(typing.filter(), (&text("q"), true));
    assert_eq!(typing.on_key(control_c), Next::Quit);
}

#[test]
fn views_come_by_number_and_in_turn() {
    let mut state = state();
    for (key, view) in [
        ("2", View::Topics),
        ("⇥", View::Clients),
        ("⇥", View::Nodes),
        ("⇥", View::Shards),
        ("⇥", View::Channels),
        ("⇤", View::Shards),
        ("4", View::Nodes),
        ("3", View::Clients),
        ("9", View::Clients),
    ] {
        press(&mut state, key);
        assert_eq!(state.view, view, "{key}");
    }
}

#[test]
fn each_view_has_its_own_order() {
    let mut state = state();
    press(&mut state, "←<←r");
    let sort = state.sort();
    assert_eq!((sort.column, sort.is_reversed), (0, true));
    assert_eq!(names(&state)[0], "quiet/archive#ephemeral");
    // The first column is next to the last one.
    press(&mut state, "←");
    let sort = state.sort();
    assert_eq!(
        (sort.column, sort.is_reversed),
        (View::Channels.columns().len() - 1, false)
    );
    press(&mut state, ">");
    assert_eq!(state.sort().column, 0);
    press(&mut state, "2");
    assert_eq!(state.sort(), View::Topics.usual_sort());
}

#[test]
fn the_filter_is_typed_kept_and_removed() {
    let mut state = state();
    press(&mut state, "/Bix⌫");
    assert_eq!(state.filter(), (&text("Bi"), true));
    assert_eq!(names(&state), ["orders/billing"]);
    press(&mut state, "⏎");
    assert_eq!(state.filter(), (&text("Bi"), false));
    press(&mut state, "⎋");
    assert_eq!(names(&state).len(), 3);
    press(&mut state, "/x⎋");
    assert_eq!(state.filter(), (&text(""), false));
}

#[test]
fn the_selection_stays_with_its_row() {
    let mut state = state();
    assert_eq!(selected(&state), "orders/audit");
    press(&mut state, "↓");
    assert_eq!(selected(&state), "orders/billing");
    press(&mut state, "r");
    assert_eq!(selected(&state), "orders/billing");
    press(&mut state, "⇟");
    assert_eq!(selected(&state), "orders/audit");
    press(&mut state, "k↑↑");
    assert_eq!(selected(&state), "quiet/archive#ephemeral");
    press(&mut state, "⇲");
    assert_eq!(selected(&state), "orders/audit");
    press(&mut state, "⇱j⇞");
    assert_eq!(selected(&state), "quiet/archive#ephemeral");
    // A row that has gone leaves the selection to the first row.
    press(&mut state, "/or⏎");
    assert_eq!(selected(&state), "orders/billing");
    press(&mut state, "⎋/~⏎↓⏎");
    assert_eq!(names(&state), [""; 0]);
}

#[test]
fn enter_opens_a_topic_and_a_channel() {
    let mut state = state();
    press(&mut state, "2⏎");
    assert_eq!(
        (state.view, state.filter()),
        (View::Channels, (&parent("orders/"), false))
    );
    press(&mut state, "↓⏎");
    assert_eq!(
        (state.view, state.filter()),
        (View::Clients, (&parent("orders/billing "), false))
    );
    assert_eq!(names(&state).len(), 2);
    press(&mut state, "⏎");
    assert_eq!(state.view, View::Clients);
    // Each view has a filter of its own.
    press(&mut state, "4");
    assert_eq!(state.filter(), (&text(""), false));
}

/// The channels of all topics whose names end with the topic's name were shown.
#[test]
fn enter_opens_exactly_one_topic_and_channel() {
    let figures = |topic: &str, channel: &str| {
        let client = json!({"client_id": "x", "remote_address": "1.1.1.1:1"});
        json!({
            "topic_name": topic,
            "channels": [{"channel_name": channel, "client_count": 1, "clients": [client]}],
        })
    };
    let topics = [
        figures("or2", "c"),
        figures("vor2", "c"),
        figures("or2", "cc"),
    ];
    let stats = serde_json::from_value(json!({"topics": topics})).unwrap();
    let [before, mut after] = samples();
    let node = after.nodes.values_mut().next().unwrap();
    node.stats = stats;
    let mut state = state().with_samples(before, after);
    press(&mut state, "2/2⏎⇱");
    assert_eq!(selected(&state), "or2");
    press(&mut state, "⏎");
    assert_eq!(names(&state), ["or2/c", "or2/cc"]);
    press(&mut state, "⇱⏎");
    assert_eq!(names(&state), ["or2/c 1.1.1.1:1 a:4151"]);
    // Typing replaces the choice.
    press(&mut state, "/v");
    assert_eq!(state.filter(), (&text("v"), true));
    assert_eq!(names(&state), ["vor2/c 1.1.1.1:1 a:4151"]);
}

#[test]
fn a_paused_display_keeps_its_samples() {
    let [_, after] = samples();
    let mut state = state();
    let shown = state.table();
    press(&mut state, " ");
    assert!(state.is_paused);
    let mut later = after.clone();
    later.at += std::time::Duration::from_secs(2);
    state.add_sample(later);
    assert_eq!(state.table(), shown);
    press(&mut state, "p");
    assert!(!state.is_paused);
    assert_ne!(state.table(), shown);
}

#[test]
fn help_comes_and_goes() {
    let mut state = state();
    press(&mut state, "?");
    assert!(state.shows_help);
    press(&mut state, "⎋");
    assert!(!state.shows_help);
    press(&mut state, "hh⑤⎀");
    assert!(!state.shows_help);
}

#[test]
fn a_sample_without_nodes_gives_no_rates() {
    let [before, after] = samples();
    let mut state = state().with_samples(before, Sample::default());
    assert_eq!(names(&state), [""; 0]);
    assert_eq!(state.problems(), ["no nsqlookupd knows an nsqd"]);
    state.add_sample(after);
    let table = state.table();
    test_support::assert_like(&table.rows[0].detail, "waiting for a second sample…");
}
