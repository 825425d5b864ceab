//! Whether the processors ran while something was measured.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often each processor is looked at.
const STEP: Duration = Duration::from_millis(5);

/// A processor that does not run what is due for so long has stood still. The kernel's scheduler lets a thread that slept run within a
/// few milliseconds, however busy the machine is; socket buffers of the usual size hold about this much of a slow flow.
const STANDSTILL: Duration = Duration::from_millis(50);

/// The part of the processors' time that other machines on the same hardware may take.
const TAKEN: f64 = 0.2;

/// Watches each processor from [`Machine::watch`] to [`Machine::doubts`].
pub struct Machine {
    over: Arc<AtomicBool>,
    watchers: Vec<(usize, JoinHandle<Duration>)>,
    before: Option<Ticks>,
}

impl Machine {
    /// Begins to watch.
    pub fn watch() -> Machine {
        let over = Arc::new(AtomicBool::new(false));
        let usable = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        let processors = (0..CpuSet::count()).filter(|n| usable.is_set(*n).unwrap_or(false));
        let watchers = processors
            .map(|processor| {
                let over = Arc::clone(&over);
                (processor, thread::spawn(move || longest_standstill(processor, &over)))
            })
            .collect();
        Machine { over, watchers, before: Ticks::now() }
    }

    /// Why what was measured meanwhile may say more of this machine than of what runs on it; empty if nothing speaks for that.
    pub fn doubts(mut self) -> Vec<String> {
        self.over.store(true, Relaxed);
        let stood: Vec<_> = self.watchers.drain(..).map(|(n, t)| (n, t.join().unwrap_or_default())).collect();
        let taken = self.before.zip(Ticks::now()).map_or(0.0, |(before, after)| after.taken_since(&before));
        in_words(&stood, taken)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
    }
}

fn in_words(stood: &[(usize, Duration)], taken: f64) -> Vec<String> {
    let still = stood.iter().filter(|(_, longest)| *longest >= STANDSTILL);
    let mut words: Vec<String> = still
        .map(|(n, longest)| format!("processor {n} stood still for {} ms", longest.as_millis()))
        .collect();
    if taken > TAKEN {
        words.push(format!("other machines took {:.0} % of the processors' time", taken * 100.0));
    }
    words
}

fn longest_standstill(processor: usize, over: &AtomicBool) -> Duration {
    let mut only = CpuSet::new();
    // A processor that is taken away meanwhile is not missed.
    if only.set(processor).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only)).is_err() {
        return Duration::ZERO;
    }
    let mut longest = Duration::ZERO;
    while !over.load(Relaxed) {
        let began = Instant::now();
        thread::sleep(STEP);
        longest = longest.max(began.elapsed().saturating_sub(STEP));
    }
    longest
}

/// The processors' time since boot, as the first line of `/proc/stat` tells it (proc_stat(5)), in ticks.
#[derive(Clone, Copy)]
struct Ticks {
    all: u64,
    taken: u64,
}

impl Ticks {
    fn now() -> Option<Ticks> {
        Ticks::read(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    fn read(stat: &str) -> Option<Ticks> {
        let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        // What guests took is in the first two already.
        let fields: Vec<u64> = fields.take(8).map(|n| n.parse().ok()).collect::<Option<_>>()?;
        Some(Ticks { all: fields.iter().sum(), taken: *fields.get(7)? })
    }

    fn taken_since(&self, before: &Ticks) -> f64 {
        let all = self.all.saturating_sub(before.all);
        if all == 0 { 0.0 } else { self.taken.saturating_sub(before.taken) as f64 / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_and_what_others_took_are_told() {
        let ms = Duration::from_millis;
        assert!(in_words(&[(0, ms(49)), (1, ms(3))], 0.2).is_empty());
        let words = in_words(&[(0, ms(3)), (1, ms(616))], 0.35);
        assert_eq!(
            words,
            ["processor 1 stood still for 616 ms", "other machines took 35 % of the processors' time"]
        );
    }

    #[test]
    fn what_others_took_is_a_part_of_the_time_between_two_looks() {
        let read = |text| Ticks::read(text).unwrap();
        let before = read("cpu  100 0 50 800 10 0 0 40 7 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n");
        let after = read("cpu  130 0 60 820 10 0 0 80 9 0\n");
        assert_eq!(before.all, 1000);
        assert!((after.taken_since(&before) - 0.4).abs() < 1e-9);
        assert_eq!(after.taken_since(&after), 0.0);
        for broken in ["", "cpu0 1 2 3", "cpu  1 2 3 4 5 6 7", "cpu  1 2 3 4 5 6 7 x"] {
            assert!(Ticks::read(broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn every_usable_processor_is_watched_until_the_end() {
        let machine = Machine::watch();
        assert_eq!(machine.watchers.len(), thread::available_parallelism().unwrap().get());
        let over = Arc::downgrade(&machine.over);
        thread::sleep(4 * STEP);
        machine.doubts();
        assert!(over.upgrade().is_none(), "a watcher goes on");
    }
}
