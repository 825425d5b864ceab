//! What a packet costs on its way through a chain, driven as a simulator drives it: a push, and
//! an `advance` for every event that the chain asks for. The path is 100 Mbit/s and 50 ms one way
//! with 100 packets waiting in front of the rate.
//!
//! Prints nanoseconds of processor time (the least of many short runs) and, where valgrind is
//! installed, instructions, which do not depend on what else the machine does.
//! `cargo bench -p fullpipe-path`.

use std::hint::black_box;
use std::process::Command;

use fullpipe_path::{BuildContext, Direction, LinkSpec, Outcome, Packet, Path};
use fullpipe_units::{Span, Time};
use nix::time::{ClockId, clock_gettime};

/// As large as what a simulator tells its endpoints.
type Data = [u64; 5];

/// Name and links, the first of which sets the pace.
const CHAINS: &[(&str, &[&str])] = &[
    ("delay only", &["delay = '50ms'"]),
    ("drop-tail", &["rate = '100mbit'\ndelay = '50ms'"]),
    ("drop-tail, 1 % loss", &["rate = '100mbit'\ndelay = '50ms'\nloss = '1%'"]),
    ("two links", &["rate = '100mbit'\ndelay = '25ms'", "rate = '1gbit'\ndelay = '25ms'"]),
    ("trace", &["trace = { ms = [1,1,1,2,2,2,3,3,4,4,4,4] }\ndelay = '50ms'"]),
    (
        "jitter, aggregation",
        &["rate = '100mbit'\ndelay = '50ms'\njitter = '1ms'\naggregate = { hold = '5ms' }"],
    ),
    ("codel", &["rate = '100mbit'\ndelay = '50ms'\nqueue = 'codel'"]),
    ("pie", &["rate = '100mbit'\ndelay = '50ms'\nqueue = 'pie'"]),
    ("fq-codel", &["rate = '100mbit'\ndelay = '50ms'\nqueue = 'fq-codel'"]),
    ("fq", &["rate = '100mbit'\ndelay = '50ms'\nqueue = { kind = 'fq', flow_limit = '1000p' }"]),
];

/// A sender at exactly the rate of the path.
struct Run {
    chain: Path<Data>,
    gap: Span,
    now: Time,
    sent: u64,
    arrived: u64,
}

impl Run {
    fn new(links: &[&str]) -> Self {
        let links: Vec<LinkSpec> = links.iter().map(|text| toml::from_str(text).expect("a link")).collect();
        let ctx = BuildContext::for_path(&links, &[], Direction::Forward, 1500, 1);
        let gap = links[0].nominal_rate().map_or(Span::from_micros(120), |rate| rate.time_to_send(1500));
        let chain = Path::new(&links, &ctx).expect("links that can be");
        let mut run = Run { chain, gap, now: Time::ZERO, sent: 0, arrived: 0 };
        for _ in 0..100 {
            run.push(Time::ZERO);
        }
        run
    }

    #[inline(always)]
    fn push(&mut self, at: Time) {
        self.sent += 1;
        // Ten flows.
        self.chain.push(at, Packet::new((self.sent % 10) as u32, 1500, [self.sent; 5]));
    }

    #[inline(never)]
    fn run(&mut self, packets: u64) {
        for _ in 0..packets {
            let next = self.now + self.gap;
            let mut event = self.chain.next_event();
            while event <= next {
                let arrived = &mut self.arrived;
                self.chain.advance(event, &mut |_, outcome| {
                    if let Outcome::Delivered(packet) = outcome {
                        *arrived += black_box(packet.data[0]) & 1;
                    }
                });
                event = self.chain.next_event();
            }
            self.now = next;
            self.push(next);
        }
    }

    /// Nanoseconds per packet: the least of many runs, for what disturbs them only adds.
    fn nanoseconds(&mut self) -> f64 {
        const PACKETS: u64 = 50_000;
        self.run(200_000);
        (0..60)
            .map(|_| {
                let start = processor_time();
                self.run(PACKETS);
                (processor_time() - start) / PACKETS as f64
            })
            .fold(f64::INFINITY, f64::min)
    }
}

/// Processor time of this thread in nanoseconds.
fn processor_time() -> f64 {
    let t = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock every Linux has");
    t.tv_sec() as f64 * 1e9 + t.tv_nsec() as f64
}

/// Instructions this program executes for `packets` packets, by callgrind.
fn counted(chain: usize, packets: u64) -> Option<f64> {
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args(["--count", &chain.to_string(), &packets.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    text.lines().find_map(|line| line.split_once("Collected :"))?.1.trim().parse().ok()
}

/// Instructions per packet: the difference of two runs, free of what surrounds them.
fn instructions(chain: usize) -> Option<f64> {
    let (few, many) = (50_000, 150_000);
    Some((counted(chain, many)? - counted(chain, few)?) / (many - few) as f64)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, chain, packets] = &args[..]
        && flag == "--count"
    {
        let chain: usize = chain.parse().expect("the number of a chain");
        Run::new(CHAINS[chain].1).run(packets.parse().expect("a number of packets"));
        return;
    }
    println!("per packet of 1500 bytes with {} bytes of data", size_of::<Data>());
    println!("{:<20} {:>8} {:>14}", "chain", "ns", "instructions");
    for (i, (name, links)) in CHAINS.iter().enumerate() {
        let ns = Run::new(links).nanoseconds();
        let count = instructions(i).map_or("-".to_owned(), |n| format!("{n:.0}"));
        println!("{name:<20} {ns:>8.1} {count:>14}");
    }
}
