//! Our controllers against the kernel's own, interleaved in one run, over the loopback of a network namespace
//! of its own: throughput, processor time per gigabit, time of a callback per ACK, memory of a socket.
//!
//! Needs root. The processor time is that of this process: over loopback the sender's and the receiver's
//! kernel work is done in its name, so that other programs on the machine do not count.

use fullpipe_ebpf::kernel::Kernel;
use fullpipe_ebpf::{Controller, loader};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const BYTES: u64 = 2_000_000_000;
const PAIRS: usize = 9_000;

fn choose(socket: &TcpStream, name: &str) {
    // SAFETY: the name lives through the call and its length is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as u32,
        )
    };
    assert_eq!(result, 0, "{name}: {}", std::io::Error::last_os_error());
}

fn processor_seconds() -> f64 {
    // SAFETY: an all-zero rusage is a valid value of a plain C structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Gigabits a second, and processor seconds per gigabit.
fn transfer(name: &str) -> (f64, f64) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let receiver = std::thread::spawn(move || {
        let (mut from, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 18];
        while from.read(&mut buffer).unwrap() > 0 {}
    });
    let mut to = TcpStream::connect(address).unwrap();
    choose(&to, name);
    let buffer = vec![0; 1 << 18];
    let (cpu, started) = (processor_seconds(), Instant::now());
    let mut left = BYTES;
    while left > 0 {
        let size = left.min(buffer.len() as u64) as usize;
        left -= to.write(&buffer[..size]).unwrap() as u64;
    }
    drop(to);
    receiver.join().unwrap();
    let gigabits = BYTES as f64 * 8e-9;
    (gigabits / started.elapsed().as_secs_f64(), (processor_seconds() - cpu) / gigabits)
}

/// Calls and nanoseconds a call of the kernel's programs of this name.
fn program_time(name: &str) -> (u64, f64) {
    let (mut calls, mut ns, mut id) = (0u64, 0u64, 0u32);
    // SAFETY: plain system calls on descriptors that are closed at the end of each turn.
    unsafe {
        while libbpf_sys::bpf_prog_get_next_id(id, &raw mut id) == 0 {
            let fd = libbpf_sys::bpf_prog_get_fd_by_id(id);
            if fd < 0 {
                continue;
            }
            let mut info = libbpf_sys::bpf_prog_info::default();
            let mut size = std::mem::size_of_val(&info) as u32;
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
    (calls, ns as f64 / calls.max(1) as f64)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Kilobytes of kernel memory in use, by /proc/meminfo's name.
fn kernel_kb(field: &str) -> i64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Opens pairs of connected sockets whose both ends use the controller, as many as may be open; gives how many
/// sockets still carry data, and slab bytes per socket.
fn many_sockets(name: &str) -> (usize, f64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a valid value.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    let pairs = PAIRS.min((limit.rlim_cur as usize).saturating_sub(200) / 2);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let before = kernel_kb("SUnreclaim:");
    let mut ends = Vec::with_capacity(pairs);
    for _ in 0..pairs {
        let mut to = TcpStream::connect(address).unwrap();
        choose(&to, name);
        let (mut from, _) = listener.accept().unwrap();
        choose(&from, name);
        to.write_all(b"x").unwrap();
        from.read_exact(&mut [0]).unwrap();
        ends.push((to, from));
    }
    let used = (kernel_kb("SUnreclaim:") - before) * 1024;
    let alive = ends.iter().filter(|(to, from)| {
        let (mut to, mut from): (&TcpStream, &TcpStream) = (to, from);
        to.write_all(b"y").is_ok() && from.read_exact(&mut [0]).is_ok()
    });
    (2 * alive.count(), used as f64 / (2 * pairs) as f64)
}

fn main() {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: needs root");
        return;
    }
    // SAFETY: a plain system call; no other thread runs yet.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", std::io::Error::last_os_error());
    assert!(std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());

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

    let names = ["bbr", "bench_bbr1", "bench_bbr3", "cubic", "bench_hybla"];
    let mut results: BTreeMap<&str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for round in 0..ROUNDS {
        for turn in 0..names.len() {
            // Another one goes first each round.
            let name = names[(turn + round) % names.len()];
            let (rate, cpu) = transfer(name);
            let entry = results.entry(name).or_default();
            entry.0.push(rate);
            entry.1.push(cpu);
        }
    }
    let (bbr_rate, bbr_cpu) = {
        let (rates, cpus) = results.get_mut("bbr").unwrap();
        (median(rates), median(cpus))
    };
    println!("{:<12} {:>9} {:>8} {:>12} {:>8}", "controller", "Gbit/s", "of bbr", "CPU ms/Gbit", "of bbr");
    for name in names {
        let (rates, cpus) = results.get_mut(name).unwrap();
        let (rate, cpu) = (median(rates), median(cpus));
        println!(
            "{name:<12} {rate:>9.2} {:>8.3} {:>12.2} {:>8.3}",
            rate / bbr_rate,
            cpu * 1e3,
            cpu / bbr_cpu
        );
    }

    // SAFETY: opens a descriptor; the kernel counts program time while it is open.
    let stats = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    assert!(stats >= 0);
    for name in ["bench_w_bbr", "bench_bbr1", "bench_bbr3", "bench_w_cubic"] {
        transfer(name);
    }
    println!("\ncallback per ACK (the trampoline's two clock readings included)");
    for (what, program) in [
        ("kernel bbr, bbr_main", "w_bbr_main"),
        ("fp_bbr1, cong_control", "fp_bbr1_cong_co"),
        ("fp_bbr3, cong_control", "fp_bbr3_cong_co"),
        ("kernel cubic, cong_avoid", "w_cubic_avoid"),
        ("kernel cubic, pkts_acked", "w_cubic_acked"),
    ] {
        let (calls, ns) = program_time(program);
        println!("{what:<26} {ns:>7.0} ns a call, {calls} calls");
    }
    // SAFETY: closes what was opened above.
    unsafe { libc::close(stats) };

    for name in ["bench_bbr3", "bbr"] {
        let started = Instant::now();
        let (alive, bytes) = many_sockets(name);
        println!("{name}: {alive} sockets at once, {bytes:.0} bytes of slab each, {:.1?}", started.elapsed());
        std::thread::sleep(Duration::from_millis(500));
    }
}
