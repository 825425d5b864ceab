//! Writes references as scenario files, tables and qlogs of few rows.

use super::runs::{Place, Reference, VARIANTS};
use fullpipe_conformance::Verdict;
use fullpipe_experiment::recording::{LinkRecording, Recording, Results, Series, column};
use fullpipe_report::{About, Output};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Rows that are spread evenly over a run.
const EVEN_ROWS: usize = 200;

/// Changes of state around which a run has more rows.
const DETAILED_CHANGES: usize = 16;

/// Round trips before and after such a change, and rows per round trip.
const BEFORE_RTTS: f64 = 1.0;
const AFTER_RTTS: f64 = 5.0;
const ROWS_PER_RTT: f64 = 4.0;

/// Failures of a case that the index lists.
const MAX_REASONS: usize = 3;

/// With more losses, a qlog has no event for each of them.
const MAX_LOSS_EVENTS: f64 = 2000.0;

/// Writes the runs of a reference below `folder`, and returns their lines of the index.
pub fn write(reference: &Reference, folder: &Path) -> Result<Vec<String>, String> {
    let Reference { place, variant, recordings, found } = reference;
    let directory = format!("{variant}/{}", place.case.name);
    fs::create_dir_all(folder.join(&directory)).map_err(|e| format!("cannot create {directory}: {e}"))?;
    let mut lines = Vec::new();
    for (i, recording) in recordings.iter().enumerate() {
        // The draft's case itself is the first run.
        let number = if i == 0 { String::new() } else { format!("-{}", i + 1) };
        let name = format!("{directory}/{}{number}", reference.path_name());
        let title = format!("{} ({variant}): {}", place.case.heading, place.path);
        write_run(recording, place.path.rtt.as_secs_f64(), title, &folder.join(&name))?;
        let (verdict, reasons) = match found.verdict() {
            Verdict::Passed => ("passed", &found.failures),
            Verdict::Failed => ("failed", &found.failures),
            Verdict::NotJudged => ("not judged", &found.not_judged),
        };
        lines.push(index_line(place, i + 1, variant, &name, verdict, &reason(reasons)));
    }
    Ok(lines)
}

/// The lines of the index of a case that is left out.
pub fn left_out(place: &Place, reason: &str) -> Vec<String> {
    VARIANTS.iter().map(|variant| index_line(place, 1, variant, "", "left out", reason)).collect()
}

/// The first line of the index.
pub const INDEX_HEADER: &str = "case,rtt,rate,run,variant,file,verdict,reason";

/// The first failures. A judge repeats a failure for each time that it saw it.
fn reason(failures: &[String]) -> String {
    let mut first: Vec<&str> = Vec::new();
    for failure in failures {
        if first.len() < MAX_REASONS && !first.contains(&failure.as_str()) {
            first.push(failure);
        }
    }
    first.join("; ").replace('"', "'")
}

fn index_line(place: &Place, run: usize, variant: &str, file: &str, verdict: &str, reason: &str) -> String {
    let Place { case, path } = place;
    format!("{},{},{},{run},{variant},{file},{verdict},\"{reason}\"", case.name, path.rtt, path.rate)
}

fn write_run(recording: &Recording, rtt: f64, title: String, path: &Path) -> Result<(), String> {
    let file = |extension: &str| path.with_added_extension(extension);
    let scenario = file("toml");
    fs::write(&scenario, format!("# {title}\n{}", recording.provenance.scenario))
        .map_err(|e| format!("cannot write {}: {e}", scenario.display()))?;
    let mut few = with_few_rows(recording, rtt);
    let about = About { title, command: String::new() };
    write_report(&few, &about, &file("csv"))?;
    let series = &mut few.flows[0].series;
    let lost = series.get(column::LOST_PACKETS).and_then(|v| v.last()).copied().unwrap_or_default();
    if lost > MAX_LOSS_EVENTS {
        series.columns.retain(|c| c.name != column::LOST_PACKETS);
    }
    write_report(&few, &about, &file("qlog"))
}

fn write_report(recording: &Recording, about: &About, path: &Path) -> Result<(), String> {
    let results = Results::new(vec![recording.clone()]);
    Output::open(path).and_then(|output| output.write(&results, about)).map_err(|e| e.to_string())
}

/// The recording with the rows that show most: evenly spread ones, and some around each of the first
/// changes of state. Without the reverse link, which has no queue of interest.
fn with_few_rows(recording: &Recording, rtt: f64) -> Recording {
    let flow = &recording.flows[0];
    let times = &flow.series.t_s;
    let mut kept: BTreeSet<usize> =
        (0..times.len()).step_by(times.len().div_ceil(EVEN_ROWS).max(1)).collect();
    kept.extend(times.len().checked_sub(1));
    for change in flow.states.iter().take(DETAILED_CHANGES) {
        let rows = (-BEFORE_RTTS * ROWS_PER_RTT) as i32..=(AFTER_RTTS * ROWS_PER_RTT) as i32;
        for row in rows {
            let at = change.at_s + f64::from(row) / ROWS_PER_RTT * rtt;
            kept.extend(Some(times.partition_point(|t| *t < at)).filter(|i| *i < times.len()));
        }
    }
    let only = |series: &Series| rows_of(series, &kept);
    let mut few = recording.clone();
    few.flows[0].series = only(&flow.series);
    few.links.retain(|link| link.label.starts_with("forward"));
    few.links.iter_mut().for_each(|link: &mut LinkRecording| link.series = only(&link.series));
    few
}

/// These rows of a series. The goodput of a row is that since the row before.
fn rows_of(series: &Series, kept: &BTreeSet<usize>) -> Series {
    let mut few = series.clone();
    few.t_s = kept.iter().filter_map(|i| series.t_s.get(*i)).copied().collect();
    for column in &mut few.columns {
        let values = std::mem::take(&mut column.values);
        let is_mean = column.name == column::GOODPUT_BPS;
        let mut next = 0;
        column.values = kept
            .iter()
            .filter(|i| **i < values.len())
            .map(|i| {
                let since = &values[next..=*i];
                next = i + 1;
                if is_mean { since.iter().sum::<f64>() / since.len() as f64 } else { values[*i] }
            })
            .collect();
    }
    few
}
