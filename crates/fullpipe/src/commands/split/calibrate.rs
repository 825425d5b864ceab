//! `split calibrate`: what a split would say where its arms share a bottleneck, beside what a roll-out brings.

use crate::failure::Failure;
use crate::print::{Document, print_json};
use fullpipe_experiment::Recording;
use fullpipe_experiment::scenario::{self, Case};
use fullpipe_report::picture::{Axis, Curve, Panel, Picture, Stroke};
use fullpipe_report::{Replacement, colour_of};
use fullpipe_run::{Engine, in_parallel, vocabulary};
use fullpipe_split::{Bias, Level};
use fullpipe_units::{Fraction, Rate, Span};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// How far splits of all shares are from whole roll-outs where arms meet at one bottleneck
///
/// Simulates long transfers that share a path, a part of them by the one controller and the rest by the other, and all of them
/// by either.
#[derive(clap::Args)]
pub struct Args {
    /// The arm's controller, as race takes it
    #[arg(default_value = "bbr")]
    arm: String,
    /// The control's
    #[arg(default_value = "cubic")]
    control: String,
    #[command(flatten)]
    bottleneck: Bottleneck,
    /// Also draw it: a picture as SVG
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    svg: Option<PathBuf>,
    /// For machines
    #[arg(long)]
    json: bool,
}

/// What connections of both arms share.
#[derive(Clone, Debug, clap::Args)]
pub struct Bottleneck {
    /// Rate of the bottleneck
    #[arg(long, default_value = "100mbit")]
    pub rate: Rate,
    /// Two-way propagation delay
    #[arg(long, default_value = "40ms")]
    pub rtt: Span,
    /// Limit of the bottleneck's queue: 1bdp, 64k, 100p, 20ms
    #[arg(long, default_value = "1bdp")]
    pub buffer: String,
    /// Random loss
    #[arg(long, default_value = "0")]
    pub loss: Fraction,
    /// Connections that share the path
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub flows: u32,
    /// Length of a run
    #[arg(long, default_value = "60s")]
    pub duration: Span,
    /// Of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Shares that are tried, in percent.
const SHARES: [u32; 9] = [1, 5, 10, 25, 50, 75, 90, 95, 99];

impl Bottleneck {
    /// Splits with these numbers of connections in the arm, and whole roll-outs.
    pub fn bias(&self, arm: &str, control: &str, counts: &[u32]) -> Result<Bias, Failure> {
        let mut counts = counts.to_vec();
        counts.insert(0, 0);
        counts.push(self.flows);
        let cases: Vec<Case> =
            counts.iter().map(|count| self.case(arm, control, *count)).collect::<Result<_, _>>()?;
        let runs = in_parallel(&cases, 0, |_, case| {
            ControlFlow::Continue(fullpipe_run::run(case, &mut |_| ControlFlow::Continue(())))
        });
        let mut levels = Vec::new();
        for run in runs.into_iter().flatten() {
            let run = run.map_err(Failure::usage)?;
            levels.push((level(&run, arm), level(&run, control)));
        }
        let (Some((_, Some(all_control))), Some((Some(all_arm), _))) = (levels.first(), levels.last()) else {
            return Err(Failure::Impossible("the simulator gave no runs".to_owned()));
        };
        let share = |count: u32| f64::from(count) / f64::from(self.flows);
        let points: Vec<(f64, Level, Level)> = counts
            .iter()
            .zip(&levels)
            .filter_map(|(count, (arm, control))| Some((share(*count), (*arm)?, (*control)?)))
            .collect();
        Ok(Bias::new(*all_arm, *all_control, &points))
    }

    /// So many of the connections by the arm's controller. JSON's strings are strings of TOML, too.
    fn case(&self, arm: &str, control: &str, count: u32) -> Result<Case, Failure> {
        let mut text = format!(
            "duration = \"{}\"\nwarmup = \"{}\"\nseed = {}\n[path]\nrate = \"{}\"\nrtt = \"{}\"\nbuffer = {}\nloss = \"{}\"\n",
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
                // Apart by something that is no multiple of anything, so that they do not move in step.
                text += &format!(
                    "[[flow]]\ncc = {}\ncount = {count}\nstagger = \"37ms\"\n",
                    serde_json::Value::from(cc)
                );
            }
        }
        let no_files = |name: &str| Err(format!("no file `{name}`"));
        let cases = scenario::parse("split calibrate", &text, &vocabulary(&[Engine::Sim]), &no_files)
            .map_err(Failure::usage)?;
        cases.into_iter().next().ok_or_else(|| Failure::usage("nothing to simulate"))
    }
}

fn level(run: &Recording, cc: &str) -> Option<Level> {
    let of: Vec<_> = run
        .flows
        .iter()
        .filter(|flow| flow.cc == cc)
        .map(|flow| {
            let s = &flow.summary;
            (s.goodput_bps, s.rtt_ms.p50.unwrap_or_default(), s.packets_retransmitted, s.packets_sent)
        })
        .collect();
    Level::of(&of)
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if self.arm == self.control {
            return Err(Failure::usage("two different controllers, such as bbr cubic"));
        }
        let flows = self.bottleneck.flows;
        let mut counts: Vec<u32> =
            SHARES.iter().map(|percent| (flows * percent).div_ceil(100).clamp(1, flows - 1)).collect();
        counts.dedup();
        let picture = self.svg.as_deref().map(Replacement::open).transpose().map_err(Failure::usage)?;
        let bias = self.bottleneck.bias(&self.arm, &self.control, &counts)?;
        if let Some(picture) = picture {
            let drawn = self.picture(&bias).svg();
            picture.write_by(|out| out.write_all(drawn.as_bytes())).map_err(Failure::usage)?;
        }
        if self.json {
            return print_json(&Document { schema: "fullpipe/split-bias/1", value: &bias });
        }
        self.show(&bias);
        Ok(())
    }

    /// What a split of each share shows, and what a roll-out brings.
    fn picture(&self, bias: &Bias) -> Picture {
        let path = &self.bottleneck;
        let (arm, control) = (colour_of(&self.arm).light, colour_of(&self.control).light);
        const GREY: [u8; 3] = [0x5c, 0x67, 0x73];
        let percent = |share: f64| share * 100.0;
        let panel = |title: &str, y: Axis, of: &dyn Fn(&Level) -> f64| {
            let dotted = |label: &str, colour, points: Vec<(f64, f64)>| Curve {
                stroke: Stroke::DottedLine,
                ..Curve::line(label, colour, points)
            };
            // A whole roll-out is a split of nothing or of everything.
            let arms = bias
                .points
                .iter()
                .map(|p| (percent(p.share), of(&p.arm)))
                .chain([(100.0, of(&bias.all_arm))]);
            let controls = [(0.0, of(&bias.all_control))]
                .into_iter()
                .chain(bias.points.iter().map(|p| (percent(p.share), of(&p.control))));
            Panel {
                title: title.to_owned(),
                x: Axis::linear(format!("% of connections in {}", self.arm)).from_to(0.0, 100.0),
                y,
                curves: vec![
                    dotted(&self.arm, arm, arms.collect()),
                    dotted(&self.control, control, controls.collect()),
                ],
                marks: Vec::new(),
            }
        };
        let ratios = bias.points.iter().map(|p| p.goodput_ratio).chain([bias.goodput_ratio]);
        let ends = ratios.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), x| (low.min(x), high.max(x)));
        let ratio = Panel {
            title: format!("Goodput of {} over {}", self.arm, self.control),
            x: Axis::linear(format!("% of connections in {}", self.arm)).from_to(0.0, 100.0),
            y: Axis::log("ratio").from_to(ends.0 / 1.5, ends.1 * 1.5),
            curves: vec![
                Curve {
                    stroke: Stroke::DottedLine,
                    ..Curve::line(
                        "what the split shows",
                        arm,
                        bias.points.iter().map(|p| (percent(p.share), p.goodput_ratio)),
                    )
                },
                Curve {
                    dash: 1,
                    ..Curve::line(
                        "what a roll-out brings",
                        GREY,
                        [(0.0, bias.goodput_ratio), (100.0, bias.goodput_ratio)],
                    )
                },
            ],
            marks: Vec::new(),
        };
        Picture {
            title: "A split on a shared bottleneck is not a roll-out".to_owned(),
            subtitle: format!(
                "{} long transfers share {}, {}, a buffer of {}, loss {}; simulated, seed {}",
                path.flows, path.rate, path.rtt, path.buffer, path.loss, path.seed
            ),
            panels: vec![
                ratio,
                panel("Goodput of a connection", Axis::log("Mbit/s"), &|level| level.goodput_bps / 1e6),
                panel("Sent again", Axis::log("%"), &|level| level.retransmitted * 100.0),
                panel("Median round-trip time", Axis::linear("ms"), &|level| level.rtt_ms),
            ],
            columns: 2,
            ..Picture::default()
        }
    }

    fn show(&self, bias: &Bias) {
        let path = &self.bottleneck;
        println!(
            "{} long transfers share {}, {}, {} buffer, loss {}: {} against {}",
            path.flows, path.rate, path.rtt, path.buffer, path.loss, self.arm, self.control
        );
        println!(
            "{:>8} {:>14} {:>14} {:>9} {:>9} {:>19} {:>19}",
            "share", self.arm, self.control, "ratio", "bias", "RTT ms", "sent again"
        );
        let mbit = |level: &Level| format!("{:.2} Mbit/s", level.goodput_bps / 1e6);
        let row = |share: String, arm: &Level, control: &Level, ratio: f64, off: String| {
            println!(
                "{share:>8} {:>14} {:>14} {:>9} {off:>9} {:>19} {:>19}",
                mbit(arm),
                mbit(control),
                format!("×{ratio:.2}"),
                format!("{:.1} / {:.1}", arm.rtt_ms, control.rtt_ms),
                format!("{:.2} % / {:.2} %", arm.retransmitted * 100.0, control.retransmitted * 100.0)
            );
        };
        for point in &bias.points {
            let share = format!("{:.0} %", point.share * 100.0);
            row(share, &point.arm, &point.control, point.goodput_ratio, format!("×{:.2}", point.bias));
        }
        row("roll-out".to_owned(), &bias.all_arm, &bias.all_control, bias.goodput_ratio, String::new());
        if let Some(worst) = bias.worst() {
            println!(
                "\nA split of {:.0} % says ×{:.2}; a roll-out brings ×{:.2}.",
                worst.share * 100.0,
                worst.goodput_ratio,
                bias.goodput_ratio
            );
        }
    }
}
