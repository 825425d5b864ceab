//! The owner's loop of a split, between the kernel and the file.

use crate::{
    Arms, AssignBy, Assigner, Counts, Ledger, Line, Outcome, Period, Plan, Violation, Writer, cuts, pick,
};
use fullpipe_units::{Fraction, Span};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the lease is renewed and the file flushed.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How long connections are assigned without a heartbeat of the owner; long enough for a busy
/// machine.
pub const LEASE: Duration = Duration::from_secs(15);
/// The maximum size of the file, about 270 million connections.
pub const MAX_FILE_BYTES: u64 = 100_000_000_000;
/// How often the guard is checked and counts are written.
const GUARD_INTERVAL: Duration = Duration::from_secs(5);

/// The kernel side of a running split.
pub trait SplitKernel {
    /// Why an operation failed.
    type Error;
    /// The processor times of the machine.
    type CpuTimes: Clone;

    /// Calls `each` with the connections that have closed, also when there are none, several times
    /// per second until it returns false.
    ///
    /// # Errors
    /// Those of `each` and of the kernel.
    fn collect(
        &self,
        each: &mut dyn FnMut(Vec<ClosedConnection>) -> Result<bool, SessionError<Self::Error>>,
    ) -> Result<(), SessionError<Self::Error>>;

    /// Extends the assignment of connections to this long from now.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn renew(&self, lease: Duration) -> Result<(), Self::Error>;

    /// Attaches to the control group again if it was replaced, or if another process detached the
    /// program.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn reattach(&self) -> Result<GroupState, Self::Error>;

    /// The request of another process since the last call.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn request(&self) -> Result<Option<Request>, Self::Error>;

    /// Sets the shares of new connections.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn set_shares(&self, shares: &ShareTable) -> Result<(), Self::Error>;

    /// The counts of this many arms.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn counts(&self, arms: usize) -> Result<Counts, Self::Error>;

    /// The clocks of the kernel's times.
    fn clocks(&self) -> Clocks;

    /// The processor times of the machine.
    ///
    /// # Errors
    /// If they cannot be read.
    fn cpu_times(&self) -> io::Result<Self::CpuTimes>;

    /// The processor time that the machine was busy between two moments.
    fn busy_between(&self, start: &Self::CpuTimes, end: &Self::CpuTimes) -> Span;
}

/// The cumulative shares of the arms, for the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareTable {
    /// Incremented with each change of the shares.
    pub generation: u64,
    /// Of each arm, the cumulative share in 2⁻³² and the controller, if it has one.
    pub arms: Vec<(u64, Option<String>)>,
}

/// A request of another process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Shares of the arms.
    Shares(Vec<Fraction>),
    /// The end of the split.
    End,
}

/// Whether the control group of a split still exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupState {
    /// It exists.
    Same,
    /// It was replaced by another of the same name.
    Replaced,
    /// It does not exist.
    Gone,
    /// It exists, and the program had been detached from it by another process.
    Detached,
}

/// A connection that closed, as the kernel reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClosedConnection {
    /// The socket's cookie.
    pub cookie: u64,
    /// The arm's place.
    pub arm: u8,
    /// The generation of the shares when it opened.
    pub generation: u64,
    /// Monotonic time at which it opened.
    pub opened_ns: u64,
    /// Monotonic time at which it closed.
    pub closed_ns: u64,
    /// The local end.
    pub local: SocketAddr,
    /// The remote end.
    pub remote: SocketAddr,
    /// Whether this host opened it.
    pub active: bool,
    /// Whether it ended with an error.
    pub failed: bool,
    /// The controller at the end.
    pub controller: String,
    /// `tcpi_bytes_acked`.
    pub bytes_acked: u64,
    /// `tcpi_bytes_received`.
    pub bytes_received: u64,
    /// `tcpi_bytes_sent`.
    pub bytes_sent: u64,
    /// `tcpi_bytes_retrans`.
    pub bytes_retrans: u64,
    /// `tcpi_data_segs_out`.
    pub data_segs_out: u32,
    /// `tcpi_total_retrans`.
    pub total_retrans: u32,
    /// Sum of the RTT samples.
    pub rtt_sum_us: u64,
    /// Number of RTT samples.
    pub rtt_samples: u32,
    /// Minimum RTT; `u32::MAX` without a sample.
    pub min_rtt_us: u32,
    /// Time with data to send, in jiffies.
    pub busy_ticks: u32,
    /// Time until 100 kB, 1 MB and 10 MB were acknowledged; 0 if that did not happen.
    pub reached_us: [u32; 3],
}

/// Converts the kernel's times to wall-clock times.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// The wall clock at zero of the monotonic clock, in seconds.
    pub zero_unix_s: f64,
    /// Jiffies per second.
    pub ticks_per_s: f64,
}

/// Something to report about a running split.
#[derive(Clone, PartialEq, Debug)]
pub enum Event<'a> {
    /// The control group was created again; its new connections are divided, too.
    GroupReplaced(&'a str),
    /// The control group is gone; the split waits until it exists again.
    GroupGone(&'a str),
    /// Another process detached the program; it is attached again.
    Detached(&'a str),
    /// The file has reached this maximum size: connections are counted, and no longer written.
    FileFull(u64),
    /// Requested shares are ignored, since the guard has stopped the split.
    SharesIgnored,
    /// The shares have changed.
    SharesChanged {
        /// Labels and shares of the arms.
        shares: Vec<(&'a str, Fraction)>,
        /// Why.
        reason: &'a str,
    },
}

/// Why a split ended early.
#[derive(Debug, thiserror::Error)]
pub enum SessionError<E> {
    /// An operation of the kernel failed.
    #[error("{0}")]
    Kernel(E),
    /// The file could not be written, or the machine's state not be read.
    #[error(transparent)]
    File(#[from] io::Error),
}

/// The result of an operation in a session with the kernel side `K`.
type SessionResult<T, K> = Result<T, SessionError<<K as SplitKernel>::Error>>;

/// The owner's side of a split.
pub struct Session<W: Write, K: SplitKernel> {
    arms: Arms,
    shares: Vec<Fraction>,
    generation: u64,
    period: Option<u64>,
    /// State of the machine at the end of the period's wash-out; none if the period is not measured
    /// to its end.
    start: Option<PeriodStart<K::CpuTimes>>,
    /// The period that is not measured because the shares changed during it.
    spoiled: Option<u64>,
    assigner: Assigner,
    ledger: Ledger,
    writer: Writer<W>,
    /// The size of the file from which on connections are only counted.
    max_bytes: u64,
    /// Connections not written for that reason.
    unwritten: u64,
    clocks: Option<Clocks>,
    violation: Option<String>,
    /// Whether the control group is gone and has not been created again.
    is_gone: bool,
    plan: Plan,
}

/// The state of the machine at the start of a period's measurement.
#[derive(Clone)]
struct PeriodStart<T> {
    number: u64,
    arm: usize,
    unix_s: f64,
    processors: T,
    acked_bytes: u64,
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Bytes acknowledged on closed connections of all arms.
fn acked_bytes(counts: &Counts) -> u64 {
    counts.acked_bytes.iter().fold(0, |sum, n| sum.saturating_add(*n))
}

impl<W: Write, K: SplitKernel> Session<W, K> {
    /// A session that writes to a file with this plan, and connections only until the file has
    /// `max_bytes`: peers decide how many connections they open.
    pub fn new(plan: Plan, writer: Writer<W>, max_bytes: u64) -> Self {
        Session {
            shares: plan.arms.shares(),
            arms: plan.arms.clone(),
            generation: 0,
            period: None,
            start: None,
            spoiled: None,
            assigner: Assigner::new(plan.seed, plan.by),
            ledger: Ledger::new(&plan),
            writer,
            max_bytes,
            unwritten: 0,
            clocks: None,
            violation: None,
            is_gone: false,
            plan,
        }
    }

    /// The shares of new connections at a time.
    pub fn shares(&mut self, unix_s: f64) -> ShareTable {
        let mut cuts = cuts(&self.shares);
        if let Some((number, _)) = self.plan.period(unix_s) {
            self.period = Some(number);
            let turn = self.turn(number);
            // All hashes belong to that arm, or to none if the period is outside the experiment.
            for (place, cut) in cuts.iter_mut().enumerate() {
                *cut = if turn.is_some_and(|turn| place >= turn) { 1 << 32 } else { 0 };
            }
        }
        let arms = cuts.into_iter().zip(self.arms.all());
        ShareTable {
            generation: self.generation,
            arms: arms.map(|(cut, arm)| (cut, arm.controller.clone())).collect(),
        }
    }

    /// The arm of a period; none if the period is outside the experiment.
    fn turn(&self, period: u64) -> Option<usize> {
        pick(&cuts(&self.shares), self.assigner.hash_period(period))
    }

    /// Runs until `asked` is true, or for a time. Returns the reason if the guard stopped it.
    ///
    /// # Errors
    /// If the kernel fails or the file cannot be written.
    pub fn run(
        &mut self,
        kernel: &K,
        limit: Option<Duration>,
        asked: &dyn Fn() -> bool,
        report: &dyn Fn(&Event<'_>),
    ) -> SessionResult<Option<String>, K> {
        let began = Instant::now();
        let (mut renewed, mut judged) = (began, began);
        let mut why = None;
        self.clocks = Some(kernel.clocks());
        kernel.collect(&mut |closed| {
            for one in closed {
                let outcome = self.outcome(&one);
                // Also for the guard, which acts whatever the size of the file.
                self.ledger.add(&outcome);
                self.record(outcome, report)?;
            }
            if why.is_some() {
                return Ok(false);
            }
            if renewed.elapsed() >= HEARTBEAT_INTERVAL {
                renewed = Instant::now();
                self.clocks = Some(kernel.clocks());
                kernel.renew(LEASE).map_err(SessionError::Kernel)?;
                self.follow(kernel, report)?;
                self.writer.flush()?;
            }
            match kernel.request().map_err(SessionError::Kernel)? {
                Some(Request::Shares(shares)) => self.change(kernel, shares, report)?,
                Some(Request::End) => why = Some("requested by fullpipe split stop"),
                None => {}
            }
            if judged.elapsed() >= GUARD_INTERVAL {
                judged = Instant::now();
                self.count(kernel)?;
                self.judge(kernel, report)?;
            }
            if let AssignBy::Time { .. } = self.plan.by {
                let now = unix_s();
                if self.plan.period(now).map(|(number, _)| number) != self.period {
                    self.finish_period(kernel)?;
                    let shares = self.shares(now);
                    kernel.set_shares(&shares).map_err(SessionError::Kernel)?;
                }
                self.start_period(kernel, now)?;
            }
            if why.is_none() && asked() {
                why = Some("asked to end");
            }
            if why.is_none() && limit.is_some_and(|limit| began.elapsed() >= limit) {
                why = Some("the time limit was reached");
            }
            Ok(why.is_none())
        })?;
        self.count(kernel)?;
        let why = why.unwrap_or("ended").to_owned();
        self.writer.write(&Line::End { unix_s: unix_s(), why })?;
        self.writer.flush()?;
        Ok(self.violation.take())
    }

    fn counts(&self, kernel: &K) -> SessionResult<Counts, K> {
        kernel.counts(self.arms.all().len()).map_err(SessionError::Kernel)
    }

    /// Starts to measure a period once its wash-out is over.
    fn start_period(&mut self, kernel: &K, now: f64) -> SessionResult<(), K> {
        let Some((number, false)) = self.plan.period(now) else { return Ok(()) };
        if self.start.is_some() || self.spoiled == Some(number) {
            return Ok(());
        }
        let Some(arm) = self.turn(number) else { return Ok(()) };
        let (processors, acked_bytes) = (kernel.cpu_times()?, acked_bytes(&self.counts(kernel)?));
        self.start = Some(PeriodStart { number, arm, unix_s: unix_s(), processors, acked_bytes });
        Ok(())
    }

    /// Records the period that is over.
    fn finish_period(&mut self, kernel: &K) -> SessionResult<(), K> {
        let Some(start) = self.start.take() else { return Ok(()) };
        // Read together, so that a pause of the machine in between does not count as work.
        let (processors, now) = (kernel.cpu_times()?, unix_s());
        let period = Period {
            number: start.number,
            arm: start.arm as u8,
            unix_s: now,
            duration_s: (now - start.unix_s).max(0.0),
            processor_s: kernel.busy_between(&start.processors, &processors).as_secs_f64(),
            acked_bytes: acked_bytes(&self.counts(kernel)?).saturating_sub(start.acked_bytes),
        };
        self.ledger.add_period(&period);
        Ok(self.writer.write(&Line::Period(period))?)
    }

    /// Follows a control group that is replaced, and reports it.
    fn follow(&mut self, kernel: &K, report: &dyn Fn(&Event<'_>)) -> SessionResult<(), K> {
        match kernel.reattach().map_err(SessionError::Kernel)? {
            GroupState::Same => {}
            GroupState::Replaced => {
                report(&Event::GroupReplaced(&self.plan.cgroup));
                self.is_gone = false;
            }
            GroupState::Gone if !self.is_gone => {
                report(&Event::GroupGone(&self.plan.cgroup));
                self.is_gone = true;
            }
            GroupState::Gone => {}
            GroupState::Detached => report(&Event::Detached(&self.plan.cgroup)),
        }
        Ok(())
    }

    /// Applies requested shares.
    fn change(
        &mut self,
        kernel: &K,
        mut shares: Vec<Fraction>,
        report: &dyn Fn(&Event<'_>),
    ) -> SessionResult<(), K> {
        shares.truncate(self.shares.len());
        if self.violation.is_some() {
            report(&Event::SharesIgnored);
            return Ok(());
        }
        self.reshare(kernel, shares, "requested by fullpipe split change", report)
    }

    fn reshare(
        &mut self,
        kernel: &K,
        shares: Vec<Fraction>,
        why: &str,
        report: &dyn Fn(&Event<'_>),
    ) -> SessionResult<(), K> {
        let now = unix_s();
        self.generation += 1;
        self.start = None;
        self.spoiled = self.plan.period(now).map(|(number, _)| number);
        self.shares.clone_from(&shares);
        let table = self.shares(now);
        kernel.set_shares(&table).map_err(SessionError::Kernel)?;
        self.ledger.set_shares(self.generation, &shares);
        let labels = self.arms.all().iter().map(|arm| arm.label.as_str());
        report(&Event::SharesChanged { shares: labels.zip(shares.iter().copied()).collect(), reason: why });
        let line = Line::Shares { generation: self.generation, shares, unix_s: now, why: why.to_owned() };
        self.writer.write(&line)?;
        Ok(self.writer.flush()?)
    }

    /// Writes a connection, or counts it if the file has its maximum size.
    fn record(&mut self, outcome: Outcome, report: &dyn Fn(&Event<'_>)) -> io::Result<()> {
        if self.writer.written_bytes() < self.max_bytes {
            return self.writer.write(&Line::Connection(outcome));
        }
        if self.unwritten == 0 {
            report(&Event::FileFull(self.max_bytes));
        }
        self.unwritten += 1;
        Ok(())
    }

    fn count(&mut self, kernel: &K) -> SessionResult<(), K> {
        let counts = Counts { unwritten: self.unwritten, ..self.counts(kernel)? };
        Ok(self.writer.write(&Line::Counts(counts))?)
    }

    /// Moves new connections to the control arm once another arm is worse than a bound allows.
    fn judge(&mut self, kernel: &K, report: &dyn Fn(&Event<'_>)) -> SessionResult<(), K> {
        if self.violation.is_some() {
            return Ok(());
        }
        let Some(violation) = self.plan.guard.check(&self.ledger) else { return Ok(()) };
        let why = self.guard_text(&violation);
        let control = self.plan.control_index();
        let all =
            (0..self.shares.len()).map(|place| if place == control { Fraction::ONE } else { Fraction::ZERO });
        self.reshare(kernel, all.collect(), &why, report)?;
        self.violation = Some(why);
        Ok(())
    }

    fn guard_text(&self, violation: &Violation) -> String {
        let metric = violation.bound.metric;
        let difference = |value| metric.comparison().difference(value);
        format!(
            "the guard {} is violated: {} has {}, {} of {}; difference {} ({} … {})",
            violation.bound,
            self.arms.all()[violation.arm].label,
            metric.level(violation.contrast.arm),
            metric.level(violation.contrast.control),
            self.plan.control,
            difference(violation.contrast.difference),
            difference(violation.contrast.low),
            difference(violation.contrast.high),
        )
    }

    fn outcome(&self, closed: &ClosedConnection) -> Outcome {
        let s = |ns: u64| ns as f64 * 1e-9;
        let clocks = self.clocks.unwrap_or(Clocks { zero_unix_s: 0.0, ticks_per_s: 250.0 });
        let reached =
            |place: usize| Some(closed.reached_us[place]).filter(|us| *us > 0).map(|us| f64::from(us) * 1e-6);
        let duration_s = s(closed.closed_ns.saturating_sub(closed.opened_ns));
        let arm = self.arms.all().get(usize::from(closed.arm));
        let given = arm.and_then(|arm| arm.controller.as_deref());
        Outcome {
            arm: closed.arm,
            generation: closed.generation,
            cookie: closed.cookie,
            opened_unix_s: clocks.zero_unix_s + s(closed.opened_ns),
            duration_s,
            local: closed.local,
            remote: closed.remote,
            active: closed.active,
            // Acknowledged bytes without SYN and FIN, which count as one byte each.
            delivered_bytes: closed.bytes_acked.min(closed.bytes_sent.saturating_sub(closed.bytes_retrans)),
            received_bytes: closed.bytes_received,
            sent_bytes: closed.bytes_sent,
            resent_bytes: closed.bytes_retrans,
            segments: closed.data_segs_out.into(),
            resent_segments: closed.total_retrans.into(),
            // The resolution is one jiffy: less than one counts as half of one, but not as more than
            // the duration.
            busy_s: (f64::from(closed.busy_ticks).max(0.5) / clocks.ticks_per_s).min(duration_s),
            rtt_ms: (closed.rtt_samples > 0)
                .then(|| closed.rtt_sum_us as f64 / f64::from(closed.rtt_samples) * 1e-3),
            min_rtt_ms: (closed.min_rtt_us != u32::MAX).then(|| f64::from(closed.min_rtt_us) * 1e-3),
            deliver_100kb_s: reached(0),
            deliver_1mb_s: reached(1),
            deliver_10mb_s: reached(2),
            chose: given.is_some_and(|given| given != closed.controller).then(|| closed.controller.clone()),
            failed: closed.failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;
    use crate::ledger::tests::plan;
    use std::cell::{Cell, RefCell};
    use std::convert::Infallible;

    /// A kernel side that reports given connections and requests, and records the shares.
    #[derive(Default)]
    struct FakeKernel {
        closed: Vec<ClosedConnection>,
        requested: Cell<Option<Request>>,
        set: RefCell<Vec<ShareTable>>,
    }

    impl SplitKernel for FakeKernel {
        type Error = Infallible;
        type CpuTimes = Span;

        fn collect(
            &self,
            each: &mut dyn FnMut(Vec<ClosedConnection>) -> Result<bool, SessionError<Infallible>>,
        ) -> Result<(), SessionError<Infallible>> {
            let mut closed = self.closed.clone();
            while each(std::mem::take(&mut closed))? {}
            Ok(())
        }

        fn renew(&self, _: Duration) -> Result<(), Infallible> {
            Ok(())
        }

        fn reattach(&self) -> Result<GroupState, Infallible> {
            Ok(GroupState::Same)
        }

        fn request(&self) -> Result<Option<Request>, Infallible> {
            Ok(self.requested.take())
        }

        fn set_shares(&self, shares: &ShareTable) -> Result<(), Infallible> {
            self.set.borrow_mut().push(shares.clone());
            Ok(())
        }

        fn counts(&self, arms: usize) -> Result<Counts, Infallible> {
            let none = vec![0; arms];
            Ok(Counts {
                opened: none.clone(),
                closed: none.clone(),
                acked_bytes: none.clone(),
                resent_bytes: none.clone(),
                resent_segments: none.clone(),
                refused: none,
                ..Counts::default()
            })
        }

        fn clocks(&self) -> Clocks {
            Clocks { zero_unix_s: 1000.0, ticks_per_s: 100.0 }
        }

        fn cpu_times(&self) -> io::Result<Span> {
            Ok(Span::ZERO)
        }

        fn busy_between(&self, start: &Span, end: &Span) -> Span {
            *end - *start
        }
    }

    fn connection() -> ClosedConnection {
        ClosedConnection {
            cookie: 7,
            arm: 0,
            generation: 0,
            opened_ns: 2_000_000_000,
            closed_ns: 4_000_000_000,
            local: "192.0.2.1:443".parse().unwrap(),
            remote: "198.51.100.1:5000".parse().unwrap(),
            active: false,
            failed: false,
            controller: "cubic".to_owned(),
            bytes_acked: 1_001,
            bytes_received: 10,
            bytes_sent: 1_200,
            bytes_retrans: 200,
            data_segs_out: 3,
            total_retrans: 1,
            rtt_sum_us: 30_000,
            rtt_samples: 3,
            min_rtt_us: 9_000,
            busy_ticks: 0,
            reached_us: [0; 3],
        }
    }

    /// Runs a session over `kernel` for one poll; returns its lines and events.
    fn run(kernel: &FakeKernel) -> (Vec<Line>, usize) {
        run_for(kernel, MAX_FILE_BYTES, Some(Duration::ZERO))
    }

    /// The same with another maximum size of the file and another time limit.
    fn run_for(kernel: &FakeKernel, max_bytes: u64, limit: Option<Duration>) -> (Vec<Line>, usize) {
        let plan = plan("connection", &["bbr=50%", "cubic=50%"]);
        let mut bytes = Vec::new();
        let events = Cell::new(0);
        let writer = Writer::new(&mut bytes, &plan).unwrap();
        let mut session = Session::new(plan, writer, max_bytes);
        let count = |_: &Event<'_>| events.set(events.get() + 1);
        let violation = session.run(kernel, limit, &|| false, &count).unwrap();
        assert_eq!(violation, None);
        drop(session);
        let lines = Reader::new(&bytes[..]).unwrap().map(Result::unwrap).collect();
        (lines, events.get())
    }

    #[test]
    fn closed_connections_are_written_in_wall_clock_time_and_without_the_fin() {
        let kernel = FakeKernel { closed: vec![connection()], ..FakeKernel::default() };
        let (lines, _) = run(&kernel);
        let Line::Connection(outcome) = &lines[0] else { panic!("{lines:?}") };
        assert_eq!((outcome.opened_unix_s, outcome.duration_s), (1002.0, 2.0));
        assert_eq!((outcome.delivered_bytes, outcome.rtt_ms), (1_000, Some(10.0)));
        assert_eq!(outcome.busy_s, 0.005, "half a jiffy");
        assert_eq!(outcome.chose.as_deref(), Some("cubic"), "not the arm's bbr");
        assert!(matches!(lines[..], [_, Line::Counts(_), Line::End { .. }]), "{lines:?}");
    }

    #[test]
    fn connections_beyond_the_maximum_size_are_counted_and_reported() {
        let kernel = FakeKernel { closed: vec![connection(); 500], ..FakeKernel::default() };
        let plan = plan("connection", &["bbr=50%", "cubic=50%"]);
        let size = |lines: &[Line]| {
            let mut writer = Writer::new(io::sink(), &plan).unwrap();
            lines.iter().for_each(|line| writer.write(line).unwrap());
            writer.written_bytes()
        };
        let (all, _) = run(&kernel);
        assert_eq!(all.len(), 502, "with counts and the end");
        let line_bytes = size(&all[..1]) - size(&[]);
        let max_bytes = size(&[]) + 100 * line_bytes;
        let (lines, events) = run_for(&kernel, max_bytes, Some(Duration::ZERO));
        let [Line::Counts(counts), Line::End { .. }] = &lines[100..] else { panic!("{} lines", lines.len()) };
        assert_eq!(lines[..100], all[..100]);
        assert_eq!((counts.unwritten, events), (400, 1), "reported once");
        let report = crate::Report::from_lines(&plan, lines.into_iter().map(Ok::<_, Infallible>)).unwrap();
        let is_it = |warning: &String| warning.starts_with("400 closed connections are not in the results");
        assert!(report.warnings.iter().any(is_it), "{:?}", report.warnings);
    }

    #[test]
    fn a_requested_end_ends_the_session() {
        let kernel = FakeKernel { requested: Cell::new(Some(Request::End)), ..FakeKernel::default() };
        let (lines, _) = run_for(&kernel, MAX_FILE_BYTES, None);
        let Some(Line::End { why, .. }) = lines.last() else { panic!("{lines:?}") };
        assert_eq!(why, "requested by fullpipe split stop");
    }

    #[test]
    fn requested_shares_are_set_reported_and_written() {
        let shares = [300_000_000, 700_000_000].map(Fraction::from_billionths).to_vec();
        let kernel = FakeKernel {
            requested: Cell::new(Some(Request::Shares(shares.clone()))),
            ..FakeKernel::default()
        };
        let (lines, events) = run(&kernel);
        let Line::Shares { generation: 1, shares: written, .. } = &lines[0] else { panic!("{lines:?}") };
        assert_eq!((written, events), (&shares, 1));
        let set = kernel.set.borrow();
        let [table] = &set[..] else { panic!("{set:?}") };
        assert_eq!((table.generation, table.arms[1].0), (1, 1 << 32));
        assert_eq!(table.arms[0].1.as_deref(), Some("bbr"));
    }
}
