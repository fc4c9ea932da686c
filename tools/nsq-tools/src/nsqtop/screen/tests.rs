use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::cluster::Failure;
use crate::nsqtop::tests::{self, sample_with_failure, samples, state};
use crate::nsqtop::views::View;

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
    let shown = lines(&state(View::Channels, samples()), 80, 24);
    let expected = [
        "nsqtop  2 nodes  depth 1.9k  in flight 1",
        " 1 channels  2 topics  3 clients  4 nodes  5 shards",
        "CHANNEL         IN/S OUT/S DEPTH INFLT DEFER REQ/S   E2E   AGE CONNS DOCTOR",
        "orders/audit     100     0  1.2k     0     0     0     -   60s     0 No consume…",
        "orders/billing   100    10   680     1     3     0 250ms  4.5s     2 Handlers t…",
        "quiet/archive…     0     0     7     0     0     0     -     -     0 Paused wit…",
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
    let shown = lines(&state(View::Channels, samples()), 240, 12);
    assert!(
        shown[4].ends_with("or as many more handlers (only at a:4151)"),
        "{shown:#?}"
    );
}

/// Numbers lost their first digits: 1.2k was shown as 2k.
#[test]
fn a_narrow_terminal_hides_columns_and_cuts_no_number() {
    let state = state(View::Channels, samples());
    let shown = lines(&state, 40, 10);
    let expected = [
        "CHANNEL           IN/S OUT/S DEPTH INFLT",
        "orders/audit       100     0  1.2k     0",
        "orders/billing     100    10   680     1",
        "quiet/archive#e…     0     0     7     0",
    ];
    assert_eq!(shown[2..6], expected, "{shown:#?}");
    assert!(
        shown[9].starts_with("6 columns hidden, needs 80x24  q quit"),
        "{shown:#?}"
    );
    let shown = lines(&state, 76, 24);
    assert!(shown[2].ends_with("AGE CONNS"), "{shown:#?}");
    assert!(shown[23].starts_with("1 column is hidden"), "{shown:#?}");
    for view in VIEWS {
        let state = tests::state(view, samples());
        let whole = lines(&state, 300, 24);
        let cells: Vec<&str> = whole[3].split_whitespace().collect();
        for width in 20..80 {
            let shown = lines(&state, width, 24);
            let numbers = shown[3].split_whitespace();
            for cell in numbers.filter(|cell| !cell.ends_with('…')) {
                assert!(cells.contains(&cell), "{cell} at {width}: {shown:#?}");
            }
        }
    }
}

#[test]
fn every_view_is_drawn_at_any_size() {
    for view in VIEWS {
        let mut state = state(view, samples());
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
    let mut state = state(View::Channels, samples());
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
        shown[17].contains("DOCTOR what limits a channel"),
        "{shown:#?}"
    );
}

#[test]
fn nodes_that_do_not_answer_are_named() {
    let empty = lines(&state(View::Channels, []), 80, 24);
    assert_eq!(empty[0], "nsqtop  asking the nodes");
    let [before, _] = samples();
    let state = state(View::Nodes, [before, sample_with_failure()]);
    let shown = lines(&state, 80, 24);
    assert!(
        shown[0].starts_with("nsqtop  2 nodes  1 away"),
        "{shown:#?}"
    );
    assert!(
        shown[5].starts_with("c:4151") && shown[5].ends_with(" away"),
        "{shown:#?}"
    );
    let problem = "c:4151 gives no figures: connect: connection refused";
    assert_eq!(shown[22], problem, "{shown:#?}");
    assert_eq!(lines(&state, 240, 24)[22], problem);
}

/// The line ended at the right edge, in front of the reason, and a second node had no line.
#[test]
fn the_reasons_of_all_nodes_are_whole() {
    let [before, mut after] = samples();
    let why = "the answer is not HTTP (http parse error): choose the server's HTTP port (nsqd: 4151 by default, \
               nsqlookupd: 4161)";
    for name in ["c", "d"] {
        after.failures.push(Failure {
            address: format!("{name}:4150"),
            why: why.to_owned(),
        });
    }
    let state = state(View::Channels, [before.clone(), after.clone()]);
    let shown = lines(&state, 80, 24);
    let text = shown[19..23].concat();
    let whole = |name: &str| format!("{name}:4150 gives no figures: {why}");
    assert_eq!(
        text.replace(' ', ""),
        (whole("c") + &whole("d")).replace(' ', "")
    );
    // More nodes than have room.
    for number in 0..30 {
        after.failures.push(Failure {
            address: format!("n{number}:4150"),
            why: why.to_owned(),
        });
    }
    let state = self::state(View::Channels, [before, after]);
    let shown = lines(&state, 80, 24);
    assert_eq!(
        shown[22], "57 more lines; press 4 for all nodes",
        "{shown:#?}"
    );
    assert!(shown[3].starts_with("orders/audit"), "{shown:#?}");
}
