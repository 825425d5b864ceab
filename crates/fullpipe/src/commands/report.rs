//! `fullpipe report`: recordings again, and distributions of connection records.

use crate::failure::Failure;
use crate::print::print;
use crate::runs::{Outputs, command_line, recording_text, unreadable};
use fullpipe_experiment::{Results, SCHEMA};
use fullpipe_report::records::{Distributions, GroupBy, page, read, text};
use fullpipe_report::{About, AtomicFile};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Show, compare and convert recordings and connection records
///
/// Recordings are written by `--out FILE.json` of `race`, `run` and `test`. --out converts a
/// recording to any report format; several recordings are combined into one report. Connection
/// records are written by `fullpipe records` (.jsonl, .parquet) and printed by `fullpipe trace
/// --json`; for these, the report shows distributions. `-` reads records from standard input.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe report before.json after.json --out compared.html")]
pub struct Args {
    /// Recordings (.json), or connection records (.jsonl, .parquet); if `fullpipe records` rotated
    /// its file, name all of its files: closed*.jsonl
    #[arg(value_name = "RECORDS", required = true, value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Property to group connection records by, one table per property; may be repeated [default:
    /// one table for each property]
    #[arg(long, value_enum, value_name = "PROPERTY")]
    by: Vec<Group>,
    /// Also write a report to FILE, in the format of its extension; an existing FILE is replaced;
    /// may be repeated. For connection records: one .html file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Group {
    /// Congestion controller
    Controller,
    /// Prefix of the remote address: /24, or /48 for IPv6
    Prefix,
    /// Port of the server
    Port,
    /// Hour at which the connection began (UTC)
    Hour,
}

/// Extensions of other files that fullpipe reads or writes.
const OTHER_KINDS: [&str; 7] = ["toml", "html", "csv", "png", "svg", "qlog", "pcap"];

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let recordings =
            self.files.iter().map(|file| recording(file)).collect::<Result<Vec<_>, Failure>>()?;
        match recordings.iter().filter(|found| found.is_some()).count() {
            0 => self.records(),
            n if n < recordings.len() => {
                Err(Failure::usage("recordings and connection records cannot be mixed in one report"))
            }
            _ => self.recordings(recordings.into_iter().flatten().collect()),
        }
    }

    /// Reports on recordings.
    fn recordings(self, all: Vec<Results>) -> Result<(), Failure> {
        if !self.by.is_empty() {
            return Err(Failure::usage("--by groups connection records; it does not apply to recordings"));
        }
        let outputs = Outputs::open(&self.out, false)?;
        let names = distinct_names(&self.files);
        let title = names.join(" and ");
        let results = merged(all, &names);
        let about = About { title, command: command_line() };
        outputs.report(&results, &about, false)
    }

    fn records(self) -> Result<(), Failure> {
        let out = match self.out.as_slice() {
            [] => None,
            [one] => Some(one),
            _ => return Err(Failure::usage("--out: a report on connection records is one .html file")),
        };
        let is_page = |path: &PathBuf| path.extension().is_some_and(|e| e == "html" || e == "htm");
        if let Some(out) = out.filter(|path| !is_page(path)) {
            return Err(Failure::usage(format!(
                "--out {}: a report on connection records is an .html file",
                out.display()
            )));
        }
        // Opened before anything is read, so that an unwritable file is reported at once.
        let output = out.map(|path| AtomicFile::open(path)).transpose().map_err(Failure::usage)?;
        let mut all = Distributions::default();
        for file in &self.files {
            if file.as_os_str() != "-" {
                check_records(file)?;
            }
            let outcome = read(file, &mut all).map_err(|e| match file.extension() {
                Some(found) if OTHER_KINDS.iter().any(|other| found.eq_ignore_ascii_case(other)) => {
                    Failure::usage(format!(
                        "{} is not a recording (.json) or a record file (.jsonl, .parquet)",
                        file.display()
                    ))
                }
                _ => Failure::usage(e),
            })?;
            if outcome.cut {
                eprintln!("{}: skipping the last line, which is incomplete", file.display());
            }
        }
        let kinds: Vec<GroupBy> = match self.by.as_slice() {
            [] => GroupBy::ALL.to_vec(),
            some => some.iter().map(|group| group.by()).collect(),
        };
        print(text(&all, &kinds))?;
        if let (Some(output), Some(path)) = (output, out) {
            let about = About { title: "Closed connections".to_owned(), command: command_line() };
            output.write_with(|out| page(&all, &kinds, &about, out)).map_err(Failure::usage)?;
            eprintln!("wrote {}", path.display());
        }
        Ok(())
    }
}

/// The recording in a file; none if it contains something else, which the reader of records then
/// judges.
fn recording(file: &Path) -> Result<Option<Results>, Failure> {
    if file.extension().is_none_or(|e| !e.eq_ignore_ascii_case("json")) {
        return Ok(None);
    }
    let shown = file.display();
    let Some(text) = recording_text(file, is_recording)? else { return Ok(None) };
    let results: Results = serde_json::from_slice(&text)
        .map_err(|e| Failure::usage(format!("{shown}: not a recording that this version reads: {e}")))?;
    if results.schema != SCHEMA {
        let schema = &results.schema;
        return Err(Failure::usage(format!("{shown}: its schema is {schema}; this version reads {SCHEMA}")));
    }
    Ok(Some(results))
}

fn is_recording(head: &[u8]) -> bool {
    String::from_utf8_lossy(head).contains("\"fullpipe/recording/")
}

/// Checks that a file exists and is not a directory. It may be a pipe, which is opened only once.
fn check_records(file: &Path) -> Result<(), Failure> {
    let expected = "a recording or a record file";
    match std::fs::metadata(file) {
        Ok(about) if about.is_dir() => Err(unreadable(file, expected, &ErrorKind::IsADirectory.into())),
        Ok(_) => Ok(()),
        Err(e) => Err(unreadable(file, expected, &e)),
    }
}

/// Distinct names of files: without extension, or their paths where those names are the same.
fn distinct_names(files: &[PathBuf]) -> Vec<String> {
    let name = |file: &PathBuf| file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<String> = files.iter().map(name).collect();
    let alike = names.iter().enumerate().any(|(i, name)| names[..i].contains(name));
    if alike { files.iter().map(|file| file.display().to_string()).collect() } else { names }
}

/// Several recordings as one, each run labelled with the name of its file. A single one is
/// unchanged.
fn merged(mut all: Vec<Results>, names: &[String]) -> Results {
    if all.len() == 1 {
        return all.remove(0);
    }
    let runs = all.into_iter().zip(names).flat_map(|(results, name)| {
        results.runs.into_iter().map(move |mut run| {
            run.label = format!("{name}: {}", run.label);
            run.contender = Some(format!("{name}: {}", run.contender()));
            run
        })
    });
    Results::new(runs.collect())
}

impl Group {
    fn by(self) -> GroupBy {
        match self {
            Group::Controller => GroupBy::Controller,
            Group::Prefix => GroupBy::Prefix,
            Group::Port => GroupBy::Port,
            Group::Hour => GroupBy::Hour,
        }
    }
}
