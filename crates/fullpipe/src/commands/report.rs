//! `fullpipe report`: what records of connections come to.

use crate::failure::Failure;
use crate::print::print;
use crate::runs::{Outputs, command_line};
use fullpipe_experiment::{Results, SCHEMA};
use fullpipe_report::records::{Distributions, GroupBy, page, read, text};
use fullpipe_report::{About, AtomicFile};
use std::path::{Path, PathBuf};

/// Show recordings again and side by side, or what records of connections come to
///
/// Recordings are what `--out FILE.json` of `race`, `run` and `test` writes: drawn again in any form, and several as one. Records of
/// connections are what `fullpipe records` writes (.jsonl, .parquet) and what `fullpipe trace --json` prints; - is standard input.
#[derive(clap::Args)]
pub struct Args {
    /// Recordings (.json), or the records; of files that take turns name all: closed*.jsonl
    #[arg(value_name = "RECORDS", required = true, value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// By what connections are told apart; may be repeated. By default by each
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Vec<What>,
    /// Also write a report to FILE: of recordings in any form, by its ending; of records a page, .html. May be repeated
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Controller,
    Prefix,
    Port,
    Hour,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let recordings =
            self.files.iter().map(|file| recording(file)).collect::<Result<Vec<_>, Failure>>()?;
        match recordings.iter().filter(|found| found.is_some()).count() {
            0 => self.records(),
            n if n < recordings.len() => {
                Err(Failure::usage("recordings and records of connections do not make one report"))
            }
            _ => self.recordings(recordings.into_iter().flatten().collect()),
        }
    }

    /// Draws recordings again.
    fn recordings(self, all: Vec<Results>) -> Result<(), Failure> {
        if !self.by.is_empty() {
            return Err(Failure::usage(
                "--by tells records of connections apart; recordings have their runs",
            ));
        }
        let outputs = Outputs::open(&self.out, false)?;
        let names = distinct_names(&self.files);
        let title = names.join(" and ");
        let results = together(all, &names);
        let about = About { title, command: command_line() };
        outputs.tell(&results, &about, false)
    }

    fn records(self) -> Result<(), Failure> {
        let out = match self.out.as_slice() {
            [] => None,
            [one] => Some(one),
            _ => return Err(Failure::usage("--out: a report on records is one page, .html")),
        };
        let is_page = |path: &PathBuf| path.extension().is_some_and(|e| e == "html" || e == "htm");
        if let Some(out) = out.filter(|path| !is_page(path)) {
            return Err(Failure::usage(format!(
                "--out {}: a report on records is a page, .html",
                out.display()
            )));
        }
        // Before anything is read: what cannot be written must not be noticed at the end.
        let output = out.map(|path| AtomicFile::open(path)).transpose().map_err(Failure::usage)?;
        let mut all = Distributions::default();
        for file in &self.files {
            let found = read(file, &mut all).map_err(Failure::usage)?;
            if found.cut {
                eprintln!("{}: its last line is cut, and left out", file.display());
            }
        }
        let kinds: Vec<GroupBy> = match self.by.as_slice() {
            [] => GroupBy::ALL.to_vec(),
            some => some.iter().map(|what| what.by()).collect(),
        };
        print(text(&all, &kinds))?;
        if let (Some(output), Some(path)) = (output, out) {
            let about = About { title: "Connections that closed".to_owned(), command: command_line() };
            output.write_with(|out| page(&all, &kinds, &about, out)).map_err(Failure::usage)?;
            eprintln!("wrote {}", path.display());
        }
        Ok(())
    }
}

/// The recording in a file; none if it holds something else. Of that, whatever reads records says what is wrong.
fn recording(file: &Path) -> Result<Option<Results>, Failure> {
    if file.extension().is_none_or(|e| !e.eq_ignore_ascii_case("json")) {
        return Ok(None);
    }
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|e| Failure::usage(format!("{shown}: {e}")))?;
    if !text.get(..200).unwrap_or(&text).contains("\"fullpipe/recording/") {
        return Ok(None);
    }
    let results: Results = serde_json::from_str(&text)
        .map_err(|e| Failure::usage(format!("{shown}: no recording that this version reads: {e}")))?;
    if results.schema != SCHEMA {
        let schema = &results.schema;
        return Err(Failure::usage(format!("{shown}: its form is {schema}; this version reads {SCHEMA}")));
    }
    Ok(Some(results))
}

/// What tells files apart: their names without ending, or their paths where those are the same.
fn distinct_names(files: &[PathBuf]) -> Vec<String> {
    let name = |file: &PathBuf| file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<String> = files.iter().map(name).collect();
    let alike = names.iter().enumerate().any(|(i, name)| names[..i].contains(name));
    if alike { files.iter().map(|file| file.display().to_string()).collect() } else { names }
}

/// Several recordings as one, each run with the name of its file before its own. A single one stays as it is.
fn together(mut all: Vec<Results>, names: &[String]) -> Results {
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

impl What {
    fn by(self) -> GroupBy {
        match self {
            What::Controller => GroupBy::Controller,
            What::Prefix => GroupBy::Prefix,
            What::Port => GroupBy::Port,
            What::Hour => GroupBy::Hour,
        }
    }
}
