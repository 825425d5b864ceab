//! `fullpipe probe report`: what a mesh saw.

use crate::failure::Failure;
use crate::print::{in_lines, print, print_json};
use crate::runs::command_line;
use fullpipe_mesh::record::History;
use fullpipe_mesh::report::{Report, figure, page, terminal};
use fullpipe_mesh::store::Store;
use fullpipe_report::{About, AtomicFile};
use std::path::{Path, PathBuf};

/// Tell what a mesh saw: how the controllers compare on each path, what changed, where, and what each path should give
#[derive(clap::Args)]
pub struct Args {
    /// Directory of a store: of a node, or what `fullpipe probe collect` pulled together
    #[arg(value_name = "STORE", default_value = super::STORE, value_hint = clap::ValueHint::DirPath)]
    store: PathBuf,
    /// Only what is newer, counted back from the newest record [default: all]
    #[arg(long, value_name = "TIME")]
    last: Option<fullpipe_units::Span>,
    #[command(flatten)]
    how: How,
}

/// In which form it is told.
#[derive(clap::Args)]
pub struct How {
    /// Also write it as a page to FILE.html; FILE.svg and FILE.png are how many paths gain how much, as figure 7 of the
    /// paper. May be repeated
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Vec<PathBuf>,
    /// Do not simulate what each path should give, which takes seconds
    #[arg(long)]
    no_simulation: bool,
    /// For machines
    #[arg(long)]
    json: bool,
}

/// What is written to a file.
enum Form {
    Page,
    Svg,
    Png,
}

/// By the end of a file's name.
fn form(path: &Path) -> Option<Form> {
    match path.extension()?.to_str()? {
        "html" | "htm" => Some(Form::Page),
        "svg" => Some(Form::Svg),
        "png" => Some(Form::Png),
        _ => None,
    }
}

impl How {
    /// The files, before anything is read: what cannot be written must not be noticed at the end.
    pub fn open(&self) -> Result<Vec<AtomicFile>, Failure> {
        if let Some(out) = self.out.iter().find(|out| form(out).is_none()) {
            return Err(Failure::usage(format!(
                "--out {}: a page is .html, a picture .svg or .png",
                out.display()
            )));
        }
        self.out.iter().map(|out| AtomicFile::open(out).map_err(Failure::usage)).collect()
    }
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let to = self.how.open()?;
        let store = Store::read(&self.store).map_err(Failure::usage)?;
        let mut history = store.history(i64::MIN..i64::MAX).map_err(Failure::usage)?;
        if let Some(last) = self.last {
            let newest =
                history.transfers.iter().map(|t| t.at_ms).chain(history.minutes.iter().map(|m| m.at_ms));
            let long = i64::try_from(last.as_nanos() / 1_000_000).unwrap_or(i64::MAX);
            let from = newest.max().unwrap_or(0).saturating_sub(long);
            history.transfers.retain(|transfer| transfer.at_ms >= from);
            history.minutes.retain(|minute| minute.at_ms >= from);
        }
        let title = format!("Mesh of {} sites", history.sites.len());
        show(&history, &title, &command_line(), &self.how, to)
    }
}

/// Tells what a history says.
pub fn show(
    history: &History,
    title: &str,
    command: &str,
    how: &How,
    to: Vec<AtomicFile>,
) -> Result<(), Failure> {
    let report = Report::new(history, !how.no_simulation);
    for (to, path) in to.into_iter().zip(&how.out) {
        let about = About { title: title.to_owned(), command: command.to_owned() };
        let bytes = match form(path) {
            Some(Form::Svg) => figure(history, &report).svg().into_bytes(),
            Some(Form::Png) => figure(history, &report).png().map_err(Failure::usage)?,
            _ => page(history, &report, &about).into_bytes(),
        };
        to.write_with(|out| out.write_all(&bytes)).map_err(Failure::usage)?;
        eprintln!("wrote {}", path.display());
    }
    if how.json { print_json(&report) } else { print(in_lines(&terminal(&report))) }
}
