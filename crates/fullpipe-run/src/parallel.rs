//! Runs jobs on all cores, or one after another on targets without threads.

use std::ops::ControlFlow;

/// Calls `work` for each of `jobs`, with its index, on up to `threads` threads (0: one per core).
/// The results are in the order of the jobs, whatever order they finish in.
///
/// Jobs start in order. Once `work` returns [`ControlFlow::Break`], which carries a result like any
/// other, no further job starts. Jobs that did not start have no result.
pub fn in_parallel<J: Sync, R: Send>(
    jobs: &[J],
    threads: usize,
    work: impl Fn(usize, &J) -> ControlFlow<R, R> + Sync,
) -> Vec<Option<R>> {
    match thread_count(threads).clamp(1, jobs.len().max(1)) {
        #[cfg(feature = "threads")]
        threads @ 2.. => on_threads(jobs, threads, work),
        _ => in_turn(jobs, work),
    }
}

/// The number of threads: the caller's, or one per core.
pub(crate) fn thread_count(threads: usize) -> usize {
    match threads {
        #[cfg(feature = "threads")]
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    }
}

fn in_turn<J, R>(jobs: &[J], work: impl Fn(usize, &J) -> ControlFlow<R, R>) -> Vec<Option<R>> {
    let mut results: Vec<Option<R>> = jobs.iter().map(|_| None).collect();
    for (i, job) in jobs.iter().enumerate() {
        match work(i, job) {
            ControlFlow::Continue(result) => results[i] = Some(result),
            ControlFlow::Break(result) => {
                results[i] = Some(result);
                break;
            }
        }
    }
    results
}

#[cfg(feature = "threads")]
fn on_threads<J: Sync, R: Send>(
    jobs: &[J],
    threads: usize,
    work: impl Fn(usize, &J) -> ControlFlow<R, R> + Sync,
) -> Vec<Option<R>> {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<R>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let all = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(i) else { break };
            let result = match work(i, job) {
                ControlFlow::Continue(result) => result,
                ControlFlow::Break(result) => {
                    // A stop looks like the end of the jobs to every other thread.
                    next.store(jobs.len(), Ordering::Relaxed);
                    result
                }
            };
            // A panic of another thread ends the scope anyway.
            if let Ok(mut results) = results.lock() {
                results[i] = Some(result);
            }
        }
    };
    share(threads, all);
    results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Calls `work`, which takes what is left to do, on this thread and on up to `threads` in all: where
/// no more may start, those that have started do the work.
#[cfg(feature = "threads")]
pub(crate) fn share(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let _ = std::thread::Builder::new().spawn_scoped(scope, &work);
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_jobs() {
        let jobs: Vec<usize> = (0..100).collect();
        for threads in [0, 1, 7] {
            let squares = in_parallel(&jobs, threads, |i, job| ControlFlow::Continue(i * job));
            assert!(squares.iter().enumerate().all(|(i, square)| *square == Some(i * i)), "{threads}");
        }
    }

    #[test]
    fn after_a_break_no_job_starts() {
        let jobs = [(); 10];
        let stop = |i: usize, (): &()| if i == 3 { ControlFlow::Break(i) } else { ControlFlow::Continue(i) };
        let one = in_parallel(&jobs, 1, stop);
        assert_eq!(one.iter().flatten().count(), 4);
        // Jobs that were running finish. The other thread may start some more before it sees the
        // break, but not a second's worth of them.
        let jobs = [(); 1000];
        let two = in_parallel(&jobs, 2, |i, job| {
            if i > 3 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            stop(i, job)
        });
        assert!(two[3] == Some(3) && two[..3].iter().all(Option::is_some));
        assert!(two.iter().flatten().count() < 900);
    }
}
