//! Our controllers against the kernel's own, interleaved in one run, over an unshaped veth pair between two
//! network namespaces (IPv4): throughput, processor time per gigabit, time of a call per ACK; and ten thousand
//! sockets at once with the memory of each.
//!
//! `cargo bench -p fullpipe-ebpf --bench kernel [-- transfers calls sockets]` as root, on a machine that does
//! nothing else: rounds are taken when it is quiet, and again when other programs ran meanwhile. When patience
//! ends before enough of them are quiet, the rest count as they are and the output says how many.
//!
//! What is counted as processor time per gigabit, sender, path and receiver together:
//!
//! - *process*: what the kernel charges to this process, which has both ends. A packet's way through the veth
//!   pair and the ACK's way back are mostly in the name of the thread that sent or read.
//! - *machine*: the time in which any processor was not idle. This adds what is charged to nobody, foremost
//!   pacing timers and the packets they release on an idle processor.
//!
//! A ratio is taken between transfers of the same round, a few seconds apart at most. The kernel's bbr takes part
//! a second time: how far that is from 1 is what a difference must exceed to mean something.

mod cpu;
mod sockets;
mod transfer;
mod veth;

use fullpipe_ebpf::kernel::Kernel;
use fullpipe_ebpf::{Controller, loader};
use std::time::Duration;
use transfer::{Transfer, rounds};
use veth::Receiver;

const ROUNDS: usize = 25;
const CALL_ROUNDS: usize = 9;
const PATIENCE: Duration = Duration::from_secs(600);

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

fn warn_if(disturbed: usize) {
    if disturbed > 0 {
        println!("NOT QUIET: other programs ran during {disturbed} of these rounds");
    }
}

/// Throughput and processor time.
fn transfers(receiver: &Receiver) {
    let rows = [
        ("kernel bbr", "bbr"),
        ("kernel bbr again", "bbr"),
        ("fp_bbr1", "bench_bbr1"),
        ("fp_bbr3", "bench_bbr3"),
        ("kernel cubic", "cubic"),
        ("fp_hybla", "bench_hybla"),
    ];
    let (results, disturbed) = rounds(receiver, &rows.map(|row| row.1), ROUNDS, PATIENCE, |_, send| send());
    println!("{ROUNDS} rounds; medians, in brackets the quartiles; ratios to kernel bbr in the same round");
    println!(
        "{:<18}{:>22}{:>22}{:>22}{:>22}{:>22}{:>22}",
        "controller", "Gbit/s", "of bbr", "process ms/Gbit", "of bbr", "machine ms/Gbit", "of bbr"
    );
    for ((label, _), of_row) in rows.iter().zip(&results) {
        let mut line = format!("{label:<18}");
        for (what, scale, decimals) in [
            (&(|transfer: &Transfer| transfer.rate) as &dyn Fn(&Transfer) -> f64, 1.0, 2),
            (&|transfer| transfer.own, 1e3, 1),
            (&|transfer| transfer.machine, 1e3, 1),
        ] {
            let values = Sorted::new(of_row.iter().map(|transfer| what(transfer) * scale));
            let ratios = Sorted::new(of_row.iter().zip(&results[0]).map(|(one, bbr)| what(one) / what(bbr)));
            line += &format!("{:>22}{:>22}", values.text(decimals), ratios.text(3));
        }
        println!("{line}");
    }
    warn_if(disturbed);
}

/// Calls of the kernel's programs of this name, and nanoseconds in them, since they were loaded.
fn program_time(name: &str) -> (u64, u64) {
    let (mut calls, mut ns, mut id) = (0, 0, 0u32);
    // SAFETY: plain system calls on descriptors that are closed at the end of each turn.
    unsafe {
        while libbpf_sys::bpf_prog_get_next_id(id, &raw mut id) == 0 {
            let fd = libbpf_sys::bpf_prog_get_fd_by_id(id);
            if fd < 0 {
                continue;
            }
            let mut info = libbpf_sys::bpf_prog_info::default();
            let mut size = size_of_val(&info) as u32;
            if libbpf_sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut size) == 0 {
                let bytes: Vec<u8> =
                    info.name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
                if bytes == name.as_bytes() {
                    calls += info.run_cnt;
                    ns += info.run_time_ns;
                }
            }
            libc::close(fd);
        }
    }
    (calls, ns)
}

/// Time of a callback on each ACK. The kernel's own controllers are called through programs that do nothing else,
/// so that all are timed by the same two clock readings.
fn calls(receiver: &Receiver) {
    let rows = [
        ("kernel bbr, bbr_main", "bench_w_bbr", "w_bbr_main"),
        ("fp_bbr1, cong_control", "bench_bbr1", "fp_bbr1_cong_co"),
        ("fp_bbr3, cong_control", "bench_bbr3", "fp_bbr3_cong_co"),
        ("kernel cubic, cong_avoid", "bench_w_cubic", "w_cubic_avoid"),
        ("kernel cubic, pkts_acked", "bench_w_cubic", "w_cubic_acked"),
    ];
    let mut names = rows.map(|row| row.1).to_vec();
    names.dedup();
    // SAFETY: opens a descriptor; the kernel counts program time while it is open.
    let stats = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    assert!(stats >= 0, "{}", std::io::Error::last_os_error());
    let (results, disturbed) = rounds(receiver, &names, CALL_ROUNDS, PATIENCE, |name, send| {
        let of_name = || rows.iter().filter(|row| row.1 == name).map(|row| (row.2, program_time(row.2)));
        let before: Vec<_> = of_name().collect();
        send();
        before
            .into_iter()
            .zip(of_name())
            .map(|((program, before), (_, after))| (program, after.0 - before.0, after.1 - before.1))
            .collect::<Vec<_>>()
    });
    // SAFETY: closes what was opened above.
    unsafe { libc::close(stats) };
    println!("\ncall on each ACK, {CALL_ROUNDS} rounds, the two clock readings around it included");
    for (label, _, program) in rows {
        let of_program: Vec<_> =
            results.iter().flatten().flatten().filter(|found| found.0 == program).collect();
        let ns = Sorted::new(of_program.iter().map(|found| found.2 as f64 / found.1.max(1) as f64));
        let calls: u64 = of_program.iter().map(|found| found.1).sum();
        println!("{label:<26}{:>20} ns, {calls} calls", ns.text(0));
    }
    warn_if(disturbed);
}

fn main() {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: needs root");
        return;
    }
    // Cargo adds options of its own.
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_chosen = |part: &str| chosen.is_empty() || chosen.iter().any(|one| one == part);

    let receiver = veth::join();
    let kernel = Kernel::ask().unwrap();
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
        transfers(&receiver);
    }
    if is_chosen("calls") {
        calls(&receiver);
    }
    if is_chosen("sockets") {
        sockets::many(&receiver, &held[1].0);
    }
}
