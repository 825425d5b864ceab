//! The threads of a run.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The calling thread and those that wait for work between two windows, which are too short to start
/// threads for each.
#[derive(Default)]
pub(super) struct Workers {
    #[cfg(feature = "threads")]
    pool: Option<rayon_core::ThreadPool>,
}

impl Workers {
    /// The calling thread and up to `threads - 1` others: fewer if the system refuses them.
    #[cfg(feature = "threads")]
    pub fn new(threads: usize) -> Self {
        let more = threads.saturating_sub(1);
        let builder = rayon_core::ThreadPoolBuilder::new().num_threads(more);
        let builder = builder.thread_name(|i| format!("flows {}", i + 1));
        Workers { pool: if more > 0 { builder.build().ok() } else { None } }
    }

    /// The calling thread.
    #[cfg(not(feature = "threads"))]
    pub fn new(_: usize) -> Self {
        Workers::default()
    }

    /// The number of threads.
    pub fn count(&self) -> usize {
        #[cfg(feature = "threads")]
        let more = self.pool.as_ref().map_or(0, rayon_core::ThreadPool::current_num_threads);
        #[cfg(not(feature = "threads"))]
        let more = 0;
        1 + more
    }

    /// Calls `work` for each of `places`: if `shared`, the first on this thread and each other one on
    /// any thread.
    pub fn each<T: Send>(&self, shared: bool, places: &mut [T], work: impl Fn(&mut T) + Sync) {
        #[cfg(feature = "threads")]
        if let (true, Some(pool), [here, others @ ..]) = (shared, &self.pool, &mut *places) {
            pool.in_place_scope(|scope| {
                for place in others {
                    scope.spawn(|_| work(place));
                }
                work(here);
            });
            return;
        }
        #[cfg(not(feature = "threads"))]
        let _ = shared;
        places.iter_mut().for_each(work);
    }
}

/// Work that threads share: each takes the next item when it has finished one.
pub(super) struct Queue<T>(Mutex<VecDeque<(usize, T)>>);

impl<T> Queue<T> {
    pub fn new(items: impl Iterator<Item = T>) -> Self {
        Queue(Mutex::new(items.enumerate().collect()))
    }

    /// The next item for a thread that may take those with an index that it `accepts`.
    pub fn next(&self, accepts: impl Fn(usize) -> bool) -> Option<T> {
        // A panic of another thread ends the run anyway.
        let mut items = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = items.iter().position(|&(i, _)| accepts(i))?;
        items.remove(place).map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_items_are_processed_once_whatever_the_number_of_threads() {
        for threads in [0, 1, 2, 5] {
            let workers = Workers::new(threads);
            assert!((1..=threads.max(1)).contains(&workers.count()));
            for (items, shared) in [(0, true), (1, true), (100_u64, true), (100, false)] {
                let queue = Queue::new(1..=items);
                let mut sums = vec![0; threads];
                workers.each(shared, &mut sums, |sum| {
                    while let Some(item) = queue.next(|_| true) {
                        *sum += item;
                    }
                });
                let expected = if threads == 0 { 0 } else { items * (items + 1) / 2 };
                assert_eq!(sums.iter().sum::<u64>(), expected);
            }
        }
    }
}
