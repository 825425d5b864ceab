//! Processor time: of this process, and of the whole machine.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::{SysconfVar, sysconf};
use std::time::{Duration, Instant};

/// Of the whole machine's time, what may go to anything else before a measurement is called
/// disturbed.
const QUIET: f64 = 0.05;

/// The clocks at one moment, in seconds; the machine's are of all processors together.
pub struct Moment {
    at: Instant,
    own: f64,
    own_user: f64,
    idle: f64,
    user: f64,
}

/// What passed between two moments, in seconds.
pub struct Spent {
    /// On the wall.
    pub wall: f64,
    /// Charged to this process.
    pub own: f64,
    /// Not idle, on all processors, regardless of the process charged.
    pub busy: f64,
    /// Whether other programs ran: they show by their time in user mode, of which we have next to
    /// none.
    pub disturbed: bool,
}

impl Moment {
    pub fn now() -> Self {
        let (own_user, own_system) = own_seconds();
        let (user, idle) = machine_seconds();
        Moment { at: Instant::now(), own: own_user + own_system, own_user, idle, user }
    }

    pub fn spent(&self) -> Spent {
        let now = Moment::now();
        let wall = (now.at - self.at).as_secs_f64();
        let all = wall * processors();
        let others = (now.user - self.user) - (now.own_user - self.own_user);
        Spent {
            wall,
            own: now.own - self.own,
            busy: (all - (now.idle - self.idle)).max(0.0),
            disturbed: others > QUIET * all,
        }
    }
}

/// Waits until the machine has nothing to do, but not longer than `limit`.
pub fn wait_until_quiet(limit: Duration) {
    let started = Instant::now();
    while started.elapsed() < limit {
        let before = Moment::now();
        std::thread::sleep(Duration::from_millis(200));
        let spent = before.spent();
        if spent.busy < QUIET * spent.wall * processors() {
            return;
        }
    }
}

fn processors() -> f64 {
    configured(SysconfVar::_NPROCESSORS_ONLN)
}

/// A number that the system has.
fn configured(what: SysconfVar) -> f64 {
    sysconf(what).unwrap().unwrap() as f64
}

/// This process's seconds in user mode and in the kernel.
fn own_seconds() -> (f64, f64) {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6;
    (seconds(usage.user_time()), seconds(usage.system_time()))
}

/// All processors' seconds in user mode (what the hypervisor took is counted there too), and idle
/// ones. The idle clock stands while an interrupt is served: timers and packets handled on an idle
/// processor are not idle time.
fn machine_seconds() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    let fields: Vec<u64> =
        text.lines().next().unwrap().split_whitespace().skip(1).map(|field| field.parse().unwrap()).collect();
    let ticks = configured(SysconfVar::CLK_TCK);
    // user nice system idle iowait irq softirq steal
    ((fields[0] + fields[1] + fields[7]) as f64 / ticks, (fields[3] + fields[4]) as f64 / ticks)
}
