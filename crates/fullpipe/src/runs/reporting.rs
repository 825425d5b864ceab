//! What a command says of its runs: on the terminal, as JSON, in files.

use super::{Choice, LENT, Progress};
use crate::failure::Failure;
use crate::print::{columns, hung, print, print_as_json, print_bytes};
use fullpipe_experiment::Results;
use fullpipe_experiment::scenario::Case;
use fullpipe_report::{About, Format, Output, table};
use fullpipe_run::{Batch, InRealTime, Job, Shard};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

/// How runs are made and told of.
#[derive(clap::Args)]
#[command(next_help_heading = "Engine and output")]
pub struct Reporting {
    /// What runs it.
    #[arg(long, value_enum, default_value_t)]
    engine: Choice,
    /// Simulations at a time; by default one a core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Runs in the lab whose rates are low enough share the machine, instead of one after another.
    #[arg(long)]
    side_by_side: bool,
    /// How often a run of the lab that came out not valid, because the machine was busy, is made again, the last
    /// time alone.
    #[arg(long, value_name = "N", default_value_t = InRealTime::AGAIN)]
    again: u32,
    /// Capture both ends of each run of the lab: PREFIX-client.pcap and PREFIX-server.pcap, with the number of the
    /// run after PREFIX if there are several.
    #[arg(long, value_name = "PREFIX")]
    pcap: Option<PathBuf>,
    /// Print figures as JSON instead of the table (`fullpipe schema recording` describes it); files written
    /// by --out have the time series too.
    #[arg(long)]
    json: bool,
    /// Also write a report to FILE; its extension tells the form: html, json, csv (a row a sample), summary.csv (a row a
    /// run), parquet (if built in), png, svg, qlog. `-` is the standard output in place of the table, as JSON, and
    /// `--out=-.csv` or any other ending in that form. May be repeated.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Vec<PathBuf>,
}

/// Without a file to write, more runs than this keep their figures only.
const SERIES_KEPT: usize = 64;

impl Reporting {
    /// What runs it.
    pub fn engine(&self) -> Choice {
        self.engine
    }

    /// Runs `cases`, or the `shard` of them, and tells what came of them.
    ///
    /// # Errors
    /// A report that cannot be written (known before anything runs), a run that failed, an invalid run, a
    /// check that did not hold, an interruption.
    pub fn run(self, title: String, cases: Vec<Case>, shard: Option<Shard>) -> Result<(), Failure> {
        if self.pcap.is_some() && self.engine == Choice::Sim {
            return Err(Failure::usage("--pcap captures packets of the lab: add --engine lab"));
        }
        let outputs = Outputs::open(&self.out, self.json)?;
        let engines = self.engine.engines();
        let cases = match shard {
            Some(shard) => shard.of(cases),
            None => cases,
        };
        let each = |case: Case| engines.iter().map(move |&engine| Job { engine, case: case.clone() });
        let jobs: Vec<Job> = cases.into_iter().flat_map(each).collect();
        let total = jobs.len();
        let series =
            outputs.have_series() || (!self.json && outputs.stdout.is_none() && total <= SERIES_KEPT);
        let progress = Progress::of(&jobs);
        let lab = InRealTime {
            together: self.side_by_side,
            again: self.again,
            pcap: self.pcap.clone(),
            lend: LENT,
        };
        let batch = Batch::new(jobs).threads(self.jobs.map_or(0, usize::from)).keep_series(series);
        let outcome = batch.in_real_time(lab).run(&progress);
        drop(progress);

        let part = shard.map(|shard| shard.part(&outcome.numbers, engines.len()));
        let results = Results { part, ..outcome.results };
        let about = About { title, command: command_line() };
        if !results.runs.is_empty() {
            outputs.tell(&results, &about, self.json)?;
        }
        if outcome.interrupted {
            eprintln!("fullpipe: interrupted: {} of {total} runs are finished", results.runs.len());
            return Err(Failure::Passed(130));
        }
        let mut failures = outcome.failures.into_iter().map(super::failure);
        if let Some(first) = failures.next() {
            for failure in failures {
                failure.report();
            }
            return Err(first);
        }
        verdict(&results)
    }
}

/// Reports on their way. One may go to the standard output, which then has nothing else.
pub struct Outputs {
    files: Vec<Output>,
    stdout: Option<Format>,
}

impl Outputs {
    /// Makes sure that they can be written, before anything runs. `json` tells whether the standard output is taken.
    pub fn open(paths: &[PathBuf], json: bool) -> Result<Outputs, Failure> {
        let (mut files, mut stdout) = (Vec::new(), None);
        for path in paths {
            let Some(format) = of_stdout(path)? else {
                files.push(path);
                continue;
            };
            if json || stdout.replace(format).is_some() {
                return Err(Failure::usage(format!(
                    "--out {}: the standard output can have one report, and not --json besides",
                    path.display()
                )));
            }
        }
        Ok(Outputs { files: opened(files)?, stdout })
    }

    /// Whether one of them has the time series.
    pub fn have_series(&self) -> bool {
        self.files.iter().map(Output::format).chain(self.stdout).any(Format::has_series)
    }

    /// Prints what came of runs, unless a report takes its place, and writes the reports.
    pub fn tell(self, results: &Results, about: &About, json: bool) -> Result<(), Failure> {
        match self.stdout {
            None => show(results, about, json)?,
            Some(format) => {
                let mut report = Vec::new();
                format.write(results, about, &mut report).map_err(Failure::usage)?;
                // At a terminal, labels are written out that it would obey.
                if io::stdout().is_terminal() { print(report)? } else { print_bytes(&report)? }
            }
        }
        write(self.files, results, about)
    }
}

/// Writes reports to their files, and says so.
pub fn write(files: Vec<Output>, results: &Results, about: &About) -> Result<(), Failure> {
    for file in files {
        let path = file.path().display().to_string();
        file.write(results, about).map_err(Failure::usage)?;
        eprintln!("wrote {path}");
    }
    Ok(())
}

/// The form of a report for the standard output: `-` for JSON, `-.csv` for CSV; a file of such a name is `./-.csv`.
fn of_stdout(path: &Path) -> Result<Option<Format>, Failure> {
    match path.to_str().and_then(|name| name.strip_prefix('-')) {
        Some("") => Ok(Some(Format::Json)),
        Some(ending) if ending.starts_with('.') && !ending.contains('/') => {
            let format = Format::from_path(Path::new(&format!("stdout{ending}")));
            format.map(Some).map_err(|e| Failure::usage(format!("--out {}: {e}", path.display())))
        }
        _ => Ok(None),
    }
}

/// Prints what came of runs: figures as JSON, or the table.
pub fn show(results: &Results, about: &About, json: bool) -> Result<(), Failure> {
    if json {
        let figures = results.clone().without_series();
        let mut text = Vec::new();
        Format::Json.write(&figures, about, &mut text).map_err(Failure::usage)?;
        return print_as_json(&String::from_utf8_lossy(&text));
    }
    let terminal = io::stdout().is_terminal();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
        || std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    let style = table::Style { width: width(), colour: terminal && !plain };
    print(table(results, &style))
}

/// The files of `--out`, before anything runs: what cannot be written must not be noticed at the end.
pub fn opened<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<Vec<Output>, Failure> {
    paths.into_iter().map(|path| Output::open(path).map_err(Failure::usage)).collect()
}

/// Prints `text` after `lead`, its further lines below its first word. The first `head` characters of the text belong to the lead.
pub fn hanging(lead: &str, head: usize, text: &str) {
    let (begin, rest) = text.split_at(text.char_indices().nth(head).map_or(text.len(), |(at, _)| at));
    print!("{}", hung(&format!("{lead}{begin}"), rest, width()));
}

/// Columns there are to print in.
pub fn width() -> usize {
    columns().unwrap_or(100)
}

/// Whether all that was to hold held.
pub fn verdict(results: &Results) -> Result<(), Failure> {
    let invalid = results.runs.iter().filter(|r| !r.valid).count();
    let checks = || results.runs.iter().flat_map(|r| &r.checks);
    let failed = checks().filter(|c| !c.passed).count();
    match (invalid, failed) {
        (0, 0) => Ok(()),
        (0, n) => Err(Failure::Check(format!("{n} of {} checks failed", checks().count()))),
        (n, _) => Err(Failure::Check(format!("{n} of {} runs are not valid", results.runs.len()))),
    }
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+%@".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The command as it was given, for a shell.
pub fn command_line() -> String {
    let args = std::env::args_os().skip(1).map(|a| quoted(&a.to_string_lossy()));
    std::iter::once("fullpipe".to_owned()).chain(args).collect::<Vec<_>>().join(" ")
}
