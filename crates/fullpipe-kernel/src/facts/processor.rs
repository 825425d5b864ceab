//! CPU accounting: schedstat of a thread, CPU pressure, softirq and steal time.

use fullpipe_units::Span;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Scheduler statistics of one thread (`/proc/PID/task/TID/schedstat`, `sched_info` in the kernel).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SchedStat {
    /// Time running on a CPU.
    pub ran: Span,
    /// Time runnable but waiting for a CPU. A wait is counted when it ends.
    pub waited: Span,
    /// Number of timeslices.
    pub timeslices: u64,
}

impl SchedStat {
    /// Parses the contents of the file.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map(|n| n.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        let (ran, waited) = (Span::from_nanos(next()?), Span::from_nanos(next()?));
        Some(SchedStat { ran, waited, timeslices: next()? })
    }
}

/// An open `schedstat` file of a thread, readable repeatedly from any thread.
#[derive(Debug)]
pub struct SchedStatFile(File);

impl SchedStatFile {
    /// Opens the file of the calling thread.
    ///
    /// # Errors
    /// Without `CONFIG_SCHED_INFO` or `/proc`.
    pub fn for_current_thread() -> io::Result<Self> {
        SchedStatFile::open(Path::new("/proc/thread-self/schedstat"))
    }

    /// Opens a `schedstat` file.
    ///
    /// # Errors
    /// When the thread has exited, or without `CONFIG_SCHED_INFO`.
    pub fn open(file: &Path) -> io::Result<Self> {
        Ok(SchedStatFile(File::open(file)?))
    }

    /// Reads the current statistics.
    ///
    /// # Errors
    /// When the thread has exited.
    pub fn read(&self) -> io::Result<SchedStat> {
        let mut buffer = [0; 80];
        let length = self.0.read_at(&mut buffer, 0)?;
        std::str::from_utf8(&buffer[..length])
            .ok()
            .and_then(SchedStat::parse)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "schedstat is not three numbers"))
    }
}

/// Total time since boot in which some thread waited for a CPU (`some` in `/proc/pressure/cpu`).
/// `None` from kernels without PSI (before 4.20, or `psi=0`).
pub fn cpu_pressure() -> Option<Span> {
    parse_pressure(&std::fs::read_to_string("/proc/pressure/cpu").ok()?)
}

fn parse_pressure(text: &str) -> Option<Span> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let total = some.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Span::from_micros)
}

/// Times of all CPUs together, in user-space clock ticks (`cpu` in `/proc/stat`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTimes {
    /// Total, including idle time.
    pub all: u64,
    /// Idle and iowait.
    pub idle: u64,
    /// Softirq, such as network receive processing.
    pub softirq: u64,
    /// Stolen by the hypervisor.
    pub steal: u64,
}

impl CpuTimes {
    /// Reads the current times.
    ///
    /// # Errors
    /// When `/proc` is not available.
    pub fn now() -> io::Result<Self> {
        CpuTimes::parse(&std::fs::read_to_string("/proc/stat")?)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has no line `cpu`"))
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let numbers: Vec<u64> = line.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guests' time is part of user and nice.
        let first = numbers.get(..8)?;
        Some(CpuTimes {
            all: first.iter().sum(),
            idle: first[3] + first[4],
            softirq: first[6],
            steal: first[7],
        })
    }

    /// CPU time used since `earlier`, with interrupts and without steal time, in steps of 10 ms
    /// (`USER_HZ`).
    pub fn busy_since(&self, earlier: &CpuTimes) -> Span {
        let busy = |times: &CpuTimes| times.all - times.idle - times.steal;
        // Idle time is counted in batches and may decrease.
        Span::from_millis(10 * busy(self).saturating_sub(busy(earlier)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kernel_statistics_are_parsed() {
        let stat = SchedStat::parse("5000 9720837 12\n").unwrap();
        assert_eq!(
            (stat.ran, stat.waited, stat.timeslices),
            (Span::from_micros(5), Span::from_nanos(9_720_837), 12)
        );
        assert_eq!(SchedStat::parse("1 2"), None);
        let pressure = "some avg10=99.01 avg60=9.39 avg300=9.58 total=2723\nfull avg10=0.00 total=1\n";
        assert_eq!(parse_pressure(pressure), Some(Span::from_micros(2723)));
        let times = "cpu  1 2 3 4 5 6 70 80 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(CpuTimes::parse(times), Some(CpuTimes { all: 171, idle: 9, softirq: 70, steal: 80 }));
        let before = CpuTimes { all: 100, idle: 9, softirq: 70, steal: 40 };
        let busy = CpuTimes::parse(times).unwrap().busy_since(&before);
        assert_eq!(busy, Span::from_millis(310));
        assert_eq!(CpuTimes::parse("cpu  1 2 3\n"), None);
    }

    /// With one thread more than CPUs, some thread waits.
    #[test]
    fn waiting_for_a_shared_cpu_is_counted() {
        let threads = std::thread::available_parallelism().map_or(1, usize::from) + 1;
        // A machine that stalls meanwhile may leave no waits, but not ten times.
        let round = || {
            let until = std::time::Instant::now() + std::time::Duration::from_millis(300);
            std::thread::scope(|scope| {
                let spin = || {
                    let account = SchedStatFile::for_current_thread().unwrap();
                    let before = account.read().unwrap();
                    while std::time::Instant::now() < until {
                        std::hint::spin_loop();
                    }
                    std::thread::yield_now();
                    let after = account.read().unwrap();
                    (after.timeslices - before.timeslices, after.waited - before.waited)
                };
                let all: Vec<_> = (0..threads).map(|_| scope.spawn(spin)).collect();
                all.into_iter()
                    .map(|t| t.join().unwrap())
                    .fold((0, Span::ZERO), |a, b| (a.0 + b.0, a.1 + b.1))
            })
        };
        let mut rounds = vec![round()];
        while rounds.last().is_some_and(|(turns, waited)| *turns == 0 || *waited < Span::from_millis(10)) {
            assert!(rounds.len() < 10, "{threads} threads, each time 300 ms: {rounds:?}");
            rounds.push(round());
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z0-9 =.\n]{0,200}") {
            let _ = (SchedStat::parse(&text), parse_pressure(&text), CpuTimes::parse(&text));
        }
    }
}
