//! How long the ends of the path waited for a processor during a run.
//!
//! The emulator's [`Audit`](crate::emulator::Audit) does not show it: a packet may leave the path
//! in time and stay in a socket because the thread that reads it is runnable but not running. The
//! kernel counts that for every thread (schedstat's run delay).

use crate::space::{End, Topology};
use fullpipe_experiment::recording::Waits;
use fullpipe_kernel::facts::{CpuTimes, SchedStat, SchedStatFile, cpu_pressure};
use fullpipe_units::Span;
use hdrhistogram::Histogram;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Sampling interval: the kernel counts a wait when it ends, and waits within one interval add up.
pub(crate) const INTERVAL: Span = Span::from_millis(10);

/// Waits of both ends, client and server, during a run.
pub(crate) struct WaitAudit {
    ends: [Span; 2],
    /// Waits per end and interval, in nanoseconds.
    intervals: Histogram<u64>,
    machine: Machine,
}

/// The machine's processor statistics when the run began.
struct Machine {
    pressure: Option<Span>,
    times: Option<CpuTimes>,
}

impl Machine {
    fn now() -> Self {
        Machine { pressure: cpu_pressure(), times: CpuTimes::now().ok() }
    }
}

impl WaitAudit {
    pub(crate) fn start() -> Self {
        let intervals = Histogram::new_with_max(100_000_000_000, 2).unwrap_or_else(|_| unreachable!());
        WaitAudit { ends: [Span::ZERO; 2], intervals, machine: Machine::now() }
    }

    /// An end waited for `span` in the last interval.
    pub(crate) fn waited(&mut self, end: usize, span: Span) {
        self.ends[end] += span;
        self.intervals.saturating_record(span.as_nanos());
    }

    /// The totals after a run of `duration` in which the emulator's threads waited for `emulator`.
    pub(crate) fn finish(self, emulator: Span, duration: Span) -> Waits {
        let share = |span: Span| span.as_secs_f64() / duration.as_secs_f64().max(1e-9);
        let millis = |quantile| match self.intervals.is_empty() {
            true => 0.0,
            false => self.intervals.value_at_quantile(quantile) as f64 / 1e6,
        };
        let now = Machine::now();
        let of_all = |part: fn(&CpuTimes) -> u64| {
            let (before, after) = (self.machine.times.as_ref()?, now.times.as_ref()?);
            let all = after.all.saturating_sub(before.all).max(1);
            Some(part(after).saturating_sub(part(before)) as f64 / all as f64)
        };
        Waits {
            client: share(self.ends[0]),
            server: share(self.ends[1]),
            emulator: share(emulator),
            end_p99_ms: millis(0.99),
            end_max_ms: millis(1.0),
            pressure: self.machine.pressure.zip(now.pressure).map(|(before, after)| share(after - before)),
            softirq: of_all(|times| times.softirq),
            steal: of_all(|times| times.steal),
        }
    }
}

/// The scheduler statistics of the two threads that are the ends.
pub(crate) struct Threads<'a> {
    accounts: [&'a SchedStatFile; 2],
    seen: [SchedStat; 2],
}

impl<'a> Threads<'a> {
    /// Starts to watch. `None` if the kernel does not report waits.
    pub(crate) fn watch(accounts: [Option<&'a SchedStatFile>; 2]) -> Option<Self> {
        let accounts = [accounts[0]?, accounts[1]?];
        Some(Threads { seen: [accounts[0].read().ok()?, accounts[1].read().ok()?], accounts })
    }

    /// Adds the waits since the last sample.
    pub(crate) fn sample(&mut self, audit: &mut WaitAudit) {
        for end in 0..2 {
            if let Ok(now) = self.accounts[end].read() {
                audit.waited(end, now.waited - self.seen[end].waited);
                self.seen[end] = now;
            }
        }
    }
}

/// All processes in the ends of a path, which may come and go. Waits between a process's last
/// sample and its exit are not counted.
pub(crate) struct Programs {
    /// Inodes of the ends' network namespaces.
    ends: Vec<u64>,
    seen: HashMap<(u32, u32), Span>,
}

impl Programs {
    pub(crate) fn new(topology: &Topology) -> Self {
        let inode = |end: &End| end.inode().unwrap_or(0);
        Programs { ends: topology.ends.iter().map(inode).collect(), seen: HashMap::new() }
    }

    /// Adds the waits since the last sample.
    pub(crate) fn sample(&mut self, audit: &mut WaitAudit) {
        let mut waited = vec![Span::ZERO; self.ends.len()];
        let mut seen = HashMap::new();
        for (pid, process) in numbered(Path::new("/proc")) {
            let Ok(about) = fs::metadata(process.join("ns/net")) else { continue };
            let Some(end) = self.ends.iter().position(|&inode| inode == about.ino()) else { continue };
            for (tid, thread) in numbered(&process.join("task")) {
                let text = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
                let Some(now) = SchedStat::parse(&text) else { continue };
                let before = self.seen.get(&(pid, tid)).copied().unwrap_or_default();
                waited[end] += now.waited - before;
                seen.insert((pid, tid), now.waited);
            }
        }
        self.seen = seen;
        for (end, span) in waited.into_iter().enumerate() {
            audit.waited(end, span);
        }
    }
}

/// The entries of a directory of `/proc` that are numbers.
fn numbered(directory: &Path) -> impl Iterator<Item = (u32, std::path::PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_shares_of_the_run() {
        let mut audit = WaitAudit::start();
        for _ in 0..98 {
            audit.waited(0, Span::ZERO);
        }
        audit.waited(0, Span::from_millis(30));
        audit.waited(1, Span::from_millis(70));
        let waits = audit.finish(Span::from_millis(5), Span::from_secs(1));
        assert!((waits.client - 0.03).abs() < 1e-9 && (waits.server - 0.07).abs() < 1e-9, "{waits:?}");
        assert!((waits.emulator - 0.005).abs() < 1e-9, "{waits:?}");
        assert!((waits.end_p99_ms - 30.0).abs() < 0.5 && (waits.end_max_ms - 70.0).abs() < 0.5, "{waits:?}");
    }
}
