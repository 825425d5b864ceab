//! Many runs on all cores.

use crate::{SimError, Simulation};
use fullpipe_experiment::{Recording, Scenario};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What hears of each run as it ends, with its index.
pub type Each<'a> = dyn Fn(usize, &Result<Recording, SimError>) -> ControlFlow<()> + Sync + 'a;

/// Runs each of `scenarios` with its own seed, on up to `threads` threads (0: as many as there are
/// cores). The results are in the order of the scenarios whatever order they end in.
///
/// `each` hears of every run as it ends, with its index; once it answers [`ControlFlow::Break`], no run
/// begins any more and those under way are interrupted. Runs that were not made are `None`.
pub fn run_many(
    scenarios: &[Scenario],
    threads: usize,
    each: &Each<'_>,
) -> Vec<Option<Result<Recording, SimError>>> {
    let interrupted = AtomicBool::new(false);
    in_parallel(scenarios, threads, |i, scenario| {
        let result = Simulation::new(scenario, scenario.seed).run_with(&mut |_| {
            if interrupted.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        if each(i, &result).is_break() {
            interrupted.store(true, Ordering::Relaxed);
            return ControlFlow::Break(result);
        }
        ControlFlow::Continue(result)
    })
}

/// Does `work` for each of `jobs`, with its index, on up to `threads` threads (0: as many as there are
/// cores). The results are in the order of the jobs whatever order they end in.
///
/// Jobs begin in their order. Once `work` answers [`ControlFlow::Break`], with a result like any other, no
/// job begins any more. Jobs that did not begin have no result.
pub fn in_parallel<J: Sync, R: Send>(
    jobs: &[J],
    threads: usize,
    work: impl Fn(usize, &J) -> ControlFlow<R, R> + Sync,
) -> Vec<Option<R>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { cores } else { threads }.clamp(1, jobs.len().max(1));
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<R>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(i) else { break };
                    let result = match work(i, job) {
                        ControlFlow::Continue(result) => result,
                        ControlFlow::Break(result) => {
                            // Beyond the last job there is none: a stop and the end are one condition.
                            next.store(jobs.len(), Ordering::Relaxed);
                            result
                        }
                    };
                    // A panic of another thread ends the scope anyway.
                    if let Ok(mut results) = results.lock() {
                        results[i] = Some(result);
                    }
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}
