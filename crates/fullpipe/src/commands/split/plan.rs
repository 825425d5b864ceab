//! `split plan`: the number of connections that a split needs.

use super::usage;
use crate::failure::Failure;
use crate::print::{Document, print_json};
use crate::runs;
use fullpipe_split::stats::Design;
use fullpipe_split::{Arms, Ledger, Line, Metric, Reader};
use fullpipe_units::Fraction;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Estimate how many connections it takes to detect an effect
///
/// The spread is the standard deviation of the natural logarithm of goodput: 0.5 if most
/// connections are within a factor of 1.6 of the median, 1 if within 2.7. --from measures it from
/// the file of an earlier split, such as an A/A test.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe split plan --effect 5% --rate 20000")]
pub struct Args {
    /// Arms and their shares, as for `split start`
    #[arg(value_name = "ARM=SHARE", value_delimiter = ',', default_values = ["bbr=50%", "cubic=50%"])]
    arms: Vec<String>,
    /// Effects to detect, as relative changes of goodput; may be repeated
    #[arg(
        long = "effect",
        value_name = "SHARE",
        value_delimiter = ',',
        default_values = ["5%", "10%", "20%"]
    )]
    effects: Vec<Fraction>,
    /// Probability of detecting the effect (statistical power)
    #[arg(long, value_name = "SHARE", default_value = "80%")]
    power: Fraction,
    /// Standard deviation of the natural logarithm of goodput
    #[arg(long, value_name = "X", default_value_t = 1.0, conflicts_with = "from")]
    spread: f64,
    /// Factor by which the similarity of connections of one client or period increases the
    /// variance (design effect); 1 for `split start --by connection`. --from estimates it from an
    /// earlier split
    #[arg(long, value_name = "X", default_value_t = 1.0, conflicts_with = "from")]
    inflation: f64,
    /// Transfers per hour, to estimate the duration
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// File of an earlier split, from which spread, inflation and rate are estimated
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    from: Option<PathBuf>,
    /// Print the estimate as JSON
    #[arg(long)]
    json: bool,
}

#[derive(serde::Serialize)]
struct Estimate {
    effect: f64,
    transfers: Option<u64>,
    hours: Option<f64>,
}

/// Properties of the traffic that determine the number of connections.
struct Traffic {
    spread: f64,
    inflation: f64,
    /// Transfers per hour.
    rate: Option<f64>,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let arms = Arms::parse(&self.arms).map_err(usage)?;
        let traffic = match &self.from {
            Some(path) => self.measured(path)?,
            None => Traffic { spread: self.spread, inflation: self.inflation, rate: self.rate },
        };
        let Traffic { spread, inflation, rate } = traffic;
        if !(spread > 0.0 && spread < 100.0 && (0.01..1e6).contains(&inflation)) {
            return Err(Failure::usage("--spread and --inflation must be positive numbers"));
        }
        let estimates = self.estimates(&arms, &traffic);
        if self.json {
            let value = serde_json::json!({
                "power": self.power.as_f64(), "spread": spread, "inflation": inflation,
                "transfers_per_hour": rate, "needs": estimates,
            });
            return print_json(&Document { schema: "fullpipe/split-plan/1", value: &value });
        }
        println!(
            "{}, spread {spread:.2}, variance ×{inflation:.2}: connections needed to detect an effect on \
             goodput",
            self.arms.join(" ")
        );
        println!("with a power of {}, at 95 % confidence and any number of interim looks:", self.power);
        for (estimate, effect) in estimates.iter().zip(&self.effects) {
            println!("  {:>6}  {}", effect.to_string(), estimate.text());
        }
        if inflation == 1.0 && self.from.is_none() {
            println!(
                "With `split start --by client-prefix` or `--by time` it takes more; --from FILE measures \
                 how much."
            );
        }
        Ok(())
    }

    /// The traffic according to the file of a split; --rate overrides its rate.
    fn measured(&self, path: &Path) -> Result<Traffic, Failure> {
        let in_file = |e: &dyn std::fmt::Display| Failure::usage(format_args!("{}: {e}", path.display()));
        let file = runs::open(path, "a file of `split start`")?;
        let reader = Reader::new(BufReader::new(file)).map_err(|e| in_file(&e))?;
        let mut ledger = Ledger::new(reader.plan());
        let (mut first, mut last) = (f64::INFINITY, f64::NEG_INFINITY);
        for line in reader {
            if let Line::Connection(o) = line.map_err(|e| in_file(&e))? {
                first = first.min(o.opened_unix_s);
                last = last.max(o.opened_unix_s + o.duration_s);
                ledger.add(&o);
            }
        }
        let spread = ledger
            .spread(Metric::Goodput)
            .ok_or_else(|| in_file(&"too few transfers in the control arm to estimate their spread"))?;
        let rate = || (last > first).then(|| ledger.transfers() as f64 / (last - first) * 3600.0);
        Ok(Traffic { spread: spread.deviation, inflation: spread.inflation, rate: self.rate.or_else(rate) })
    }

    /// The number of transfers needed to detect each effect.
    fn estimates(&self, arms: &Arms, traffic: &Traffic) -> Vec<Estimate> {
        let shares = arms.shares();
        let control = shares.len() - 1;
        // The smallest arm determines the result.
        let smallest = (0..control).min_by_key(|arm| shares[*arm].as_billionths()).unwrap_or(0);
        let shares = [shares[smallest].as_f64(), shares[control].as_f64()];
        let design = Design {
            deviation: traffic.spread,
            inflation: traffic.inflation,
            shares,
            alpha: 0.05,
            scale: 0.1,
        };
        // A verdict needs 100 connections per arm; 130 expected ones are hardly ever fewer.
        let first = (130.0 / shares[0].min(shares[1])).ceil() as u64;
        let estimate = |effect: &Fraction| {
            let ratio = (1.0 + effect.as_f64()).ln();
            let transfers = design.needed(ratio, self.power.as_f64(), first);
            let hours = transfers.zip(traffic.rate).map(|(transfers, rate)| transfers as f64 / rate);
            Estimate { effect: effect.as_f64(), transfers, hours }
        };
        self.effects.iter().map(estimate).collect()
    }
}

impl Estimate {
    fn text(&self) -> String {
        let transfers = self.transfers.map_or("too many to count".to_owned(), |n| format!("{n} transfers"));
        let time = self.hours.map_or(String::new(), |hours| {
            if hours < 2.0 {
                format!(", {:.0} min at this rate", hours * 60.0)
            } else {
                format!(", {hours:.0} h at this rate")
            }
        });
        transfers + &time
    }
}
