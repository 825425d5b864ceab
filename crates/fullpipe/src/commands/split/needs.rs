//! `split plan`: how many connections it takes.

use super::usage;
use crate::failure::Failure;
use crate::print::{Document, print_json};
use fullpipe_split::stats::Design;
use fullpipe_split::{Arms, Ledger, Line, Metric, Reader};
use fullpipe_units::Fraction;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

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

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let arms = Arms::parse(&self.arms).map_err(usage)?;
        let (mut spread, mut inflation, mut rate) = (self.spread, self.inflation, self.rate);
        if let Some(path) = &self.from {
            let named = |e: &dyn std::fmt::Display| Failure::usage(format_args!("{}: {e}", path.display()));
            let reader = Reader::new(BufReader::new(File::open(path).map_err(|e| named(&e))?))
                .map_err(|e| named(&e))?;
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
            (spread, inflation) = (seen.deviation, seen.inflation);
            rate =
                rate.or_else(|| (last > first).then(|| ledger.transfers() as f64 / (last - first) * 3600.0));
        }
        if !(spread > 0.0 && spread < 100.0 && (0.01..1e6).contains(&inflation)) {
            return Err(Failure::usage("--spread and --inflation: positive numbers"));
        }
        let shares = arms.shares();
        let control = shares.len() - 1;
        let design = |arm: usize| Design {
            deviation: spread,
            inflation,
            shares: [shares[arm].as_f64(), shares[control].as_f64()],
            alpha: 0.05,
            scale: 0.1,
        };
        // A verdict takes a hundred connections of each arm: of so many more on average there are hardly fewer.
        let least = |arm: usize| shares[arm].as_f64().min(shares[control].as_f64());
        let first = |arm: usize| (130.0 / least(arm)).ceil() as u64;
        // The smallest arm decides.
        let smallest = (0..control).min_by_key(|arm| shares[*arm].as_billionths()).unwrap_or(0);
        let needs: Vec<Need> = self
            .effects
            .iter()
            .map(|effect| {
                let ratio = (1.0 + effect.as_f64()).ln();
                let transfers = design(smallest).needed(ratio, self.power.as_f64(), first(smallest));
                let hours = transfers.zip(rate).map(|(transfers, rate)| transfers as f64 / rate);
                Need { effect: effect.as_f64(), transfers, hours }
            })
            .collect();
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
            let transfers =
                need.transfers.map_or("more than can be counted".to_owned(), |n| format!("{n} transfers"));
            let time = need.hours.map_or(String::new(), |hours| {
                if hours < 2.0 {
                    format!(", {:.0} min at your rate", hours * 60.0)
                } else {
                    format!(", {hours:.0} h at your rate")
                }
            });
            println!("  {:>6}  {transfers}{time}", effect.to_string());
        }
        if inflation == 1.0 && self.from.is_none() {
            println!("With --by client-prefix or --by time it takes more: --from FILE knows how much here.");
        }
        Ok(())
    }
}
