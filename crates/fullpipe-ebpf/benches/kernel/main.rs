//! Our controllers against the kernel's own, interleaved in one run, over an unshaped veth pair
//! between two network namespaces (IPv4): throughput, processor time per gigabit, time of a call
//! per ACK; and ten thousand sockets at once with the memory of each.
//!
//! `cargo bench -p fullpipe-ebpf --bench kernel [-- transfers calls sockets split
//! patience=SECONDS]` as root, on a machine that does nothing else: a measurement begins when it is
//! quiet, and is taken again when other programs ran meanwhile. When patience (600 s for each part)
//! ends, fewer count; the least number is then filled up with disturbed ones, and the output says
//! so.
//!
//! What is counted as processor time per gigabit, sender, path and receiver together:
//!
//! - *process*: what the kernel charges to this process, which has both ends. A packet's way
//!   through the veth pair and the ACK's way back are mostly in the name of the thread that sent or
//!   read.
//! - *machine*: the time in which any processor was not idle. This adds time charged to no process,
//!   foremost pacing timers and the packets they release on an idle processor.
//!
//! A controller is measured right before or after kernel bbr, by turns, and its ratio is within
//! that pair. One of the pairs is kernel bbr with itself: how far that is from 1 is what a
//! difference must exceed to mean something.

mod cpu;
mod sockets;
mod split;
mod transfer;
mod veth;

use fullpipe_ebpf::kernel::Kernel;
use fullpipe_ebpf::{Controller, loader};
use libbpf_rs::query::ProgInfoIter;
use nix::unistd::Uid;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;
use transfer::{Quiet, Transfer};
use veth::Receiver;

const ROUNDS: usize = 25;
/// As many are taken in any case.
const LEAST: usize = 5;

/// Values in order, to read quantiles from.
struct Sorted(Vec<f64>);

impl Sorted {
    fn new(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        Sorted(values)
    }

    fn quantile(&self, share: f64) -> f64 {
        self.0[((self.0.len() - 1) as f64 * share).round() as usize]
    }

    /// The median and, in brackets, the quartiles.
    fn text(&self, decimals: usize) -> String {
        let [low, median, high] = [0.25, 0.5, 0.75].map(|share| self.quantile(share));
        format!("{median:.decimals$} [{low:.decimals$}, {high:.decimals$}]")
    }
}

fn warn_if(quiet: &Quiet) {
    if quiet.disturbed > 0 {
        println!("NOT QUIET: other programs ran during {} of these measurements", quiet.disturbed);
    }
}

/// What is read of a transfer, and with how many decimals it is shown.
type Measure = (fn(&Transfer) -> f64, usize);

/// Throughput and processor time.
fn transfers(receiver: &Receiver, mut quiet: Quiet) {
    let rivals = [
        ("kernel bbr again", "bbr"),
        ("fp_bbr1", "bench_bbr1"),
        ("fp_bbr3", "bench_bbr3"),
        ("kernel cubic", "cubic"),
        ("kernel reno", "reno"),
        ("fp_hybla", "bench_hybla"),
    ];
    // Of each rival, the transfers beside which kernel bbr's was, and those.
    let mut pairs: [Vec<[Transfer; 2]>; 6] = Default::default();
    for round in 0..ROUNDS {
        for turn in 0..rivals.len() {
            let at = (round + turn) % rivals.len();
            let name = rivals[at].1;
            let needed = pairs[at].len() < LEAST;
            // In every second pair the rival goes first.
            let pair = if pairs[at].len().is_multiple_of(2) {
                quiet.transfers(receiver, ["bbr", name], needed)
            } else {
                let pair = quiet.transfers(receiver, [name, "bbr"], needed);
                pair.map(|[rival, bbr]| [bbr, rival])
            };
            pairs[at].extend(pair);
        }
    }

    println!("medians, in brackets the quartiles; ratios within a pair");
    println!(
        "{:<18}{:>5}{:>22}{:>22}{:>22}{:>22}{:>22}{:>22}",
        "controller", "pairs", "Gbit/s", "of bbr", "process ms/Gbit", "of bbr", "machine ms/Gbit", "of bbr"
    );
    let measures: [Measure; 3] = [
        (|transfer| transfer.rate, 2),
        (|transfer| transfer.own * 1e3, 1),
        (|transfer| transfer.machine * 1e3, 1),
    ];
    let mut line = format!("{:<18}{:>5}", "kernel bbr", pairs.iter().map(Vec::len).sum::<usize>());
    for (what, decimals) in measures {
        let values = Sorted::new(pairs.iter().flatten().map(|pair| what(&pair[0])));
        line += &format!("{:>22}{:>22}", values.text(decimals), "");
    }
    println!("{}", line.trim_end());
    for ((label, _), pairs) in rivals.iter().zip(&pairs) {
        let mut line = format!("{label:<18}{:>5}", pairs.len());
        for (what, decimals) in measures {
            let values = Sorted::new(pairs.iter().map(|pair| what(&pair[1])));
            let ratios = Sorted::new(pairs.iter().map(|pair| what(&pair[1]) / what(&pair[0])));
            line += &format!("{:>22}{:>22}", values.text(decimals), ratios.text(3));
        }
        println!("{line}");
    }
    warn_if(&quiet);
}

/// Calls of the kernel's programs of this name, and nanoseconds in them, since they were loaded.
fn program_time(name: &str) -> (u64, u64) {
    let programs = ProgInfoIter::default().filter(|program| program.name == name);
    programs.fold((0, 0), |(calls, ns), program| (calls + program.run_cnt, ns + program.run_time_ns))
}

/// Time of a callback on each ACK. The kernel's own controllers are called through programs that do
/// nothing else, so that all are timed by the same two clock readings.
fn calls(receiver: &Receiver, mut quiet: Quiet) {
    let rows = [
        ("kernel bbr, bbr_main", "bench_w_bbr", "w_bbr_main"),
        ("fp_bbr1, cong_control", "bench_bbr1", "fp_bbr1_cong_co"),
        ("fp_bbr3, cong_control", "bench_bbr3", "fp_bbr3_cong_co"),
        ("kernel cubic, cong_avoid", "bench_w_cubic", "w_cubic_avoid"),
        ("kernel cubic, pkts_acked", "bench_w_cubic", "w_cubic_acked"),
    ];
    // SAFETY: takes a number.
    let stats = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    assert!(stats >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptor was just made and is owned by nothing else. The kernel counts while it is
    // open.
    let stats = unsafe { OwnedFd::from_raw_fd(stats) };
    let mut found: [(Vec<f64>, u64); 5] = Default::default();
    for round in 0..ROUNDS {
        for turn in 0..rows.len() {
            let at = (round + turn) % rows.len();
            let (_, name, program) = rows[at];
            let before = program_time(program);
            if quiet.transfers(receiver, [name], found[at].0.len() < LEAST).is_none() {
                continue;
            }
            let after = program_time(program);
            let (calls, ns) = (after.0 - before.0, after.1 - before.1);
            found[at].0.push(ns as f64 / calls.max(1) as f64);
            found[at].1 += calls;
        }
    }
    drop(stats);
    println!("\ncall on each ACK, the two clock readings around it included");
    for ((label, _, _), (ns, calls)) in rows.iter().zip(found) {
        let transfers = ns.len();
        let ns = Sorted::new(ns.into_iter()).text(0);
        println!("{label:<26}{ns:>20} ns, {calls} calls in {transfers} transfers");
    }
    warn_if(&quiet);
}

fn main() {
    if !Uid::effective().is_root() {
        println!("SKIPPED: needs root");
        return;
    }
    // Cargo adds options of its own.
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let patience = chosen.iter().find_map(|argument| argument.strip_prefix("patience="));
    let patience = Duration::from_secs(patience.map_or(600, |seconds| seconds.parse().unwrap()));
    let parts: Vec<&String> = chosen.iter().filter(|argument| !argument.contains('=')).collect();
    let is_chosen = |part: &str| parts.is_empty() || parts.iter().any(|one| *one == part);

    let receiver = veth::join();
    let kernel = Kernel::detect().unwrap();
    let mut held = Vec::new();
    for (controller, name) in [
        (Controller::Bbr1, "bench_bbr1"),
        (Controller::Bbr3, "bench_bbr3"),
        (Controller::Hybla, "bench_hybla"),
    ] {
        let mut loaded = loader::load(controller, Some(name), &kernel).unwrap();
        let link = loaded.attach().unwrap();
        held.push((loaded, link));
    }
    for name in ["bbr", "cubic"] {
        let mut loaded = loader::load_wrapped(name, &format!("bench_w_{name}"), &kernel).unwrap();
        let link = loaded.attach().unwrap();
        held.push((loaded, link));
    }

    if is_chosen("transfers") {
        transfers(&receiver, Quiet::new(patience));
    }
    if is_chosen("calls") {
        calls(&receiver, Quiet::new(patience));
    }
    if is_chosen("sockets") {
        sockets::many(&receiver, &held[1].0);
    }
    if is_chosen("split") {
        drop(held);
        split::rounds();
    }
}
