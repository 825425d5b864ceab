//! CSV (RFC 4180): one row per sample of every flow and link of every run.

use crate::reduce::{columns, distinct};
use fullpipe_experiment::recording::{Results, Series, StateChange, Variation};
use std::io::{self, Write};

/// Columns that identify the flow or link of a row.
pub(crate) const KEYS: [&str; 7] = ["run", "label", "engine", "cc", "seed", "kind", "name"];

/// Column of the controller's state; only if a flow has states.
const STATE: &str = "state";

fn has_states(results: &Results) -> bool {
    results.runs.iter().flat_map(|run| &run.flows).any(|flow| !flow.states.is_empty())
}

pub(crate) fn write(results: &Results, out: &mut dyn Write) -> io::Result<()> {
    let columns = columns(results);
    let varied = varied_columns(results);
    let names = varied.iter().map(|(name, _)| quoted(name));
    let has_states = has_states(results);
    let state = has_states.then_some(STATE);
    let header = KEYS.iter().copied().chain(["t_s"]).chain(columns.iter().copied()).chain(state);
    let header = header.map(str::to_owned);
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
            let key = key(&flow.cc, "flow", &flow.label);
            rows(out, &key, &flow.series, &columns, has_states.then_some(&flow.states), &values)?;
        }
        for link in &run.links {
            let key = key(&run.cc, "link", &link.label);
            rows(out, &key, &link.series, &columns, has_states.then_some(&[]), &values)?;
        }
    }
    Ok(())
}

/// Writes a row per sample, with the state at its time if the table has that column.
fn rows(
    out: &mut dyn Write,
    key: &str,
    series: &Series,
    columns: &[&str],
    states: Option<&[StateChange]>,
    varied: &str,
) -> io::Result<()> {
    let values: Vec<Option<&[f64]>> = columns.iter().map(|name| series.get(name)).collect();
    for (row, t) in series.t_s.iter().enumerate() {
        write!(out, "{key},{t}")?;
        for column in &values {
            match column.and_then(|c| c.get(row)).filter(|v| v.is_finite()) {
                Some(v) => write!(out, ",{v}")?,
                None => write!(out, ",")?,
            }
        }
        if let Some(states) = states {
            let past = states.partition_point(|change| change.at_s <= *t);
            let state = past.checked_sub(1).map_or("", |last| &states[last].state);
            write!(out, ",{}", quoted(state))?;
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
            && name != STATE
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
    fn each_sample_has_the_state_at_its_time_and_links_none() {
        let mut race = support::race(2.0);
        race.runs.truncate(1);
        let at = |at_s: f64, state: &str| StateChange { at_s, state: state.to_owned() };
        race.runs[0].flows[0].states = vec![at(0.5, "Startup"), at(1.0, "ProbeBW_UP")];
        let states = |race: &Results| {
            let mut out = Vec::new();
            write(race, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            let rows = text.split_terminator("\r\n").map(|line| line.split(',').collect::<Vec<_>>());
            let rows: Vec<_> = rows.collect();
            let column = rows[0].iter().position(|name| *name == STATE)?;
            assert_eq!(column + 1, rows[0].len());
            let of_row = |row: &Vec<&str>| {
                let t: f64 = row[7].parse().unwrap();
                (row[5] == "flow", t, row[column].to_owned())
            };
            Some(rows[1..].iter().map(of_row).collect::<Vec<_>>())
        };
        let found = states(&race).unwrap();
        assert!(found.iter().any(|(is_flow, ..)| !is_flow));
        for (is_flow, t, state) in found {
            let expected = match t {
                _ if !is_flow => "",
                t if t < 0.5 => "",
                t if t < 1.0 => "Startup",
                _ => "ProbeBW_UP",
            };
            assert_eq!(state, expected, "at {t} s");
        }
        race.runs[0].flows[0].states.clear();
        assert_eq!(states(&race), None);
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
