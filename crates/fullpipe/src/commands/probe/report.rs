//! `fullpipe probe report`: the results of a mesh.

use crate::failure::Failure;
use crate::print::{print, print_json, wrapped_to_stdout};
use crate::runs::command_line;
use fullpipe_mesh::record::History;
use fullpipe_mesh::report::{Report, figure, page, terminal};
use fullpipe_mesh::store::Store;
use fullpipe_report::{About, AtomicFile};
use std::path::{Path, PathBuf};

/// Report on the records of a mesh
///
/// Compares the controllers on each path, lists when failures, goodput, loss or RTT changed
/// and for which site or direction, and shows the rate that a simulation predicts for each path.
#[derive(clap::Args)]
pub struct Args {
    /// Store to read: the directory of `probe run` or `probe collect`
    #[arg(value_name = "STORE", default_value = super::STORE, value_hint = clap::ValueHint::DirPath)]
    store: PathBuf,
    /// Time span to report on, counted back from the newest record [default: the newest 500000
    /// transfers]
    #[arg(long, value_name = "TIME")]
    last: Option<fullpipe_units::Span>,
    #[command(flatten)]
    format: FormatOptions,
}

/// The formats of a report.
#[derive(clap::Args)]
pub struct FormatOptions {
    /// Also write the report to FILE.html, or the distribution of gains over paths (figure 7 of the
    /// BBR paper) to FILE.svg or FILE.png; may be repeated
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Vec<PathBuf>,
    /// Skip the simulation that predicts the rate of each path, which takes seconds
    #[arg(long)]
    no_simulation: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// The format of a file.
enum FileFormat {
    Page,
    Svg,
    Png,
}

/// The format by a file's extension.
fn file_format(path: &Path) -> Option<FileFormat> {
    match path.extension()?.to_str()? {
        "html" | "htm" => Some(FileFormat::Page),
        "svg" => Some(FileFormat::Svg),
        "png" => Some(FileFormat::Png),
        _ => None,
    }
}

impl FormatOptions {
    /// Opens the files before anything is read, so that an unwritable file is reported at once.
    pub fn open(&self) -> Result<Vec<AtomicFile>, Failure> {
        if let Some(out) = self.out.iter().find(|out| file_format(out).is_none()) {
            return Err(Failure::usage(format!(
                "--out {}: the extension must be .html, .svg or .png",
                out.display()
            )));
        }
        self.out.iter().map(|out| AtomicFile::open(out).map_err(Failure::usage)).collect()
    }
}

/// Transfers, and probe minutes, in a report without `--last`; analysing them takes seconds.
const REPORT_RECORDS: u32 = 500_000;

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let outputs = self.format.open()?;
        let store = Store::read(&self.store).map_err(Failure::usage)?;
        let all = i64::MIN..i64::MAX;
        let from = match self.last {
            Some(_) => all.start,
            None => store.bounded_start(&all, REPORT_RECORDS).map_err(Failure::usage)?,
        };
        if from > all.start {
            eprintln!(
                "note: the report covers the newest {REPORT_RECORDS} transfers; --last TIME selects a \
                 time span"
            );
        }
        let mut history = store.history(from..all.end).map_err(Failure::usage)?;
        let hidden = history.limit_names();
        if hidden > 0 {
            eprintln!("note: {hidden} sites or controllers with few or no records are not in the report");
        }
        if let Some(last) = self.last {
            let newest =
                history.transfers.iter().map(|t| t.at_ms).chain(history.minutes.iter().map(|m| m.at_ms));
            let span_ms = i64::try_from(last.as_nanos() / 1_000_000).unwrap_or(i64::MAX);
            let from = newest.max().unwrap_or(0).saturating_sub(span_ms);
            history.transfers.retain(|transfer| transfer.at_ms >= from);
            history.minutes.retain(|minute| minute.at_ms >= from);
        }
        let title = format!("Mesh of {} sites", history.sites.len());
        show(&history, &title, &command_line(), &self.format, outputs)
    }
}

/// Prints and writes the report on a history.
pub fn show(
    history: &History,
    title: &str,
    command: &str,
    format: &FormatOptions,
    outputs: Vec<AtomicFile>,
) -> Result<(), Failure> {
    let report = Report::new(history, !format.no_simulation);
    for (output, path) in outputs.into_iter().zip(&format.out) {
        let about = About { title: title.to_owned(), command: command.to_owned() };
        let bytes = match file_format(path) {
            Some(FileFormat::Svg) => figure(history, &report).svg().into_bytes(),
            Some(FileFormat::Png) => figure(history, &report).png().map_err(Failure::usage)?,
            _ => page(history, &report, &about).into_bytes(),
        };
        output.write_with(|out| out.write_all(&bytes)).map_err(Failure::usage)?;
        eprintln!("wrote {}", path.display());
    }
    if format.json { print_json(&report) } else { print(wrapped_to_stdout(&terminal(&report))) }
}
