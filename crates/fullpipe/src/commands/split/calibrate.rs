//! `split calibrate`: the result of a split whose arms share a bottleneck, compared with a full
//! roll-out.

use crate::failure::Failure;
use crate::print::{Document, print_json};
use crate::runs::{Choice, EBPF_CONTROLLERS, Progress, print_hanging};
use fullpipe_experiment::Recording;
use fullpipe_experiment::scenario::{self, Case};
use fullpipe_report::picture::{Axis, Curve, Panel, Picture, Stroke};
use fullpipe_report::{AtomicFile, controller_colour};
use fullpipe_run::{Batch, Engine, Job, LabOptions, vocabulary};
use fullpipe_split::{Bias, Level};
use fullpipe_units::{Fraction, Rate, Span};
use std::path::PathBuf;

/// Estimate how far a split misjudges a roll-out at a shared bottleneck
///
/// If both arms share a bottleneck, the arm's gain in a split differs from its gain after a full
/// roll-out. Runs long transfers over one path: for each of --shares, with that share of them in
/// the arm and the rest in the control arm; then the roll-out, with all in the arm and with all in
/// the control arm. Prints the goodput ratio of arm to control for each share and for the roll-out,
/// and the bias: the ratio at the share divided by the ratio of the roll-out. With --engine both,
/// also shows how well the simulator predicts the kernel.
#[derive(clap::Args)]
pub struct Args {
    /// Controller of the arm, as for `fullpipe race`
    #[arg(default_value = "bbr")]
    arm: String,
    /// Controller of the control arm
    #[arg(default_value = "cubic")]
    control: String,
    #[command(flatten)]
    bottleneck: Bottleneck,
    /// Engine to run on; the lab runs the shares one after another in real time
    #[arg(long, value_enum, default_value_t)]
    engine: Choice,
    /// Shares of the connections in the arm [default: 1%,5%,10%,25%,50%,75%,90%,95%,99%]
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',')]
    shares: Vec<Fraction>,
    /// Number of runs per share, with consecutive seeds; two or more give a standard error
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    repeats: u32,
    /// Also write a picture as SVG to FILE
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    svg: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The bottleneck that connections of both arms share.
#[derive(Clone, Debug, clap::Args)]
pub struct Bottleneck {
    /// Rate of the bottleneck
    #[arg(long, default_value = "100mbit")]
    pub rate: Rate,
    /// Round-trip propagation delay
    #[arg(long, default_value = "40ms")]
    pub rtt: Span,
    /// Limit of the bottleneck's queue: `1bdp`, `64k` (bytes), `100p` (packets), `20ms`
    #[arg(long, default_value = "1bdp")]
    pub buffer: String,
    /// Probability of random packet loss
    #[arg(long, default_value = "0")]
    pub loss: Fraction,
    /// Number of connections that share the path, 2 to 1000
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub flows: u32,
    /// Duration of a run
    #[arg(long, default_value = "60s")]
    pub duration: Span,
    /// Seed of the random numbers of the first run of each share, such as losses
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The default shares, in percent.
const SHARES: [u32; 9] = [1, 5, 10, 25, 50, 75, 90, 95, 99];

impl Bottleneck {
    /// Simulates splits with these numbers of connections in the arm, and full roll-outs.
    pub fn bias(&self, arm: &str, control: &str, counts: &[u32]) -> Result<Bias, Failure> {
        let cases = self.cases(arm, control, counts, &[Engine::Sim])?;
        let jobs = cases.into_iter().map(|case| Job { engine: Engine::Sim, case }).collect();
        let runs = Batch::new(jobs).keep_series(false).run(&()).into_runs().map_err(crate::runs::failure)?;
        self.bias_of(arm, control, counts, &runs)
    }

    /// One run without the arm, one per count, and one with all connections in the arm.
    fn cases(
        &self,
        arm: &str,
        control: &str,
        counts: &[u32],
        engines: &[Engine],
    ) -> Result<Vec<Case>, Failure> {
        let counts = [0].into_iter().chain(counts.iter().copied()).chain([self.flows]);
        counts.map(|count| self.case(arm, control, count, engines)).collect()
    }

    /// The bias according to the runs of [`Bottleneck::cases`].
    fn bias_of(&self, arm: &str, control: &str, counts: &[u32], runs: &[Recording]) -> Result<Bias, Failure> {
        let levels: Vec<_> = runs.iter().map(|run| (level(run, arm), level(run, control))).collect();
        let [(_, Some(all_control)), splits @ .., (Some(all_arm), _)] = &levels[..] else {
            return Err(Failure::Impossible("some runs are missing".to_owned()));
        };
        let points: Vec<(f64, Level, Level)> = counts
            .iter()
            .zip(splits)
            .filter_map(|(count, (arm, control))| {
                Some((f64::from(*count) / f64::from(self.flows), (*arm)?, (*control)?))
            })
            .collect();
        Ok(Bias::new(*all_arm, *all_control, &points))
    }

    /// A run with `count` connections in the arm. Strings of JSON are valid strings of TOML.
    fn case(&self, arm: &str, control: &str, count: u32, engines: &[Engine]) -> Result<Case, Failure> {
        let mut text = format!(
            "duration = \"{}\"\nwarmup = \"{}\"\nseed = {}\n[path]\nrate = \"{}\"\nrtt = \"{}\"\nbuffer = \
             {}\nloss = \"{}\"\n",
            self.duration,
            self.duration / 6,
            self.seed,
            self.rate,
            self.rtt,
            serde_json::Value::from(self.buffer.as_str()),
            self.loss,
        );
        for (cc, count) in [(arm, count), (control, self.flows - count)] {
            if count > 0 {
                // A stagger that is not a multiple of the RTT, so that the flows do not synchronise.
                text += &format!(
                    "[[flow]]\ncc = {}\ncount = {count}\nstagger = \"37ms\"\n",
                    serde_json::Value::from(cc)
                );
            }
        }
        let no_files = |name: &str| Err(format!("unknown file `{name}`"));
        let cases = scenario::parse("split calibrate", &text, &vocabulary(engines), &no_files)
            .map_err(Failure::usage)?;
        cases.into_iter().next().ok_or_else(|| Failure::usage("nothing to run"))
    }
}

/// A curve of few points, joined by lines.
fn dotted(label: &str, colour: [u8; 3], points: Vec<(f64, f64)>) -> Curve {
    Curve { stroke: Stroke::DottedLine, ..Curve::line(label, colour, points) }
}

/// The engine as text.
fn engine_text(engine: Engine) -> &'static str {
    match engine {
        Engine::Sim => "simulated",
        Engine::Lab => "this kernel's TCP",
    }
}

fn level(run: &Recording, cc: &str) -> Option<Level> {
    let flows: Vec<_> = run
        .flows
        .iter()
        .filter(|flow| flow.cc == cc)
        .map(|flow| {
            let s = &flow.summary;
            (s.goodput_bps, s.rtt_ms.p50.unwrap_or_default(), s.packets_retransmitted, s.packets_sent)
        })
        .collect();
    Level::from_connections(&flows)
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if self.arm == self.control {
            return Err(Failure::usage("name two different controllers, such as bbr cubic"));
        }
        let flows = self.bottleneck.flows;
        let count = |share: f64| ((f64::from(flows) * share).ceil() as u32).clamp(1, flows - 1);
        let mut counts: Vec<u32> = match &self.shares[..] {
            [] => SHARES.iter().map(|percent| (flows * percent).div_ceil(100).clamp(1, flows - 1)).collect(),
            asked => asked.iter().map(|share| count(share.as_f64())).collect(),
        };
        counts.sort_unstable();
        counts.dedup();
        let picture = self.svg.as_deref().map(AtomicFile::open).transpose().map_err(Failure::usage)?;
        let (biases, excluded) = self.measure(&counts)?;
        if let (Some(picture), Some((engine, bias))) = (picture, biases.first()) {
            let drawn = self.picture(*engine, bias).svg();
            picture.write_with(|out| out.write_all(drawn.as_bytes())).map_err(Failure::usage)?;
        }
        if self.json {
            match &biases[..] {
                [(_, bias)] => print_json(&Document { schema: "fullpipe/split-bias/1", value: bias })?,
                all => {
                    let named = all.iter().map(|(engine, bias)| (engine.name(), bias));
                    let value: std::collections::BTreeMap<&str, &Bias> = named.collect();
                    print_json(&Document { schema: "fullpipe/split-biases/1", value: &value })?;
                }
            }
        } else {
            for (place, (engine, bias)) in biases.iter().enumerate() {
                self.show(if place > 0 { "\n" } else { "" }, *engine, bias);
            }
            if let [(_, predicted), (_, measured)] = &biases[..] {
                println!("\nBias of the split, predicted by the simulator and measured on the kernel:");
                for (p, s) in predicted.points.iter().zip(&measured.points) {
                    println!(
                        "{:>8} {:>9} {:>9}  prediction off by {:+.0} %",
                        format!("{:.0} %", p.share * 100.0),
                        format!("×{:.2}", p.bias),
                        format!("×{:.2}", s.bias),
                        (p.bias / s.bias - 1.0) * 100.0
                    );
                }
            }
        }
        match excluded {
            0 => Ok(()),
            n => Err(Failure::Check(format!(
                "{n} of {} repeats in the lab are excluded, since one of their runs is invalid: the \
                 machine was busy",
                self.repeats
            ))),
        }
    }

    /// The bias per engine, and the number of repeats in the lab that are excluded because one of
    /// their runs is invalid.
    fn measure(&self, counts: &[u32]) -> Result<(Vec<(Engine, Bias)>, u32), Failure> {
        let engines = self.engine.engines();
        let (mut jobs, mut ends) = (Vec::new(), Vec::new());
        for &engine in engines {
            for repeat in 0..self.repeats {
                let path =
                    Bottleneck { seed: self.bottleneck.seed + u64::from(repeat), ..self.bottleneck.clone() };
                let cases = path.cases(&self.arm, &self.control, counts, engines)?;
                jobs.extend(cases.into_iter().map(|case| Job { engine, case }));
                ends.push((engine, jobs.len()));
            }
        }
        let progress = Progress::new(&jobs);
        let batch = Batch::new(jobs).keep_series(false);
        let lab = LabOptions { loader: EBPF_CONTROLLERS, ..LabOptions::default() };
        let runs = batch.with_lab(lab).run(&progress).into_runs().map_err(crate::runs::failure)?;
        drop(progress);
        let (mut repeats, mut excluded) = (Vec::new(), 0);
        let mut begin = 0;
        for (engine, end) in ends {
            let one = &runs[begin..end];
            begin = end;
            if one.iter().all(|run| run.valid) {
                repeats.push((engine, self.bottleneck.bias_of(&self.arm, &self.control, counts, one)?));
            } else {
                excluded += 1;
            }
        }
        let mut biases = Vec::new();
        for &engine in engines {
            let of_engine: Vec<Bias> =
                repeats.iter().filter(|(by, _)| *by == engine).map(|(_, bias)| bias.clone()).collect();
            let bias = Bias::from_repeats(&of_engine).ok_or_else(|| {
                Failure::Check("no repeat in the lab is valid: the machine was busy".to_owned())
            })?;
            biases.push((engine, bias));
        }
        Ok((biases, excluded))
    }

    /// The result of a split of each share, and of a full roll-out.
    fn picture(&self, engine: Engine, bias: &Bias) -> Picture {
        let path = &self.bottleneck;
        Picture {
            title: "A split on a shared bottleneck differs from a roll-out".to_owned(),
            subtitle: format!(
                "{} long transfers share {}, {}, a buffer of {}, loss {}; {}, seed {}",
                path.flows,
                path.rate,
                path.rtt,
                path.buffer,
                path.loss,
                engine_text(engine),
                path.seed
            ),
            panels: vec![
                self.ratios(bias),
                self.levels(bias, "Goodput per connection", Axis::log("Mbit/s"), |level| {
                    level.goodput_bps / 1e6
                }),
                self.levels(bias, "Retransmitted", Axis::log("%"), |level| level.retransmitted * 100.0),
                self.levels(bias, "RTT p50", Axis::linear("ms"), |level| level.rtt_ms),
            ],
            columns: 2,
            ..Picture::default()
        }
    }

    /// The goodput ratio of the arms at each share, and of a full roll-out.
    fn ratios(&self, bias: &Bias) -> Panel {
        const GREY: [u8; 3] = [0x5c, 0x67, 0x73];
        let ratios = bias.points.iter().map(|p| p.goodput_ratio).chain([bias.goodput_ratio]);
        let ends = ratios.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), x| (low.min(x), high.max(x)));
        let splits = bias.points.iter().map(|p| (p.share * 100.0, p.goodput_ratio));
        let rollout = [0.0, 100.0].map(|share| (share, bias.goodput_ratio));
        Panel {
            title: format!("Goodput of {} over {}", self.arm, self.control),
            x: self.shares(),
            y: Axis::log("ratio").with_range(ends.0 / 1.5, ends.1 * 1.5),
            curves: vec![
                dotted("split", controller_colour(&self.arm).light, splits.collect()),
                Curve { dash: 1, ..Curve::line("full roll-out", GREY, rollout) },
            ],
            marks: Vec::new(),
        }
    }

    /// A level of both arms at each share; a full roll-out is a split with all connections in one
    /// arm.
    fn levels(&self, bias: &Bias, title: &str, y: Axis, value: fn(&Level) -> f64) -> Panel {
        let points = bias.points.iter();
        let arms =
            points.clone().map(|p| (p.share * 100.0, value(&p.arm))).chain([(100.0, value(&bias.all_arm))]);
        let controls = [(0.0, value(&bias.all_control))]
            .into_iter()
            .chain(points.map(|p| (p.share * 100.0, value(&p.control))));
        Panel {
            title: title.to_owned(),
            x: self.shares(),
            y,
            curves: vec![
                dotted(&self.arm, controller_colour(&self.arm).light, arms.collect()),
                dotted(&self.control, controller_colour(&self.control).light, controls.collect()),
            ],
            marks: Vec::new(),
        }
    }

    fn shares(&self) -> Axis {
        Axis::linear(format!("% of connections in {}", self.arm)).with_range(0.0, 100.0)
    }

    fn show(&self, before: &str, engine: Engine, bias: &Bias) {
        let path = &self.bottleneck;
        let title = format!(
            "{} long transfers share {}, {}, {} buffer, loss {}: {} against {}, {}; goodput in Mbit/s",
            path.flows,
            path.rate,
            path.rtt,
            path.buffer,
            path.loss,
            self.arm,
            self.control,
            engine_text(engine)
        );
        print!("{before}");
        print_hanging("", 0, &title);
        println!(
            "{:>8} {:>9} {:>9} {:>8} {:>12} {:>13} {:>13}",
            "share", self.arm, self.control, "ratio", "bias", "RTT p50 ms", "retr %"
        );
        let mbit = |level: &Level| format!("{:.2}", level.goodput_bps / 1e6);
        let row = |share: String, arm: &Level, control: &Level, ratio: f64, off: String| {
            println!(
                "{share:>8} {:>9} {:>9} {:>8} {off:>12} {:>13} {:>13}",
                mbit(arm),
                mbit(control),
                format!("×{ratio:.2}"),
                format!("{:.1} / {:.1}", arm.rtt_ms, control.rtt_ms),
                format!("{:.2} / {:.2}", arm.retransmitted * 100.0, control.retransmitted * 100.0)
            );
        };
        for point in &bias.points {
            let share = format!("{:.0} %", point.share * 100.0);
            let error = point.bias_error.map_or(String::new(), |error| format!(" ±{:.0} %", error * 100.0));
            row(share, &point.arm, &point.control, point.goodput_ratio, format!("×{:.2}{error}", point.bias));
        }
        row("roll-out".to_owned(), &bias.all_arm, &bias.all_control, bias.goodput_ratio, String::new());
        if let Some(worst) = bias.worst() {
            println!(
                "\nA split of {:.0} % shows ×{:.2}; a full roll-out gives ×{:.2}.",
                worst.share * 100.0,
                worst.goodput_ratio,
                bias.goodput_ratio
            );
        }
    }
}
