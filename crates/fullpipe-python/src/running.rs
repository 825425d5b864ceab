//! Simulates runs without blocking Python's other threads or Ctrl-C.

use crate::cases::Cases;
use crate::error::RunError;
use crate::results::Results;
use fullpipe_run::{Batch, Engine, Job, Monitor};
use fullpipe_units::Span;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Interval between checks for signals and progress reports.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Progress {
    stop: AtomicBool,
    nanos: AtomicU64,
}

impl Monitor for Progress {
    fn interrupted(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn advanced(&self, by: Span) {
        self.nanos.fetch_add(by.as_nanos(), Relaxed);
    }

    fn finished(&self, left: Span) {
        self.nanos.fetch_add(left.as_nanos(), Relaxed);
    }
}

/// Simulates the cases with these `numbers` (all if None) on `threads` threads (0: one per core).
/// `progress` is called several times per second with the share that is done, 0 to 1. An exception
/// raised by it, or Ctrl-C, ends the runs.
#[pyfunction]
#[pyo3(signature = (cases, numbers=None, threads=0, series=true, progress=None))]
pub fn run(
    py: Python<'_>,
    cases: &Cases,
    numbers: Option<Vec<usize>>,
    threads: usize,
    series: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Results> {
    let numbers = numbers.unwrap_or_else(|| (0..cases.cases.len()).collect());
    let job = |&number: &usize| {
        let case = cases.cases.get(number).cloned();
        case.map(|case| Job { engine: Engine::Sim, case }).ok_or_else(|| {
            PyIndexError::new_err(format!("no run {number}: there are {}, from 0", cases.cases.len()))
        })
    };
    let jobs: Vec<Job> = numbers.iter().map(job).collect::<PyResult<_>>()?;
    let whole: f64 = jobs.iter().map(|job| job.case.scenario.duration.as_nanos() as f64).sum();
    let shared = Arc::new(Progress::default());
    let (done, outcome) = channel();
    // Used by this thread only; closures without the GIL have to be `Sync` nevertheless.
    let outcome = Mutex::new(outcome);
    let monitor = Arc::clone(&shared);
    let worker = std::thread::Builder::new().spawn(move || {
        let outcome = Batch::new(jobs).threads(threads).keep_series(series).run(&*monitor);
        // The receiver is gone after an exception.
        let _ = done.send(outcome);
    })?;
    let mut raised = None;
    let outcome = loop {
        match py.detach(|| outcome.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(POLL_INTERVAL))
        {
            Ok(outcome) => break Some(outcome),
            Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) if raised.is_some() => {}
            Err(RecvTimeoutError::Timeout) => {
                let checked = py.check_signals().and_then(|()| match &progress {
                    Some(progress) => {
                        let part = shared.nanos.load(Relaxed) as f64 / whole.max(1.0);
                        progress.call1(py, (part.min(1.0),)).map(drop)
                    }
                    None => Ok(()),
                });
                if let Err(e) = checked {
                    shared.stop.store(true, Relaxed);
                    raised = Some(e);
                }
            }
        }
    };
    let ended = py.detach(|| worker.join());
    if let Some(e) = raised {
        return Err(e);
    }
    let (Some(outcome), Ok(())) = (outcome, ended) else {
        return Err(RunError::new_err("a run panicked: this is a bug in fullpipe; the message is on stderr"));
    };
    let results = outcome.results.clone();
    outcome.into_runs().map_err(|e| RunError::new_err(e.to_string()))?;
    if let Some(progress) = progress {
        progress.call1(py, (1.0,))?;
    }
    Ok(Results::new(cases.title.clone(), results, numbers))
}
