//! The kernel side of a split: its BPF program and the machine's clocks.

use fullpipe_ebpf::Error;
use fullpipe_ebpf::split::{self, CgroupState, Closed, Counts as Raw, SplitProgram, Table};
use fullpipe_kernel::facts::{self, CpuTimes};
use fullpipe_split::Counts;
use fullpipe_split::session::{
    Clocks, ClosedConnection, GroupState, Request, SessionError, ShareTable, SplitKernel,
};
use fullpipe_units::{Fraction, Span};
use nix::time::{ClockId, clock_gettime};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The running program.
pub struct Program(pub SplitProgram);

/// Carries an error of a session through [`SplitProgram::collect`].
struct Stop(SessionError<Error>);

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop(SessionError::Kernel(error))
    }
}

impl SplitKernel for Program {
    type Error = Error;
    type CpuTimes = CpuTimes;

    fn collect(
        &self,
        each: &mut dyn FnMut(Vec<ClosedConnection>) -> Result<bool, SessionError<Error>>,
    ) -> Result<(), SessionError<Error>> {
        self.0
            .collect(|closed| each(closed.drain(..).map(connection).collect()).map_err(Stop))
            .map_err(|Stop(e)| e)
    }

    fn renew(&self, lease: Duration) -> Result<(), Error> {
        self.0.renew(lease)
    }

    fn reattach(&self) -> Result<GroupState, Error> {
        self.0.reattach().map(|state| match state {
            CgroupState::Same => GroupState::Same,
            CgroupState::Replaced => GroupState::Replaced,
            CgroupState::Gone => GroupState::Gone,
            CgroupState::Detached => GroupState::Detached,
        })
    }

    fn request(&self) -> Result<Option<Request>, Error> {
        let request = |request| match request {
            split::Request::Shares(all) => {
                Request::Shares(all.into_iter().map(Fraction::from_billionths).collect())
            }
            split::Request::End => Request::End,
        };
        Ok(self.0.request()?.map(request))
    }

    fn set_shares(&self, shares: &ShareTable) -> Result<(), Error> {
        self.0.set_shares(&table(shares))
    }

    fn counts(&self, arms: usize) -> Result<Counts, Error> {
        self.0.counts().map(|raw| counts(&raw, arms))
    }

    fn clocks(&self) -> Clocks {
        let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        Clocks {
            zero_unix_s: unix_s() - monotonic.as_secs_f64(),
            ticks_per_s: f64::from(facts::tick_rate().unwrap_or(250)),
        }
    }

    fn cpu_times(&self) -> io::Result<CpuTimes> {
        CpuTimes::now()
    }

    fn busy_between(&self, start: &CpuTimes, end: &CpuTimes) -> Span {
        end.busy_since(start)
    }
}

/// The shares in the program's form.
pub fn table(shares: &ShareTable) -> Table {
    let arms: Vec<_> = shares.arms.iter().map(|(cut, controller)| (*cut, controller.as_deref())).collect();
    Table::new(shares.generation, &arms)
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn connection(closed: Closed) -> ClosedConnection {
    ClosedConnection {
        cookie: closed.cookie,
        arm: closed.arm,
        generation: closed.generation,
        opened_ns: closed.opened_ns,
        closed_ns: closed.closed_ns,
        local: closed.local.into(),
        remote: closed.remote.into(),
        active: closed.active != 0,
        failed: closed.failed != 0,
        controller: closed.controller(),
        bytes_acked: closed.bytes_acked,
        bytes_received: closed.bytes_received,
        bytes_sent: closed.bytes_sent,
        bytes_retrans: closed.bytes_retrans,
        data_segs_out: closed.data_segs_out,
        total_retrans: closed.total_retrans,
        rtt_sum_us: closed.rtt_sum_us,
        rtt_samples: closed.rtt_samples,
        min_rtt_us: closed.min_rtt_us,
        busy_ticks: closed.busy_ticks,
        reached_us: closed.reached_us,
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
        unwritten: 0,
    }
}
