//! `fullpipe race`: controllers on one path. Builds the scenario that the options describe and runs
//! it like a scenario file.

use crate::failure::Failure;
use crate::runs::{Choice, Reporting, contestants, kernel_offers};
use fullpipe_cc::registry::LINUX;
use fullpipe_path::{Limit, QueueSpec};
use fullpipe_run::race::{Axis, Contestant, DEFAULT_CONTROLLERS, Race};
use fullpipe_units::{Bytes, Fraction, Rate, Span};

/// The default controllers in the lab: the kernel's own, and those that fullpipe loads.
const DEFAULT_IN_LAB: [&str; 6] = ["bbr", "cubic", "reno", "fp_bbr3", "fp_bbr1", "fp_hybla"];

/// Compare congestion controllers on one path
///
/// Defaults: bbr, bbr3, cubic, hybla and reno, one after another for 30 s each, over 100 Mbit/s
/// with a round-trip time of 100 ms, a buffer of one bandwidth-delay product and 1 % random loss.
/// Defaults with --engine lab: the kernel's bbr, cubic and reno, and fullpipe's eBPF controllers
/// fp_bbr3, fp_bbr1 and fp_hybla (see `fullpipe cc`). As root, the race loads those that are not
/// loaded, and unloads them at its end.
#[derive(clap::Args)]
#[command(after_help = examples(), next_help_heading = "Path")]
pub struct Args {
    /// Controllers, settings after a colon: `bbr cubic:hystart=off`; or programs: `exec:./mycc`
    /// [default: bbr bbr3 cubic hybla reno]
    #[arg(value_name = "CC[:KEY=VALUE,…]", help_heading = None)]
    cc: Vec<String>,
    /// Rate of the bottleneck
    #[arg(long, allow_hyphen_values = true, default_value = "100mbit")]
    rate: Rate,
    /// Round-trip propagation delay of the path
    #[arg(long, allow_hyphen_values = true, default_value = "100ms")]
    rtt: Span,
    /// Limit of the bottleneck's queue: `1bdp`, `64k` (bytes), `100p` (packets), `20ms` [default:
    /// 1bdp for drop-tail; 1000p for codel and pie, 10240p for fq-codel and fq-pie, 10000p for fq]
    #[arg(long, allow_hyphen_values = true, value_name = "LIMIT")]
    buffer: Option<Limit>,
    /// Kind of the bottleneck's queue [default: drop-tail]
    #[arg(long, value_name = "KIND", value_parser = queue_kinds())]
    queue: Option<String>,
    /// Probability of random packet loss after the bottleneck
    #[arg(long, allow_hyphen_values = true, default_value = "1%", value_name = "SHARE")]
    loss: Fraction,
    /// Rate of the reverse path [default: unlimited]
    #[arg(long, value_name = "RATE")]
    reverse_rate: Option<Rate>,
    /// Largest packet in bytes, including the IP header
    #[arg(long, default_value_t = 1500, value_name = "BYTES")]
    mtu: u32,

    /// Duration of each run
    #[arg(
        long,
        allow_hyphen_values = true,
        default_value = "30s",
        value_name = "TIME",
        help_heading = "Runs"
    )]
    duration: Span,
    /// Initial part of each run to exclude from its results [default: 0s]
    #[arg(long, value_name = "TIME", help_heading = "Runs")]
    warmup: Option<Span>,
    /// Run all controllers at once over the shared path instead of one after another
    #[arg(long, help_heading = "Runs")]
    together: bool,
    /// Number of flows per controller
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Runs")]
    flows: u32,
    /// Time between the starts of one controller's flows [default: 0s]
    #[arg(long, value_name = "TIME", help_heading = "Runs")]
    stagger: Option<Span>,
    /// Bytes that each flow transfers, such as `1MB`; its completion time is reported [default:
    /// unlimited]
    #[arg(long, value_name = "BYTES", help_heading = "Runs")]
    size: Option<Bytes>,
    /// Negotiate Explicit Congestion Notification (ECN)
    #[arg(long, help_heading = "Runs")]
    ecn: bool,
    /// Seed of a run's random numbers, such as losses; in the simulator the same seed gives
    /// identical results
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Runs")]
    seed: u32,
    /// Number of runs of each case, with consecutive seeds
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Runs")]
    repeats: u32,
    /// Run once per value of KEY: rate, rtt, buffer, queue, loss, duration, flows, size, mtu, or
    /// any dotted key of a scenario file. A value may be a range: `0.01%..10% log 8` (8 values at
    /// equal ratios), `10ms..100ms linear 4` (4 values at equal distances), `1bdp..4bdp step 1bdp`.
    /// May be repeated: every combination is run
    #[arg(long, value_name = "KEY=A,B,…", value_parser = Axis::parse, help_heading = "Runs")]
    sweep: Vec<Axis>,
    /// Interval between samples of the time series
    #[arg(long, default_value = "10ms", value_name = "TIME", help_heading = "Runs")]
    sample: Span,

    #[command(flatten)]
    reporting: Reporting,
}

fn examples() -> String {
    let mut text = String::from("Controllers:\n");
    for c in fullpipe_cc::CONTROLLERS.iter().filter(|c| !LINUX.contains(&c.name)) {
        text += &format!("  {:<8} {}\n", c.name, c.about);
    }
    text += &format!("Also Linux's other controllers: {}.\n", LINUX.join(", "));
    text += "With --engine lab: every controller of the kernel, and fullpipe's eBPF controllers fp_bbr3, \
        fp_bbr1 and fp_hybla.\n\
        Over QUIC, in the simulator: CC@noq and CC@quinn are these controllers in the stacks noq and \
        quinn; noq/bbr3, noq/cubic, noq/reno, quinn/bbr, quinn/cubic and quinn/reno are the stacks' \
        own.\n\
        Other programs, in the simulator: exec:PROGRAM starts PROGRAM for each flow; it reads events and \
        writes windows as lines of JSON (docs/reference/controller-protocol.md).\n";
    text + "\nExamples:\n  \
        fullpipe race --out report.html\n  \
        fullpipe race bbr cubic --rate 1gbit --rtt 20ms --buffer 0.5bdp --loss 0\n  \
        fullpipe race bbr cubic --together --loss 0 --duration 60s\n  \
        fullpipe race bbr fp_bbr3 vegas --engine lab\n  \
        fullpipe race bbr3 bbr3@noq noq/bbr3 --rtt 40ms --loss 0\n  \
        fullpipe race 'exec:python3 mycc.py' bbr3\n  \
        fullpipe race bbr cubic --sweep 'loss=0.01%..10% log 8' --repeats 5"
}

fn queue_kinds() -> clap::builder::PossibleValuesParser {
    let kinds = QueueSpec::kinds().map(|(name, about)| clap::builder::PossibleValue::new(name).help(about));
    clap::builder::PossibleValuesParser::new(kinds)
}

impl Args {
    /// The controllers to race if none is named; in the lab, those that the kernel has or can load.
    fn default_contestants(&self) -> Vec<&'static str> {
        let wanted: &[&'static str] = match self.reporting.engine() {
            Choice::Sim => return DEFAULT_CONTROLLERS.to_vec(),
            Choice::Lab => &DEFAULT_IN_LAB,
            Choice::Both => &DEFAULT_CONTROLLERS,
        };
        let (available, missing): (Vec<_>, Vec<_>) = wanted.iter().copied().partition(|cc| kernel_offers(cc));
        if !missing.is_empty() {
            eprintln!(
                "fullpipe: skipping {}: not available in this kernel; run as root to load the fp_ \
                 controllers",
                missing.join(", ")
            );
        }
        available
    }

    pub fn run(self) -> Result<(), Failure> {
        let given = contestants(&self.cc);
        let names: Vec<&str> = match given.as_slice() {
            [] => self.default_contestants(),
            _ => given.iter().map(String::as_str).collect(),
        };
        let engines = self.reporting.engine().engines();
        let racing: Vec<Contestant> = names
            .into_iter()
            .map(|name| Contestant::parse(name, engines))
            .collect::<Result<_, _>>()
            .map_err(Failure::usage)?;
        let race = Race {
            rate: self.rate,
            rtt: self.rtt,
            buffer: self.buffer,
            queue: self.queue,
            loss: self.loss,
            reverse_rate: self.reverse_rate,
            mtu: self.mtu,
            duration: self.duration,
            warmup: self.warmup,
            together: self.together,
            flows: self.flows,
            stagger: self.stagger,
            size: self.size,
            ecn: self.ecn,
            seed: self.seed,
            repeats: self.repeats,
            sweep: self.sweep,
            sample: self.sample,
        };
        let cases = race.cases(&racing, engines).map_err(Failure::usage)?;
        self.reporting.run(race.title(&racing), cases, None)
    }
}
