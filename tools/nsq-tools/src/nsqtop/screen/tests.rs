use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::nsqtop::fixture::{sample_with_failure, samples};
use crate::nsqtop::state::Start;
use crate::nsqtop::table::View;

fn state(view: View) -> State {
    State::new(Start {
        view,
        sort: view.usual_sort(),
        filter: String::new(),
    })
}

/// Returns the lines of the screen without the spaces at their ends.
fn lines(state: &State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    let lines = cells.chunks(usize::from(width));
    lines
        .map(|line| line.concat().trim_end().to_owned())
        .collect()
}

#[test]
fn channels_fit_80_columns_and_24_rows() {
    let [before, after] = samples();
    let shown = lines(&state(View::Channels).with_samples(before, after), 80, 24);
    let expected = [
        "nsqtop  2 nodes  depth 1.9k  in flight 1",
        " 1 channels  2 topics  3 clients  4 nodes  5 shards",
        "CHANNEL              IN/S OUT/S DEPTH INFLT DEFER   E2E   AGE CONNS DOCTOR",
        "orders/audit          100     0  1.2k     0     0     -   60s     0 No consumer…",
        "orders/billing        100    10   680     1     3 250ms  4.5s     2 Handlers to…",
        "quiet/archive#ephe…     0     0     7     0     0     -     -     0 Paused with…",
    ];
    assert_eq!(shown[..6], expected, "{shown:#?}");
    assert_eq!(
        shown[20..],
        [
            "No consumers: 1.2k messages wait and 100/s arrive; start a consumer. RDY 0, 0",
            "requeued/s, 0 timed out/s",
            "",
            "q quit  tab view  < > sort  r reverse  / filter  space pause  enter open  ? help",
        ],
        "{shown:#?}"
    );
}

#[test]
fn a_wide_terminal_shows_whole_sentences() {
    let [before, after] = samples();
    let shown = lines(&state(View::Channels).with_samples(before, after), 240, 12);
    assert!(
        shown[4].ends_with("or as many more handlers (only at a:4151)"),
        "{shown:#?}"
    );
}

#[test]
fn every_view_is_drawn_at_any_size() {
    for view in VIEWS {
        let [before, after] = samples();
        let mut state = state(view).with_samples(before, after);
        for (width, height) in [(80, 24), (20, 6), (1, 1), (300, 100)] {
            let shown = lines(&state, width, height);
            if (width, height) == (80, 24) {
                assert!(shown[2].starts_with(view.columns()[0].title), "{shown:#?}");
            }
        }
        state.on_key(KeyEvent::new(KeyCode::Char('?'), KeyModifiers::NONE));
        lines(&state, 10, 3);
    }
}

#[test]
fn what_the_user_has_chosen_is_shown() {
    let [before, after] = samples();
    let mut state = state(View::Channels).with_samples(before, after);
    for key in [KeyCode::Char('/'), KeyCode::Char('a'), KeyCode::Char('u')] {
        state.on_key(KeyEvent::new(key, KeyModifiers::NONE));
    }
    assert!(lines(&state, 80, 24)[1].ends_with("filter: au_"));
    for key in [KeyCode::Enter, KeyCode::Char(' '), KeyCode::Char('?')] {
        state.on_key(KeyEvent::new(key, KeyModifiers::NONE));
    }
    let shown = lines(&state, 80, 24);
    assert!(shown[0].ends_with("PAUSED"), "{shown:#?}");
    assert!(shown[1].ends_with("filter: au"), "{shown:#?}");
    assert!(
        shown[3].contains("channels, topics, clients, nodes, shards"),
        "{shown:#?}"
    );
    assert!(
        shown[16].contains("DOCTOR what limits a channel"),
        "{shown:#?}"
    );
}

#[test]
fn nodes_that_do_not_answer_are_named() {
    let empty = lines(&state(View::Channels), 80, 24);
    assert_eq!(empty[0], "nsqtop  asking the nodes");
    let [before, _] = samples();
    let state = state(View::Nodes).with_samples(before, sample_with_failure());
    let shown = lines(&state, 80, 24);
    assert!(
        shown[22].starts_with("c:4151 does not answer - Get \"http://c:4151/stats\": dial tcp"),
        "{shown:#?}"
    );
}
