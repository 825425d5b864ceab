//! Results of runs as tables and files.

use crate::cases::quantity;
use crate::table::{Columns, Table};
use fullpipe_experiment::recording::{FlowRecording, Recording, Series, Summary};
use fullpipe_experiment::{Results as Recordings, SCHEMA};
use fullpipe_report::{About, Format, Output, table, verdict};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Arc;

/// Results of runs. The same seed gives the same bytes as on the command line.
#[pyclass(frozen, module = "fullpipe._fullpipe")]
pub struct Results {
    title: String,
    results: Arc<Recordings>,
    /// Number of each run in the whole sweep.
    numbers: Vec<usize>,
}

impl Results {
    pub fn new(title: String, results: Recordings, numbers: Vec<usize>) -> Results {
        Results { title, results: Arc::new(results), numbers }
    }

    pub fn recordings(&self) -> &Recordings {
        &self.results
    }

    fn about(&self) -> About {
        About { title: self.title.clone(), command: String::new() }
    }

    fn runs_in_order(&self) -> impl Iterator<Item = (usize, &Recording)> {
        self.numbers.iter().copied().zip(&self.results.runs)
    }

    /// Swept parameters of all runs, in order of first appearance.
    fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<&str> = Vec::new();
        for varied in self.results.runs.iter().flat_map(|run| &run.varied) {
            if varied.key != "seed" && !keys.contains(&varied.key.as_str()) {
                keys.push(&varied.key);
            }
        }
        keys
    }
}

/// Name of a column, and its value in a summary.
type SummaryColumn = (&'static str, fn(&Summary) -> Option<f64>);

/// Columns of the summary of a run or a flow.
const SUMMARY_COLUMNS: [SummaryColumn; 16] = [
    ("goodput_bps", |s| Some(s.goodput_bps)),
    ("utilization", |s| s.utilization),
    ("duration_s", |s| Some(s.duration_s)),
    ("bytes_delivered", |s| Some(s.bytes_delivered as f64)),
    ("packets_sent", |s| Some(s.packets_sent as f64)),
    ("packets_retransmitted", |s| Some(s.packets_retransmitted as f64)),
    ("packets_lost", |s| Some(s.packets_lost as f64)),
    ("rtt_min_ms", |s| s.rtt_ms.min),
    ("rtt_p50_ms", |s| s.rtt_ms.p50),
    ("rtt_p95_ms", |s| s.rtt_ms.p95),
    ("rtt_p99_ms", |s| s.rtt_ms.p99),
    ("queue_p50_ms", |s| s.queue_ms.p50),
    ("queue_p95_ms", |s| s.queue_ms.p95),
    ("queue_max_ms", |s| s.queue_ms.max),
    ("completion_s", |s| s.completion_s),
    ("retransmitted_share", |s| {
        (s.packets_sent > 0).then(|| s.packets_retransmitted as f64 / s.packets_sent as f64)
    }),
];

fn add_summaries<'a>(columns: &mut Columns, summaries: impl Iterator<Item = &'a Summary> + Clone) {
    for (name, value) in SUMMARY_COLUMNS {
        columns.number(name, summaries.clone().map(value).collect());
    }
}

/// The number of a run, kind, name and controller of a flow or a link, and its series.
type Part<'a> = (usize, &'a str, &'a str, &'a str, &'a Series);
/// Function and arguments for unpickling.
type PickleState<'py> = (Bound<'py, PyAny>, (Bound<'py, PyBytes>, String, Vec<usize>));

#[pymethods]
impl Results {
    fn __len__(&self) -> usize {
        self.results.runs.len()
    }

    /// Title of the runs.
    #[getter]
    fn title(&self) -> &str {
        &self.title
    }

    /// Number of each run in the whole sweep.
    #[getter]
    fn numbers(&self) -> Vec<usize> {
        self.numbers.clone()
    }

    /// Jain's fairness index over the goodputs of flows that shared a path; None if none did.
    #[getter]
    fn fairness(&self) -> Option<f64> {
        self.results.fairness
    }

    /// The conclusion in a sentence.
    #[getter]
    fn verdict(&self) -> String {
        verdict(&self.results)
    }

    /// One row per run: identity, swept parameters (as written, and as numbers in `KEY.value`),
    /// path, and summary.
    fn runs(&self) -> PyResult<Table> {
        let runs: Vec<(usize, &Recording)> = self.runs_in_order().collect();
        let mut columns = Columns::default();
        columns.integer("run", runs.iter().map(|(n, _)| *n as i64).collect());
        columns.text("label", runs.iter().map(|(_, r)| Some(&r.label)).collect());
        columns.text("engine", runs.iter().map(|(_, r)| Some(r.source.name())).collect());
        columns.text("cc", runs.iter().map(|(_, r)| Some(&r.cc)).collect());
        columns.integer("seed", runs.iter().map(|(_, r)| r.seed as i64).collect());
        columns.flag("valid", runs.iter().map(|(_, r)| r.valid).collect());
        for key in self.keys() {
            let value = |r: &Recording| r.varied.iter().find(|v| v.key == key).map(|v| v.value.clone());
            let texts: Vec<Option<String>> = runs.iter().map(|(_, r)| value(r)).collect();
            let numbers: Vec<Option<f64>> = texts.iter().map(|t| t.as_deref().and_then(quantity)).collect();
            columns.text(key, texts);
            if numbers.iter().any(Option::is_some) {
                columns.number(&format!("{key}.value"), numbers);
            }
        }
        columns.number("rate_bps", runs.iter().map(|(_, r)| r.path.rate_bps).collect());
        columns.number("base_rtt_ms", runs.iter().map(|(_, r)| r.path.base_rtt_ms).collect());
        add_summaries(&mut columns, runs.iter().map(|(_, r)| &r.summary));
        let failed = |r: &Recording| r.checks.iter().filter(|check| !check.passed).count() as i64;
        columns.integer("checks_failed", runs.iter().map(|(_, r)| failed(r)).collect());
        columns.finish()
    }

    /// One row per flow: run, identity, and summary.
    fn flows(&self) -> PyResult<Table> {
        let flows: Vec<(usize, &FlowRecording)> =
            self.runs_in_order().flat_map(|(n, run)| run.flows.iter().map(move |flow| (n, flow))).collect();
        let mut columns = Columns::default();
        columns.integer("run", flows.iter().map(|(n, _)| *n as i64).collect());
        columns.text("flow", flows.iter().map(|(_, f)| Some(&f.label)).collect());
        columns.text("cc", flows.iter().map(|(_, f)| Some(&f.cc)).collect());
        columns.number("start_s", flows.iter().map(|(_, f)| Some(f.start_s)).collect());
        add_summaries(&mut columns, flows.iter().map(|(_, f)| &f.summary));
        columns.finish()
    }

    /// One row per sample of a flow (`kind` flow) or of a link (`kind` link).
    fn series(&self) -> PyResult<Table> {
        let mut parts: Vec<Part<'_>> = Vec::new();
        for (n, run) in self.runs_in_order() {
            parts.extend(run.flows.iter().map(|f| (n, "flow", f.label.as_str(), f.cc.as_str(), &f.series)));
            parts.extend(run.links.iter().map(|l| (n, "link", l.label.as_str(), run.cc.as_str(), &l.series)));
        }
        let mut names: Vec<&str> = Vec::new();
        for column in parts.iter().flat_map(|part| &part.4.columns) {
            if !names.contains(&column.name.as_str()) {
                names.push(&column.name);
            }
        }
        let rows = |of: for<'a> fn(&Part<'a>) -> &'a str| -> Vec<Option<String>> {
            parts
                .iter()
                .flat_map(|part| std::iter::repeat_n(Some(of(part).to_owned()), part.4.t_s.len()))
                .collect()
        };
        let mut columns = Columns::default();
        columns.integer(
            "run",
            parts.iter().flat_map(|p| std::iter::repeat_n(p.0 as i64, p.4.t_s.len())).collect(),
        );
        columns.text("kind", rows(|part| part.1));
        columns.text("name", rows(|part| part.2));
        columns.text("cc", rows(|part| part.3));
        columns.number("t_s", parts.iter().flat_map(|p| p.4.t_s.iter().map(|t| Some(*t))).collect());
        for name in names {
            let values = parts.iter().flat_map(|part| {
                let column = part.4.get(name);
                (0..part.4.t_s.len())
                    .map(move |row| column.and_then(|c| c.get(row).copied()).filter(|v| v.is_finite()))
            });
            columns.number(name, values.collect());
        }
        columns.finish()
    }

    /// One row per state change of a controller.
    fn states(&self) -> PyResult<Table> {
        let mut rows: Vec<(i64, &str, f64, &str)> = Vec::new();
        for (n, run) in self.runs_in_order() {
            for flow in &run.flows {
                rows.extend(
                    flow.states.iter().map(|s| (n as i64, flow.label.as_str(), s.at_s, s.state.as_str())),
                );
            }
        }
        let mut columns = Columns::default();
        columns.integer("run", rows.iter().map(|r| r.0).collect());
        columns.text("flow", rows.iter().map(|r| Some(r.1)).collect());
        columns.number("t_s", rows.iter().map(|r| Some(r.2)).collect());
        columns.text("state", rows.iter().map(|r| Some(r.3)).collect());
        columns.finish()
    }

    /// All results as JSON (`fullpipe schema recording`), as `--out FILE.json` writes.
    fn to_json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut bytes = Vec::new();
        Format::Json.write(&self.results, &self.about(), &mut bytes)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes a report in the format of the extension: html, json, csv, parquet, png, svg, qlog. An
    /// existing file is replaced completely or not at all.
    fn report(&self, path: PathBuf) -> PyResult<()> {
        let fail = |e: fullpipe_report::OutputError| match Format::from_path(&path) {
            Err(_) => PyValueError::new_err(e.to_string()),
            Ok(_) => PyOSError::new_err(e.to_string()),
        };
        Output::open(&path).map_err(fail)?.write(&self.results, &self.about()).map_err(fail)
    }

    /// The table that the command line prints.
    #[pyo3(signature = (width=100))]
    fn table(&self, width: usize) -> String {
        table(&self.results, &table::Style { width, colour: false })
    }

    /// Reads JSON written by [`to_json`](Self::to_json) or the command line.
    #[staticmethod]
    #[pyo3(signature = (json, title=String::new(), numbers=None))]
    fn from_json(json: &[u8], title: String, numbers: Option<Vec<usize>>) -> PyResult<Results> {
        let results: Recordings = serde_json::from_slice(json)
            .map_err(|e| PyValueError::new_err(format!("not fullpipe results: {e}")))?;
        if results.schema != SCHEMA {
            return Err(PyValueError::new_err(format!(
                "the schema is {}, expected {SCHEMA}",
                results.schema
            )));
        }
        let numbers = match numbers {
            Some(numbers) if numbers.len() == results.runs.len() => numbers,
            Some(numbers) => {
                let (runs, given) = (results.runs.len(), numbers.len());
                return Err(PyValueError::new_err(format!("got {given} numbers for {runs} runs")));
            }
            None => (0..results.runs.len()).collect(),
        };
        Ok(Results { title, results: Arc::new(results), numbers })
    }

    /// Joins `parts`, with the runs in the order of their numbers.
    #[staticmethod]
    fn join(py: Python<'_>, title: String, parts: Vec<Py<Results>>) -> PyResult<Results> {
        let mut runs: Vec<(usize, Recording)> = Vec::new();
        for part in &parts {
            let part = part.bind(py).get();
            runs.extend(part.runs_in_order().map(|(n, run)| (n, run.clone())));
        }
        runs.sort_by_key(|(n, _)| *n);
        if let Some(twice) = runs.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(PyValueError::new_err(format!("run {} is in two parts", twice[0].0)));
        }
        let (numbers, runs) = runs.into_iter().unzip();
        Ok(Results { title, results: Arc::new(Recordings::new(runs)), numbers })
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<PickleState<'py>> {
        let make = py.get_type::<Results>().getattr("from_json")?;
        Ok((make, (self.to_json(py)?, self.title.clone(), self.numbers.clone())))
    }

    fn __repr__(&self) -> String {
        self.table(100)
    }
}
