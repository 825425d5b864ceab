//! `fullpipe race`: controllers on one path. Writes the scenario that the options stand for and runs it
//! like any scenario file.

use crate::failure::Failure;
use crate::runs::{Choice, Reporting, contestants, kernel_offers};
use fullpipe_path::{Limit, QueueSpec};
use fullpipe_run::race::{Axis, Contestant, Race, USUAL};
use fullpipe_units::{Bytes, Fraction, Rate, Span};

/// Who races in the lab if nobody is named: the kernel's own, and ours in it.
const DEFAULT_IN_LAB: [&str; 6] = ["bbr", "cubic", "reno", "fp_bbr3", "fp_bbr1", "fp_hybla"];

/// Compare congestion controllers on one path.
///
/// Without arguments: bbr, bbr3, cubic, hybla and reno, one after another, on 100 Mbit/s, 100 ms round-trip time,
/// a buffer of one bandwidth-delay product, 1 % random loss, for 30 seconds. With --engine lab: the kernel's bbr,
/// cubic and reno, and fp_bbr3, fp_bbr1 and fp_hybla, which are loaded for the time of the race if run as root.
#[derive(clap::Args)]
#[command(after_help = examples(), next_help_heading = "Path")]
pub struct Args {
    /// Controllers, each with its settings after a colon: `bbr cubic:hystart=off` [default: bbr bbr3 cubic hybla
    /// reno].
    #[arg(value_name = "CC[:KEY=VALUE,…]", help_heading = None)]
    cc: Vec<String>,
    /// Rate of the bottleneck.
    #[arg(long, allow_hyphen_values = true, default_value = "100mbit")]
    rate: Rate,
    /// Round-trip propagation delay.
    #[arg(long, allow_hyphen_values = true, default_value = "100ms")]
    rtt: Span,
    /// Limit of the bottleneck's queue: `1bdp`, `64k`, `100p`, `20ms` [default: 1bdp, or the queue's own].
    #[arg(long, allow_hyphen_values = true, value_name = "LIMIT")]
    buffer: Option<Limit>,
    /// Kind of the bottleneck's queue [default: drop-tail].
    #[arg(long, value_name = "KIND", value_parser = queue_kinds())]
    queue: Option<String>,
    /// Random loss behind the bottleneck.
    #[arg(long, allow_hyphen_values = true, default_value = "1%", value_name = "SHARE")]
    loss: Fraction,
    /// Rate of the way back, if it is limited.
    #[arg(long, value_name = "RATE")]
    reverse_rate: Option<Rate>,
    /// Largest packet in bytes, IP header included.
    #[arg(long, default_value_t = 1500, value_name = "BYTES")]
    mtu: u32,

    /// How long each run lasts.
    #[arg(
        long,
        allow_hyphen_values = true,
        default_value = "30s",
        value_name = "TIME",
        help_heading = "Runs"
    )]
    duration: Span,
    /// Leave the first part of a run out of its figures.
    #[arg(long, value_name = "TIME", help_heading = "Runs")]
    warmup: Option<Span>,
    /// Let all controllers share the path at once instead of one after another.
    #[arg(long, help_heading = "Runs")]
    together: bool,
    /// Flows of each controller.
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Runs")]
    flows: u32,
    /// Time between the starts of the flows of one controller.
    #[arg(long, value_name = "TIME", help_heading = "Runs")]
    stagger: Option<Span>,
    /// What each flow transfers; its completion is timed [default: as much as it can].
    #[arg(long, value_name = "BYTES", help_heading = "Runs")]
    size: Option<Bytes>,
    /// Negotiate Explicit Congestion Notification.
    #[arg(long, help_heading = "Runs")]
    ecn: bool,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Runs")]
    seed: u32,
    /// Runs of each, with seeds counting up.
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Runs")]
    repeats: u32,
    /// Run once for each value of KEY: rate, rtt, buffer, queue, loss, duration, flows, size, mtu, or any
    /// dotted key of a scenario file. A value may be a range: `0.01%..10% log 8`, `10ms..100ms linear 4`, `1bdp..4bdp
    /// step 1bdp`. May be repeated: every combination is run.
    #[arg(long, value_name = "KEY=A,B,…", value_parser = Axis::parse, help_heading = "Runs")]
    sweep: Vec<Axis>,
    /// Interval between the samples of the time series.
    #[arg(long, default_value = "10ms", value_name = "TIME", help_heading = "Runs")]
    sample: Span,

    #[command(flatten)]
    reporting: Reporting,
}

fn examples() -> String {
    let mut text = String::from("Controllers:\n");
    for c in fullpipe_cc::CONTROLLERS {
        text += &format!("  {:<8} {}\n", c.name, c.about);
    }
    text += "In the lab also what the kernel has, as vegas, and what is loaded into it: fp_bbr3, fp_bbr1, fp_hybla.\n";
    text + "\nExamples:\n  \
        fullpipe race --out report.html\n  \
        fullpipe race bbr cubic --rate 1gbit --rtt 20ms --buffer 0.5bdp --loss 0\n  \
        fullpipe race bbr cubic --together --loss 0 --duration 60s\n  \
        fullpipe race bbr fp_bbr3 vegas --engine lab\n  \
        fullpipe race bbr cubic --sweep 'loss=0.01%..10% log 8' --repeats 5"
}

fn queue_kinds() -> clap::builder::PossibleValuesParser {
    let kinds = QueueSpec::kinds().map(|(name, about)| clap::builder::PossibleValue::new(name).help(about));
    clap::builder::PossibleValuesParser::new(kinds)
}

impl Args {
    /// Who races if nobody is named: in the lab, those of the usual ones that the kernel has or can be given.
    fn default_contestants(&self) -> Vec<&'static str> {
        let wanted: &[&'static str] = match self.reporting.engine() {
            Choice::Sim => return USUAL.to_vec(),
            Choice::Lab => &DEFAULT_IN_LAB,
            Choice::Both => &USUAL,
        };
        let (there, missing): (Vec<_>, Vec<_>) = wanted.iter().copied().partition(|cc| kernel_offers(cc));
        if !missing.is_empty() {
            eprintln!(
                "fullpipe: without {}: not in this kernel; run as root, fullpipe loads its own",
                missing.join(", ")
            );
        }
        there
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
