//! Data packets per CPU-second: `cargo bench -p fullpipe-sim`. Beside it Debian's ns-2 (`ns2`), if it
//! is installed.

use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};
use fullpipe_path::LossSpec;
use fullpipe_sim::Simulation;
use fullpipe_units::{Fraction, Span};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::process::Command;

/// The best of this many runs counts: what disturbs a run only ever slows it.
const RUNS: usize = 3;

struct Case {
    name: &'static str,
    cc: &'static str,
    rate: &'static str,
    loss: &'static str,
    flows: u32,
    seconds: u64,
    /// Packets per CPU-second that shall be reached.
    target: f64,
}

const CASES: [Case; 8] = [
    Case { name: "100 Mbit/s", cc: "cubic", rate: "100mbit", loss: "0%", flows: 1, seconds: 60, target: 5e6 },
    Case { name: "100 Mbit/s", cc: "bbr", rate: "100mbit", loss: "0%", flows: 1, seconds: 60, target: 5e6 },
    Case {
        name: "100 Mbit/s, 1 % loss",
        cc: "bbr",
        rate: "100mbit",
        loss: "1%",
        flows: 1,
        seconds: 60,
        target: 2.5e6,
    },
    Case {
        name: "100 Mbit/s, 1 % loss",
        cc: "cubic",
        rate: "100mbit",
        loss: "1%",
        flows: 1,
        seconds: 600,
        target: 2.5e6,
    },
    Case { name: "1 Gbit/s", cc: "cubic", rate: "1gbit", loss: "0%", flows: 1, seconds: 30, target: 3e6 },
    Case { name: "1 Gbit/s", cc: "bbr", rate: "1gbit", loss: "0%", flows: 1, seconds: 30, target: 3e6 },
    Case {
        name: "1 Gbit/s, 1000 flows",
        cc: "cubic",
        rate: "1gbit",
        loss: "0%",
        flows: 1000,
        seconds: 20,
        target: 2e6,
    },
    Case {
        name: "1 Gbit/s, 1000 flows",
        cc: "bbr",
        rate: "1gbit",
        loss: "0%",
        flows: 1000,
        seconds: 20,
        target: 2e6,
    },
];

fn cpu_seconds(who: UsageWho) -> f64 {
    getrusage(who).map_or(f64::NAN, |u| (u.user_time() + u.system_time()).num_microseconds() as f64 / 1e6)
}

/// Most memory that this process ever had, in MB. (`ru_maxrss` counts what ran before `exec`.)
fn peak_memory_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn scenario(case: &Case) -> Result<Scenario, Box<dyn std::error::Error>> {
    let mut path = PathSpec::bottleneck(case.rate.parse()?, "100ms".parse()?, "1bdp".parse()?);
    let loss: Fraction = case.loss.parse()?;
    path.forward[0].loss = Some(LossSpec::from(loss));
    let mut scenario = Scenario::new(path, vec![FlowSpec { count: case.flows, ..FlowSpec::bulk(case.cc) }]);
    scenario.duration = Span::from_secs(case.seconds);
    Ok(scenario)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("data packets per CPU-second, RTT 100 ms, buffer 1 BDP");
    println!(
        "{:<24} {:<6} {:>10} {:>12} {:>10} {:>10}",
        "path", "cc", "packets", "million/s", "target", "peak RSS"
    );
    for case in &CASES {
        let scenario = scenario(case)?;
        let (mut packets, mut best) = (0, f64::INFINITY);
        for _ in 0..RUNS {
            let before = cpu_seconds(UsageWho::RUSAGE_SELF);
            packets = Simulation::new(&scenario, 1).run()?.summary.packets_sent;
            best = best.min(cpu_seconds(UsageWho::RUSAGE_SELF) - before);
        }
        let memory = peak_memory_mb();
        let rate = packets as f64 / best;
        println!(
            "{:<24} {:<6} {:>10} {:>12.2} {:>10.1} {:>7} MB",
            case.name,
            case.cc,
            packets,
            rate / 1e6,
            case.target / 1e6,
            memory
        );
    }
    reference("100 Mbit/s", "100Mb", "833");
    reference("1 Gbit/s", "1000Mb", "8333");
    Ok(())
}

/// ns-2 with CUBIC for 60 s.
fn reference(name: &str, rate: &str, queue: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/reference.tcl");
    let before = cpu_seconds(UsageWho::RUSAGE_CHILDREN);
    let output = Command::new("ns").args([script, rate, queue]).output();
    let spent = cpu_seconds(UsageWho::RUSAGE_CHILDREN) - before;
    let packets = output
        .ok()
        .and_then(|o| String::from_utf8_lossy(&o.stdout).lines().find_map(|l| l.trim().parse::<f64>().ok()));
    match packets {
        Some(n) => println!("{name:<24} {:<6} {n:>10} {:>12.2}", "ns-2", n / spent / 1e6),
        None => println!("{name:<24} ns-2   not measured: `ns` (Debian package ns2) is missing or failed"),
    }
}
