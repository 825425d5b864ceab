//! `fullpipe probe report`: the results of a mesh.

use super::run::{MAX_CLOCK_DIFFERENCE_MS, now_ms};
use crate::failure::Failure;
use crate::print::{print, print_json, wrapped_to_stdout};
use crate::runs::command_line;
use fullpipe_mesh::analysis::changes;
use fullpipe_mesh::expect::ESTIMATION_RECORDS;
use fullpipe_mesh::record::Pair;
use fullpipe_mesh::report::{DetectedChanges, Report, Summary, figure, page, terminal};
use fullpipe_mesh::store::{Store, StoreError};
use fullpipe_report::{About, AtomicFile};
use std::ops::Range;
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
    /// Time span to report on, counted back from the newest record [default: the newest 12 million
    /// transfers, a day of 64 sites]
    #[arg(long, value_name = "TIME")]
    last: Option<fullpipe_units::Span>,
    #[command(flatten)]
    format: FormatOptions,
}

/// The formats of a report.
#[derive(clap::Args)]
pub struct FormatOptions {
    /// Also write the report to FILE.html, or the distribution of gains over paths (figure 7 of the
    /// BBR paper) to FILE.svg or FILE.png; an existing file is replaced; may be repeated
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Vec<PathBuf>,
    /// Skip the simulation that predicts the rate of each path, which takes seconds
    #[arg(long)]
    pub no_simulation: bool,
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

/// Transfers, or probe minutes, in a report without `--last`, which takes seconds: a day of 64 sites
/// with two controllers and a period of one minute.
pub const REPORT_RECORDS: u64 = 12_000_000;
/// The newest transfers, and probe minutes, in which changes are looked for, which takes seconds.
const DETECTION_RECORDS: u32 = 500_000;

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let outputs = self.format.open()?;
        let store = Store::read(&self.store).map_err(Failure::usage)?;
        // A record of tomorrow must not displace those of today, unless there are no others.
        let present = now_ms().saturating_add(MAX_CLOCK_DIFFERENCE_MS);
        let (newest, end) = match store.newest_ms(present).map_err(Failure::usage)? {
            Some(newest) => (Some(newest), present),
            None => (store.newest_ms(i64::MAX).map_err(Failure::usage)?, i64::MAX),
        };
        let (mut from, mut most) = (i64::MIN, REPORT_RECORDS);
        if let Some(last) = self.last {
            let span_ms = i64::try_from(last.as_nanos() / 1_000_000).unwrap_or(i64::MAX);
            (from, most) = (newest.unwrap_or(0).saturating_sub(span_ms), u64::MAX);
        }
        let mut records = store.load_compact(from..i64::MAX, most).map_err(Failure::usage)?;
        if records.bounded_ms.is_some() {
            let hint = match self.last {
                Some(_) => "",
                None => "; --last TIME selects a time span",
            };
            eprintln!("note: the report covers the newest records only{hint}");
        }
        let hidden = records.limit_names().map_err(Failure::usage)?;
        if hidden > 0 {
            eprintln!("note: {hidden} sites or controllers with few or no records are not in the report");
        }
        let time = records.range();
        let summary = Summary::new(records).map_err(Failure::usage)?;
        if summary.shortened_paths > 0 {
            eprintln!(
                "note: {} paths have too many records; the report has only the newest of them",
                summary.shortened_paths
            );
        }
        let detected = newest_changes(&store, &summary, time.start..end).map_err(Failure::usage)?;
        let mut report = Report::from_summary(&summary, detected);
        if !self.format.no_simulation {
            let rows = |pairs: &[Pair]| store.newest_records(&summary.head, pairs, &time, ESTIMATION_RECORDS);
            report.add_expectations(rows, fullpipe_run::simulate).map_err(Failure::usage)?;
        }
        let title = format!("Mesh of {} sites", summary.head.sites.len());
        show(&summary, &report, &title, &command_line(), &self.format, outputs)
    }
}

/// The changes in the newest records of a time range.
fn newest_changes(store: &Store, summary: &Summary, time: Range<i64>) -> Result<DetectedChanges, StoreError> {
    let (history, from) = store.newest_history(&time, DETECTION_RECORDS)?;
    let history = history.with_names_of(&summary.head);
    Ok(DetectedChanges { changes: changes(&history), from_ms: (from > time.start).then_some(from) })
}

/// Prints and writes a report.
pub fn show(
    summary: &Summary,
    report: &Report,
    title: &str,
    command: &str,
    format: &FormatOptions,
    outputs: Vec<AtomicFile>,
) -> Result<(), Failure> {
    for (output, path) in outputs.into_iter().zip(&format.out) {
        let about = About { title: title.to_owned(), command: command.to_owned() };
        let bytes = match file_format(path) {
            Some(FileFormat::Svg) => figure(report).svg().into_bytes(),
            Some(FileFormat::Png) => figure(report).png().map_err(Failure::usage)?,
            _ => page(summary, report, &about).into_bytes(),
        };
        output.write_with(|out| out.write_all(&bytes)).map_err(Failure::usage)?;
        eprintln!("wrote {}", path.display());
    }
    if format.json { print_json(&report) } else { print(wrapped_to_stdout(&terminal(report))) }
}
