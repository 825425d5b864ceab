//! Many runs: simulated ones on all cores, those in real time in turns.

#[cfg(feature = "lab")]
mod real_time;
#[cfg(feature = "lab")]
mod turns;

#[cfg(feature = "lab")]
pub use real_time::InRealTime;

use crate::{Engine, RunError, Watch, engine, in_parallel};
use fullpipe_experiment::recording::{Recording, Results};
use fullpipe_experiment::scenario::Case;
use fullpipe_units::{Span, Time};
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

/// One run to make.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// What runs it.
    pub engine: Engine,
    /// The run.
    pub case: Case,
}

/// Runs to make, and how.
pub struct Batch<'a> {
    jobs: Vec<Job>,
    threads: usize,
    series: bool,
    distributions: bool,
    #[cfg(feature = "lab")]
    lab: InRealTime<'a>,
    #[cfg(not(feature = "lab"))]
    lab: std::marker::PhantomData<&'a ()>,
}

/// What came of a batch.
#[derive(Debug)]
pub struct Outcome {
    /// The finished runs, in the order of the jobs.
    pub results: Results,
    /// The number of the job of each of them.
    pub numbers: Vec<usize>,
    /// The caller asked to stop before all were finished, or made again.
    pub interrupted: bool,
    /// Why runs failed that did not finish.
    pub failures: Vec<RunError>,
}

impl Outcome {
    /// The runs, for those who can do nothing with some of them.
    ///
    /// # Errors
    /// [`RunError::Interrupted`], or the first failure.
    pub fn all(self) -> Result<Vec<Recording>, RunError> {
        if self.interrupted {
            return Err(RunError::Interrupted);
        }
        match self.failures.into_iter().next() {
            Some(failure) => Err(failure),
            None => Ok(self.results.runs),
        }
    }
}

/// What has become of a job so far.
type Slot = Mutex<Option<Result<Box<Recording>, RunError>>>;

impl<'a> Batch<'a> {
    /// These runs: as many simulations at a time as there are cores, everything of them kept but distributions.
    pub fn new(jobs: Vec<Job>) -> Self {
        Batch { jobs, threads: 0, series: true, distributions: false, lab: Default::default() }
    }

    /// So many simulations at a time; 0 for one a core.
    pub fn threads(self, threads: usize) -> Self {
        Batch { threads, ..self }
    }

    /// Whether time series are kept; without them a run is a few figures.
    pub fn keep_series(self, series: bool) -> Self {
        Batch { series, ..self }
    }

    /// Whether the distributions behind the figures of each flow are kept; by default they are not.
    pub fn keep_distributions(self, distributions: bool) -> Self {
        Batch { distributions, ..self }
    }

    /// How runs in real time go about it.
    #[cfg(feature = "lab")]
    pub fn in_real_time<'b>(self, lab: InRealTime<'b>) -> Batch<'b> {
        Batch {
            jobs: self.jobs,
            threads: self.threads,
            series: self.series,
            distributions: self.distributions,
            lab,
        }
    }

    /// Runs everything, simulations first; what is finished when `watch` interrupts is kept.
    pub fn run(self, watch: &dyn Watch) -> Outcome {
        let slots: Vec<Slot> = self.jobs.iter().map(|_| Mutex::new(None)).collect();
        let simulated: Vec<usize> = self.numbers_of(Engine::Sim);
        in_parallel(&simulated, self.threads, |_, &i| {
            if watch.interrupted() {
                return ControlFlow::Break(());
            }
            let case = &self.jobs[i].case;
            let ended = watched(case, watch, |progress| engine::simulate(case, progress));
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
                    // Interrupted before it could be made again.
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

    /// What is kept of a run.
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

/// Makes a run while `watch` hears of it.
fn watched(
    case: &Case,
    watch: &dyn Watch,
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
