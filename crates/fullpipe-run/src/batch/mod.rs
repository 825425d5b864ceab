//! Batches: simulations run on all cores, lab runs take turns on the machine.

#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "lab")]
mod turns;

#[cfg(feature = "lab")]
pub use lab::LabOptions;

use crate::parallel::thread_count;
use crate::{Engine, Monitor, RunError, engine, in_parallel};
use fullpipe_experiment::recording::{Recording, Results};
use fullpipe_experiment::scenario::Case;
use fullpipe_units::{Span, Time};
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

/// One run of a batch.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// The engine that runs it.
    pub engine: Engine,
    /// What to run.
    pub case: Case,
}

/// A batch of runs, and how to run them.
pub struct Batch<'a> {
    jobs: Vec<Job>,
    threads: usize,
    threads_per_run: usize,
    series: bool,
    distributions: bool,
    #[cfg(feature = "lab")]
    lab: LabOptions<'a>,
    #[cfg(not(feature = "lab"))]
    lab: std::marker::PhantomData<&'a ()>,
}

/// The result of a batch.
#[derive(Debug)]
pub struct Outcome {
    /// The finished runs, in the order of the jobs.
    pub results: Results,
    /// For each run, the index of its job.
    pub numbers: Vec<usize>,
    /// Whether the caller stopped the batch before every run was finished or, if invalid, repeated.
    pub interrupted: bool,
    /// The errors of the runs that failed.
    pub failures: Vec<RunError>,
}

impl Outcome {
    /// Every run or why it failed, in the order of the jobs.
    ///
    /// # Errors
    /// [`RunError::Interrupted`].
    pub fn into_each(self) -> Result<Vec<Result<Recording, RunError>>, RunError> {
        if self.interrupted {
            return Err(RunError::Interrupted);
        }
        let jobs = self.results.runs.len() + self.failures.len();
        let mut finished = self.numbers.into_iter().zip(self.results.runs).peekable();
        let mut failures = self.failures.into_iter();
        // Failures are in the order of the jobs, too.
        let each = (0..jobs).filter_map(|job| match finished.next_if(|(number, _)| *number == job) {
            Some((_, recording)) => Some(Ok(recording)),
            None => failures.next().map(Err),
        });
        Ok(each.collect())
    }

    /// The runs, if all of them finished.
    ///
    /// # Errors
    /// [`RunError::Interrupted`], or the first failure.
    pub fn into_runs(self) -> Result<Vec<Recording>, RunError> {
        if self.interrupted {
            return Err(RunError::Interrupted);
        }
        match self.failures.into_iter().next() {
            Some(failure) => Err(failure),
            None => Ok(self.results.runs),
        }
    }
}

/// The result of a job so far.
type Slot = Mutex<Option<Result<Box<Recording>, RunError>>>;

impl<'a> Batch<'a> {
    /// A batch of `jobs` that runs one simulation per core and keeps everything but distributions.
    pub fn new(jobs: Vec<Job>) -> Self {
        Batch {
            jobs,
            threads: 0,
            threads_per_run: 0,
            series: true,
            distributions: false,
            lab: Default::default(),
        }
    }

    /// Sets how many simulations run at a time; 0 for one per core.
    pub fn threads(self, threads: usize) -> Self {
        Batch { threads, ..self }
    }

    /// Sets how many threads each simulation of many flows uses; 0 for the cores that the number of
    /// simulations at a time leaves. The results are the same with any number.
    pub fn threads_per_run(self, threads_per_run: usize) -> Self {
        Batch { threads_per_run, ..self }
    }

    /// Sets whether to keep time series; without them a recording is a few figures per flow.
    pub fn keep_series(self, series: bool) -> Self {
        Batch { series, ..self }
    }

    /// Sets whether to keep each flow's RTT and queueing-delay distributions; off by default.
    pub fn keep_distributions(self, distributions: bool) -> Self {
        Batch { distributions, ..self }
    }

    /// Sets how lab runs share the machine, and how often invalid ones are repeated.
    #[cfg(feature = "lab")]
    pub fn with_lab<'b>(self, lab: LabOptions<'b>) -> Batch<'b> {
        Batch {
            jobs: self.jobs,
            threads: self.threads,
            threads_per_run: self.threads_per_run,
            series: self.series,
            distributions: self.distributions,
            lab,
        }
    }

    /// Runs everything, simulations first. Runs that are finished when `watch` interrupts are kept.
    pub fn run(self, watch: &dyn Monitor) -> Outcome {
        let slots: Vec<Slot> = self.jobs.iter().map(|_| Mutex::new(None)).collect();
        let simulated: Vec<usize> = self.numbers_of(Engine::Sim);
        #[cfg(feature = "lab")]
        let bbr_versions = self.announce_counterparts(watch);
        let at_a_time = thread_count(self.threads).min(simulated.len());
        let threads = match self.threads_per_run {
            0 => thread_count(0) / at_a_time.max(1),
            threads => threads,
        };
        in_parallel(&simulated, self.threads, |_, &i| {
            if watch.interrupted() {
                return ControlFlow::Break(());
            }
            let case = &self.jobs[i].case;
            let ended = watched(case, watch, |progress| {
                #[cfg(feature = "lab")]
                return crate::counterpart::simulate(case, &bbr_versions, threads, progress);
                #[cfg(not(feature = "lab"))]
                engine::simulate_case(case, threads, progress)
            });
            put(&slots[i], Some(self.kept(ended)));
            ControlFlow::Continue(())
        });
        #[cfg(feature = "lab")]
        self.run_in_real_time(&slots, watch);
        let mut outcome = Outcome {
            results: Results::new(Vec::new()),
            numbers: Vec::new(),
            interrupted: false,
            failures: Vec::new(),
        };
        let mut runs: Vec<Recording> = Vec::new();
        for (i, slot) in slots.into_iter().enumerate() {
            match slot.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(Ok(recording)) => {
                    // Interrupted before it could be repeated.
                    outcome.interrupted |= !recording.valid && watch.interrupted();
                    outcome.numbers.push(i);
                    runs.push(*recording);
                }
                Some(Err(RunError::Interrupted)) | None => outcome.interrupted = true,
                Some(Err(failure)) => outcome.failures.push(failure),
            }
        }
        outcome.results = Results::new(runs);
        outcome
    }

    fn numbers_of(&self, engine: Engine) -> Vec<usize> {
        (0..self.jobs.len()).filter(|&i| self.jobs[i].engine == engine).collect()
    }

    /// Drops the parts of a recording that the caller did not ask for.
    fn kept(&self, ended: Result<Recording, RunError>) -> Result<Box<Recording>, RunError> {
        let ended = match self.distributions {
            true => ended,
            false => ended.map(engine::without_distributions),
        };
        ended.map(|run| match self.series {
            true => Box::new(run),
            false => Box::new(Results::new(vec![run]).without_series().runs.remove(0)),
        })
    }
}

fn put(slot: &Slot, ended: Option<Result<Box<Recording>, RunError>>) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = ended;
}

/// Runs `case` and reports its progress to `watch`.
fn watched(
    case: &Case,
    watch: &dyn Monitor,
    run: impl FnOnce(&mut dyn FnMut(Time) -> ControlFlow<()>) -> Result<Recording, RunError>,
) -> Result<Recording, RunError> {
    let mut at = Time::ZERO;
    let recording = run(&mut |now| {
        watch.advanced(now.since(at));
        at = now;
        if watch.interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let done = at.since(Time::ZERO);
    let duration = case.scenario.duration;
    watch.finished(if duration > done { duration - done } else { Span::ZERO });
    Ok(recording)
}
