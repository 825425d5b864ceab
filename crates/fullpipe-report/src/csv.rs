//! CSV (RFC 4180): one row per sample of every flow and link of every run.

use crate::reduce::{columns, distinct};
use fullpipe_experiment::recording::{Results, Series, Variation};
use std::io::{self, Write};

/// Columns that identify the flow or link of a row.
pub(crate) const KEYS: [&str; 7] = ["run", "label", "engine", "cc", "seed", "kind", "name"];

pub(crate) fn write(results: &Results, out: &mut dyn Write) -> io::Result<()> {
    let columns = columns(results);
    let varied = varied_columns(results);
    let names = varied.iter().map(|(name, _)| quoted(name));
    let header = KEYS.iter().copied().chain(["t_s"]).chain(columns.iter().copied()).map(str::to_owned);
    let header: Vec<String> = header.chain(names).collect();
    write!(out, "{}\r\n", header.join(","))?;
    for (i, run) in results.runs.iter().enumerate() {
        let key = |cc: &str, kind: &str, name: &str| {
            let [label, cc, name] = [&run.label, cc, name].map(quoted);
            format!("{},{label},{},{cc},{},{kind},{name}", i + 1, run.source.name(), run.seed)
        };
        let values = varied.iter().map(|(_, key)| format!(",{}", quoted(run.varied(key).unwrap_or(""))));
        let values: String = values.collect();
        for flow in &run.flows {
            rows(out, &key(&flow.cc, "flow", &flow.label), &flow.series, &columns, &values)?;
        }
        for link in &run.links {
            rows(out, &key(&run.cc, "link", &link.label), &link.series, &columns, &values)?;
        }
    }
    Ok(())
}

fn rows(out: &mut dyn Write, key: &str, series: &Series, columns: &[&str], varied: &str) -> io::Result<()> {
    let values: Vec<Option<&[f64]>> = columns.iter().map(|name| series.get(name)).collect();
    for (row, t) in series.t_s.iter().enumerate() {
        write!(out, "{key},{t}")?;
        for column in &values {
            match column.and_then(|c| c.get(row)).filter(|v| v.is_finite()) {
                Some(v) => write!(out, ",{v}")?,
                None => write!(out, ",")?,
            }
        }
        write!(out, "{varied}\r\n")?;
    }
    Ok(())
}

/// Parameters that vary between the runs: column name and key. The name is the last part of the key
/// (`loss`), or the whole key where that would be ambiguous.
pub(crate) fn varied_columns(results: &Results) -> Vec<(String, String)> {
    let keys = distinct(
        results
            .runs
            .iter()
            .flat_map(|r| &r.varied)
            .filter(|v| !v.is_cc() && v.key != Variation::SEED)
            .map(|v| &v.key),
    );
    let short = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    let taken = columns(results);
    let clear = |key: &&String| {
        let name = short(key);
        !KEYS.contains(&name.as_str())
            && !taken.contains(&name.as_str())
            && keys.iter().filter(|other| short(other) == name).count() == 1
    };
    keys.iter().map(|key| (if clear(key) { short(key) } else { (*key).clone() }, (*key).clone())).collect()
}

/// Quotes a field as RFC 4180 requires.
pub(crate) fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;

    #[test]
    fn every_sample_is_a_row_as_wide_as_the_header() {
        let mut race = support::race(2.0);
        race.runs[0].label = "bbr, \"fast\"".to_owned();
        let mut out = Vec::new();
        write(&race, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let mut lines = text.split_terminator("\r\n");
        let header = lines.next().unwrap();
        assert!(header.starts_with("run,label,engine,cc,seed,kind,name,t_s,goodput_bps,"), "{header}");
        let width = header.split(',').count();
        let samples: usize = race
            .runs
            .iter()
            .map(|r| {
                r.flows.iter().map(|f| f.series.t_s.len()).sum::<usize>()
                    + r.links.iter().map(|l| l.series.t_s.len()).sum::<usize>()
            })
            .sum();
        let lines: Vec<&str> = lines.collect();
        assert_eq!(lines.len(), samples);
        assert!(lines[0].starts_with("1,\"bbr, \"\"fast\"\"\",sim,bbr,1,flow,bbr,0"), "{}", lines[0]);
        assert!(lines.iter().skip(samples / 2).all(|l| l.split(',').count() == width));
    }

    #[test]
    fn varied_parameters_have_their_own_columns() {
        let mut race = support::race(0.5);
        for run in &mut race.runs {
            run.varied = vec![
                Variation::new("flow.cc", run.cc.as_str()),
                Variation::new("path.loss", "1%"),
                Variation::new("path.rtt", "40ms"),
                Variation::new("other.rtt", "2ms"),
                Variation::new("x.label", "y"),
            ];
        }
        let mut out = Vec::new();
        write(&race, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let mut lines = text.split_terminator("\r\n");
        assert!(lines.next().unwrap().ends_with(",loss,path.rtt,other.rtt,x.label"));
        assert!(lines.next().unwrap().ends_with(",1%,40ms,2ms,y"));
    }
}
