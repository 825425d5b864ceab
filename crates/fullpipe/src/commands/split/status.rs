//! `split status`, `split change`, `split stop`: the running splits, read from the kernel.

use super::kernel::counts;
use super::start::{forget_ended_here, process};
use super::{failure, usage};
use crate::failure::Failure;
use crate::print::{Document, print_json};
use fullpipe_ebpf::split::{AttachedSplit, list_attached};
use fullpipe_host::host::{Machine, Process};
use fullpipe_split::{Arm, Arms, Counts};
use fullpipe_units::Fraction;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(clap::Args)]
pub struct StatusArgs {
    /// Print the status as JSON
    #[arg(long)]
    json: bool,
    /// Refresh every two seconds
    #[arg(long, conflicts_with = "json")]
    watch: bool,
}

#[derive(clap::Args)]
pub struct ChangeArgs {
    /// New shares of arms: `bbr=10%`; arms not named keep theirs
    #[arg(required = true, value_name = "ARM=SHARE", value_delimiter = ',')]
    shares: Vec<String>,
    /// Process ID of the `split start` to act on, as `split status` shows it; needed if several
    /// splits run
    #[arg(long, value_name = "PID")]
    owner: Option<u32>,
}

#[derive(clap::Args)]
pub struct StopArgs {
    /// Process ID of the `split start` to act on, as `split status` shows it; needed if several
    /// splits run
    #[arg(long, value_name = "PID")]
    owner: Option<u32>,
}

/// The status of a running split.
#[derive(serde::Serialize)]
pub struct Status {
    #[serde(skip)]
    process: Process,
    /// Process ID of the owner in its PID namespace.
    owner: u32,
    /// Inode of the owner's PID namespace; 0 if unknown.
    pid_namespace: u64,
    seed: u64,
    began_unix_s: f64,
    /// Inode of the control group's directory; 0 while it does not exist, since its unit does not
    /// run.
    cgroup: u64,
    file: String,
    arms: Vec<ArmShare>,
    /// Incremented with each change of the shares.
    generation: u64,
    /// Time until the assignment ends without a heartbeat of the owner, in seconds.
    pub lease_s: f64,
    counts: Counts,
}

#[derive(serde::Serialize)]
struct ArmShare {
    label: String,
    share: Fraction,
}

fn read(split: &AttachedSplit) -> Result<Status, Failure> {
    let table = split.table().map_err(failure)?;
    let owner = split.about.owner();
    let labels = split.about.labels();
    let counts = counts(&split.counts().map_err(failure)?, labels.len());
    let mut before = 0;
    let arms = labels
        .into_iter()
        .zip(table.cut)
        .map(|(label, cut)| {
            let part = u128::from(cut.saturating_sub(before)) * 1_000_000_000;
            before = before.max(cut);
            // Rounded to the nearest: the cuts were rounded down.
            let share = Fraction::from_billionths(((part + (1 << 31)) >> 32) as u32);
            ArmShare { label, share }
        })
        .collect();
    Ok(Status {
        process: process(owner),
        owner: owner.id,
        pid_namespace: owner.pid_namespace,
        seed: split.about.seed(),
        began_unix_s: split.about.began_unix_ns() as f64 * 1e-9,
        cgroup: split.cgroup,
        file: split.about.out(),
        arms,
        generation: table.generation,
        lease_s: split.lease().map_err(failure)?.as_secs_f64(),
        counts,
    })
}

impl StatusArgs {
    pub fn run(self) -> Result<(), Failure> {
        loop {
            let all: Vec<Status> =
                list_attached().map_err(failure)?.iter().map(read).collect::<Result<_, _>>()?;
            if self.json {
                let value = serde_json::json!({ "splits": all });
                return print_json(&Document { schema: "fullpipe/split-status/1", value: &value });
            }
            if self.watch {
                print!("\x1b[2J\x1b[H");
            }
            if all.is_empty() {
                println!("no split is running");
            }
            all.iter().for_each(show);
            if !self.watch {
                return Ok(());
            }
            std::thread::sleep(Duration::from_secs(2));
        }
    }
}

fn show(split: &Status) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    println!(
        "split of {}, running for {:.0} s, seed {}, control group {}; writing {}",
        owner_text(split.process),
        (now - split.began_unix_s).max(0.0),
        split.seed,
        split.cgroup,
        split.file
    );
    if split.cgroup == 0 {
        println!(
            "  it is attached to no control group: the group is gone, or its link was detached; the owner \
             attaches it again as soon as the group exists"
        );
    }
    if split.lease_s == 0.0 {
        println!("  its owner does not respond: new connections get their previous controller");
    }
    println!(
        "  {:<16} {:>8} {:>11} {:>11} {:>11} {:>14} {:>10}",
        "arm", "share", "opened", "open", "closed", "bytes acked", "retr segs"
    );
    let c = &split.counts;
    for (place, arm) in split.arms.iter().enumerate() {
        println!(
            "  {:<16} {:>8} {:>11} {:>11} {:>11} {:>14} {:>10}",
            arm.label,
            arm.share.to_string(),
            c.opened[place],
            c.opened[place].saturating_sub(c.closed[place]),
            c.closed[place],
            c.acked_bytes[place],
            c.resent_segments[place]
        );
    }
    println!(
        "  not assigned: controller set by program {}, by route {}; outside {}, other ports {}; refused \
         {}, lease expired {}; records dropped {}",
        c.program_chose,
        c.route_chose,
        c.outside,
        c.other_ports,
        c.refused.iter().sum::<u64>(),
        c.lapsed,
        c.lost
    );
}

/// Whether an owner's ID is one of this PID namespace.
fn is_local(owner: Process) -> bool {
    owner.is_in_own_namespace(&Machine::new())
}

/// Names an owner.
fn owner_text(owner: Process) -> String {
    let place = if is_local(owner) { "" } else { " in another PID namespace" };
    format!("process {}{place}", owner.id)
}

/// Selects the split of an owner, or the only one. Of owners with the same ID in different PID
/// namespaces, it selects the one in this namespace.
fn select(owner: Option<u32>) -> Result<AttachedSplit, Failure> {
    let mut all = list_attached().map_err(failure)?;
    if let Some(owner) = owner {
        let is_own = |split: &AttachedSplit| is_local(process(split.about.owner()));
        all.retain(|split| split.about.owner().id == owner);
        if all.iter().any(is_own) {
            all.retain(is_own);
        }
    }
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(Failure::Impossible("no split is running".to_owned())),
        (Some(_), false) => Err(Failure::usage(
            "several splits are running: select one with --owner PID; `fullpipe split status` lists them",
        )),
    }
}

impl ChangeArgs {
    pub fn run(self) -> Result<(), Failure> {
        let split = select(self.owner)?;
        let before = read(&split)?;
        let arm = |arm: &ArmShare| Arm { label: arm.label.clone(), controller: None, share: arm.share };
        let arms: Vec<Arm> = before.arms.iter().map(arm).collect();
        let arms = Arms::try_from(arms).and_then(|arms| arms.with_shares(&self.shares)).map_err(usage)?;
        let shares: Vec<u32> = arms.shares().iter().map(|share| share.as_billionths()).collect();
        split.request_shares(&shares).map_err(failure)?;
        let began = Instant::now();
        while split.table().map_err(failure)?.generation == before.generation {
            if !list_attached().map_err(failure)?.iter().any(|other| other.program == split.program) {
                return Err(Failure::Check(format!(
                    "the split of {} ended meanwhile: new connections get their previous controller",
                    owner_text(before.process)
                )));
            }
            if began.elapsed() > Duration::from_secs(5) {
                return Err(Failure::Impossible(format!(
                    "the owner, {}, does not change the shares: its guard has stopped the split, or it hangs",
                    owner_text(before.process)
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("shares of new connections changed");
        Ok(())
    }
}

impl StopArgs {
    pub fn run(self) -> Result<(), Failure> {
        let stopped = select(self.owner).and_then(stop);
        // Also those of containers that were killed, whether one was stopped or none runs.
        let forgotten = forget_ended_here();
        stopped?;
        println!("split stopped: new connections get their previous controller");
        forgotten
    }
}

/// Requests the end of a split, and waits for it.
fn stop(split: AttachedSplit) -> Result<(), Failure> {
    let (program, owner) = (split.program, process(split.about.owner()));
    let began = Instant::now();
    // Not the selected one, whose maps would keep those of a program that has ended.
    drop(split);
    while let Some(split) = list_attached().map_err(failure)?.iter().find(|one| one.program == program) {
        // Again only if `split change` overwrote it at the same moment.
        split.request_end().map_err(failure)?;
        if began.elapsed() > Duration::from_secs(10) {
            return Err(Failure::Impossible(does_not_end(owner)));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Names an owner that hangs, and how to end it.
fn does_not_end(owner: Process) -> String {
    let help = match is_local(owner) {
        true => format!("`kill -9 {}` ends it", owner.id),
        false => "kill it in its container".to_owned(),
    };
    format!(
        "the split's owner, {}, does not respond: {help}; its split assigns no connection once its lease has \
         expired",
        owner_text(owner)
    )
}

/// The running splits, for commands that show the host; empty if they cannot be read.
pub fn all() -> Vec<Status> {
    list_attached().unwrap_or_default().iter().filter_map(|split| read(split).ok()).collect()
}

/// One line per running split.
pub fn summaries() -> Vec<String> {
    let line = |split: Status| {
        let arms: Vec<String> = split.arms.iter().map(|arm| format!("{} {}", arm.label, arm.share)).collect();
        format!(
            "a split of {} assigns controllers to new connections: {}",
            owner_text(split.process),
            arms.join(", ")
        )
    };
    all().into_iter().map(line).collect()
}
