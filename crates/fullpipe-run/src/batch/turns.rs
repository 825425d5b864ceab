//! Decides which lab runs may share the machine at a time.
//!
//! A lab run measures the machine along with TCP unless the machine has spare capacity. Slow paths
//! need little: runs share the machine while the sum of their rates stays below what it carries in
//! time. That is verified, not assumed: every recording reports its emulator's lateness.

use fullpipe_experiment::scenario::Scenario;
use fullpipe_units::{Rate, Span};
use std::sync::{Condvar, Mutex, PoisonError};

/// Total rate of the runs that share the machine, per processor. A run at 100 Mbit/s takes about
/// 0.15 to 0.3 processors, including its two ends.
const SHARED_BY_RUNS: Rate = Rate::from_bits_per_sec(200_000_000);

/// Most runs at a time, however slow: each is a process with its threads, sockets and namespaces.
/// Runs at 100 Mbit/s next to thirty-three at 128 kbit/s carry as much as they do alone.
const MAX_AT_A_TIME: usize = 48;

/// The jobs that wait for their turn.
pub(super) struct Turns {
    state: Mutex<State>,
    ended: Condvar,
    budget: u64,
}

struct State {
    /// Jobs and their rates, the longest first: the longest job determines when the batch ends.
    waiting: Vec<(usize, u64)>,
    running: usize,
    used: u64,
}

/// A job's turn; dropping it frees the machine for others.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    /// Index of the job.
    pub(super) job: usize,
    rate: u64,
}

impl Turns {
    /// Turns for `jobs` on a machine with this many processors; one after another if `alone`.
    pub(super) fn new<'a>(
        jobs: impl Iterator<Item = (usize, &'a Scenario)>,
        processors: usize,
        alone: bool,
    ) -> Turns {
        let budget = if alone { 0 } else { SHARED_BY_RUNS.as_bits_per_sec() * processors as u64 };
        let mut jobs: Vec<(usize, Span, u64)> = jobs
            .map(|(job, s)| (job, s.duration, s.highest_rate().map_or(u64::MAX, Rate::as_bits_per_sec)))
            .collect();
        jobs.sort_by_key(|(_, duration, _)| std::cmp::Reverse(*duration));
        let waiting = jobs.into_iter().map(|(job, _, rate)| (job, rate)).collect();
        Turns { state: Mutex::new(State { waiting, running: 0, used: 0 }), ended: Condvar::new(), budget }
    }

    /// Most jobs that can be running at a time.
    pub(super) fn max_running(&self) -> usize {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.len().min(MAX_AT_A_TIME)
    }

    /// Waits for the next turn; `None` if no job is left.
    pub(super) fn next(&self) -> Option<Turn<'_>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.waiting.is_empty() {
                return None;
            }
            let left = self.budget.saturating_sub(state.used);
            // A job that is too fast to share the machine runs when no other does.
            let alone = state.running == 0;
            if let Some(at) = state.waiting.iter().position(|(_, rate)| alone || *rate <= left) {
                let (job, rate) = state.waiting.remove(at);
                state.running += 1;
                state.used = state.used.saturating_add(rate);
                return Some(Turn { turns: self, job, rate });
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running -= 1;
        state.used = if state.running == 0 { 0 } else { state.used.saturating_sub(self.rate) };
        self.turns.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(rate: &str, seconds: u64) -> Scenario {
        let text = format!("duration = '{seconds}s'\n[path]\n{rate}\nrtt = '40ms'\n[[flow]]\ncc = 'bbr'");
        let read = |_: &str| Err(String::new());
        let vocabulary = crate::vocabulary(&[crate::Engine::Sim]);
        fullpipe_experiment::scenario::parse("x", &text, &vocabulary, &read).unwrap().remove(0).scenario
    }

    fn turns(scenarios: &[Scenario], alone: bool) -> Turns {
        Turns::new(scenarios.iter().enumerate(), 2, alone)
    }

    #[test]
    fn slow_paths_share_the_machine_and_fast_ones_do_not() {
        let slow: Vec<Scenario> = (0..9).map(|_| scenario("rate = '100mbit'", 10)).collect();
        let all = turns(&slow, false);
        let mut taken: Vec<Turn> = (0..4).map(|_| all.next().unwrap()).collect();
        assert_eq!(all.state.lock().unwrap().used, 400_000_000);
        // The fifth waits for one of them to end.
        std::thread::scope(|scope| {
            let fifth = scope.spawn(|| all.next().map(|turn| turn.job));
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(!fifth.is_finished());
            taken.pop();
            assert_eq!(fifth.join().unwrap(), Some(4));
        });
        for fast in ["rate = '1gbit'", ""] {
            let all = turns(&[scenario(fast, 10), scenario("rate = '1mbit'", 5)], false);
            let first = all.next().unwrap();
            assert_eq!(first.job, 0);
            assert!(all.state.lock().unwrap().used > 400_000_000, "nothing fits beside it");
        }
    }

    #[test]
    fn the_longest_job_is_first_and_every_job_has_one_turn() {
        let jobs: Vec<Scenario> = [3, 9, 6].map(|seconds| scenario("rate = '300mbit'", seconds)).into();
        for alone in [true, false] {
            let all = turns(&jobs, alone);
            let order: Vec<usize> = std::iter::from_fn(|| all.next().map(|turn| turn.job)).collect();
            assert_eq!(order, [1, 2, 0]);
        }
    }
}
