//! Cost of sampling a host with many connections: CPU time of a scrape and of a frame of `fullpipe
//! watch`, and memory.
//!
//! `cargo bench -p fullpipe-live --bench samples [-- SOCKETS…]` (as root: the sockets are in a
//! separate network namespace). Each number of sockets is measured by its own process, whose
//! maximum resident size is printed; other processes hold the sockets, within their limits of
//! descriptors. Sockets are idle pairs over loopback.

use fullpipe_live::export::{Classes, GroupBy, Page, Tally};
use fullpipe_live::view::App;
use fullpipe_live::{Filter, Reader};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Samples per measurement; the median is printed.
const SAMPLES: usize = 9;
/// Connections per listener: fewer than ephemeral ports.
const MAX_PER_LISTENER: usize = 20_000;

/// Target CPU times of a scrape and a frame, by number of sockets.
const TARGETS: [(usize, &str, &str); 2] = [(10_000, "40 ms", "60 ms"), (100_000, "400 ms", "-")];

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if let [part, number] = &asked[..] {
        let number = number.parse().expect("a number");
        match part.as_str() {
            "hold" => return hold(number),
            "scrape" => return measure(true, number),
            "frame" => return measure(false, number),
            _ => {}
        }
    }
    let numbers: Vec<usize> = if asked.is_empty() {
        TARGETS.iter().map(|t| t.0).collect()
    } else {
        asked.iter().map(|a| a.parse().expect("numbers of sockets")).collect()
    };
    if unshare(CloneFlags::CLONE_NEWNET).is_err() || !lo_up() {
        return println!("not measured: creating a network namespace needs root");
    }
    println!("{:>8}  {:<7} {:>12} {:>8} {:>10}", "sockets", "part", "ms of CPU", "target", "memory MB");
    for number in numbers {
        let _holders = hold_in_children(number / 2);
        for part in ["scrape", "frame"] {
            let program = std::env::current_exe().expect("the path of this program");
            let output = Command::new(program)
                .args([part, &number.to_string()])
                .output()
                .expect("a copy of this program");
            let printed = String::from_utf8_lossy(&output.stdout);
            let [cpu, memory] = printed.split_whitespace().collect::<Vec<_>>()[..] else {
                panic!("{printed}{}", String::from_utf8_lossy(&output.stderr))
            };
            let target = TARGETS.iter().find(|t| t.0 == number);
            let target = target.map_or("-", |t| if part == "scrape" { t.1 } else { t.2 });
            println!("{number:>8}  {part:<7} {cpu:>12} {target:>8} {memory:>10}");
        }
    }
}

fn lo_up() -> bool {
    Command::new("ip").args(["link", "set", "lo", "up"]).status().is_ok_and(|status| status.success())
}

fn copy(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args(args);
    command
}

/// A process that holds sockets until its stdin closes.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Opens pairs of sockets in as many processes as needed.
fn hold_in_children(pairs: usize) -> Vec<Holder> {
    let (_, max) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit of descriptors");
    let each = usize::try_from(max.saturating_sub(100) / 2).unwrap_or(usize::MAX).clamp(1, MAX_PER_LISTENER);
    let parts = (0..pairs).step_by(each).map(|at| each.min(pairs - at));
    parts
        .map(|part| {
            let mut command = copy(&["hold", &part.to_string()]);
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a copy of this program");
            let mut ready = [0];
            child.stdout.take().expect("its output").read_exact(&mut ready).expect("that it holds them");
            Holder(child)
        })
        .collect()
}

/// Opens pairs of sockets, prints their number, and holds them until stdin closes.
fn hold(pairs: usize) {
    let (_, max) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit of descriptors");
    setrlimit(Resource::RLIMIT_NOFILE, max, max).expect("as many descriptors as are allowed");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    let to = listener.local_addr().expect("its address");
    let held: Vec<_> = (0..pairs)
        .map(|_| (TcpStream::connect(to).expect("a connection"), listener.accept().expect("its other end")))
        .collect();
    println!("{}", held.len());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the usage of this process");
    [usage.user_time(), usage.system_time()]
        .into_iter()
        .map(|t| Duration::from_micros(t.tv_sec() as u64 * 1_000_000 + t.tv_usec() as u64))
        .sum()
}

/// Prints the median CPU time and the maximum resident size.
fn measure(scrape: bool, sockets: usize) {
    let reader = Reader::open(Filter::parse("").expect("no filter")).expect("sock_diag");
    let mut reader = if scrape { reader.without_owners() } else { reader };
    let mut tally = Tally::new(Classes::new(Vec::new(), GroupBy::Port(Vec::new())));
    let mut app = App::new(String::new(), true);
    let mut terminal = Terminal::new(TestBackend::new(200, 60)).expect("a terminal in memory");
    let mut times: Vec<Duration> = (0..=SAMPLES)
        .map(|_| {
            let began = cpu();
            app.release_snapshot();
            let snapshot = reader.sample().expect("a sample");
            assert!(snapshot.connections.len() >= sockets, "{} of {sockets}", snapshot.connections.len());
            if scrape {
                tally.add(&snapshot);
                std::hint::black_box(Page::render(&tally.families()));
            } else {
                app.update(snapshot);
                terminal.draw(|frame| app.draw(frame)).expect("a frame");
            }
            cpu() - began
        })
        .collect();
    // The first sample has no predecessor.
    times.remove(0);
    times.sort();
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the usage of this process");
    println!("{:.1} {}", times[times.len() / 2].as_secs_f64() * 1e3, usage.max_rss() / 1000);
}
