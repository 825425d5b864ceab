//! What a controller costs per acknowledged packet, delivery-rate sampler included: a steady flow
//! with 10 000 packets in flight, one packet an ACK, one packet sent for each. What is said to be
//! in flight sways around that number, so that BBR's phases end as they do on a real path.
//!
//! Prints nanoseconds of processor time (the least of many short runs) and, where valgrind is
//! installed, instructions, which do not depend on what else the machine does.
//! `cargo bench -p fullpipe-cc`.

use fullpipe_cc::{
    Ack, CONTROLLERS, Config, CongestionControl, Controller, ControllerSpec, Rate, RecoveryState, Sampler,
    Sent, Span, Stamp, Time,
};
use nix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::process::Command;

const INFLIGHT: usize = 10_000;
const SMSS: u64 = 1448;
/// A packet each µs, 11.6 Gbit/s.
const GAP: Span = Span::from_micros(1);
/// The round trip of [`INFLIGHT`] packets.
const RTT: Span = Span::from_millis(10);

struct Flow<C> {
    /// `None`: the sampler alone.
    controller: Option<C>,
    sampler: Sampler,
    /// The packets in flight, oldest at `next`.
    stamps: Vec<Stamp>,
    next: usize,
    now: Time,
    inflight: u64,
    rising: bool,
}

impl<C: CongestionControl> Flow<C> {
    fn new(controller: Option<C>) -> Self {
        let mut flow = Flow {
            controller,
            sampler: Sampler::new(),
            stamps: Vec::with_capacity(INFLIGHT),
            next: 0,
            now: Time::ZERO,
            inflight: INFLIGHT as u64 * SMSS,
            rising: true,
        };
        if let Some(c) = &mut flow.controller {
            c.on_handshake(Time::ZERO, RTT);
        }
        for i in 0..INFLIGHT {
            let stamp = flow.send(i as u64 * SMSS);
            flow.stamps.push(stamp);
            flow.now += GAP;
        }
        flow
    }

    #[inline(always)]
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

    #[inline(always)]
    fn step(&mut self) {
        let inflight = self.inflight - SMSS;
        let stamp = self.stamps[self.next];
        self.sampler.begin_ack();
        self.sampler.on_acked(self.now, SMSS, &stamp);
        let sample = self.sampler.finish_ack(self.now, Some(RTT));
        if let Some(c) = &mut self.controller {
            c.on_ack(&Ack {
                now: self.now,
                sample,
                rtt: Some(self.now - stamp.sent_at),
                srtt: Some(RTT),
                newly_acked: SMSS,
                newly_lost: 0,
                lost_ranges: 0,
                inflight_before: self.inflight,
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
        self.now += GAP;
        self.inflight = if self.rising { self.inflight + SMSS } else { self.inflight - SMSS };
        self.next += 1;
        if self.next == INFLIGHT {
            // From half to one and a half times the number, and back.
            self.next = 0;
            self.rising = !self.rising;
            self.inflight = if self.rising { 5_000 * SMSS } else { 15_000 * SMSS };
        }
    }

    #[inline(never)]
    fn run(&mut self, packets: u64) {
        for _ in 0..packets {
            self.step();
        }
    }

    /// Nanoseconds per packet: the least of many runs, for what disturbs them only adds.
    fn nanoseconds(&mut self) -> f64 {
        const PACKETS: u64 = 50_000;
        self.run(500_000);
        (0..100)
            .map(|_| {
                let start = processor_time();
                self.run(PACKETS);
                (processor_time() - start) / PACKETS as f64
            })
            .fold(f64::INFINITY, f64::min)
    }
}

/// Does `$do` with a flow of the named controller by its own type, as a transport would hold it.
macro_rules! with_flow {
    ($name:expr, |$flow:ident| $do:expr) => {{
        let config = Config { smss: SMSS as u32, ..Config::default() };
        if $name == "sampler" {
            let mut $flow = Flow::<Controller>::new(None);
            $do
        } else {
            match ControllerSpec::new($name, &[]).expect("a registered name").build(&config) {
                Controller::BbrV1(c) => {
                    let mut $flow = Flow::new(Some(c));
                    $do
                }
                Controller::Cubic(c) => {
                    let mut $flow = Flow::new(Some(c));
                    $do
                }
                c => {
                    let mut $flow = Flow::new(Some(c));
                    $do
                }
            }
        }
    }};
}

/// Processor time of this thread in nanoseconds.
fn processor_time() -> f64 {
    let t = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock every Linux has");
    t.tv_sec() as f64 * 1e9 + t.tv_nsec() as f64
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
    let (few, many) = (300_000, 600_000);
    Some((counted(name, many)? - counted(name, few)?) / (many - few) as f64)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, name, packets] = &args[..]
        && flag == "--count"
    {
        let packets = packets.parse().expect("a number of packets");
        with_flow!(name, |flow| flow.run(packets));
        return;
    }
    let rate = Rate::from_bytes_in(SMSS, GAP);
    println!("per acknowledged packet, sampler included, {INFLIGHT} in flight, {rate}");
    println!("{:<12} {:>8} {:>14}", "controller", "ns", "instructions");
    for name in std::iter::once("sampler").chain(CONTROLLERS.iter().map(|c| c.name)) {
        let ns = with_flow!(name, |flow| flow.nanoseconds());
        let count = instructions(name).map_or("-".to_owned(), |n| format!("{n:.0}"));
        println!("{name:<12} {ns:>8.1} {count:>14}");
    }
}
