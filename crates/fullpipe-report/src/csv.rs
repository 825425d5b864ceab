//! CSV (RFC 4180): one row a sample, of every flow and every link of every run; a run without time
//! series still has one row a flow with its identity.

use crate::reduce::columns;
use fullpipe_experiment::recording::{Results, Series};
use std::io::{self, Write};

/// Columns that say whose sample a row is.
pub(crate) const KEYS: [&str; 7] = ["run", "label", "engine", "cc", "seed", "kind", "name"];

pub(crate) fn write(results: &Results, out: &mut dyn Write) -> io::Result<()> {
    let columns = columns(results);
    let header = KEYS.iter().copied().chain(["t_s"]).chain(columns.iter().copied());
    let header: Vec<&str> = header.collect();
    write!(out, "{}\r\n", header.join(","))?;
    for (i, run) in results.runs.iter().enumerate() {
        let key = |cc: &str, kind: &str, name: &str| {
            let [label, cc, name] = [&run.label, cc, name].map(quoted);
            format!("{},{label},{},{cc},{},{kind},{name}", i + 1, run.source.name(), run.seed)
        };
        for flow in &run.flows {
            rows(out, &key(&flow.cc, "flow", &flow.label), &flow.series, &columns)?;
        }
        for link in &run.links {
            rows(out, &key(&run.cc, "link", &link.label), &link.series, &columns)?;
        }
    }
    Ok(())
}

fn rows(out: &mut dyn Write, key: &str, series: &Series, columns: &[&str]) -> io::Result<()> {
    let values: Vec<Option<&[f64]>> = columns.iter().map(|name| series.get(name)).collect();
    for (row, t) in series.t_s.iter().enumerate() {
        write!(out, "{key},{t}")?;
        for column in &values {
            match column.and_then(|c| c.get(row)).filter(|v| v.is_finite()) {
                Some(v) => write!(out, ",{v}")?,
                None => write!(out, ",")?,
            }
        }
        write!(out, "\r\n")?;
    }
    Ok(())
}

/// A field as RFC 4180 wants it.
fn quoted(text: &str) -> String {
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
    fn every_sample_of_flows_and_links_is_a_row_of_the_header_s_width() {
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
}
