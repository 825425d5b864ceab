//! `split report`: the results of a split.

use super::calibrate::Bottleneck;
use super::usage;
use crate::failure::Failure;
use crate::print::{print, print_json, wrapped_to_stdout};
use crate::runs;
use fullpipe_report::{About, AtomicFile, write_page};
use fullpipe_run::{Engine, vocabulary};
use fullpipe_split::{Log, Reader, Report, Simulated, SplitError, page, terminal};
use fullpipe_units::{Fraction, Rate, Span};
use std::io::BufReader;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Args {
    /// File of `split start`, finished or still being written
    #[arg(value_name = "FILE", default_value = "split.jsonl", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Application log with metrics to compare: CSV with a header, or lines of JSON. Its column or
    /// key `cookie` is the SO_COOKIE of the connection
    #[arg(long, value_name = "LOG", value_hint = clap::ValueHint::FilePath)]
    join: Option<PathBuf>,
    /// Also write the report as an HTML file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// Skip the simulation of the bias between arms that share a bottleneck
    #[arg(long)]
    no_simulation: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// The number of connections at the simulated bottleneck.
const FLOWS: u32 = 10;
/// Higher rates take long to simulate, and the bias depends on the buffer in bandwidth-delay
/// products, hardly on the rate.
const MAX_RATE: f64 = 200e6;

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let error_in = |path: &Path| {
            let name = path.display().to_string();
            move |e: &dyn std::fmt::Display| Failure::usage(format_args!("{name}: {e}"))
        };
        let in_file = error_in(&self.file);
        let output = self.html.as_deref().map(AtomicFile::open).transpose().map_err(Failure::usage)?;
        let log = match &self.join {
            None => None,
            Some(path) => {
                let in_log = error_in(path);
                let file = runs::open(path, "an application log")?;
                Some(Log::read(BufReader::new(file)).map_err(|e| in_log(&e))?)
            }
        };
        let file = runs::open(&self.file, "a file of `split start`")?;
        let mut reader = Reader::new(BufReader::new(file)).map_err(|e| in_file(&e))?;
        let plan = reader.plan().clone();
        plan.check().map_err(usage)?;
        let mut report = Report::from_lines_with_log(&plan, &mut reader, log.as_ref())
            .map_err(|e: SplitError| in_file(&e))?;
        if report.has_overlap() && !self.no_simulation {
            for simulated in simulate(&report) {
                report.add_simulated(simulated);
            }
        }
        if let Some(output) = output {
            let others = plan.arms.all().iter().filter(|arm| arm.label != plan.control);
            let others: Vec<&str> = others.map(|arm| arm.label.as_str()).collect();
            let about = About {
                title: format!("{} against {}", others.join(", "), plan.control),
                command: format!("fullpipe split report {}", self.file.display()),
            };
            let subtitle = format!("{} · {} of {}", self.file.display(), plan.by, plan.cgroup);
            let body = page(&report);
            output.write_with(|out| write_page(&about, &subtitle, &body, out)).map_err(Failure::usage)?;
        }
        if self.json {
            return print_json(&report);
        }
        print(wrapped_to_stdout(&terminal(&report)))
    }
}

/// The name of a controller in the simulator.
fn simulated_name(controller: &str) -> &str {
    match controller {
        "fp_bbr1" => "bbr",
        other => other.strip_prefix("fp_").unwrap_or(other),
    }
}

/// Simulates this split at a bottleneck for ten connections like the control's; omits arms that the
/// simulator lacks.
fn simulate(report: &Report) -> Vec<Simulated> {
    let plan = &report.plan;
    let place = plan.control_index();
    let known = vocabulary(&[Engine::Sim]);
    let name = |place: usize| {
        let name = simulated_name(plan.arms.all()[place].controller.as_deref()?);
        known.check_controller(name).is_ok().then(|| name.to_owned())
    };
    let control = &report.arms[place];
    let (Some(goodput), Some(rtt_ms), Some(control_name)) =
        (control.goodput_p50_bps, control.min_rtt_p50_ms, name(place))
    else {
        return Vec::new();
    };
    let rate = (goodput * f64::from(FLOWS)).clamp(1e6, MAX_RATE);
    let rtt_ms = rtt_ms.clamp(1.0, 500.0);
    let bottleneck = Bottleneck {
        rate: Rate::from_bits_per_sec(rate as u64),
        rtt: Span::from_micros((rtt_ms * 1e3) as u64),
        buffer: "1bdp".to_owned(),
        loss: Fraction::ZERO,
        flows: FLOWS,
        duration: Span::from_secs(20),
        seed: 1,
    };
    let path = format!(
        "{FLOWS} long transfers sharing {:.0} Mbit/s, {rtt_ms:.1} ms and a buffer of one bandwidth-delay \
         product",
        rate / 1e6
    );
    let shares = plan.arms.shares();
    let one = |arm: usize| {
        let (a, c) = (shares[arm].as_f64(), shares[place].as_f64());
        let count = (f64::from(FLOWS) * a / (a + c)).round().clamp(1.0, f64::from(FLOWS - 1)) as u32;
        let arm_name = name(arm).filter(|name| *name != control_name)?;
        let bias = bottleneck.bias(&arm_name, &control_name, &[count]).ok()?;
        Some(Simulated { arm: plan.arms.all()[arm].label.clone(), path: path.clone(), bias })
    };
    (0..shares.len()).filter(|arm| *arm != place).filter_map(one).collect()
}
