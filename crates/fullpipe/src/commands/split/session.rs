//! The owner's loop of a split, between the kernel and the file.

use fullpipe_ebpf::Error;
use fullpipe_ebpf::split::{CgroupState, Closed, Counts as Raw, SplitProgram, Table};
use fullpipe_kernel::facts::{self, CpuTimes};
use fullpipe_split::{
    Arms, AssignBy, Assigner, Counts, Ledger, Line, Outcome, Period, Plan, Violation, Writer, cuts, pick,
};
use fullpipe_units::Fraction;
use nix::time::{ClockId, clock_gettime};
use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Why a split ended early.
#[derive(Debug)]
pub enum SessionError {
    /// An operation of the kernel failed.
    Kernel(Error),
    /// The file could not be written.
    File(io::Error),
}

impl From<Error> for SessionError {
    fn from(error: Error) -> Self {
        SessionError::Kernel(error)
    }
}

impl From<io::Error> for SessionError {
    fn from(error: io::Error) -> Self {
        SessionError::File(error)
    }
}

/// The owner's side of a split.
pub struct Session<W: Write> {
    arms: Arms,
    shares: Vec<Fraction>,
    generation: u64,
    period: Option<u64>,
    /// State of the machine at the end of the period's wash-out; none if the period is not measured
    /// to its end.
    start: Option<PeriodStart>,
    /// The period that is not measured because the shares changed during it.
    spoiled: Option<u64>,
    assigner: Assigner,
    ledger: Ledger,
    writer: Writer<W>,
    clocks: Clocks,
    violation: Option<String>,
    /// Whether the control group is gone and has not been created again.
    is_gone: bool,
    plan: Plan,
}

/// How often the lease is renewed and the file flushed.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How long connections are assigned without a heartbeat of the owner; long enough for a busy
/// machine.
pub const LEASE: Duration = Duration::from_secs(15);
/// How often the guard is checked and counts are written.
const GUARD_INTERVAL: Duration = Duration::from_secs(5);

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The state of the machine at the start of a period's measurement.
#[derive(Clone, Copy)]
struct PeriodStart {
    number: u64,
    arm: usize,
    unix_s: f64,
    processors: CpuTimes,
    acked_bytes: u64,
}

/// Bytes acknowledged on closed connections of all arms.
fn acked_bytes(counts: &Raw) -> u64 {
    counts.bytes_acked.iter().fold(0, |sum, n| sum.saturating_add(*n))
}

/// Converts the kernel's times to wall-clock times.
struct Clocks {
    /// The wall clock at zero of the monotonic clock, in seconds.
    zero_unix_s: f64,
    /// Jiffies per second.
    ticks: f64,
}

impl Clocks {
    fn now() -> Self {
        let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        Clocks {
            zero_unix_s: unix_s() - monotonic.as_secs_f64(),
            ticks: f64::from(facts::tick_rate().unwrap_or(250)),
        }
    }
}

impl<W: Write> Session<W> {
    pub fn new(plan: Plan, writer: Writer<W>) -> Self {
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
            clocks: Clocks::now(),
            violation: None,
            is_gone: false,
            plan,
        }
    }

    /// The table of shares for the BPF program at a time.
    pub fn table(&mut self, unix_s: f64) -> Table {
        let mut cuts = cuts(&self.shares);
        if let Some((number, _)) = self.plan.period(unix_s) {
            self.period = Some(number);
            let turn = self.turn(number);
            // All hashes belong to that arm, or to none if the period is outside the experiment.
            for (place, cut) in cuts.iter_mut().enumerate() {
                *cut = if turn.is_some_and(|turn| place >= turn) { 1 << 32 } else { 0 };
            }
        }
        let arms: Vec<_> = cuts
            .into_iter()
            .zip(self.arms.all())
            .map(|(cut, arm)| (cut, arm.controller.as_deref()))
            .collect();
        Table::new(self.generation, &arms)
    }

    /// The arm of a period; none if the period is outside the experiment.
    fn turn(&self, period: u64) -> Option<usize> {
        pick(&cuts(&self.shares), self.assigner.hash_period(period))
    }

    /// Runs until `asked` is true, or for a time. Returns the reason if the guard stopped it.
    pub fn run(
        &mut self,
        running: &SplitProgram,
        limit: Option<Duration>,
        asked: &dyn Fn() -> bool,
    ) -> Result<Option<String>, SessionError> {
        let began = Instant::now();
        let (mut renewed, mut judged) = (began, began);
        let mut why = None;
        running.collect(|closed| -> Result<bool, SessionError> {
            for one in closed.drain(..) {
                let outcome = self.outcome(&one);
                self.writer.write(&Line::Connection(outcome.clone()))?;
                self.ledger.add(&outcome);
            }
            if why.is_some() {
                return Ok(false);
            }
            if renewed.elapsed() >= HEARTBEAT_INTERVAL {
                renewed = Instant::now();
                self.clocks = Clocks::now();
                running.renew(LEASE)?;
                self.follow(running)?;
                self.writer.flush()?;
            }
            if let Some(shares) = running.requested_shares()? {
                self.change(running, &shares)?;
            }
            if judged.elapsed() >= GUARD_INTERVAL {
                judged = Instant::now();
                self.count(running)?;
                self.judge(running)?;
            }
            if let AssignBy::Time { .. } = self.plan.by {
                let now = unix_s();
                if self.plan.period(now).map(|(number, _)| number) != self.period {
                    self.finish_period(running)?;
                    let table = self.table(now);
                    running.set_shares(&table)?;
                }
                self.start_period(running, now)?;
            }
            if asked() {
                why = Some("asked to end");
            } else if limit.is_some_and(|limit| began.elapsed() >= limit) {
                why = Some("the time limit was reached");
            }
            Ok(why.is_none())
        })?;
        self.count(running)?;
        let why = why.unwrap_or("ended").to_owned();
        self.writer.write(&Line::End { unix_s: unix_s(), why })?;
        self.writer.flush()?;
        Ok(self.violation.take())
    }

    /// Starts to measure a period once its wash-out is over.
    fn start_period(&mut self, running: &SplitProgram, now: f64) -> Result<(), SessionError> {
        let Some((number, false)) = self.plan.period(now) else { return Ok(()) };
        if self.start.is_some() || self.spoiled == Some(number) {
            return Ok(());
        }
        let Some(arm) = self.turn(number) else { return Ok(()) };
        let (processors, acked_bytes) = (CpuTimes::now()?, acked_bytes(&running.counts()?));
        self.start = Some(PeriodStart { number, arm, unix_s: unix_s(), processors, acked_bytes });
        Ok(())
    }

    /// Records the period that is over.
    fn finish_period(&mut self, running: &SplitProgram) -> Result<(), SessionError> {
        let Some(start) = self.start.take() else { return Ok(()) };
        // Read together, so that a pause of the machine in between does not count as work.
        let (processors, now) = (CpuTimes::now()?, unix_s());
        let period = Period {
            number: start.number,
            arm: start.arm as u8,
            unix_s: now,
            duration_s: (now - start.unix_s).max(0.0),
            processor_s: processors.busy_since(&start.processors).as_secs_f64(),
            acked_bytes: acked_bytes(&running.counts()?).saturating_sub(start.acked_bytes),
        };
        self.ledger.add_period(&period);
        Ok(self.writer.write(&Line::Period(period))?)
    }

    /// Follows a unit that is restarted, and reports it.
    fn follow(&mut self, running: &SplitProgram) -> Result<(), SessionError> {
        let group = &self.plan.cgroup;
        match running.reattach()? {
            CgroupState::Same => {}
            CgroupState::Replaced => {
                eprintln!(
                    "the control group {group} was created again: its new connections are divided, too"
                );
                self.is_gone = false;
            }
            CgroupState::Gone if !self.is_gone => {
                eprintln!("the control group {group} is gone: the split waits until it exists again");
                self.is_gone = true;
            }
            CgroupState::Gone => {}
        }
        Ok(())
    }

    /// Applies the shares that `split change` requests.
    fn change(&mut self, running: &SplitProgram, billionths: &[u32]) -> Result<(), SessionError> {
        let shares: Vec<Fraction> = billionths
            .iter()
            .take(self.shares.len())
            .map(|billionths| Fraction::from_billionths(*billionths))
            .collect();
        if self.violation.is_some() {
            eprintln!("ignoring the requested shares: the guard has stopped this split");
            return Ok(());
        }
        self.reshare(running, shares, "requested by fullpipe split change")
    }

    fn reshare(
        &mut self,
        running: &SplitProgram,
        shares: Vec<Fraction>,
        why: &str,
    ) -> Result<(), SessionError> {
        let now = unix_s();
        self.generation += 1;
        self.start = None;
        self.spoiled = self.plan.period(now).map(|(number, _)| number);
        self.shares.clone_from(&shares);
        let table = self.table(now);
        running.set_shares(&table)?;
        self.ledger.set_shares(self.generation, &shares);
        let texts: Vec<String> = self
            .arms
            .all()
            .iter()
            .zip(&shares)
            .map(|(arm, share)| format!("{} {share}", arm.label))
            .collect();
        eprintln!("shares are now {}: {why}", texts.join(", "));
        let line = Line::Shares { generation: self.generation, shares, unix_s: now, why: why.to_owned() };
        self.writer.write(&line)?;
        Ok(self.writer.flush()?)
    }

    fn count(&mut self, running: &SplitProgram) -> Result<(), SessionError> {
        let counts = counts(&running.counts()?, self.arms.all().len());
        Ok(self.writer.write(&Line::Counts(counts))?)
    }

    /// Moves new connections to the control arm once another arm is worse than a bound allows.
    fn judge(&mut self, running: &SplitProgram) -> Result<(), SessionError> {
        if self.violation.is_some() {
            return Ok(());
        }
        let Some(violation) = self.plan.guard.check(&self.ledger) else { return Ok(()) };
        let why = self.guard_text(&violation);
        let control = self.plan.control_index();
        let all =
            (0..self.shares.len()).map(|place| if place == control { Fraction::ONE } else { Fraction::ZERO });
        self.reshare(running, all.collect(), &why)?;
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

    fn outcome(&self, closed: &Closed) -> Outcome {
        let s = |ns: u64| ns as f64 * 1e-9;
        let reached =
            |place: usize| Some(closed.reached_us[place]).filter(|us| *us > 0).map(|us| f64::from(us) * 1e-6);
        let duration_s = s(closed.closed_ns.saturating_sub(closed.opened_ns));
        let controller = closed.controller();
        let arm = self.arms.all().get(usize::from(closed.arm));
        let given = arm.and_then(|arm| arm.controller.as_deref());
        Outcome {
            arm: closed.arm,
            generation: closed.generation,
            cookie: closed.cookie,
            opened_unix_s: self.clocks.zero_unix_s + s(closed.opened_ns),
            duration_s,
            local: closed.local.into(),
            remote: closed.remote.into(),
            active: closed.active != 0,
            // Acknowledged bytes without SYN and FIN, which count as one byte each.
            delivered_bytes: closed.bytes_acked.min(closed.bytes_sent.saturating_sub(closed.bytes_retrans)),
            received_bytes: closed.bytes_received,
            sent_bytes: closed.bytes_sent,
            resent_bytes: closed.bytes_retrans,
            segments: closed.data_segs_out.into(),
            resent_segments: closed.total_retrans.into(),
            // The resolution is one jiffy: less than one counts as half of one, but not as more than the
            // duration.
            busy_s: (f64::from(closed.busy_ticks).max(0.5) / self.clocks.ticks).min(duration_s),
            rtt_ms: (closed.rtt_samples > 0)
                .then(|| closed.rtt_sum_us as f64 / f64::from(closed.rtt_samples) * 1e-3),
            min_rtt_ms: (closed.min_rtt_us != u32::MAX).then(|| f64::from(closed.min_rtt_us) * 1e-3),
            deliver_100kb_s: reached(0),
            deliver_1mb_s: reached(1),
            deliver_10mb_s: reached(2),
            chose: given.is_some_and(|given| given != controller).then_some(controller),
            failed: closed.failed != 0,
        }
    }
}

/// The counts as the file has them.
pub fn counts(raw: &Raw, arms: usize) -> Counts {
    let per_arm = |all: &[u64]| all[..arms.min(all.len())].to_vec();
    Counts {
        unix_s: unix_s(),
        opened: per_arm(&raw.opened),
        closed: per_arm(&raw.closed),
        acked_bytes: per_arm(&raw.bytes_acked),
        resent_bytes: per_arm(&raw.bytes_retrans),
        resent_segments: per_arm(&raw.total_retrans),
        refused: per_arm(&raw.refused),
        program_chose: raw.program,
        route_chose: raw.route,
        outside: raw.outside,
        other_ports: raw.elsewhere,
        lapsed: raw.lapsed,
        lost: raw.lost,
    }
}
