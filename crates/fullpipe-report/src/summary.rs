//! `summary.csv`: one row per run with its figures and the varied parameters, for spreadsheets and
//! data frames (RFC 4180).

use crate::csv::{quoted, varied_columns};
use fullpipe_experiment::recording::{Recording, Results};
use fullpipe_presentation::numbers::share;
use std::io::{self, Write};

/// A column: its name with the unit, and its value.
type Column = (&'static str, fn(&Recording) -> Option<f64>);

/// Figures of a run. Counts are integers.
const FIGURES: &[Column] = &[
    ("duration_s", |r| Some(r.summary.duration_s)),
    ("goodput_bps", |r| Some(r.summary.goodput_bps)),
    ("utilization", |r| r.summary.utilization),
    ("bytes_delivered", |r| Some(r.summary.bytes_delivered as f64)),
    ("packets_sent", |r| Some(r.summary.packets_sent as f64)),
    ("packets_retransmitted", |r| Some(r.summary.packets_retransmitted as f64)),
    ("packets_lost", |r| Some(r.summary.packets_lost as f64)),
    ("retransmitted_share", |r| Some(share(r.summary.packets_retransmitted, r.summary.packets_sent))),
    ("rtt_min_ms", |r| r.summary.rtt_ms.min),
    ("rtt_p50_ms", |r| r.summary.rtt_ms.p50),
    ("rtt_p95_ms", |r| r.summary.rtt_ms.p95),
    ("rtt_p99_ms", |r| r.summary.rtt_ms.p99),
    ("queue_p50_ms", |r| r.summary.queue_ms.p50),
    ("queue_p95_ms", |r| r.summary.queue_ms.p95),
    ("queue_max_ms", |r| r.summary.queue_ms.max),
    ("completion_s", |r| r.summary.completion_s),
    ("jain", Recording::fairness),
    ("goodput_limit_bps", |r| r.path.goodput_limit_bps),
    ("base_rtt_ms", |r| r.path.base_rtt_ms),
];

pub(crate) fn write(results: &Results, out: &mut dyn Write) -> io::Result<()> {
    let varied = varied_columns(results);
    let keys = ["run", "label", "engine", "cc", "seed", "valid"].into_iter().map(str::to_owned);
    let header = keys.chain(varied.iter().map(|(name, _)| quoted(name)));
    let header: Vec<String> = header.chain(FIGURES.iter().map(|(name, _)| (*name).to_owned())).collect();
    write!(out, "{}\r\n", header.join(","))?;
    for (i, run) in results.runs.iter().enumerate() {
        let [label, cc] = [&run.label, &run.cc].map(|text| quoted(text));
        write!(out, "{},{label},{},{cc},{},{}", i + 1, run.source.name(), run.seed, run.valid)?;
        for (_, key) in &varied {
            write!(out, ",{}", quoted(run.varied(key).unwrap_or("")))?;
        }
        for (_, figure) in FIGURES {
            match figure(run).filter(|v| v.is_finite()) {
                Some(v) => write!(out, ",{v}")?,
                None => write!(out, ",")?,
            }
        }
        write!(out, "\r\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;
    use fullpipe_experiment::recording::Variation;

    #[test]
    fn every_run_is_a_row_with_its_figures_and_varied_parameters() {
        let mut race = support::race(1.0);
        race.runs[1].valid = false;
        for run in &mut race.runs {
            run.varied = vec![Variation::new("path.loss", "1%"), Variation::new("path.rtt", "40ms, or so")];
        }
        let mut out = Vec::new();
        write(&race, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 1 + race.runs.len());
        assert!(
            lines[0].starts_with("run,label,engine,cc,seed,valid,loss,rtt,duration_s,goodput_bps,"),
            "{}",
            lines[0]
        );
        assert!(lines[1].starts_with("1,bbr,sim,bbr,1,true,1%,\"40ms, or so\",1,"), "{}", lines[1]);
        assert!(lines[2].contains(",false,"));
        let at = lines[0].split(',').position(|name| name == "goodput_bps").unwrap();
        // The quoted value contains one more comma.
        let goodput: f64 = lines[1].split(',').nth(at + 1).unwrap().parse().unwrap();
        assert_eq!(goodput, race.runs[0].summary.goodput_bps);
        // A run without completion time has an empty field.
        assert!(lines[1].contains(",,"), "{}", lines[1]);
    }
}
