//! [`State`]: what the user has chosen, and the samples that are shown.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::sample::Sample;
use super::table::{Filter, Pair, Row, Sort, Table};
use super::views::{VIEWS, View};

/// The rows that a page key moves by.
const PAGE_ROWS: usize = 10;

/// The view, the order and the filter at the start.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) view: View,
    pub(super) sort: Sort,
    pub(super) filter: String,
}

/// The action of the terminal after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The terminal draws the state again.
    Draw,
    /// The tool ends.
    Quit,
    /// The tool gives the terminal back to the shell, and stops until the shell continues the tool.
    Suspend,
}

/// The state of the display.
#[derive(Debug)]
pub(super) struct State {
    pub(super) view: View,
    /// The order of each view, in the order of [`VIEWS`].
    sorts: [Sort; VIEWS.len()],
    /// The filter of each view, in the order of [`VIEWS`].
    filters: [Filter; VIEWS.len()],
    is_typing_filter: bool,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    /// The key of the selected row.
    selected: Option<String>,
    /// The two samples that are shown.
    shown: Samples,
    /// The newest two samples.
    newest: Samples,
}

#[derive(Clone, Debug, Default)]
struct Samples {
    before: Option<Sample>,
    after: Option<Sample>,
}

impl State {
    /// Returns the state before the first sample.
    pub(super) fn new(start: Start) -> State {
        let mut sorts = VIEWS.map(View::usual_sort);
        sorts[start.view as usize] = start.sort;
        let mut filters = VIEWS.map(|_| Filter::default());
        filters[start.view as usize] = Filter::Text(start.filter);
        State {
            view: start.view,
            sorts,
            filters,
            is_typing_filter: false,
            is_paused: false,
            shows_help: false,
            selected: None,
            shown: Samples::default(),
            newest: Samples::default(),
        }
    }

    /// Returns the state after two samples.
    #[must_use]
    pub(super) fn with_samples(mut self, before: Sample, after: Sample) -> State {
        self.add_sample(before);
        self.add_sample(after);
        self
    }

    /// Takes the next sample. While the display is paused, the sample is kept for later.
    pub(super) fn add_sample(&mut self, sample: Sample) {
        let last = self.newest.after.replace(sample);
        // Nodes that did not answer have no rates to compare with.
        self.newest.before = last.filter(|last| !last.nodes.is_empty());
        if !self.is_paused {
            self.shown = self.newest.clone();
        }
    }

    /// Returns the rows that are shown.
    pub(super) fn table(&self) -> Table {
        match &self.shown.after {
            Some(after) => {
                let before = self.shown.before.as_ref();
                let pair = Pair { before, after };
                self.view.table(pair, self.filter().0, self.sort())
            }
            None => Table {
                columns: self.view.columns(),
                rows: Vec::new(),
            },
        }
    }

    /// Takes a key.
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Next {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Next::Quit;
        }
        if key.code == KeyCode::Char('z') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Next::Suspend;
        }
        if self.is_typing_filter {
            self.type_filter(key.code);
            return Next::Draw;
        }
        match key.code {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Char('?' | 'h') => self.shows_help = !self.shows_help,
            KeyCode::Char('/') => self.is_typing_filter = true,
            KeyCode::Char(' ' | 'p') => self.pause_or_resume(),
            KeyCode::Char('r') => self.sort_mut().is_reversed ^= true,
            KeyCode::Char('<' | ',') | KeyCode::Left => self.sort_by_neighbour(-1),
            KeyCode::Char('>' | '.') | KeyCode::Right => self.sort_by_neighbour(1),
            KeyCode::Char(digit @ '1'..='5') => {
                self.view = VIEWS[(u32::from(digit) - u32::from('1')) as usize];
            }
            KeyCode::Tab => self.view_neighbour(1),
            KeyCode::BackTab => self.view_neighbour(VIEWS.len() - 1),
            KeyCode::Enter => self.open_selected(),
            KeyCode::Esc => self.leave(),
            KeyCode::Up | KeyCode::Char('k') => self.select(|row, _| row.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(|row, _| row + 1),
            KeyCode::PageUp => self.select(|row, _| row.saturating_sub(PAGE_ROWS)),
            KeyCode::PageDown => self.select(|row, _| row + PAGE_ROWS),
            KeyCode::Home => self.select(|_, _| 0),
            KeyCode::End => self.select(|_, last| last),
            _ => {}
        }
        Next::Draw
    }

    /// Returns the order of the rows.
    pub(super) fn sort(&self) -> Sort {
        self.sorts[self.view as usize]
    }

    /// Returns the filter of the view, and true if the user types the filter now.
    pub(super) fn filter(&self) -> (&Filter, bool) {
        (&self.filters[self.view as usize], self.is_typing_filter)
    }

    /// Returns the newest sample that is shown.
    pub(super) fn sample(&self) -> Option<&Sample> {
        self.shown.after.as_ref()
    }

    /// Returns the reasons why nodes are missing, each as a line for the user.
    pub(super) fn problems(&self) -> Vec<String> {
        self.sample().map(Sample::problems).unwrap_or_default()
    }

    /// Returns the index of the selected row, or of the first row.
    pub(super) fn selected_row(&self, table: &Table) -> usize {
        let is_selected = |row: &Row| Some(&row.key) == self.selected.as_ref();
        table.rows.iter().position(is_selected).unwrap_or(0)
    }

    fn filter_mut(&mut self) -> &mut Filter {
        &mut self.filters[self.view as usize]
    }

    fn sort_mut(&mut self) -> &mut Sort {
        &mut self.sorts[self.view as usize]
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing_filter = false,
            KeyCode::Esc => {
                self.is_typing_filter = false;
                *self.filter_mut() = Filter::default();
            }
            KeyCode::Backspace => {
                self.typed_filter().pop();
            }
            KeyCode::Char(letter) => self.typed_filter().push(letter),
            _ => {}
        }
    }

    /// Returns the text that the user types. A parent that enter has chosen gives way to the text.
    fn typed_filter(&mut self) -> &mut String {
        let filter = self.filter_mut();
        if let Filter::Parent(_) = filter {
            *filter = Filter::default();
        }
        match filter {
            Filter::Text(text) | Filter::Parent(text) => text,
        }
    }

    fn pause_or_resume(&mut self) {
        self.is_paused = !self.is_paused;
        if !self.is_paused {
            self.shown = self.newest.clone();
        }
    }

    fn sort_by_neighbour(&mut self, step: isize) {
        let columns = self.view.columns().len() as isize;
        let sort = self.sort_mut();
        sort.column = (sort.column as isize + step).rem_euclid(columns) as usize;
        sort.is_reversed = false;
    }

    fn view_neighbour(&mut self, step: usize) {
        self.view = VIEWS[(self.view as usize + step) % VIEWS.len()];
    }

    /// Shows the channels of the selected topic, or the clients of the selected channel.
    fn open_selected(&mut self) {
        let table = self.table();
        let Some(row) = table.rows.get(self.selected_row(&table)) else {
            return;
        };
        let (view, filter) = match self.view {
            View::Topics => (View::Channels, format!("{}/", row.key)),
            // The key of a client begins with its channel and a space.
            View::Channels => (View::Clients, format!("{} ", row.key)),
            View::Clients | View::Nodes | View::Shards => return,
        };
        self.view = view;
        *self.filter_mut() = Filter::Parent(filter);
    }

    /// Leaves the help, or removes the filter.
    fn leave(&mut self) {
        if self.shows_help {
            self.shows_help = false
        } else {
            *self.filter_mut() = Filter::default()
        }
    }

    /// Selects another row. `to` returns the new index for the present one and for the last row.
    fn select(&mut self, to: impl FnOnce(usize, usize) -> usize) {
        let table = self.table();
        let Some(last) = table.rows.len().checked_sub(1) else {
            return;
        };
        let row = to(self.selected_row(&table), last).min(last);
        self.selected = Some(table.rows[row].key.clone());
    }
}

#[cfg(test)]
mod tests;
