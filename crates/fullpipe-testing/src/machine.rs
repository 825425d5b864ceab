//! Detects CPU stalls during a measurement.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Polling interval of each CPU.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Delay beyond which a CPU counts as stalled. The scheduler runs a woken thread within a few
/// milliseconds even on a busy machine; socket buffers of the usual size hold about this much of a
/// slow flow.
const STALL: Duration = Duration::from_millis(50);

/// Maximum share of CPU time stolen by the hypervisor.
const MAX_STEAL: f64 = 0.2;

/// Monitors all CPUs from [`Machine::start`] to [`Machine::disturbances`].
pub struct Machine {
    stop: Arc<AtomicBool>,
    monitors: Vec<(usize, JoinHandle<Duration>)>,
    before: Option<Ticks>,
}

impl Machine {
    /// Starts to monitor.
    pub fn start() -> Machine {
        let stop = Arc::new(AtomicBool::new(false));
        let usable = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        let cpus = (0..CpuSet::count()).filter(|n| usable.is_set(*n).unwrap_or(false));
        let monitors = cpus
            .map(|cpu| {
                let stop = Arc::clone(&stop);
                (cpu, thread::spawn(move || longest_stall(cpu, &stop)))
            })
            .collect();
        Machine { stop, monitors, before: Ticks::now() }
    }

    /// Stops, and returns the disturbances of the measurement, if any.
    pub fn disturbances(mut self) -> Vec<String> {
        self.stop.store(true, Relaxed);
        let stalls: Vec<_> =
            self.monitors.drain(..).map(|(n, t)| (n, t.join().unwrap_or_default())).collect();
        let steal = self.before.zip(Ticks::now()).map_or(0.0, |(before, after)| after.steal_since(&before));
        describe(&stalls, steal)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

fn describe(stalls: &[(usize, Duration)], steal: f64) -> Vec<String> {
    let stalled = stalls.iter().filter(|(_, longest)| *longest >= STALL);
    let mut text: Vec<String> =
        stalled.map(|(n, longest)| format!("CPU {n} stalled for {} ms", longest.as_millis())).collect();
    if steal > MAX_STEAL {
        text.push(format!("the hypervisor stole {:.0} % of the CPU time", steal * 100.0));
    }
    text
}

fn longest_stall(cpu: usize, stop: &AtomicBool) -> Duration {
    let mut only = CpuSet::new();
    // Ignore a CPU that is taken offline meanwhile.
    if only.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only)).is_err() {
        return Duration::ZERO;
    }
    let mut longest = Duration::ZERO;
    while !stop.load(Relaxed) {
        let began = Instant::now();
        thread::sleep(POLL_INTERVAL);
        longest = longest.max(began.elapsed().saturating_sub(POLL_INTERVAL));
    }
    longest
}

/// CPU time since boot from the first line of `/proc/stat` (proc_stat(5)), in ticks.
#[derive(Clone, Copy)]
struct Ticks {
    all: u64,
    steal: u64,
}

impl Ticks {
    fn now() -> Option<Ticks> {
        Ticks::read(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    fn read(stat: &str) -> Option<Ticks> {
        let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        // Guest time is included in the first two fields.
        let fields: Vec<u64> = fields.take(8).map(|n| n.parse().ok()).collect::<Option<_>>()?;
        Some(Ticks { all: fields.iter().sum(), steal: *fields.get(7)? })
    }

    fn steal_since(&self, before: &Ticks) -> f64 {
        let all = self.all.saturating_sub(before.all);
        if all == 0 { 0.0 } else { self.steal.saturating_sub(before.steal) as f64 / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_and_steal_are_reported() {
        let ms = Duration::from_millis;
        assert!(describe(&[(0, ms(49)), (1, ms(3))], 0.2).is_empty());
        let text = describe(&[(0, ms(3)), (1, ms(616))], 0.35);
        assert_eq!(text, ["CPU 1 stalled for 616 ms", "the hypervisor stole 35 % of the CPU time"]);
    }

    #[test]
    fn steal_is_a_share_of_the_elapsed_time() {
        let read = |text| Ticks::read(text).unwrap();
        let before = read("cpu  100 0 50 800 10 0 0 40 7 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n");
        let after = read("cpu  130 0 60 820 10 0 0 80 9 0\n");
        assert_eq!(before.all, 1000);
        assert!((after.steal_since(&before) - 0.4).abs() < 1e-9);
        assert_eq!(after.steal_since(&after), 0.0);
        for broken in ["", "cpu0 1 2 3", "cpu  1 2 3 4 5 6 7", "cpu  1 2 3 4 5 6 7 x"] {
            assert!(Ticks::read(broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn every_usable_cpu_is_monitored_until_the_end() {
        let machine = Machine::start();
        assert_eq!(machine.monitors.len(), thread::available_parallelism().unwrap().get());
        let stop = Arc::downgrade(&machine.stop);
        thread::sleep(4 * POLL_INTERVAL);
        machine.disturbances();
        assert!(stop.upgrade().is_none(), "a monitor still runs");
    }
}
