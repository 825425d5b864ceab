//! Data packets per CPU-second, memory, and what a second core brings to many runs and to one large
//! run: `cargo bench -p fullpipe-sim`, or only the lines that hold all of some words: `cargo bench -p
//! fullpipe-sim -- bbr 1000`. Beside it Debian's ns-2 (`ns2`), if it is installed.

use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};
use fullpipe_path::LossSpec;
use fullpipe_sim::{Engine, SimError, Simulation};
use fullpipe_units::{Fraction, Span};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::num::NonZeroUsize;
use std::process::Command;
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

/// The best of this many runs counts: what disturbs a run only ever slows it.
const RUNS: usize = 3;

struct Case {
    name: &'static str,
    cc: &'static str,
    rate: &'static str,
    loss: &'static str,
    flows: u32,
    seconds: u64,
    /// What shall be reached.
    target: Target,
}

enum Target {
    /// Packets per CPU-second.
    Rate(f64),
    /// Megabytes at most.
    Memory(u64),
}

const CASES: [Case; 11] = [
    case("100 Mbit/s", "cubic", "100mbit", "0%", 1, 60, Target::Rate(5e6)),
    case("100 Mbit/s", "bbr", "100mbit", "0%", 1, 60, Target::Rate(5e6)),
    case("100 Mbit/s, 1 % loss", "bbr", "100mbit", "1%", 1, 60, Target::Rate(2.5e6)),
    case("100 Mbit/s, 1 % loss", "cubic", "100mbit", "1%", 1, 600, Target::Rate(2.5e6)),
    case("1 Gbit/s", "cubic", "1gbit", "0%", 1, 30, Target::Rate(3e6)),
    case("1 Gbit/s", "bbr", "1gbit", "0%", 1, 30, Target::Rate(3e6)),
    case("1 Gbit/s, 1000 flows", "cubic", "1gbit", "0%", 1000, 20, Target::Rate(2e6)),
    case("1 Gbit/s, 1000 flows", "bbr", "1gbit", "0%", 1000, 20, Target::Rate(2e6)),
    case("10 Gbit/s, 5000 flows", "cubic", "10gbit", "0%", 5000, 5, Target::Rate(1.5e6)),
    case("10 Gbit/s, 5000 flows", "bbr", "10gbit", "0%", 5000, 5, Target::Rate(1.5e6)),
    case("10 Gbit/s, 100000 flows", "bbr", "10gbit", "0%", 100_000, 2, Target::Memory(600)),
];

const fn case(
    name: &'static str,
    cc: &'static str,
    rate: &'static str,
    loss: &'static str,
    flows: u32,
    seconds: u64,
    target: Target,
) -> Case {
    Case { name, cc, rate, loss, flows, seconds, target }
}

/// Runs of one batch, and how much faster two threads shall be done with it than one.
const BATCH: u64 = 1000;
const TWO_THREADS: f64 = 1.9;

/// What one run brings that differs from another: a number of threads, or an engine.
struct Comparison {
    name: &'static str,
    cc: &'static str,
    rate: &'static str,
    flows: u32,
    seconds: u64,
    /// The engine and the number of threads before and after.
    sides: [(Engine, usize); 2],
    /// The largest ratio that shall be reached, of wall-clock time if the second side has more
    /// threads, else of CPU time.
    target: f64,
}

const COMPARISONS: [Comparison; 7] = [
    threads("10 Gbit/s, 5000 flows", "cubic", "10gbit", 5000, 5, 0.55),
    threads("10 Gbit/s, 5000 flows", "bbr", "10gbit", 5000, 5, 0.55),
    threads("1 Gbit/s, 1000 flows", "cubic", "1gbit", 1000, 20, 0.55),
    threads("1 Gbit/s, 1000 flows", "bbr", "1gbit", 1000, 20, 0.55),
    engines("1 Gbit/s, 1000 flows", "cubic", "1gbit", 1000, 20, 0.72),
    engines("1 Gbit/s, 1000 flows", "bbr", "1gbit", 1000, 20, 0.72),
    engines("1 Gbit/s, 100 flows", "bbr", "1gbit", 100, 20, 1.0),
];

const fn threads(
    name: &'static str,
    cc: &'static str,
    rate: &'static str,
    flows: u32,
    seconds: u64,
    target: f64,
) -> Comparison {
    let sides = [(Engine::Windowed, 1), (Engine::Windowed, 2)];
    Comparison { name, cc, rate, flows, seconds, sides, target }
}

const fn engines(
    name: &'static str,
    cc: &'static str,
    rate: &'static str,
    flows: u32,
    seconds: u64,
    target: f64,
) -> Comparison {
    let sides = [(Engine::Sequential, 1), (Engine::Windowed, 1)];
    Comparison { name, cc, rate, flows, seconds, sides, target }
}

/// Each side of a comparison runs as often, in turns; the medians count.
const TURNS: usize = 5;

/// ns-2 for 60 s, or less with many flows: path, rate, queue in packets, flows, seconds.
const REFERENCES: [(&str, &str, u32, u32, u32); 4] = [
    ("100 Mbit/s", "100Mb", 833, 1, 60),
    ("1 Gbit/s", "1000Mb", 8333, 1, 60),
    ("1 Gbit/s, 1000 flows", "1000Mb", 8333, 1000, 20),
    ("10 Gbit/s, 5000 flows", "10000Mb", 83333, 5000, 5),
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

fn scenario(case: &Case) -> Result<Scenario, Failure> {
    let loss: Fraction = case.loss.parse()?;
    let mut scenario = flows(case.rate, case.cc, case.flows, case.seconds)?;
    scenario.path.forward[0].loss = Some(LossSpec::from(loss));
    Ok(scenario)
}

fn flows(rate: &str, cc: &str, count: u32, seconds: u64) -> Result<Scenario, Failure> {
    let path = PathSpec::bottleneck(rate.parse()?, "100ms".parse()?, "1bdp".parse()?);
    let mut scenario = Scenario::new(path, vec![FlowSpec { count, ..FlowSpec::bulk(cc) }]);
    scenario.duration = Span::from_secs(seconds);
    Ok(scenario)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, index] = &arguments[..]
        && command == ALONE
    {
        return measure(CASES.get(index.parse::<usize>()?).ok_or("there is no such case")?);
    }
    let words: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let wanted = |name: &str, cc: &str| {
        words.iter().all(|&word| cc == word || name.split([' ', ',']).any(|part| part == word))
    };

    println!("data packets per CPU-second, RTT 100 ms, buffer 1 BDP");
    println!(
        "{:<24} {:<6} {:>10} {:>12} {:>10} {:>10} {:>10}",
        "path", "cc", "packets", "million/s", "target", "peak RSS", "target"
    );
    for (i, case) in CASES.iter().enumerate().filter(|(_, case)| wanted(case.name, case.cc)) {
        let Measured { packets, seconds, memory } = measure_alone(i)?;
        let (rate, most) = match case.target {
            Target::Rate(rate) => (format!("{:.1}", rate / 1e6), "-".to_owned()),
            Target::Memory(mb) => ("-".to_owned(), format!("{mb} MB")),
        };
        println!(
            "{:<24} {:<6} {packets:>10} {:>12.2} {rate:>10} {:>10} {most:>10}",
            case.name,
            case.cc,
            packets as f64 / seconds / 1e6,
            format!("{memory} MB"),
        );
    }
    for comparison in COMPARISONS.iter().filter(|c| wanted(&format!("{} {}", c.name, c.kind()), c.cc)) {
        compare(comparison)?;
    }
    for reference in REFERENCES.iter().filter(|reference| wanted(reference.0, "ns-2")) {
        refer(reference);
    }
    if wanted("runs", "batch") {
        batch()?;
    }
    Ok(())
}

/// How this program asks itself for one case in a process of its own, whose memory nothing else has
/// used before.
const ALONE: &str = "alone";

struct Measured {
    packets: u64,
    seconds: f64,
    memory: u64,
}

fn measure_alone(case: usize) -> Result<Measured, Failure> {
    let output = Command::new(std::env::current_exe()?).args([ALONE, &case.to_string()]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let text = String::from_utf8(output.stdout)?;
    let mut parts = text.split_whitespace();
    let mut part = || parts.next().ok_or("a case says too little");
    Ok(Measured { packets: part()?.parse()?, seconds: part()?.parse()?, memory: part()?.parse()? })
}

/// Runs `case` and prints packets, CPU-seconds and memory.
fn measure(case: &Case) -> Result<(), Failure> {
    let scenario = scenario(case)?;
    let (mut packets, mut best) = (0, f64::INFINITY);
    for _ in 0..RUNS {
        let before = cpu_seconds(UsageWho::RUSAGE_SELF);
        packets = Simulation::new(&scenario, 1).run()?.summary.packets_sent;
        best = best.min(cpu_seconds(UsageWho::RUSAGE_SELF) - before);
    }
    println!("{packets} {best} {}", peak_memory_mb());
    Ok(())
}

impl Comparison {
    /// What differs.
    fn kind(&self) -> &'static str {
        if self.sides[0].0 == self.sides[1].0 { "threads" } else { "engines" }
    }
}

/// Runs both sides of `comparison` in turns, and prints the medians and their ratios.
fn compare(comparison: &Comparison) -> Result<(), Failure> {
    let Comparison { name, cc, rate, flows: count, seconds, sides, target } = comparison;
    let scenario = flows(rate, cc, *count, *seconds)?;
    let mut spent = [const { Vec::new() }; 2];
    for _ in 0..TURNS {
        for (&(engine, threads), spent) in sides.iter().zip(&mut spent) {
            let (cpu, began) = (cpu_seconds(UsageWho::RUSAGE_SELF), Instant::now());
            let threads = NonZeroUsize::new(threads).ok_or("no thread")?;
            Simulation::new(&scenario, 1).engine(engine).threads(threads).run()?;
            let wall = began.elapsed().as_secs_f64();
            spent.push((wall, cpu_seconds(UsageWho::RUSAGE_SELF) - cpu));
        }
    }
    let of = |side: usize, part: fn(&(f64, f64)) -> f64| {
        let mut all: Vec<f64> = spent[side].iter().map(part).collect();
        all.sort_by(f64::total_cmp);
        all[TURNS / 2]
    };
    let (wall, cpu) = ([of(0, |s| s.0), of(1, |s| s.0)], [of(0, |s| s.1), of(1, |s| s.1)]);
    let sides = if comparison.kind() == "threads" { "one thread, two" } else { "events, windows" };
    println!(
        "{name:<24} {cc:<6} {sides}: wall {:.2} s, {:.2} s, ratio {:.2}; CPU {:.2} s, {:.2} s, ratio {:.2}; \
         target {target}",
        wall[0],
        wall[1],
        wall[1] / wall[0],
        cpu[0],
        cpu[1],
        cpu[1] / cpu[0],
    );
    Ok(())
}

/// Many runs on one thread and on two, in turns; the best of each counts. It is the processor time
/// of the busier thread that is taken, so that what else runs here does not count as time that the
/// batch needs.
fn batch() -> Result<(), Failure> {
    let path = PathSpec::bottleneck("10mbit".parse()?, "40ms".parse()?, "1bdp".parse()?);
    let mut scenario = Scenario::new(path, vec![FlowSpec::bulk("bbr")]);
    scenario.duration = Span::from_secs(5);
    let mut best = [f64::INFINITY; 2];
    for _ in 0..RUNS {
        for (threads, best) in (1..).zip(&mut best) {
            *best = best.min(run_all(&scenario, threads)?);
        }
    }
    let [one, two] = best;
    println!(
        "{:<24} {one:.2} CPU-s on one thread, {two:.2} on each of two: {:.2} times as fast, target \
         {TWO_THREADS}",
        format!("batch of {BATCH} runs"),
        one / two
    );
    Ok(())
}

/// The CPU-seconds that the busiest of `threads` threads spends on its share of a batch.
fn run_all(scenario: &Scenario, threads: usize) -> Result<f64, Failure> {
    let share = |first: usize| -> Result<f64, SimError> {
        for seed in (0..BATCH).skip(first).step_by(threads) {
            Simulation::new(scenario, seed).run()?;
        }
        Ok(cpu_seconds(UsageWho::RUSAGE_THREAD))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|first| scope.spawn(move || share(first))).collect();
        threads.into_iter().try_fold(0.0, |longest, thread| match thread.join() {
            Ok(spent) => Ok(f64::max(longest, spent?)),
            Err(_) => Err("a thread of the batch has panicked".into()),
        })
    })
}

/// ns-2 with CUBIC.
fn refer(&(name, rate, queue, flows, seconds): &(&str, &str, u32, u32, u32)) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/reference.tcl");
    let numbers = [queue, flows, seconds].map(|n| n.to_string());
    let before = cpu_seconds(UsageWho::RUSAGE_CHILDREN);
    let output = Command::new("ns").args([script, rate]).args(&numbers).output();
    let spent = cpu_seconds(UsageWho::RUSAGE_CHILDREN) - before;
    let packets = output
        .ok()
        .and_then(|o| String::from_utf8_lossy(&o.stderr).lines().find_map(|l| l.trim().parse::<f64>().ok()));
    match packets {
        Some(n) => println!("{name:<24} {:<6} {n:>10} {:>12.2}", "ns-2", n / spent / 1e6),
        None => println!("{name:<24} ns-2   not measured: `ns` (Debian package ns2) is missing or failed"),
    }
}
