//! A split from its beginning to its end, between the kernel and the file.

use fullpipe_ebpf::Error;
use fullpipe_ebpf::split::{CgroupState, Closed, Counts as Raw, SplitProgram, Table};
use fullpipe_kernel::facts::{self, CpuTimes};
use fullpipe_split::{
    Arms, Assigner, By, Counts, Crossed, Ledger, Line, Outcome, Period, Plan, Writer, cuts, pick,
};
use fullpipe_units::Fraction;
use nix::time::{ClockId, clock_gettime};
use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Why a split ended before its time.
#[derive(Debug)]
pub enum Trouble {
    /// The kernel refused.
    Kernel(Error),
    /// The file could not be written.
    File(io::Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Kernel(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::File(error)
    }
}

/// The owner's side of a split.
pub struct Session<W: Write> {
    arms: Arms,
    shares: Vec<Fraction>,
    generation: u64,
    period: Option<u64>,
    /// What the machine had done when the wash-out of the period was over; none where the period is not measured to its end.
    mark: Option<Mark>,
    /// The period that is not measured because its arm changed while it went on.
    spoiled: Option<u64>,
    assigner: Assigner,
    ledger: Ledger,
    writer: Writer<W>,
    clocks: Clocks,
    crossed: Option<String>,
    /// The control group has gone and nobody has made another.
    is_gone: bool,
    plan: Plan,
}

/// How often the lease is renewed and the file handed on.
const BEAT: Duration = Duration::from_secs(1);
/// How long connections are assigned though the owner does nothing: long enough for a machine that is busy.
pub const LEASE: Duration = Duration::from_secs(15);
/// How often the guard judges and what was counted is written.
const LOOK: Duration = Duration::from_secs(5);

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The beginning of what is measured of a period.
#[derive(Clone, Copy)]
struct Mark {
    number: u64,
    arm: usize,
    unix_s: f64,
    processors: CpuTimes,
    acked_bytes: u64,
}

/// Bytes acknowledged to connections that closed, of all arms.
fn acked(counts: &Raw) -> u64 {
    counts.bytes_acked.iter().fold(0, |sum, n| sum.saturating_add(*n))
}

/// What turns the kernel's times into those of a file.
struct Clocks {
    /// The wall clock at the monotonic clock's zero, s.
    zero_unix_s: f64,
    /// Jiffies a second.
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
            mark: None,
            spoiled: None,
            assigner: Assigner::new(plan.seed, plan.by),
            ledger: Ledger::new(&plan),
            writer,
            clocks: Clocks::now(),
            crossed: None,
            is_gone: false,
            plan,
        }
    }

    /// The shares as the program has them at a moment.
    pub fn table(&mut self, unix_s: f64) -> Table {
        let mut cuts = cuts(&self.shares);
        if let Some((number, _)) = self.plan.period(unix_s) {
            self.period = Some(number);
            let turn = self.turn(number);
            // All hashes are that arm's; none where the period is outside the experiment.
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

    /// The arm that has a period; none where it is outside the experiment.
    fn turn(&self, period: u64) -> Option<usize> {
        pick(&cuts(&self.shares), self.assigner.hash_of_period(period))
    }

    /// Runs until it is asked to end, or for a time. Gives why the guard stopped it, if it did.
    pub fn run(
        &mut self,
        running: &SplitProgram,
        most: Option<Duration>,
        asked: &dyn Fn() -> bool,
    ) -> Result<Option<String>, Trouble> {
        let began = Instant::now();
        let (mut beat, mut look) = (began, began);
        let mut why = None;
        running.collect(|closed| -> Result<bool, Trouble> {
            for one in closed.drain(..) {
                let outcome = self.outcome(&one);
                self.writer.write(&Line::Connection(outcome.clone()))?;
                self.ledger.add(&outcome);
            }
            if why.is_some() {
                return Ok(false);
            }
            if beat.elapsed() >= BEAT {
                beat = Instant::now();
                self.clocks = Clocks::now();
                running.renew(LEASE)?;
                self.follow(running)?;
                self.writer.flush()?;
            }
            if let Some(shares) = running.requested_shares()? {
                self.change(running, &shares)?;
            }
            if look.elapsed() >= LOOK {
                look = Instant::now();
                self.count(running)?;
                self.judge(running)?;
            }
            if let By::Time { .. } = self.plan.by {
                let now = unix_s();
                if self.plan.period(now).map(|(number, _)| number) != self.period {
                    self.measured(running)?;
                    let table = self.table(now);
                    running.set_shares(&table)?;
                }
                self.measure(running, now)?;
            }
            if asked() {
                why = Some("asked to end");
            } else if most.is_some_and(|most| began.elapsed() >= most) {
                why = Some("its time is over");
            }
            Ok(why.is_none())
        })?;
        self.count(running)?;
        let why = why.unwrap_or("ended").to_owned();
        self.writer.write(&Line::End { unix_s: unix_s(), why })?;
        self.writer.flush()?;
        Ok(self.crossed.take())
    }

    /// Begins to measure a period once its wash-out is over.
    fn measure(&mut self, running: &SplitProgram, now: f64) -> Result<(), Trouble> {
        let Some((number, false)) = self.plan.period(now) else { return Ok(()) };
        if self.mark.is_some() || self.spoiled == Some(number) {
            return Ok(());
        }
        let Some(arm) = self.turn(number) else { return Ok(()) };
        let (processors, acked_bytes) = (CpuTimes::now()?, acked(&running.counts()?));
        self.mark = Some(Mark { number, arm, unix_s: unix_s(), processors, acked_bytes });
        Ok(())
    }

    /// Tells what the machine did in the period that is over.
    fn measured(&mut self, running: &SplitProgram) -> Result<(), Trouble> {
        let Some(mark) = self.mark.take() else { return Ok(()) };
        // Together, so that a machine that stands still in between is no work.
        let (processors, now) = (CpuTimes::now()?, unix_s());
        let period = Period {
            number: mark.number,
            arm: mark.arm as u8,
            unix_s: now,
            duration_s: (now - mark.unix_s).max(0.0),
            processor_s: processors.busy_since(&mark.processors).as_secs_f64(),
            acked_bytes: acked(&running.counts()?).saturating_sub(mark.acked_bytes),
        };
        self.ledger.add_period(&period);
        Ok(self.writer.write(&Line::Period(period))?)
    }

    /// Stays with a unit that is restarted, and says so.
    fn follow(&mut self, running: &SplitProgram) -> Result<(), Trouble> {
        let group = &self.plan.cgroup;
        match running.reattach()? {
            CgroupState::Same => {}
            CgroupState::Replaced => {
                eprintln!(
                    "the control group {group} is another one now: its new connections are divided, too"
                );
                self.is_gone = false;
            }
            CgroupState::Gone if !self.is_gone => {
                eprintln!(
                    "the control group {group} is gone: the split waits until there is one of that name"
                );
                self.is_gone = true;
            }
            CgroupState::Gone => {}
        }
        Ok(())
    }

    /// Somebody asked for other shares.
    fn change(&mut self, running: &SplitProgram, billionths: &[u32]) -> Result<(), Trouble> {
        let shares: Vec<Fraction> = billionths
            .iter()
            .take(self.shares.len())
            .map(|billionths| Fraction::from_billionths(*billionths))
            .collect();
        if self.crossed.is_some() {
            eprintln!("other shares were asked for, but the guard has stopped this split");
            return Ok(());
        }
        self.reshare(running, shares, "asked for by fullpipe split change")
    }

    fn reshare(&mut self, running: &SplitProgram, shares: Vec<Fraction>, why: &str) -> Result<(), Trouble> {
        let now = unix_s();
        self.generation += 1;
        self.mark = None;
        self.spoiled = self.plan.period(now).map(|(number, _)| number);
        self.shares.clone_from(&shares);
        let table = self.table(now);
        running.set_shares(&table)?;
        self.ledger.reshare(self.generation, &shares);
        let told: Vec<String> = self
            .arms
            .all()
            .iter()
            .zip(&shares)
            .map(|(arm, share)| format!("{} {share}", arm.label))
            .collect();
        eprintln!("shares are now {}: {why}", told.join(", "));
        let line = Line::Shares { generation: self.generation, shares, unix_s: now, why: why.to_owned() };
        self.writer.write(&line)?;
        Ok(self.writer.flush()?)
    }

    fn count(&mut self, running: &SplitProgram) -> Result<(), Trouble> {
        let counts = counts(&running.counts()?, self.arms.all().len());
        Ok(self.writer.write(&Line::Counts(counts))?)
    }

    /// Moves new connections to the control, the first time that an arm is worse than a bound allows.
    fn judge(&mut self, running: &SplitProgram) -> Result<(), Trouble> {
        if self.crossed.is_some() {
            return Ok(());
        }
        let Some(crossed) = self.plan.guard.judge(&self.ledger) else { return Ok(()) };
        let why = self.words(&crossed);
        let control = self.plan.control_place();
        let all =
            (0..self.shares.len()).map(|place| if place == control { Fraction::ONE } else { Fraction::ZERO });
        self.reshare(running, all.collect(), &why)?;
        self.crossed = Some(why);
        Ok(())
    }

    fn words(&self, crossed: &Crossed) -> String {
        let metric = crossed.bound.metric;
        let difference = |value| metric.comparison().difference(value);
        format!(
            "the guard {} is crossed: {} has {} against {} of {}, a difference of {} ({} … {})",
            crossed.bound,
            self.arms.all()[crossed.arm].label,
            metric.level(crossed.contrast.arm),
            metric.level(crossed.contrast.control),
            self.plan.control,
            difference(crossed.contrast.difference),
            difference(crossed.contrast.low),
            difference(crossed.contrast.high),
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
            // What was acknowledged, without SYN and FIN, which count for a byte each.
            delivered_bytes: closed.bytes_acked.min(closed.bytes_sent.saturating_sub(closed.bytes_retrans)),
            received_bytes: closed.bytes_received,
            sent_bytes: closed.bytes_sent,
            resent_bytes: closed.bytes_retrans,
            segments: closed.data_segs_out.into(),
            resent_segments: closed.total_retrans.into(),
            // A jiffy is the finest that there is: less than one is half of one, and no more than it lasted.
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

/// The counts of a file.
pub fn counts(raw: &Raw, arms: usize) -> Counts {
    let of = |all: &[u64]| all[..arms.min(all.len())].to_vec();
    Counts {
        unix_s: unix_s(),
        opened: of(&raw.opened),
        closed: of(&raw.closed),
        acked_bytes: of(&raw.bytes_acked),
        resent_bytes: of(&raw.bytes_retrans),
        resent_segments: of(&raw.total_retrans),
        refused: of(&raw.refused),
        program_chose: raw.program,
        route_chose: raw.route,
        outside: raw.outside,
        other_ports: raw.elsewhere,
        lapsed: raw.lapsed,
        lost: raw.lost,
    }
}
