//! The shell around the state: the terminal, its keys, the signals, and the thread that asks the
//! nodes.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Instant;

use program::stop::StopSignals;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::{DefaultTerminal, Frame};

use super::config::Config;
use super::sample::{Sample, Sampler};
use super::screen;
use super::state::{Next, State};

/// An event that changes the display.
enum Change {
    Key(KeyEvent),
    Resize,
    Sample(Box<Sample>),
    /// A signal, or the end of the terminal. The text is the reason of a failure.
    End(Result<(), String>),
}

/// Shows the cluster until the user or a signal ends it. The error is the reason for the user.
pub(super) fn show(config: &Config) -> Result<(), String> {
    // Before any other thread, so that no thread takes the signals.
    let signals = StopSignals::catch_with_hangup();
    let signals = signals.map_err(|error| format!("cannot receive signals - {error}"))?;
    let (changes, events) = mpsc::channel();
    let sender = changes.clone();
    thread::spawn(move || {
        // A send fails only at the end of the tool.
        signals.wait(|| drop(sender.send(Change::End(Ok(())))), |_| true);
        drop(sender.send(Change::End(Ok(()))));
    });
    let mut state = State::new(config.start.clone());
    in_terminal(|terminal| {
        let sender = changes.clone();
        thread::spawn(move || read_keys(&sender));
        let config = config.clone();
        thread::spawn(move || take_samples(&config, &changes));
        run(terminal, &mut state, &events)
    })
}

/// Calls `work` with a terminal that shows nothing else. The terminal is restored at the end, and at a
/// panic on any thread.
///
/// # Errors
/// The terminal cannot be set up or restored, or `work` fails.
pub fn in_terminal(
    work: impl FnOnce(&mut DefaultTerminal) -> Result<(), String>,
) -> Result<(), String> {
    let terminal = ratatui::try_init();
    let mut terminal =
        terminal.map_err(|error| format!("failed to set up the terminal - {error}"))?;
    let result = work(&mut terminal);
    let restored = ratatui::try_restore();
    result.and(restored.map_err(|error| format!("failed to restore the terminal - {error}")))
}

fn run(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    events: &Receiver<Change>,
) -> Result<(), String> {
    loop {
        let draw = |frame: &mut Frame<'_>| screen::draw(frame, state);
        let drawn = terminal.draw(draw);
        drawn.map_err(|error| format!("failed to write to the terminal - {error}"))?;
        let event = events.recv().expect("the thread of the signals never ends");
        // Several events are drawn once.
        for event in [event].into_iter().chain(events.try_iter()) {
            match event {
                Change::Key(key) => {
                    if state.on_key(key) == Next::Quit {
                        return Ok(());
                    }
                }
                Change::Resize => {}
                Change::Sample(sample) => state.add_sample(*sample),
                Change::End(result) => return result,
            }
        }
    }
}

/// Reads keys until the terminal has gone.
fn read_keys(changes: &Sender<Change>) {
    loop {
        let change = match event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Change::Key(key),
            Ok(Event::Resize(..)) => Change::Resize,
            Ok(_) => continue,
            Err(error) => Change::End(Err(format!("failed to read from the terminal - {error}"))),
        };
        let is_end = matches!(change, Change::End(_));
        // A send fails only at the end of the tool.
        if changes.send(change).is_err() || is_end {
            return;
        }
    }
}

/// Asks the nodes at each interval.
fn take_samples(config: &Config, changes: &Sender<Change>) {
    let mut sampler = Sampler::new(&config.question);
    loop {
        let began = Instant::now();
        let sample = Box::new(sampler.sample());
        if changes.send(Change::Sample(sample)).is_err() {
            return;
        }
        thread::sleep(config.interval.saturating_sub(began.elapsed()));
    }
}
