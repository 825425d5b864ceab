//! Lab runs: they take turns on the machine, and invalid ones are repeated.

use super::turns::Turns;
use super::{Batch, Slot, watched};
use crate::counterpart::{self, BbrVersions};
use crate::parallel::share;
use crate::{ControllerLoader, Engine, Monitor, NoLoader, Repeat, RunError, engine};
use fullpipe_experiment::Recording;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// How lab runs share the machine, and how often invalid ones are repeated.
pub struct LabOptions<'a> {
    /// Run slow paths at the same time; otherwise one run after another.
    pub share_machine: bool,
    /// How many times an invalid run is repeated; the last repeat has the machine to itself.
    pub retries: u32,
    /// Prefix of captures: `PREFIX-client.pcap` and `PREFIX-server.pcap`, with the number of the
    /// run after PREFIX if there are several.
    pub pcap: Option<PathBuf>,
    /// Loads controllers that the kernel lacks.
    pub loader: &'a dyn ControllerLoader,
    /// Versions of the kernel's own BBRs, which decide what the simulator runs beside them in a batch
    /// with both engines; `None` queries the kernel.
    pub bbr_versions: Option<BbrVersions>,
}

impl LabOptions<'_> {
    /// Default number of repeats of an invalid run.
    pub const DEFAULT_RETRIES: u32 = 2;
}

impl Default for LabOptions<'_> {
    /// One run after another, the default number of repeats, no captures, the kernel's own
    /// controllers.
    fn default() -> Self {
        LabOptions {
            share_machine: false,
            retries: Self::DEFAULT_RETRIES,
            pcap: None,
            loader: &NoLoader,
            bbr_versions: None,
        }
    }
}

impl Batch<'_> {
    /// The kernel's BBRs if this batch compares the engines, otherwise none.
    fn compared_bbrs(&self) -> BbrVersions {
        let has = |engine| self.jobs.iter().any(|job| job.engine == engine);
        if !has(Engine::Sim) || !has(Engine::Lab) {
            return BbrVersions::new();
        }
        self.lab.bbr_versions.clone().unwrap_or_else(|| {
            // Load their modules, as the runs would: the version of a module that is not loaded is unknown.
            let lab = self.jobs.iter().filter(|job| job.engine == Engine::Lab);
            for flow in lab.flat_map(|job| &job.case.scenario.flows).filter(|flow| flow.cc.starts_with("bbr"))
            {
                fullpipe_lab::has_controller(&flow.cc);
            }
            fullpipe_kernel::tcp_info::bbr_versions()
        })
    }

    /// Reports to `watch` the controllers that the simulator runs in another version. Returns the
    /// versions of the kernel's BBRs.
    pub(crate) fn announce_counterparts(&self, watch: &dyn Monitor) -> BbrVersions {
        let versions = self.compared_bbrs();
        let mut differing = counterpart::Differing::default();
        for job in self.jobs.iter().filter(|job| job.engine == Engine::Sim) {
            differing.extend(counterpart::counterpart(&job.case, &versions).1);
        }
        if let Some(note) = counterpart::note(&differing) {
            watch.note(&note);
        }
        versions
    }

    /// The prefix of the captures of job `i`, if captures are on.
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

    /// Runs the lab jobs, and repeats invalid ones.
    pub(super) fn run_in_real_time(&self, slots: &[Slot], watch: &dyn Monitor) {
        let all = self.numbers_of(Engine::Lab);
        self.in_turns(&all, !self.lab.share_machine, slots, watch);
        for left in (0..self.lab.retries).rev() {
            let invalid: Vec<usize> = all.iter().copied().filter(|&i| is_invalid(&slots[i])).collect();
            if invalid.is_empty() || watch.interrupted() {
                break;
            }
            self.announce_repeats(&invalid, slots, watch);
            // The last attempt has the machine to itself.
            self.in_turns(&invalid, left == 0 || !self.lab.share_machine, slots, watch);
        }
    }

    /// Tells `watch` which invalid runs are repeated, why, and how long they take.
    fn announce_repeats(&self, invalid: &[usize], slots: &[Slot], watch: &dyn Monitor) {
        for &i in invalid {
            let case = &self.jobs[i].case;
            let slot = slots[i].lock().unwrap_or_else(PoisonError::into_inner);
            let reasons = match &*slot {
                Some(Ok(run)) => run.invalid_because.clone(),
                _ => Vec::new(),
            };
            drop(slot);
            watch.repeated(&Repeat { label: case.label(), reasons, duration: case.scenario.duration });
        }
    }

    fn in_turns(&self, jobs: &[usize], alone: bool, slots: &[Slot], watch: &dyn Monitor) {
        let scenarios = jobs.iter().map(|&i| (i, &self.jobs[i].case.scenario));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let turns = Turns::new(scenarios, cores, alone);
        // Building a path blocks its processor for tens of milliseconds; runs in progress tolerate that on
        // one processor at a time.
        let building = Mutex::new(());
        let one = |i: usize| {
            let case = &self.jobs[i].case;
            let mut builds = Some(building.lock());
            let ended = watched(case, watch, |progress| {
                engine::run_in_lab(case, self.capture(i), self.lab.loader, &mut |now| {
                    builds = None;
                    progress(now)
                })
            });
            settle(&mut slots[i].lock().unwrap_or_else(PoisonError::into_inner), self.kept(ended));
        };
        let all = || {
            while let Some(turn) = turns.next() {
                if !watch.interrupted() {
                    one(turn.job);
                }
            }
        };
        share(turns.max_running(), all);
    }
}

/// Whether the slot has an invalid run.
fn is_invalid(slot: &Slot) -> bool {
    let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    matches!(&*slot, Some(Ok(run)) if !run.valid)
}

/// Stores the result of an attempt. An invalid run, which is marked as such, is kept if a repeat of
/// it fails.
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
                note(run, format!("repeated: the previous run was invalid ({because})"));
            }
            Err(RunError::Interrupted) => return,
            Err(failure) => return note(before, format!("could not be repeated: {failure}")),
        }
    }
    *slot = Some(ended);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Job, vocabulary};
    use fullpipe_experiment::recording::Health;
    use fullpipe_experiment::scenario::parse;
    use fullpipe_lab::LabError;
    use fullpipe_units::Span;
    use std::ops::ControlFlow;

    /// A recording that stands in for the lab's.
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

    /// Settles `first` and then `then`: whether the recording that is kept is valid, and its notes.
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
    fn a_repeat_replaces_the_run_and_notes_why() {
        let note = "repeated: the previous run was invalid (it was late)";
        assert_eq!(kept(run(false), run(true)), (true, note.into()));
        assert_eq!(kept(run(false), run(false)), (false, note.into()));
    }

    /// Collects the repeats that are reported to it.
    struct Repeats(Mutex<Vec<Repeat>>);

    impl Monitor for Repeats {
        fn repeated(&self, repeat: &Repeat) {
            self.0.lock().unwrap().push(repeat.clone());
        }
    }

    #[test]
    fn a_repeat_is_announced_with_its_reason_and_its_duration() {
        let slots: Vec<Slot> = [run(true), run(false)].map(|run| Mutex::new(Some(run))).into();
        let text =
            "duration = '1s'\nrepeats = 2\n[path]\nrate = '1mbit'\nrtt = '40ms'\n[[flow]]\ncc = 'reno'";
        let none = |_: &str| Err(String::new());
        let cases = parse("x", text, &vocabulary(&[Engine::Lab]), &none).unwrap();
        let batch = Batch::new(cases.into_iter().map(|case| Job { engine: Engine::Lab, case }).collect());
        let repeats = Repeats(Mutex::default());
        batch.announce_repeats(&[1], &slots, &repeats);
        let expected = Repeat {
            label: "reno, seed 2".into(),
            reasons: vec!["it was late".into()],
            duration: Span::from_secs(1),
        };
        assert_eq!(repeats.0.into_inner().unwrap(), [expected]);
    }

    #[test]
    fn a_failed_repeat_keeps_the_first_run() {
        assert_eq!(kept(run(false), Err(RunError::Interrupted)), (false, String::new()));
        let failed = Err(RunError::Lab(LabError::Input("no memory".into())));
        assert_eq!(kept(run(false), failed), (false, "could not be repeated: no memory".into()));
    }

    #[test]
    fn the_first_result_is_stored_as_it_is() {
        for ended in [run(true), Err(RunError::Interrupted), Err(RunError::Lab(LabError::Stopped))] {
            let mut slot = None;
            settle(&mut slot, ended);
            assert!(slot.is_some());
        }
    }
}
