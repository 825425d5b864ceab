//! `split status`, `split change`, `split stop`: splits that run, as the kernel knows them.

use super::session::counts;
use super::{failure, usage};
use crate::failure::Failure;
use crate::print::{Document, print_json};
use fullpipe_ebpf::split::{AttachedSplit, list_attached};
use fullpipe_split::{Arm, Arms, Counts};
use fullpipe_units::Fraction;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(clap::Args)]
pub struct StatusArgs {
    /// For machines
    #[arg(long)]
    json: bool,
    /// Show it again every two seconds
    #[arg(long, conflicts_with = "json")]
    watch: bool,
}

#[derive(clap::Args)]
pub struct ChangeArgs {
    /// New shares; arms that are left out keep theirs
    #[arg(required = true, value_name = "ARM=SHARE", value_delimiter = ',')]
    shares: Vec<String>,
    /// The split of this owner, where several run
    #[arg(long, value_name = "PID")]
    owner: Option<u32>,
}

#[derive(clap::Args)]
pub struct StopArgs {
    /// The split of this owner, where several run
    #[arg(long, value_name = "PID")]
    owner: Option<u32>,
}

/// What is told of a split that runs.
#[derive(serde::Serialize)]
pub struct Told {
    owner: u32,
    seed: u64,
    began_unix_s: f64,
    /// Inode of the control group's directory; 0 while there is none, because its unit does not run.
    cgroup: u64,
    file: String,
    arms: Vec<ToldArm>,
    /// Of the shares.
    generation: u64,
    /// How long connections are still assigned if the owner does nothing.
    pub lease_s: f64,
    counts: Counts,
}

#[derive(serde::Serialize)]
struct ToldArm {
    label: String,
    share: Fraction,
}

fn told(seen: &AttachedSplit) -> Result<Told, Failure> {
    let table = seen.table().map_err(failure)?;
    let labels = seen.about.labels();
    let counts = counts(&seen.counts().map_err(failure)?, labels.len());
    let mut before = 0;
    let arms = labels
        .into_iter()
        .zip(table.cut)
        .map(|(label, cut)| {
            let part = u128::from(cut.saturating_sub(before)) * 1_000_000_000;
            before = before.max(cut);
            // To the nearest: the cuts were rounded down.
            let share = Fraction::from_billionths(((part + (1 << 31)) >> 32) as u32);
            ToldArm { label, share }
        })
        .collect();
    Ok(Told {
        owner: seen.about.owner(),
        seed: seen.about.seed(),
        began_unix_s: seen.about.began_unix_ns() as f64 * 1e-9,
        cgroup: seen.cgroup,
        file: seen.about.out(),
        arms,
        generation: table.generation,
        lease_s: seen.lease().map_err(failure)?.as_secs_f64(),
        counts,
    })
}

impl StatusArgs {
    pub fn run(self) -> Result<(), Failure> {
        loop {
            let all: Vec<Told> =
                list_attached().map_err(failure)?.iter().map(told).collect::<Result<_, _>>()?;
            if self.json {
                let value = serde_json::json!({ "splits": all });
                return print_json(&Document { schema: "fullpipe/split-status/1", value: &value });
            }
            if self.watch {
                print!("\x1b[2J\x1b[H");
            }
            if all.is_empty() {
                println!("no split runs");
            }
            all.iter().for_each(show);
            if !self.watch {
                return Ok(());
            }
            std::thread::sleep(Duration::from_secs(2));
        }
    }
}

fn show(split: &Told) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    println!(
        "split of process {}, for {:.0} s, seed {}, of control group {}; writing {}",
        split.owner,
        (now - split.began_unix_s).max(0.0),
        split.seed,
        split.cgroup,
        split.file
    );
    if split.cgroup == 0 {
        println!("  its control group is gone: it waits until its unit, or whatever made that, runs again");
    }
    if split.lease_s == 0.0 {
        println!("  its owner does not answer: new connections get what they got before");
    }
    println!(
        "  {:<16} {:>8} {:>11} {:>11} {:>11} {:>14} {:>10}",
        "arm", "share", "opened", "open", "closed", "bytes acked", "segs again"
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
        "  left alone: {} whose program chose, {} whose route did; outside {}, other ports {}; refused {}, lapsed {}, lost {}",
        c.program_chose,
        c.route_chose,
        c.outside,
        c.other_ports,
        c.refused.iter().sum::<u64>(),
        c.lapsed,
        c.lost
    );
}

/// The split that is meant.
fn one(owner: Option<u32>) -> Result<AttachedSplit, Failure> {
    let mut all = list_attached().map_err(failure)?;
    if let Some(owner) = owner {
        all.retain(|seen| seen.about.owner() == owner);
    }
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(Failure::Impossible("no split runs".to_owned())),
        (Some(_), false) => {
            Err(Failure::usage("several splits run: --owner says which; `split status` lists them"))
        }
    }
}

impl ChangeArgs {
    pub fn run(self) -> Result<(), Failure> {
        let seen = one(self.owner)?;
        let before = told(&seen)?;
        let arm = |arm: &ToldArm| Arm { label: arm.label.clone(), controller: None, share: arm.share };
        let arms: Vec<Arm> = before.arms.iter().map(arm).collect();
        let arms = Arms::try_from(arms).and_then(|arms| arms.changed(&self.shares)).map_err(usage)?;
        let shares: Vec<u32> = arms.shares().iter().map(|share| share.as_billionths()).collect();
        seen.request_shares(&shares).map_err(failure)?;
        let began = Instant::now();
        while seen.table().map_err(failure)?.generation == before.generation {
            if !list_attached().map_err(failure)?.iter().any(|seen| seen.about.owner() == before.owner) {
                return Err(Failure::Check(format!(
                    "the split of process {} ended meanwhile: new connections get what they got before",
                    before.owner
                )));
            }
            if began.elapsed() > Duration::from_secs(5) {
                return Err(Failure::Impossible(format!(
                    "the owner, process {}, does not change its shares: its guard has stopped it, or it hangs",
                    before.owner
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("the shares of new connections are changed");
        Ok(())
    }
}

impl StopArgs {
    pub fn run(self) -> Result<(), Failure> {
        let seen = one(self.owner)?;
        let owner = seen.about.owner();
        // The program is attached as long as its owner lives: nobody else has that number.
        kill(Pid::from_raw(owner as i32), Signal::SIGTERM)
            .map_err(|e| Failure::Impossible(format!("process {owner} cannot be asked to end: {e}")))?;
        drop(seen);
        let began = Instant::now();
        while list_attached().map_err(failure)?.iter().any(|seen| seen.about.owner() == owner) {
            if began.elapsed() > Duration::from_secs(10) {
                return Err(Failure::Impossible(format!(
                    "process {owner} does not end; `kill -9 {owner}` takes its split out"
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("the split is over: new connections get what they got before");
        Ok(())
    }
}

/// The splits that run, for those who ask about the host; none where they may not be looked at.
pub fn all() -> Vec<Told> {
    list_attached().unwrap_or_default().iter().filter_map(|seen| told(seen).ok()).collect()
}

/// A line for each of them.
pub fn in_short() -> Vec<String> {
    let line = |told: Told| {
        let arms: Vec<String> = told.arms.iter().map(|arm| format!("{} {}", arm.label, arm.share)).collect();
        format!(
            "a split of process {} gives new connections their controller: {}",
            told.owner,
            arms.join(", ")
        )
    };
    all().into_iter().map(line).collect()
}
