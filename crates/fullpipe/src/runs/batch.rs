//! Many runs: simulated ones on all cores, those in real time in turns.

use super::engine::{self, Ended};
use super::interrupt;
use super::turns::Turns;
use crate::failure::Failure;
use fullpipe_experiment::recording::{Engine, Recording, Results};
use fullpipe_experiment::scenario::Case;
use fullpipe_units::Time;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// One run to make.
pub struct Job {
    pub engine: Engine,
    pub case: Case,
}

/// Runs to make, and how.
pub struct Batch {
    pub jobs: Vec<Job>,
    /// Simulations at a time.
    pub threads: usize,
    /// How runs in real time go about it.
    pub lab: InRealTime,
    /// Whether time series are kept; without them a run is a few figures.
    pub series: bool,
}

/// How often a run in the lab that is not valid is made again, unless told otherwise.
pub const AGAIN: u32 = 2;

/// How runs in real time share the machine, and what becomes of those that came out not valid.
#[derive(Clone, Debug, Default)]
pub struct InRealTime {
    /// Slow paths may be run side by side ([`Turns`] says which); otherwise one after another.
    pub together: bool,
    /// How often a run that is not valid is made again, at last alone.
    pub again: u32,
    /// Where captures go: `PREFIX-client.pcap` and `PREFIX-server.pcap`, with the number of the run after
    /// PREFIX if there are several.
    pub pcap: Option<PathBuf>,
}

/// What came of a batch.
pub struct Outcome {
    /// The finished runs, in the order of the jobs.
    pub results: Results,
    /// The user asked to stop before all were finished, or made again.
    pub interrupted: bool,
    /// Why runs failed that did not finish.
    pub failures: Vec<Failure>,
}

impl Outcome {
    /// The runs, for those who can do nothing with some of them.
    ///
    /// # Errors
    /// An interruption, or the first failure.
    pub fn all(self) -> Result<Vec<Recording>, Failure> {
        if self.interrupted {
            return Err(Failure::Passed(130));
        }
        match self.failures.into_iter().next() {
            Some(failure) => Err(failure),
            None => Ok(self.results.runs),
        }
    }
}

impl Batch {
    /// Where the captures of job `i` go, if they are wanted.
    fn capture(&self, i: usize) -> Option<PathBuf> {
        let prefix = self.lab.pcap.clone()?;
        let number = |to: usize| self.jobs[..to].iter().filter(|job| job.engine == Engine::Lab).count();
        if number(self.jobs.len()) == 1 {
            return Some(prefix);
        }
        let mut name = prefix.into_os_string();
        name.push(format!("-{}", number(i) + 1));
        Some(name.into())
    }

    /// Runs everything; Ctrl-C leaves what is finished.
    pub fn run(self) -> Outcome {
        interrupt::watch();
        let progress = Progress::new(&self.jobs);
        let slots: Vec<Slot> = self.jobs.iter().map(|_| Mutex::new(None)).collect();
        // Building a path holds up everything else on its processor for tens of milliseconds, which the runs under way
        // can bear on one processor at a time.
        let building = Mutex::new(());
        let one = |i: usize| {
            let job = &self.jobs[i];
            let mut at = Time::ZERO;
            let mut builds = (job.engine == Engine::Lab).then(|| building.lock());
            let ended = engine::run(job.engine, &job.case, self.capture(i), &mut |now| {
                builds = None;
                progress.advance(now.since(at).as_millis_f64());
                at = now;
                if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let ended = match ended {
                Ended::Finished(recording) => {
                    let duration = job.case.scenario.duration.as_millis_f64();
                    progress.finished(duration - at.since(Time::ZERO).as_millis_f64());
                    Ended::Finished(if self.series { recording } else { without_series(*recording) })
                }
                other => other,
            };
            if let Ok(mut slot) = slots[i].lock() {
                settle(&mut slot, ended);
            }
        };
        let (parallel, serial): (Vec<usize>, Vec<usize>) =
            (0..self.jobs.len()).partition(|&i| self.jobs[i].engine == Engine::Sim);
        fullpipe_sim::in_parallel(&parallel, self.threads.max(1), |_, &i| {
            if interrupt::asked() {
                return ControlFlow::Break(());
            }
            one(i);
            ControlFlow::Continue(())
        });
        let in_turns = |jobs: &[usize], alone: bool| {
            let scenarios = jobs.iter().map(|&i| (i, &self.jobs[i].case.scenario));
            let turns = Turns::new(scenarios, cores(), alone);
            std::thread::scope(|scope| {
                for _ in 0..turns.at_most() {
                    scope.spawn(|| {
                        while let Some(turn) = turns.next() {
                            if !interrupt::asked() {
                                one(turn.job);
                            }
                        }
                    });
                }
            });
        };
        in_turns(&serial, !self.lab.together);
        for left in (0..self.lab.again).rev() {
            let not_valid = not_valid(&slots);
            if not_valid.is_empty() || interrupt::asked() {
                break;
            }
            for &i in &not_valid {
                progress.again(self.jobs[i].case.scenario.duration.as_millis_f64());
            }
            // The last attempt has the machine for itself.
            in_turns(&not_valid, left == 0 || !self.lab.together);
        }
        progress.clear();
        let mut outcome = Outcome {
            results: Results::new(Vec::new()),
            interrupted: interrupt::asked() && !not_valid(&slots).is_empty(),
            failures: Vec::new(),
        };
        let mut runs: Vec<Recording> = Vec::new();
        for slot in slots {
            match slot.into_inner().ok().flatten() {
                Some(Ended::Finished(recording)) => runs.push(*recording),
                Some(Ended::Failed(failure)) => outcome.failures.push(failure),
                Some(Ended::Interrupted) | None => outcome.interrupted = true,
            }
        }
        outcome.results = Results::new(runs);
        outcome
    }
}

/// What has become of a job so far.
type Slot = Mutex<Option<Ended>>;

/// The runs that must not be believed.
fn not_valid(slots: &[Slot]) -> Vec<usize> {
    let invalid = |slot: &Slot| {
        slot.lock().is_ok_and(|slot| matches!(&*slot, Some(Ended::Finished(run)) if !run.valid))
    };
    (0..slots.len()).filter(|&i| invalid(&slots[i])).collect()
}

/// Puts down what has become of a job, which may have been run before. Better a run that is not valid, and says so,
/// than none.
fn settle(slot: &mut Option<Ended>, mut ended: Ended) {
    let note = |run: &mut Recording, text: String| {
        if let Some(health) = &mut run.health {
            health.notes.push(text);
        }
    };
    if let Some(Ended::Finished(before)) = slot {
        match &mut ended {
            Ended::Finished(run) => {
                let because = before.invalid_because.join("; ");
                note(run, format!("run again: the run before was not valid ({because})"));
            }
            Ended::Failed(failure) => return note(before, format!("could not be run again: {failure}")),
            Ended::Interrupted => return,
        }
    }
    *slot = Some(ended);
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The run's figures.
fn without_series(recording: Recording) -> Box<Recording> {
    Box::new(Results::new(vec![recording]).without_series().runs.remove(0))
}

/// A bar on stderr, if that is a terminal and the runs take more than a moment.
struct Progress {
    bar: ProgressBar,
    runs: usize,
    finished: AtomicUsize,
}

impl Progress {
    fn new(jobs: &[Job]) -> Progress {
        let total: f64 = jobs.iter().map(|j| j.case.scenario.duration.as_millis_f64()).sum();
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} % {eta:>4}") {
            bar.set_style(style);
        }
        let progress = Progress { bar, runs: jobs.len(), finished: AtomicUsize::new(0) };
        progress.tell();
        progress.bar.enable_steady_tick(Duration::from_millis(500));
        progress
    }

    fn tell(&self) {
        let done = self.finished.load(Ordering::Relaxed);
        self.bar.set_message(format!("{done} of {} runs", self.runs));
    }

    fn advance(&self, virtual_ms: f64) {
        self.bar.inc(virtual_ms as u64);
    }

    /// A run will be made once more.
    fn again(&self, duration_ms: f64) {
        self.bar.inc_length(duration_ms as u64);
        self.finished.fetch_sub(1, Ordering::Relaxed);
        self.tell();
    }

    fn finished(&self, rest_ms: f64) {
        self.advance(rest_ms.max(0.0));
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.tell();
    }

    fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::{Choice, vocabulary};
    use fullpipe_experiment::recording::Health;
    use fullpipe_experiment::scenario::parse;

    /// A run that could be the lab's.
    fn run(valid: bool) -> Ended {
        let text = "duration = '1s'\n[path]\nrate = '1mbit'\nrtt = '40ms'\n[[flow]]\ncc = 'reno'";
        let case =
            parse("x", text, &vocabulary(Choice::Sim), &|_: &str| Err(String::new())).unwrap().remove(0);
        let ended = engine::run(Engine::Sim, &case, None, &mut |_| ControlFlow::Continue(()));
        let Ended::Finished(mut recording) = ended else { panic!("not finished") };
        recording.valid = valid;
        recording.invalid_because = if valid { vec![] } else { vec!["it was late".into()] };
        recording.health = Some(Health::default());
        Ended::Finished(recording)
    }

    /// What is kept of `first` when the next attempt came to `then`: whether it is valid, and its notes.
    fn kept(first: Ended, then: Ended) -> (bool, String) {
        let mut slot = Some(first);
        settle(&mut slot, then);
        let Some(Ended::Finished(run)) = slot else { panic!("the run is gone") };
        (run.valid, run.health.unwrap().notes.join("; "))
    }

    #[test]
    fn another_attempt_replaces_a_run_and_says_so() {
        let note = "run again: the run before was not valid (it was late)";
        assert_eq!(kept(run(false), run(true)), (true, note.into()));
        assert_eq!(kept(run(false), run(false)), (false, note.into()));
    }

    #[test]
    fn an_attempt_that_came_to_nothing_loses_no_run() {
        assert_eq!(kept(run(false), Ended::Interrupted), (false, String::new()));
        let failed = Ended::Failed(Failure::Impossible("no memory".into()));
        assert_eq!(kept(run(false), failed), (false, "could not be run again: no memory".into()));
    }

    #[test]
    fn without_a_run_before_what_came_is_what_there_is() {
        for ended in [run(true), Ended::Interrupted, Ended::Failed(Failure::Passed(1))] {
            let mut slot = None;
            settle(&mut slot, ended);
            assert!(slot.is_some());
        }
    }
}
