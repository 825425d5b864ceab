//! Throughput and CPU time per gigabyte over loopback, interleaved with iperf3.
//!
//! Client and server are separate processes; the CPU time is that of both, as the kernel accounts
//! finished children. Both use CUBIC.

use fullpipe_net::client::{self, Config};
use fullpipe_net::iperf3::Params;
use fullpipe_net::server::{self, Server};
use nix::sys::resource::{UsageWho, getrusage};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;

const ROUNDS: usize = 5;
const SECONDS: u32 = 2;

/// The result of one run.
#[derive(Clone, Copy)]
struct Figure {
    gbit_per_second: f64,
    cpu_seconds_per_gb: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("serve") => serve(),
        Some("send") => send(arguments[2].parse().unwrap(), arguments[3].parse().unwrap()),
        _ => compare(),
    }
}

fn serve() {
    let config = server::Config { port: 0, one_off: true, ..Default::default() };
    let server = Server::bind(config, |_| {}).unwrap();
    println!("{}", server.address().port());
    server.run().unwrap();
}

fn send(port: u16, parallel: u32) {
    let params = Params { seconds: SECONDS, parallel, congestion: Some("cubic".into()), ..Params::default() };
    // Like a stock client: without probes and reports.
    let config = Config { params, extensions: false, sample_every: None, ..Config::new("127.0.0.1", port) };
    let outcome = client::run(&config, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let sum = outcome.sum(true).unwrap();
    let (bytes, seconds) = sum.delivered();
    println!("{bytes} {seconds}");
}

/// CPU seconds of finished children.
fn children() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

fn measured(bytes: f64, seconds: f64, before: f64) -> Figure {
    Figure {
        gbit_per_second: bytes * 8.0 / seconds / 1e9,
        cpu_seconds_per_gb: (children() - before) / (bytes / 1e9),
    }
}

fn ours(parallel: u32) -> Figure {
    let before = children();
    let me = std::env::current_exe().unwrap();
    let mut server = start(Command::new(&me).arg("serve"));
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let output = Command::new(&me).args(["send", line.trim(), &parallel.to_string()]).output().unwrap();
    server.wait().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<f64> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
    measured(numbers[0], numbers[1], before)
}

fn iperf3(parallel: u32) -> Figure {
    let before = children();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut server = start(Command::new("iperf3").args(["-s", "-1", "--forceflush", "-p", &port]));
    let mut lines = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0);
    }
    let (seconds, streams) = (SECONDS.to_string(), parallel.to_string());
    let output = Command::new("iperf3")
        .args(["-c", "127.0.0.1", "-p", &port, "-t", &seconds, "-P", &streams, "-C", "cubic", "-J"])
        .output()
        .unwrap();
    let _ = lines.read_to_end(&mut Vec::new());
    server.wait().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let received = &json["end"]["sum_received"];
    measured(received["bytes"].as_f64().unwrap(), received["seconds"].as_f64().unwrap(), before)
}

fn median(figures: &[Figure], of: fn(&Figure) -> f64) -> f64 {
    fullpipe_net::compare::median(&figures.iter().map(of).collect::<Vec<_>>())
}

fn compare() {
    let installed = Command::new("iperf3").arg("--version").output().is_ok();
    println!("streams  who        Gbit/s  CPU-s/GB   (medians of {ROUNDS} interleaved runs of {SECONDS} s)");
    for parallel in [1, 4] {
        let (mut us, mut them) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            us.push(ours(parallel));
            if installed {
                them.push(iperf3(parallel));
            }
        }
        for (who, figures) in [("fullpipe", &us), ("iperf3", &them)] {
            if !figures.is_empty() {
                let (rate, cpu) =
                    (median(figures, |f| f.gbit_per_second), median(figures, |f| f.cpu_seconds_per_gb));
                println!("{parallel:>7}  {who:<9} {rate:>7.1} {cpu:>9.3}");
            }
        }
        if installed {
            let paired = |of: fn(&Figure) -> f64| {
                let ratios: Vec<f64> = us.iter().zip(&them).map(|(a, b)| of(a) / of(b)).collect();
                fullpipe_net::compare::median(&ratios)
            };
            println!(
                "{parallel:>7}  ratio     {:>7.2} {:>9.2}",
                paired(|f| f.gbit_per_second),
                paired(|f| f.cpu_seconds_per_gb)
            );
        } else {
            println!("SKIPPED: iperf3 is not installed, so there is nothing to compare with");
        }
    }
}
