//! Draws the state. The drawing fits 80 columns and 24 rows, and uses more if there is more. A narrower
//! terminal shows fewer columns, because a number that is cut off would be a wrong number.
//!
//! ```text
//!   nsqtop  2 nodes  depth 35k  in flight 200                                  PAUSED
//!   1 channels  2 topics  3 clients  4 nodes  5 shards                 filter: orders
//!   CHANNEL           IN/S OUT/S DEPTH v ...  DOCTOR
//!   rows
//!   the selected row's sentence, in two lines
//!   the nodes that do not answer, each with the reason
//!   the keys
//! ```

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{self, Block, Clear, Paragraph, TableState, Wrap};

use super::state::State;
use super::table::{Column, Filter, Row, Table};
use super::views::VIEWS;
use nsq_doctor::short;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
const PROBLEM: Style = Style::new().fg(Color::Yellow);
const FAILURE: Style = Style::new().fg(Color::Red);

const KEYS: &str =
    "q quit  tab view  < > sort  r reverse  / filter  space pause  enter open  ? help";

/// The most lines that name nodes without an answer, in a terminal of 24 rows.
const PROBLEM_LINES_MAX: usize = 8;

const HELP: &[&str] = &[
    "1 2 3 4 5, tab    channels, topics, clients, nodes, shards",
    "up down, j k      select a row; page up, page down, home, end",
    "enter             a topic's channels, a channel's clients",
    "< >, left right   sort by the column on the left or right",
    "r                 reverse the order",
    "/                 filter; enter keeps the filter, esc removes it",
    "space, p          pause the display, and resume it",
    "q, ctrl-c         quit; ctrl-z stops nsqtop until the shell's fg",
    "",
    "IN/S OUT/S   messages that arrive and that leave the channel, a second",
    "DEPTH        messages that wait; INFLT in flight; DEFER deferred",
    "REQ/S        messages that consumers gave back",
    "E2E          highest measured percentile from publish to finish",
    "AGE          age of the oldest message that is not finished",
    "CONNS        connections of consumers; DOCTOR what limits a channel",
];

/// Draws the state.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let table = state.table();
    let width = frame.area().width;
    let problem_lines = problem_lines(
        state,
        width,
        PROBLEM_LINES_MAX.min(usize::from(frame.area().height) / 3),
    );
    let [title, tabs, rows, detail, problem, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(2),
        Constraint::Length(problem_lines.len().max(1) as u16),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_title(frame, title, state);
    draw_tabs(frame, tabs, state);
    draw_table(frame, rows, state, &table);
    if let Some(row) = table.rows.get(state.selected_row(&table)) {
        let style = style_if(row.is_problem, PROBLEM);
        let sentence = Paragraph::new(row.detail.as_str()).style(style);
        frame.render_widget(sentence.wrap(Wrap { trim: true }), detail);
    }
    let lines: Vec<Line<'_>> = problem_lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).style(FAILURE), problem);
    let text = match table.columns.len() - columns_that_fit(&table, width) {
        0 => KEYS.to_owned(),
        1 => "1 column is hidden, needs 80x24  q quit  ? help".to_owned(),
        count => format!("{count} columns hidden, needs 80x24  q quit  ? help"),
    };
    frame.render_widget(Paragraph::new(text).style(DIM), keys);
    if state.shows_help {
        draw_help(frame);
    }
}

/// Returns this style, or that of usual text.
fn style_if(is_special: bool, style: Style) -> Style {
    if is_special { style } else { Style::new() }
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let text = match state.sample() {
        None => "  asking the nodes".to_owned(),
        Some(sample) => {
            let (mut depth, mut in_flight) = (0, 0);
            let nodes = sample.nodes.values();
            for topic in nodes.flat_map(|node| &node.stats.topics) {
                depth += topic.depth;
                for channel in &topic.channels {
                    depth += channel.depth;
                    in_flight += channel.in_flight_count;
                }
            }
            let nodes = match sample.nodes.len() {
                1 => "1 node".to_owned(),
                count => format!("{count} nodes"),
            };
            let away = match sample.failures.len() {
                0 => String::new(),
                count => format!("  {count} away"),
            };
            let (depth, in_flight) = (short(depth as f64), short(in_flight as f64));
            format!("  {nodes}{away}  depth {depth}  in flight {in_flight}")
        }
    };
    frame.render_widget(
        Line::from(vec![Span::styled("nsqtop", BOLD), text.into()]),
        area,
    );
    if state.is_paused {
        let paused = Line::styled("PAUSED", PROBLEM).alignment(Alignment::Right);
        frame.render_widget(paused, area);
    }
}

fn draw_tabs(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let mut spans = Vec::new();
    for (index, view) in VIEWS.iter().enumerate() {
        let text = format!(" {} {} ", index + 1, view.name());
        let style = style_if(*view == state.view, SELECTED);
        spans.push(Span::styled(text, style));
    }
    frame.render_widget(Line::from(spans), area);
    let (filter, is_typing) = state.filter();
    let text = match filter {
        Filter::Parent(key) => format!("only {}", key.trim_end()),
        Filter::Text(text) if is_typing => format!("filter: {text}_"),
        Filter::Text(text) if text.is_empty() => return,
        Filter::Text(text) => format!("filter: {text}"),
    };
    let text = text.replace(char::is_control, "?");
    let line = Line::styled(text, PROBLEM).alignment(Alignment::Right);
    frame.render_widget(line, area);
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, state: &State, table: &Table) {
    let widths = widths(table, area.width);
    let sort = state.sort();
    let headings = table.columns[..widths.len()]
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let style = if index == sort.column { SELECTED } else { BOLD };
            aligned(column.title.to_owned(), column).style(style)
        });
    let rows = table.rows.iter().map(|row| {
        let cells = row.cells.iter().zip(table.columns).zip(&widths);
        let cells = cells.map(|((cell, column), width)| aligned(cut(cell.shown(), *width), column));
        widgets::Row::new(cells).style(style_if(row.is_problem, PROBLEM))
    });
    let widget = widgets::Table::new(rows, widths.iter().map(|width| Constraint::Length(*width)))
        .header(widgets::Row::new(headings))
        .row_highlight_style(SELECTED)
        .column_spacing(1);
    let mut selection = TableState::new().with_selected(state.selected_row(table));
    frame.render_stateful_widget(widget, area, &mut selection);
}

/// Returns the number of columns, from the left, that have room. The first column, which has the names,
/// is always shown.
fn columns_that_fit(table: &Table, total: u16) -> usize {
    let mut width = 0;
    let fits = |column: &&Column| {
        width += column.width + u16::from(width > 0);
        width <= total
    };
    table.columns.iter().take_while(fits).count().max(1)
}

/// Returns the widths of the columns that have room. The first text gets what its longest cell needs, as long as the
/// other texts have their smallest width. The last text gets the rest.
fn widths(table: &Table, total: u16) -> Vec<u16> {
    let columns = &table.columns[..columns_that_fit(table, total)];
    let mut widths: Vec<u16> = columns.iter().map(|column| column.width).collect();
    let spaces = (widths.len() as u16).saturating_sub(1);
    let mut left = total.saturating_sub(widths.iter().sum::<u16>() + spaces);
    let texts = columns
        .iter()
        .enumerate()
        .filter(|(_, column)| column.is_text);
    for (index, column) in texts {
        let longest = |row: &Row| row.cells[index].shown().chars().count() as u16;
        let wanted = table.rows.iter().map(longest).max().unwrap_or(0);
        let more = wanted.saturating_sub(column.width).min(left);
        widths[index] += more;
        left -= more;
    }
    // Not even the names have room.
    widths[0] = widths[0].min(total);
    widths
}

fn aligned(text: String, column: &Column) -> widgets::Cell<'static> {
    let alignment = if column.is_text {
        Alignment::Left
    } else {
        Alignment::Right
    };
    widgets::Cell::from(Line::from(text).alignment(alignment))
}

/// Returns a text that fits. A text that is cut off ends with an ellipsis.
fn cut(text: String, width: u16) -> String {
    let width = usize::from(width);
    if text.chars().count() > width {
        text.chars()
            .take(width.saturating_sub(1))
            .chain(['…'])
            .collect()
    } else {
        text
    }
}

/// Returns the lines that name the nodes without an answer, each with its whole reason. If `most` lines
/// are too few, the last line tells the number of the others.
fn problem_lines(state: &State, width: u16, most: usize) -> Vec<String> {
    let width = usize::from(width).max(1);
    let mut lines = Vec::new();
    for problem in state.problems() {
        let letters: Vec<char> = problem.replace(char::is_control, " ").chars().collect();
        lines.extend(
            letters
                .chunks(width)
                .map(|line| line.iter().collect::<String>()),
        );
    }
    let most = most.max(1);
    if lines.len() > most {
        let others = lines.len() - (most - 1);
        lines.truncate(most - 1);
        lines.push(format!("{others} more lines; press 4 for all nodes"));
    }
    lines
}

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let wanted = Rect {
        x: 3,
        y: 2,
        width: 74,
        height: HELP.len() as u16 + 2,
    };
    let area = area.intersection(wanted);
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(*line)).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title(" keys ")),
        area,
    );
}

#[cfg(test)]
mod tests;
