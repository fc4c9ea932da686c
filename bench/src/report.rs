//! `nsq-bench report`: saved results as one HTML page that needs nothing but a browser.
//!
//! ```text
//!   files ─► load ─► Named ─► view::columns ─┬─► judgement, summary, comparison   HTML
//!                                            └─► spectrum, timeline, sweep, search ─► Chart ─► JSON
//!   page.rs puts it all into one file, with page.js and uPlot, which draw the charts from the JSON
//! ```
//!
//! The page has no font, script or picture to load. Light and dark are variables of `style.css`. Every
//! text that comes from a result goes through [`markup::escape`] or [`markup::json`].

mod chart;
mod comparison;
#[cfg(test)]
mod contrast;
mod markup;
mod page;
mod search;
mod spectrum;
mod summary;
mod sweep;
mod table;
mod timeline;
mod view;

use std::path::{Path, PathBuf};

use crate::result::SavedResult;
use view::Named;

/// The flags of `report`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Results that `--out` of run, sweep, find-max or compare saved; several stand side by side
    #[arg(required = true, value_name = "RESULT")]
    pub results: Vec<PathBuf>,
    /// The page to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
}

/// Runs `report`: reads the results, writes the page.
/// Fails when a result cannot be read or the page not be written; in words for the user.
pub fn run(args: &Args) -> Result<(), String> {
    let mut named: Vec<Named> = Vec::new();
    for path in &args.results {
        let mut one = load(path)?;
        // Files of the same name get a number, so that the page can tell them apart.
        let stem = |other: &&PathBuf| other.file_stem() == path.file_stem();
        let same = args.results[..named.len()].iter().filter(stem).count();
        if same > 0 {
            one.name += &format!(" ({})", same + 1);
        }
        named.push(one);
    }
    let page = page::render(&named)?;
    let out = &args.out;
    std::fs::write(out, page)
        .map_err(|error| format!("cannot write the page {}: {error}", out.display()))
}

fn load(path: &Path) -> Result<Named, String> {
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    Ok(Named {
        name: stem.to_string_lossy().into_owned(),
        result: SavedResult::load(path, "result")?,
    })
}
