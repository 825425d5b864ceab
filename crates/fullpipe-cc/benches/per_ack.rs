//! What a controller costs per acknowledged packet, delivery-rate sampler included: a steady flow with
//! 10 000 packets in flight, one packet an ACK, one packet sent for each.
//!
//! Prints nanoseconds of processor time (the least of many short runs) and, where valgrind is
//! installed, instructions, which do not depend on what else the machine does.
//! `cargo bench -p fullpipe-cc`.

use fullpipe_cc::{
    Ack, CONTROLLERS, Config, CongestionControl, Controller, Rate, RecoveryState, Sampler, Sent, Span, Stamp,
    Time,
};
use nix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::process::Command;

const INFLIGHT: usize = 10_000;
const SMSS: u64 = 1448;
/// A packet each µs: 11.6 Gbit/s at a round trip of 10 ms.
const GAP: Span = Span::from_micros(1);

struct Flow {
    controller: Option<Controller>,
    sampler: Sampler,
    /// The packets in flight, oldest at `next`.
    stamps: Vec<Stamp>,
    next: usize,
    now: Time,
    rtt: Span,
}

impl Flow {
    fn new(controller: Option<Controller>) -> Self {
        let mut flow = Flow {
            controller,
            sampler: Sampler::new(),
            stamps: Vec::with_capacity(INFLIGHT),
            next: 0,
            now: Time::ZERO,
            rtt: GAP * INFLIGHT as u64,
        };
        if let Some(c) = &mut flow.controller {
            c.on_handshake(Time::ZERO, flow.rtt);
        }
        for i in 0..INFLIGHT {
            let stamp = flow.send(i as u64 * SMSS);
            flow.stamps.push(stamp);
            flow.now += GAP;
        }
        flow
    }

    #[inline]
    fn send(&mut self, inflight: u64) -> Stamp {
        if let Some(c) = &mut self.controller {
            c.on_send(&Sent {
                now: self.now,
                bytes: SMSS,
                inflight,
                app_limited: self.sampler.is_app_limited(),
                delivered: self.sampler.delivered(),
                retransmit: false,
            });
        }
        self.sampler.on_sent(self.now, SMSS, inflight)
    }

    #[inline]
    fn step(&mut self) {
        let inflight_before = INFLIGHT as u64 * SMSS;
        let inflight = inflight_before - SMSS;
        let stamp = self.stamps[self.next];
        self.sampler.begin_ack();
        self.sampler.on_acked(self.now, SMSS, &stamp);
        let sample = self.sampler.finish_ack(self.now, Some(self.rtt));
        if let Some(c) = &mut self.controller {
            c.on_ack(&Ack {
                now: self.now,
                sample,
                rtt: Some(self.now - stamp.sent_at),
                srtt: Some(self.rtt),
                newly_acked: SMSS,
                newly_lost: 0,
                lost_ranges: 0,
                inflight_before,
                inflight,
                delivered: self.sampler.delivered(),
                lost: self.sampler.lost(),
                cwnd_limited: true,
                ce_count: 0,
                delayed: false,
                recovery: RecoveryState::Open,
                next_departure: self.now,
            });
            black_box((c.cwnd(), c.pacing_rate()));
        } else {
            black_box(sample);
        }
        self.stamps[self.next] = self.send(inflight);
        self.next = if self.next + 1 == INFLIGHT { 0 } else { self.next + 1 };
        self.now += GAP;
    }

    fn run(&mut self, packets: u64) {
        for _ in 0..packets {
            self.step();
        }
    }
}

fn controller(name: &str) -> Option<Controller> {
    let config = Config { smss: SMSS as u32, ..Config::default() };
    (name != "sampler").then(|| Controller::new(name, &config, &[]).expect("a registered name"))
}

/// Processor time of this thread in nanoseconds.
fn processor_time() -> f64 {
    let t = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock every Linux has");
    t.tv_sec() as f64 * 1e9 + t.tv_nsec() as f64
}

/// Nanoseconds per packet: the least of many runs, for what disturbs them only adds.
fn nanoseconds(name: &str) -> f64 {
    const PACKETS: u64 = 50_000;
    let mut flow = Flow::new(controller(name));
    flow.run(500_000);
    (0..100)
        .map(|_| {
            let start = processor_time();
            flow.run(PACKETS);
            (processor_time() - start) / PACKETS as f64
        })
        .fold(f64::INFINITY, f64::min)
}

/// Instructions this program executes for `packets` packets, by callgrind.
fn counted(name: &str, packets: u64) -> Option<f64> {
    let me = std::env::current_exe().ok()?;
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(me)
        .args(["--count", name, &packets.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    text.lines().find_map(|l| l.split_once("Collected :"))?.1.trim().parse().ok()
}

/// Instructions per packet: the difference of two runs, free of what surrounds them.
fn instructions(name: &str) -> Option<f64> {
    let (few, many) = (20_000, 120_000);
    Some((counted(name, many)? - counted(name, few)?) / (many - few) as f64)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, name, packets] = &args[..]
        && flag == "--count"
    {
        Flow::new(controller(name)).run(packets.parse().expect("a number of packets"));
        return;
    }
    println!("per acknowledged packet, sampler included, {INFLIGHT} in flight, {:?}", Rate::from_bytes_in(SMSS, GAP));
    println!("{:<12} {:>8} {:>14}", "controller", "ns", "instructions");
    for name in std::iter::once("sampler").chain(CONTROLLERS.iter().map(|c| c.name)) {
        let count = instructions(name).map_or("-".to_owned(), |n| format!("{n:.0}"));
        println!("{name:<12} {:>8.1} {count:>14}", nanoseconds(name));
    }
}
