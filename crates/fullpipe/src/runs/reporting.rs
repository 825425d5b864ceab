//! The output of runs: on the terminal, as JSON, in files.

use super::{Choice, EBPF_CONTROLLERS, Progress};
use crate::failure::Failure;
use crate::print::{columns, hanging_indent, print, print_as_json, print_bytes};
use fullpipe_experiment::Results;
use fullpipe_experiment::scenario::Case;
use fullpipe_report::{About, Format, Output, table};
use fullpipe_run::{Batch, Job, LabOptions, Shard};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

/// Options of running and reporting.
#[derive(clap::Args)]
#[command(next_help_heading = "Engine and output")]
pub struct Reporting {
    /// Engine to run on
    #[arg(long, value_enum, default_value_t)]
    engine: Choice,
    /// Number of parallel simulations [default: number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Number of threads of each simulation of 100 or more flows; the results are the same with any
    /// number [default: the cores that parallel simulations leave]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Run lab runs in parallel, up to 200 Mbit/s in total per processor [default: one after
    /// another]
    #[arg(long)]
    side_by_side: bool,
    /// Maximum number of retries of an invalid lab run, one that the machine could not keep up
    /// with; the last retry runs with nothing in parallel
    #[arg(long, value_name = "N", default_value_t = LabOptions::DEFAULT_RETRIES)]
    again: u32,
    /// Capture both ends of each lab run to PREFIX-client.pcap and PREFIX-server.pcap; with several
    /// lab runs, to PREFIX-1-client.pcap, PREFIX-1-server.pcap, PREFIX-2-client.pcap, …
    #[arg(long, value_name = "PREFIX")]
    pcap: Option<PathBuf>,
    /// Print the summary as JSON instead of a table (see `fullpipe schema recording`); --out
    /// FILE.json also has the time series
    #[arg(long)]
    json: bool,
    /// Also write a report to FILE, in the format of its extension: html, json, csv (one row per
    /// sample), summary.csv (one row per run), parquet (if built in), png, svg, qlog. An existing
    /// FILE is replaced. `-` prints JSON to standard output instead of the table, and `--out=-.csv`
    /// prints CSV; may be repeated
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Vec<PathBuf>,
}

/// Without a file to write, batches of more runs than this keep no time series.
const MAX_RUNS_WITH_SERIES: usize = 64;

impl Reporting {
    /// The chosen engine.
    pub fn engine(&self) -> Choice {
        self.engine
    }

    /// Runs `cases`, or a `shard` of them, and reports the results.
    ///
    /// # Errors
    /// A report that cannot be written (noticed before anything runs), a failed or invalid run, a
    /// failed check, an interruption.
    pub fn run(self, title: String, cases: Vec<Case>, shard: Option<Shard>) -> Result<(), Failure> {
        if self.pcap.is_some() && self.engine == Choice::Sim {
            return Err(Failure::usage("--pcap requires --engine lab"));
        }
        let outputs = Outputs::open(&self.out, self.json)?;
        let engines = self.engine.engines();
        let cases = match shard {
            Some(shard) => shard.select(cases),
            None => cases,
        };
        let each = |case: Case| engines.iter().map(move |&engine| Job { engine, case: case.clone() });
        let jobs: Vec<Job> = cases.into_iter().flat_map(each).collect();
        let total = jobs.len();
        let series = outputs.have_series()
            || (!self.json && outputs.stdout.is_none() && total <= MAX_RUNS_WITH_SERIES);
        let progress = Progress::new(&jobs);
        let lab = LabOptions {
            share_machine: self.side_by_side,
            retries: self.again,
            pcap: self.pcap.clone(),
            loader: EBPF_CONTROLLERS,
            ..LabOptions::default()
        };
        let batch = Batch::new(jobs)
            .threads(self.jobs.map_or(0, usize::from))
            .threads_per_run(self.threads.map_or(0, usize::from))
            .keep_series(series);
        let outcome = batch.with_lab(lab).run(&progress);
        drop(progress);

        let part = shard.map(|shard| shard.part(&outcome.numbers, engines.len()));
        let results = Results { part, ..outcome.results };
        let about = About { title, command: command_line() };
        if !results.runs.is_empty() {
            outputs.report(&results, &about, self.json)?;
        }
        if outcome.interrupted {
            eprintln!("fullpipe: interrupted after {} of {total} runs", results.runs.len());
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

/// Reports to write. One may go to standard output, which then has no other output.
pub struct Outputs {
    files: Vec<Output>,
    stdout: Option<Format>,
}

impl Outputs {
    /// Opens the files before anything runs, so that an unwritable file is reported at once. With
    /// `json`, standard output is in use.
    pub fn open(paths: &[PathBuf], json: bool) -> Result<Outputs, Failure> {
        let (mut files, mut stdout) = (Vec::new(), None);
        for path in paths {
            let Some(format) = stdout_format(path)? else {
                files.push(path);
                continue;
            };
            if json || stdout.replace(format).is_some() {
                return Err(Failure::usage(format!(
                    "--out {}: standard output takes one report, and none with --json",
                    path.display()
                )));
            }
        }
        Ok(Outputs { files: open_outputs(files)?, stdout })
    }

    /// Whether one of the formats has the time series.
    pub fn have_series(&self) -> bool {
        self.files.iter().map(Output::format).chain(self.stdout).any(Format::has_series)
    }

    /// Prints the results, unless a report replaces them, and writes the reports.
    pub fn report(self, results: &Results, about: &About, json: bool) -> Result<(), Failure> {
        match self.stdout {
            None => show(results, about, json)?,
            Some(format) => {
                let mut report = Vec::new();
                format.write(results, about, &mut report).map_err(Failure::usage)?;
                // On a terminal, control characters in labels are escaped.
                if io::stdout().is_terminal() { print(report)? } else { print_bytes(&report)? }
            }
        }
        write(self.files, results, about)
    }
}

/// Writes reports to their files.
pub fn write(files: Vec<Output>, results: &Results, about: &About) -> Result<(), Failure> {
    for file in files {
        let path = file.path().display().to_string();
        file.write(results, about).map_err(Failure::usage)?;
        eprintln!("wrote {path}");
    }
    Ok(())
}

/// The format of a report for standard output: `-` for JSON, `-.csv` for CSV; a file of such a name
/// is `./-.csv`.
fn stdout_format(path: &Path) -> Result<Option<Format>, Failure> {
    match path.to_str().and_then(|name| name.strip_prefix('-')) {
        Some("") => Ok(Some(Format::Json)),
        Some(extension) if extension.starts_with('.') && !extension.contains('/') => {
            let format = Format::from_path(Path::new(&format!("stdout{extension}")));
            format.map(Some).map_err(|e| Failure::usage(format!("--out {}: {e}", path.display())))
        }
        _ => Ok(None),
    }
}

/// Prints the results as JSON without series, or as a table.
pub fn show(results: &Results, about: &About, json: bool) -> Result<(), Failure> {
    if json {
        let summary = results.clone().without_series();
        let mut text = Vec::new();
        Format::Json.write(&summary, about, &mut text).map_err(Failure::usage)?;
        return print_as_json(&String::from_utf8_lossy(&text));
    }
    let terminal = io::stdout().is_terminal();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
        || std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    let style = table::Style { width: width(), colour: terminal && !plain };
    print(table(results, &style))
}

/// Opens the files of `--out` before anything runs, so that an unwritable file is reported at once.
pub fn open_outputs<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<Vec<Output>, Failure> {
    paths.into_iter().map(|path| Output::open(path).map_err(Failure::usage)).collect()
}

/// Prints `text` after `lead`, with a hanging indent. The first `head` characters of the text
/// belong to the lead.
pub fn print_hanging(lead: &str, head: usize, text: &str) {
    let (begin, rest) = text.split_at(text.char_indices().nth(head).map_or(text.len(), |(at, _)| at));
    print!("{}", hanging_indent(&format!("{lead}{begin}"), rest, width()));
}

/// The width of the output in columns.
pub fn width() -> usize {
    columns().unwrap_or(100)
}

/// Fails if a run is invalid or a check failed.
pub fn verdict(results: &Results) -> Result<(), Failure> {
    let invalid = results.runs.iter().filter(|r| !r.valid).count();
    let checks = || results.runs.iter().flat_map(|r| &r.checks);
    let failed = checks().filter(|c| !c.passed).count();
    match (invalid, failed) {
        (0, 0) => Ok(()),
        (0, n) => Err(Failure::Check(format!("{n} of {} checks failed", checks().count()))),
        (n, _) => Err(Failure::Check(format!("{n} of {} runs are invalid", results.runs.len()))),
    }
}

/// A word, quoted for a shell if necessary.
pub fn quoted(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+%@".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The command line of this process, quoted for a shell.
pub fn command_line() -> String {
    let args = std::env::args_os().skip(1).map(|a| quoted(&a.to_string_lossy()));
    std::iter::once("fullpipe".to_owned()).chain(args).collect::<Vec<_>>().join(" ")
}
