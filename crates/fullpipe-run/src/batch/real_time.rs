//! Runs of the lab: in turns, and again if the machine was busy.

use super::turns::Turns;
use super::{Batch, Slot, watched};
use crate::{Engine, Lend, Nothing, RunError, Watch, engine};
use fullpipe_experiment::Recording;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// How runs in real time share the machine, and what becomes of those that came out not valid.
pub struct InRealTime<'a> {
    /// Slow paths may be run side by side; otherwise one run after another.
    pub together: bool,
    /// How often a run that is not valid is made again, at last alone.
    pub again: u32,
    /// Where captures go: `PREFIX-client.pcap` and `PREFIX-server.pcap`, with the number of the run after
    /// PREFIX if there are several.
    pub pcap: Option<PathBuf>,
    /// What brings the kernel controllers that it lacks.
    pub lend: &'a dyn Lend,
}

impl InRealTime<'_> {
    /// How often a run that is not valid is made again, unless told otherwise.
    pub const AGAIN: u32 = 2;
}

impl Default for InRealTime<'_> {
    /// One after another, made again as often as usual, without captures, with what the kernel has.
    fn default() -> Self {
        InRealTime { together: false, again: Self::AGAIN, pcap: None, lend: &Nothing }
    }
}

impl Batch<'_> {
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

    /// Makes the runs of the lab.
    pub(super) fn run_in_real_time(&self, slots: &[Slot], watch: &dyn Watch) {
        let all = self.numbers_of(Engine::Lab);
        self.in_turns(&all, !self.lab.together, slots, watch);
        for left in (0..self.lab.again).rev() {
            let not_valid: Vec<usize> = all.iter().copied().filter(|&i| is_not_valid(&slots[i])).collect();
            if not_valid.is_empty() || watch.interrupted() {
                break;
            }
            for &i in &not_valid {
                watch.again(self.jobs[i].case.scenario.duration);
            }
            // The last attempt has the machine for itself.
            self.in_turns(&not_valid, left == 0 || !self.lab.together, slots, watch);
        }
    }

    fn in_turns(&self, jobs: &[usize], alone: bool, slots: &[Slot], watch: &dyn Watch) {
        let scenarios = jobs.iter().map(|&i| (i, &self.jobs[i].case.scenario));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let turns = Turns::new(scenarios, cores, alone);
        // Building a path holds up everything else on its processor for tens of milliseconds, which the runs under way
        // can bear on one processor at a time.
        let building = Mutex::new(());
        let one = |i: usize| {
            let case = &self.jobs[i].case;
            let mut builds = Some(building.lock());
            let ended = watched(case, watch, |progress| {
                engine::run_in_lab(case, self.capture(i), self.lab.lend, &mut |now| {
                    builds = None;
                    progress(now)
                })
            });
            settle(&mut slots[i].lock().unwrap_or_else(PoisonError::into_inner), self.kept(ended));
        };
        std::thread::scope(|scope| {
            for _ in 0..turns.at_most() {
                scope.spawn(|| {
                    while let Some(turn) = turns.next() {
                        if !watch.interrupted() {
                            one(turn.job);
                        }
                    }
                });
            }
        });
    }
}

/// Whether a run must not be believed.
fn is_not_valid(slot: &Slot) -> bool {
    let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    matches!(&*slot, Some(Ok(run)) if !run.valid)
}

/// Puts down what has become of a job, which may have been run before. Better a run that is not valid, and says so,
/// than none.
fn settle(slot: &mut Option<Result<Box<Recording>, RunError>>, mut ended: Result<Box<Recording>, RunError>) {
    let note = |run: &mut Recording, text: String| {
        if let Some(health) = &mut run.health {
            health.notes.push(text);
        }
    };
    if let Some(Ok(before)) = slot {
        match &mut ended {
            Ok(run) => {
                let because = before.invalid_because.join("; ");
                note(run, format!("run again: the run before was not valid ({because})"));
            }
            Err(RunError::Interrupted) => return,
            Err(failure) => return note(before, format!("could not be run again: {failure}")),
        }
    }
    *slot = Some(ended);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary;
    use fullpipe_experiment::recording::Health;
    use fullpipe_experiment::scenario::parse;
    use fullpipe_lab::LabError;
    use std::ops::ControlFlow;

    /// A run that could be the lab's.
    fn run(valid: bool) -> Result<Box<Recording>, RunError> {
        let text = "duration = '1s'\n[path]\nrate = '1mbit'\nrtt = '40ms'\n[[flow]]\ncc = 'reno'";
        let none = |_: &str| Err(String::new());
        let case = parse("x", text, &vocabulary(&[Engine::Sim]), &none).unwrap().remove(0);
        let mut recording = engine::run(&case, &mut |_| ControlFlow::Continue(())).unwrap();
        recording.valid = valid;
        recording.invalid_because = if valid { vec![] } else { vec!["it was late".into()] };
        recording.health = Some(Health::default());
        Ok(Box::new(recording))
    }

    /// What is kept of `first` when the next attempt came to `then`: whether it is valid, and its notes.
    fn kept(
        first: Result<Box<Recording>, RunError>,
        then: Result<Box<Recording>, RunError>,
    ) -> (bool, String) {
        let mut slot = Some(first);
        settle(&mut slot, then);
        let Some(Ok(run)) = slot else { panic!("the run is gone") };
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
        assert_eq!(kept(run(false), Err(RunError::Interrupted)), (false, String::new()));
        let failed = Err(RunError::Lab(LabError::Input("no memory".into())));
        assert_eq!(kept(run(false), failed), (false, "could not be run again: no memory".into()));
    }

    #[test]
    fn without_a_run_before_what_came_is_what_there_is() {
        for ended in [run(true), Err(RunError::Interrupted), Err(RunError::Lab(LabError::Stopped))] {
            let mut slot = None;
            settle(&mut slot, ended);
            assert!(slot.is_some());
        }
    }
}
