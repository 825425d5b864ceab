//! `split plan`: how many connections it takes.

use super::usage;
use crate::failure::Failure;
use crate::print::{Document, print_json};
use fullpipe_split::stats::Design;
use fullpipe_split::{Arms, Ledger, Line, Metric, Reader};
use fullpipe_units::Fraction;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// How many connections it takes to see an effect
///
/// The spread is the standard deviation of the figure's natural logarithm: 0.5 where most are within a factor of 1.6 of
/// the middle, 1 within 2.7. A file of an earlier split, or of one of an arm against itself, says what it is here.
#[derive(clap::Args)]
pub struct Args {
    /// Arms and their shares, as for start
    #[arg(value_name = "ARM=SHARE", value_delimiter = ',', default_values_t = ["bbr=50%".to_owned(), "cubic=50%".to_owned()])]
    arms: Vec<String>,
    /// The effects to see; may be repeated
    #[arg(long = "effect", value_name = "SHARE", value_delimiter = ',', default_values = ["5%", "10%", "20%"])]
    effects: Vec<Fraction>,
    /// The probability of seeing it
    #[arg(long, value_name = "SHARE", default_value = "80%")]
    power: Fraction,
    /// Standard deviation of the figure's natural logarithm
    #[arg(long, value_name = "X", default_value_t = 1.0, conflicts_with = "from")]
    spread: f64,
    /// By how much clients or periods that are alike inflate the variance: 1 where each connection is assigned for itself
    #[arg(long, value_name = "X", default_value_t = 1.0, conflicts_with = "from")]
    inflation: f64,
    /// Transfers an hour, to say how long it takes
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Take spread, inflation and rate from the file of a split
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    from: Option<PathBuf>,
    /// For machines
    #[arg(long)]
    json: bool,
}

#[derive(serde::Serialize)]
struct Need {
    effect: f64,
    transfers: Option<u64>,
    hours: Option<f64>,
}

/// What the figures of connections are like here.
struct Traffic {
    spread: f64,
    inflation: f64,
    /// Transfers an hour.
    rate: Option<f64>,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let arms = Arms::parse(&self.arms).map_err(usage)?;
        let traffic = match &self.from {
            Some(path) => self.seen(path)?,
            None => Traffic { spread: self.spread, inflation: self.inflation, rate: self.rate },
        };
        let Traffic { spread, inflation, rate } = traffic;
        if !(spread > 0.0 && spread < 100.0 && (0.01..1e6).contains(&inflation)) {
            return Err(Failure::usage("--spread and --inflation: positive numbers"));
        }
        let needs = self.needs(&arms, &traffic);
        if self.json {
            let value = serde_json::json!({
                "power": self.power.as_f64(), "spread": spread, "inflation": inflation, "transfers_per_hour": rate, "needs": needs,
            });
            return print_json(&Document { schema: "fullpipe/split-plan/1", value: &value });
        }
        println!(
            "{}, spread {spread:.2}, variance ×{inflation:.2}: to see an effect on goodput with a probability of {},",
            self.arms.join(" "),
            self.power
        );
        println!("looking whenever you like, at 95 %:");
        for (need, effect) in needs.iter().zip(&self.effects) {
            println!("  {:>6}  {}", effect.to_string(), need.in_words());
        }
        if inflation == 1.0 && self.from.is_none() {
            println!("With --by client-prefix or --by time it takes more: --from FILE knows how much here.");
        }
        Ok(())
    }

    /// What the file of a split shows of its traffic; the rate as it was typed, if it was.
    fn seen(&self, path: &Path) -> Result<Traffic, Failure> {
        let named = |e: &dyn std::fmt::Display| Failure::usage(format_args!("{}: {e}", path.display()));
        let reader =
            Reader::new(BufReader::new(File::open(path).map_err(|e| named(&e))?)).map_err(|e| named(&e))?;
        let mut ledger = Ledger::new(reader.plan());
        let (mut first, mut last) = (f64::INFINITY, f64::NEG_INFINITY);
        for line in reader {
            if let Line::Connection(o) = line.map_err(|e| named(&e))? {
                first = first.min(o.opened_unix_s);
                last = last.max(o.opened_unix_s + o.duration_s);
                ledger.add(&o);
            }
        }
        let seen = ledger
            .spread(Metric::Goodput)
            .ok_or_else(|| named(&"too few transfers of the control arm to know their spread"))?;
        let shown = || (last > first).then(|| ledger.transfers() as f64 / (last - first) * 3600.0);
        Ok(Traffic { spread: seen.deviation, inflation: seen.inflation, rate: self.rate.or_else(shown) })
    }

    /// What it takes to see each effect.
    fn needs(&self, arms: &Arms, traffic: &Traffic) -> Vec<Need> {
        let shares = arms.shares();
        let control = shares.len() - 1;
        // The smallest arm decides.
        let smallest = (0..control).min_by_key(|arm| shares[*arm].as_billionths()).unwrap_or(0);
        let shares = [shares[smallest].as_f64(), shares[control].as_f64()];
        let design = Design {
            deviation: traffic.spread,
            inflation: traffic.inflation,
            shares,
            alpha: 0.05,
            scale: 0.1,
        };
        // A verdict takes a hundred connections of each arm: of so many more on average there are hardly fewer.
        let first = (130.0 / shares[0].min(shares[1])).ceil() as u64;
        let need = |effect: &Fraction| {
            let ratio = (1.0 + effect.as_f64()).ln();
            let transfers = design.needed(ratio, self.power.as_f64(), first);
            let hours = transfers.zip(traffic.rate).map(|(transfers, rate)| transfers as f64 / rate);
            Need { effect: effect.as_f64(), transfers, hours }
        };
        self.effects.iter().map(need).collect()
    }
}

impl Need {
    fn in_words(&self) -> String {
        let transfers =
            self.transfers.map_or("more than can be counted".to_owned(), |n| format!("{n} transfers"));
        let time = self.hours.map_or(String::new(), |hours| {
            if hours < 2.0 {
                format!(", {:.0} min at your rate", hours * 60.0)
            } else {
                format!(", {hours:.0} h at your rate")
            }
        });
        transfers + &time
    }
}
