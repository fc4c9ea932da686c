//! [`Progress`]: one line on a terminal that is rewritten twice a second. Where there is no terminal, it shows nothing.

use std::io::{IsTerminal, Write, stderr};

use crate::result::Phase;
use crate::result::grid::Grid;
use crate::run::depth::Depth;
use crate::run::series::Series;
use crate::scenario::Scenario;

/// Time between two changes of the line, in nanoseconds.
const EVERY_NS: u64 = 500_000_000;

/// The progress line of a run.
#[derive(Debug)]
pub struct Progress {
    on: bool,
    next_ns: u64,
    grid: Grid,
    publishes: bool,
}

impl Progress {
    /// Makes the line, which is shown only if `wanted` and standard error is a terminal.
    pub fn new(wanted: bool, scenario: &Scenario, grid: Grid) -> Progress {
        Progress {
            on: wanted && stderr().is_terminal(),
            next_ns: 0,
            grid,
            publishes: scenario.producers > 0,
        }
    }

    /// Shows the state of the run, at most twice a second.
    pub fn show(&mut self, now_ns: u64, series: &Series, depth: Option<&(u64, Depth)>) {
        if !self.on || now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + EVERY_NS;
        // Nobody knows how long the drain takes.
        let left = match self.grid.publish_end.saturating_sub(now_ns) {
            0 => String::new(),
            ns => format!(" {:.0} s left", ns as f64 / 1e9),
        };
        let phase = match self.grid.phase_before(now_ns.max(self.grid.start + 1)) {
            Phase::WarmUp => "warm-up",
            Phase::Measure => "measuring",
            Phase::Drain => "draining",
        };
        let mut line = format!("{phase}{left}");
        if let Some(row) = series.last() {
            if self.publishes {
                line += &format!("  published {:.0}/s", row.acknowledged_per_s);
            }
            line += &format!("  delivered {:.0}/s", row.delivered_per_s);
            if let Some(latency) = row.delivery.or(row.publish) {
                line += &format!("  p99 {:.2} ms", latency.p99_us / 1000.0);
            }
        }
        if let Some((_, depth)) = depth {
            line += &format!("  depth {}", depth.depth);
        }
        // Cut at the terminal's edge: a line that wraps could not be removed. Progress that cannot be
        // shown is no reason to stop.
        drop(write!(stderr(), "\r\x1b[K\x1b[?7l{line}\x1b[?7h"));
    }

    /// Removes the line.
    pub fn end(&mut self) {
        if self.on {
            drop(write!(stderr(), "\r\x1b[K"));
        }
    }
}
