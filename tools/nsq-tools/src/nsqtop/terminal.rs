//! The shell around the state: the terminal, its keys, the signals, and the thread that asks the
//! nodes.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Instant;

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use ratatui::prelude::CrosstermBackend;
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::config::Config;
use super::sample::Sample;
use super::screen;
use super::state::{Next, State};

/// An event that changes the display.
enum Change {
    Key(KeyEvent),
    Resize,
    Sample(Box<Sample>),
    /// A signal number.
    Signal(i32),
    /// The end of the terminal. The text is the reason.
    Lost(String),
}

/// The end of the display.
enum End {
    /// The tool ends with code 0.
    Quit,
    /// SIGQUIT ends the tool, as it ends a program without a handler.
    Killed,
}

/// Shows the cluster until the user or a signal ends it. The error is the reason for the user.
pub(super) fn show(config: &Config) -> Result<(), String> {
    // Before any other thread, so that no thread takes the signals.
    let signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2]);
    let mut signals = signals.map_err(|error| format!("cannot receive signals - {error}"))?;
    let (changes, events) = mpsc::channel();
    let sender = changes.clone();
    thread::spawn(move || {
        for signal in signals.forever() {
            // A send fails only at the end of the tool.
            drop(sender.send(Change::Signal(signal)));
        }
    });
    let mut state = State::new(config.start.clone());
    let end = in_terminal(|terminal| {
        let sender = changes.clone();
        thread::spawn(move || read_keys(&sender));
        let config = config.clone();
        thread::spawn(move || take_samples(&config, &changes));
        run(terminal, &mut state, &events)
    })?;
    match end {
        End::Quit => Ok(()),
        // Only now, so that the shell gets its terminal back first.
        End::Killed => emulate_default_handler(SIGQUIT)
            .map_err(|error| format!("SIGQUIT does not end the tool - {error}")),
    }
}

/// Calls `work` with a terminal that shows nothing else. The terminal is restored at the end, and at a
/// panic on any thread.
///
/// # Errors
/// The terminal cannot be set up or restored, or `work` fails.
pub fn in_terminal<T>(
    work: impl FnOnce(&mut DefaultTerminal) -> Result<T, String>,
) -> Result<T, String> {
    let terminal = ratatui::try_init();
    let mut terminal =
        terminal.map_err(|error| format!("failed to set up the terminal - {error}"))?;
    let result = work(&mut terminal);
    let restored = ratatui::try_restore();
    let restored = restored.map_err(|error| format!("failed to restore the terminal - {error}"));
    result.and_then(|value| restored.map(|()| value))
}

/// Gives the terminal back, stops the process as a shell expects it at ctrl-z, and takes the terminal
/// again when the process goes on.
fn suspend(terminal: &mut DefaultTerminal) -> io::Result<()> {
    terminal.show_cursor()?;
    ratatui::try_restore()?;
    // Returns after SIGCONT.
    emulate_default_handler(SIGTSTP)?;
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)?;
    // A new one, because `clear` asks the terminal for the caret's place, and the answer would go to the
    // thread that reads keys.
    *terminal = DefaultTerminal::new(CrosstermBackend::new(io::stdout()))?;
    Ok(())
}

fn run(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    events: &Receiver<Change>,
) -> Result<End, String> {
    loop {
        let draw = |frame: &mut Frame<'_>| screen::draw(frame, state);
        let drawn = terminal.draw(draw);
        drawn.map_err(|error| format!("failed to write to the terminal - {error}"))?;
        let event = events.recv().expect("the thread of the signals never ends");
        // Several events are drawn once.
        for event in [event].into_iter().chain(events.try_iter()) {
            let next = match event {
                Change::Key(key) => state.on_key(key),
                Change::Signal(SIGQUIT) => return Ok(End::Killed),
                Change::Signal(SIGTSTP) => Next::Suspend,
                // NSQ's programs survive SIGUSR1 and SIGUSR2.
                Change::Resize | Change::Signal(SIGUSR1 | SIGUSR2) => Next::Draw,
                Change::Signal(_) => Next::Quit,
                Change::Sample(sample) => {
                    state.add_sample(*sample);
                    Next::Draw
                }
                Change::Lost(why) => return Err(why),
            };
            match next {
                Next::Draw => {}
                Next::Quit => return Ok(End::Quit),
                Next::Suspend => suspend(terminal)
                    .map_err(|error| format!("failed to set up the terminal again - {error}"))?,
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
            Err(error) => Change::Lost(format!("failed to read from the terminal - {error}")),
        };
        let is_end = matches!(change, Change::Lost(_));
        // A send fails only at the end of the tool.
        if changes.send(change).is_err() || is_end {
            return;
        }
    }
}

/// Asks the nodes at each interval.
fn take_samples(config: &Config, changes: &Sender<Change>) {
    let mut sampler = config.sampler();
    loop {
        let began = Instant::now();
        let sample = Box::new(sampler.sample());
        if changes.send(Change::Sample(sample)).is_err() {
            return;
        }
        thread::sleep(config.flags.interval.saturating_sub(began.elapsed()));
    }
}
