//! `nsq-bench report`: saved results as one HTML page that needs nothing but a browser.
//!
//! ```text
//!   files ─► load ─► Named ─► view::columns ─► verdict, summary, comparison, sweep   text and tables
//!                                     └──────► spectrum, timeline ─► chart ─► SVG
//!                                                                      └──── page::render ─► file
//! ```
//!
//! The page has no script, no font and no link to load: tooltips are `<title>` elements, light and
//! dark are variables of `style.css`. Every text that comes from a result goes through
//! [`markup::escape`].

mod chart;
mod comparison;
#[cfg(test)]
mod contrast;
mod markup;
mod page;
mod scale;
mod search;
mod spectrum;
mod summary;
mod sweep;
mod table;
mod timeline;
pub(crate) mod unit;
mod verdict;
mod view;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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

/// Why there is no page.
#[derive(Debug)]
pub enum ReportError {
    /// A result cannot be read.
    Read(PathBuf, std::io::Error),
    /// A file is no result; in words that follow its name.
    NotAResult(PathBuf, String),
    /// A histogram in the result of this name cannot be decoded.
    Histogram(String, String),
    /// The page cannot be written.
    Write(PathBuf, std::io::Error),
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReportError::Read(path, error) => {
                write!(f, "cannot read the result {}: {error}", path.display())
            }
            ReportError::NotAResult(path, why) => write!(f, "{} {why}", path.display()),
            ReportError::Histogram(name, why) => {
                write!(f, "a histogram in the result {name} is damaged: {why}")
            }
            ReportError::Write(path, error) => {
                write!(f, "cannot write the page {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for ReportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReportError::Read(_, error) | ReportError::Write(_, error) => Some(error),
            ReportError::NotAResult(..) | ReportError::Histogram(..) => None,
        }
    }
}

/// Runs `report`: reads the results, writes the page.
///
/// # Errors
/// When a result cannot be read or the page not be written.
pub fn run(args: &Args) -> Result<(), ReportError> {
    let named = args
        .results
        .iter()
        .map(|path| load(path))
        .collect::<Result<Vec<_>, _>>()?;
    let page = page::render(&apart(named))?;
    std::fs::write(&args.out, page).map_err(|error| ReportError::Write(args.out.clone(), error))
}

/// Runs `report` as a program: says where the page is; an error goes to standard error.
pub fn main(args: Args) -> ExitCode {
    match run(&args) {
        Ok(()) => {
            println!("{}", args.out.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("nsq-bench report: {error}");
            ExitCode::FAILURE
        }
    }
}

fn load(path: &Path) -> Result<Named, ReportError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ReportError::Read(path.to_path_buf(), error))?;
    let result = SavedResult::from_json(&text)
        .map_err(|why| ReportError::NotAResult(path.to_path_buf(), why))?;
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    Ok(Named {
        name: stem.to_string_lossy().into_owned(),
        result,
    })
}

/// Files of the same name get a number, so that the page can tell them apart.
fn apart(mut named: Vec<Named>) -> Vec<Named> {
    let names: Vec<String> = named.iter().map(|named| named.name.clone()).collect();
    for (index, named) in named.iter_mut().enumerate() {
        let same = names[..index]
            .iter()
            .filter(|name| **name == named.name)
            .count();
        if same > 0 {
            named.name += &format!(" ({})", same + 1);
        }
    }
    named
}
