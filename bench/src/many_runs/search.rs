//! [`Search`]: which rate to try next on the way to the highest one that meets an objective. Pure:
//! what passed and what failed goes in, the next rate comes out.
//!
//! ```text
//!   ramp    start, x2, x2, ... until one fails            (or halve until one passes)
//!   bisect  between the last that passed and the first that failed, until they are close
//!   hold    the highest that passed, for longer; if it fails then, 10 % less, a few times
//! ```

/// The stage of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The rate doubles until it fails, or halves until it passes.
    Ramp,
    /// The rate lies between the highest that passed and the lowest that failed.
    Bisect,
    /// The highest rate that passed runs for longer, to confirm it.
    Hold,
}

impl Stage {
    /// Returns the name that results use.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Ramp => "ramp",
            Stage::Bisect => "bisect",
            Stage::Hold => "hold",
        }
    }
}

/// Times that a rate is reduced when it fails to hold.
const RETREATS_MAX: u32 = 4;
/// Halvings of the first rate before it is given up.
const HALVINGS_MAX: u32 = 12;

/// A search for the highest rate.
#[derive(Clone, Debug)]
pub struct Search {
    stage: Stage,
    rate: f64,
    passed: Option<f64>,
    /// The lowest rate that failed, in ramp, bisection or hold; `None` when every rate passed.
    pub failed: Option<f64>,
    /// The gap at which bisecting ends, as a share of the failed rate.
    precision: f64,
    most: f64,
    halvings: u32,
    retreats: u32,
    held: bool,
}

impl Search {
    /// Starts at a rate, in messages per second, and never tries more than `most`.
    pub fn new(start: f64, most: f64, precision: f64) -> Search {
        Search {
            stage: Stage::Ramp,
            rate: start.min(most),
            passed: None,
            failed: None,
            precision,
            most,
            halvings: 0,
            retreats: 0,
            held: false,
        }
    }

    /// Returns the next rate to try and the stage it belongs to; `None` when a rate was held, or the search is given up.
    pub fn next(&self) -> Option<(Stage, f64)> {
        let gives_up = self.halvings > HALVINGS_MAX || self.retreats > RETREATS_MAX;
        (!self.held && !gives_up).then_some((self.stage, self.rate))
    }

    /// Enters the outcome of the rate that [`Search::next`] named.
    pub fn tried(&mut self, passed: bool) {
        if passed {
            self.passed = Some(self.rate);
        } else {
            self.failed = Some(self.rate);
        }
        if self.stage == Stage::Hold {
            self.held = passed;
            if !passed {
                self.retreats += 1;
                self.rate *= 0.9;
            }
            return;
        }
        match (self.passed, self.failed) {
            (Some(passed), None) if passed >= self.most => self.stage = Stage::Hold,
            (Some(passed), None) => self.rate = (2.0 * passed).min(self.most),
            (None, _) => {
                self.halvings += 1;
                self.rate /= 2.0;
            }
            (Some(passed), Some(failed)) if failed - passed <= self.precision * failed => {
                self.stage = Stage::Hold;
                self.rate = passed;
            }
            (Some(passed), Some(failed)) => {
                self.stage = Stage::Bisect;
                self.rate = f64::midpoint(passed, failed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
