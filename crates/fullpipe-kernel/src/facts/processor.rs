//! Who waits for a processor, and what the processors do: schedstat of a thread, pressure, interrupts, steal.

use fullpipe_units::Span;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What the scheduler counts of one thread (`/proc/PID/task/TID/schedstat`, `sched_info` in the kernel).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SchedStat {
    /// Time on a processor.
    pub ran: Span,
    /// Time ready and without one. A wait is counted when it ends.
    pub waited: Span,
    /// How often it was given one.
    pub turns: u64,
}

impl SchedStat {
    /// Reads the file's content.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map(|n| n.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        let (ran, waited) = (Span::from_nanos(next()?), Span::from_nanos(next()?));
        Some(SchedStat { ran, waited, turns: next()? })
    }
}

/// The scheduler's account of a thread, to be looked at again and again, by whichever thread.
#[derive(Debug)]
pub struct SchedStatFile(File);

impl SchedStatFile {
    /// Of the calling thread.
    ///
    /// # Errors
    /// When the kernel keeps none (built without `CONFIG_SCHED_INFO`), or there is no `/proc`.
    pub fn for_current_thread() -> io::Result<Self> {
        SchedStatFile::at(Path::new("/proc/thread-self/schedstat"))
    }

    /// Of the thread whose file this is.
    ///
    /// # Errors
    /// When it is gone, or the kernel keeps no account.
    pub fn at(file: &Path) -> io::Result<Self> {
        Ok(SchedStatFile(File::open(file)?))
    }

    /// What it says now.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn read(&self) -> io::Result<SchedStat> {
        let mut buffer = [0; 80];
        let length = self.0.read_at(&mut buffer, 0)?;
        std::str::from_utf8(&buffer[..length])
            .ok()
            .and_then(SchedStat::parse)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "schedstat is not three numbers"))
    }
}

/// For how long, since the machine started, some thread of it was ready and without a processor (`some` in
/// `/proc/pressure/cpu`). None from a kernel without it (before 4.20, or `psi=0`).
pub fn cpu_pressure() -> Option<Span> {
    parse_pressure(&std::fs::read_to_string("/proc/pressure/cpu").ok()?)
}

fn parse_pressure(text: &str) -> Option<Span> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let total = some.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Span::from_micros)
}

/// What all processors have done together, in clock ticks of user space (`cpu` in `/proc/stat`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTimes {
    /// Everything, idle time too.
    pub all: u64,
    /// Nothing to do, or nothing but waiting for a disk (idle and iowait).
    pub idle: u64,
    /// Network packets and timers, among others (softirq).
    pub softirq: u64,
    /// Ready to run, and the hypervisor ran something else.
    pub steal: u64,
}

impl CpuTimes {
    /// Now.
    ///
    /// # Errors
    /// When there is no `/proc`.
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

    /// How long processors worked since `earlier`, interrupts included and what the hypervisor took left out; of a hundredth of a
    /// second, which is what the kernel tells (`USER_HZ`).
    pub fn busy_since(&self, earlier: &CpuTimes) -> Span {
        let worked = |times: &CpuTimes| times.all - times.idle - times.steal;
        // Idle time that is counted in batches may go back.
        Span::from_millis(10 * worked(self).saturating_sub(worked(earlier)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let told = SchedStat::parse("5000 9720837 12\n").unwrap();
        assert_eq!(
            (told.ran, told.waited, told.turns),
            (Span::from_micros(5), Span::from_nanos(9_720_837), 12)
        );
        assert_eq!(SchedStat::parse("1 2"), None);
        let pressure = "some avg10=99.01 avg60=9.39 avg300=9.58 total=2723\nfull avg10=0.00 total=1\n";
        assert_eq!(parse_pressure(pressure), Some(Span::from_micros(2723)));
        let stat = "cpu  1 2 3 4 5 6 70 80 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(CpuTimes::parse(stat), Some(CpuTimes { all: 171, idle: 9, softirq: 70, steal: 80 }));
        let before = CpuTimes { all: 100, idle: 9, softirq: 70, steal: 40 };
        let worked = CpuTimes::parse(stat).unwrap().busy_since(&before);
        assert_eq!(worked, Span::from_millis(310));
        assert_eq!(CpuTimes::parse("cpu  1 2 3\n"), None);
    }

    /// One thread more than processors: somebody waits.
    #[test]
    fn a_thread_that_shares_its_processor_is_seen_to_wait() {
        let threads = std::thread::available_parallelism().map_or(1, usize::from) + 1;
        // A machine that stands still meanwhile leaves them nothing to wait for; not ten times.
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
                    (after.turns - before.turns, after.waited - before.waited)
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
