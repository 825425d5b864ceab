//! The results as a table for the terminal.

mod sparkline;

use crate::comparison_text;
use crate::notes::notes;
use crate::reduce::{self, Condensed, RunNames};
use crate::verdict::{problems, verdict};
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::{Recording, Summary};
use fullpipe_presentation::numbers::{percent_figure, rate_unit, seconds, share, significant, wrap_text};
use fullpipe_presentation::palette::controller_colour;
use sparkline::sparkline;
use std::fmt::Write;

/// Layout of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Columns of the terminal; the table fits into 80 and more.
    pub width: usize,
    /// Whether colours may be used.
    pub colour: bool,
}

/// Runs with more flows show only the first ones and the last.
const MAX_FLOWS: usize = 12;
/// Width of a sparkline in characters: a narrower one is left out, a wider one shows no more.
const MIN_SPARK_WIDTH: usize = 6;
const MAX_SPARK_WIDTH: usize = 40;

/// Heading with the path, table, and conclusion.
pub fn table(results: &Results, style: &Style) -> String {
    let mut out = String::new();
    let paint = |text: &str, code: &str| {
        if style.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    };
    if let Some(found) = &results.comparison {
        return comparison_text(found, style.width);
    }
    if let Some(run) = results.runs.first() {
        for line in wrap_text(&heading(results, run), style.width) {
            let _ = writeln!(out, "{}", paint(&line, "2"));
        }
        out.push('\n');
        let condensed = reduce::condense(results);
        out += &rows(&condensed, style);
        out.push('\n');
        if condensed.has_intervals() {
            for line in wrap_text(reduce::INTERVALS, style.width) {
                let _ = writeln!(out, "{}", paint(&line, "2"));
            }
        }
    }
    for problem in problems(results) {
        for line in wrap_text(&problem, style.width) {
            let _ = writeln!(out, "{}", paint(&line, "1;31"));
        }
    }
    for line in wrap_text(&verdict(results), style.width) {
        let _ = writeln!(out, "{}", paint(&line, "1"));
    }
    for note in notes(results) {
        for line in wrap_text(&note, style.width) {
            let _ = writeln!(out, "{}", paint(&line, "2"));
        }
    }
    out
}

/// Path, duration, engine and seeds.
fn heading(results: &Results, first: &Recording) -> String {
    let same = results.runs.iter().all(|r| r.path == first.path);
    let path = if same { first.path.description.as_str() } else { "different paths" };
    let engines = reduce::distinct(results.runs.iter().map(|r| r.source.name()));
    let mut seeds: Vec<u64> = results.runs.iter().map(|r| r.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds = match seeds.as_slice() {
        [one] => format!("seed {one}"),
        [first, .., last] => format!("{} seeds, {first} to {last}", seeds.len()),
        [] => String::new(),
    };
    let length = results.runs.iter().map(|r| r.summary.duration_s).fold(0.0, f64::max);
    let parts = [path, &seconds(length), &engines.join(" and "), &seeds];
    parts.iter().filter(|p| !p.is_empty()).copied().collect::<Vec<_>>().join(" · ")
}

/// A row: its cells without the sparkline, and the run and flows that it belongs to.
struct Row<'a> {
    cells: Vec<String>,
    cc: &'a str,
    run: usize,
    /// The flows that the sparkline adds up.
    flows: Vec<usize>,
    nested: bool,
}

/// The optional columns that are present.
struct Columns {
    queue_median: bool,
    completion: bool,
    jain: bool,
    intervals: bool,
    unit: &'static str,
    unit_size: f64,
}

impl Columns {
    fn new(condensed: &Condensed<'_>, width: usize) -> Columns {
        let results = &*condensed.results;
        let top = results.runs.iter().map(|r| r.summary.goodput_bps).fold(0.0, f64::max);
        let (unit, unit_size) = rate_unit(top);
        let flows = || results.runs.iter().flat_map(|r| &r.flows).map(|f| &f.summary);
        let mut summaries = results.runs.iter().map(|r| &r.summary).chain(flows());
        Columns {
            queue_median: width >= 100,
            completion: summaries.any(|s| s.completion_s.is_some()),
            jain: results.runs.iter().any(|r| r.flows.len() > 1),
            intervals: condensed.has_intervals(),
            unit,
            unit_size,
        }
    }

    fn header(&self) -> Vec<String> {
        let mut header = vec!["\n", "goodput\n"];
        header.extend(self.intervals.then_some("\n±"));
        header.extend(["link\n%", "retr\n%"]);
        header.extend(["RTT ms\nmin", "\np50", "\np95", "\np99"]);
        header.extend(if self.queue_median { &["queue ms\np50", "\np95"][..] } else { &["queue\np95 ms"] });
        header.extend(self.completion.then_some("done\ns"));
        header.extend(self.jain.then_some("Jain\nindex"));
        let mut header: Vec<String> = header.into_iter().map(str::to_owned).collect();
        header[1] += self.unit;
        header
    }

    fn cells(&self, label: String, s: &Summary, half: Option<f64>, jain: Option<f64>) -> Vec<String> {
        let ms = |v: Option<f64>| v.map_or("–".to_owned(), |v| significant(v, 3));
        let mut cells = vec![label, significant(s.goodput_bps / self.unit_size, 3)];
        if self.intervals {
            cells.push(half.map_or(String::new(), |half| significant(half / self.unit_size, 2)));
        }
        cells.extend([
            s.utilization.map_or("–".to_owned(), percent_figure),
            percent_figure(share(s.packets_retransmitted, s.packets_sent)),
        ]);
        cells.extend([s.rtt_ms.min, s.rtt_ms.p50, s.rtt_ms.p95, s.rtt_ms.p99].map(ms));
        cells.extend(self.queue_median.then(|| ms(s.queue_ms.p50)));
        cells.push(ms(s.queue_ms.p95));
        cells.extend(self.completion.then(|| ms(s.completion_s)));
        cells.extend(self.jain.then(|| jain.map_or(String::new(), |j| format!("{j:.3}"))));
        cells
    }
}

/// Rows of all runs and, where flows share a run, of the flows; of many flows the first ones and
/// the last.
fn collect<'a>(condensed: &'a Condensed<'_>, columns: &Columns) -> Vec<Row<'a>> {
    let results = &*condensed.results;
    let names = RunNames::new(results);
    let mut rows = Vec::new();
    for (index, run) in results.runs.iter().enumerate() {
        let mut label = names.with_seed(run);
        if !run.valid {
            label.push_str(" ✗");
        }
        let cells = columns.cells(label, &run.summary, condensed.half[index], run.fairness());
        let flows = (0..run.flows.len()).collect();
        rows.push(Row { cells, cc: &run.cc, run: index, flows, nested: false });
        let hidden = run.flows.len().saturating_sub(MAX_FLOWS);
        for (i, flow) in run.flows.iter().enumerate().filter(|_| run.flows.len() > 1) {
            if hidden == 0 || i < MAX_FLOWS - 1 || i == run.flows.len() - 1 {
                let cells = columns.cells(format!("  {}", flow.label), &flow.summary, None, None);
                rows.push(Row { cells, cc: &flow.cc, run: index, flows: vec![i], nested: true });
            } else if i == MAX_FLOWS - 1 {
                let cells = vec![format!("  … {hidden} more")];
                rows.push(Row { cells, cc: &run.cc, run: index, flows: vec![], nested: true });
            }
        }
    }
    rows
}

fn rows(condensed: &Condensed<'_>, style: &Style) -> String {
    let results = &*condensed.results;
    let columns = Columns::new(condensed, style.width);
    let mut rows = collect(condensed, &columns);
    let mut header = columns.header();

    // Labels and sparklines share the width that the numbers leave.
    let length = |text: &str| text.lines().map(|l| l.chars().count()).max().unwrap_or(0);
    let widest = |i: usize| {
        let cells = rows.iter().filter_map(|r| r.cells.get(i)).map(|c| length(c));
        cells.chain([length(&header[i])]).max().unwrap_or(0)
    };
    let figures: usize = (1..header.len()).map(|i| widest(i) + 1).sum();
    let left = style.width.max(40).saturating_sub(figures);
    let label_width = widest(0).clamp(4, left.saturating_sub(MIN_SPARK_WIDTH + 2).max(14)).min(left.max(4));
    let spark_width = left.saturating_sub(label_width + 2).min(MAX_SPARK_WIDTH);
    let with_spark = spark_width >= MIN_SPARK_WIDTH;
    if with_spark {
        header.push("goodput over time\n".chars().take(spark_width).collect());
    }

    let limit = results.runs.iter().filter_map(|r| r.path.goodput_limit_bps).fold(0.0, f64::max);
    let top = if limit > 0.0 { limit } else { peak(results) };
    // All sparklines have the same time scale.
    let end = results.runs.iter().map(reduce::end_s).fold(0.0, f64::max);
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if style.colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    let dim = |text: String| match style.colour {
        true => Cell::new(text).add_attribute(Attribute::Dim),
        false => Cell::new(text),
    };
    table.set_header(header.iter().cloned().map(dim));
    for row in &mut rows {
        row.cells[0] = clip(&row.cells[0], label_width);
        if with_spark && !row.flows.is_empty() {
            let run = &results.runs[row.run];
            let (t, v) = reduce::goodput_of(run, &row.flows);
            row.cells.push(sparkline(&t, &v, end, top, spark_width));
        }
        let last = row.cells.len() - 1;
        table.add_row(row.cells.iter().enumerate().map(|(i, text)| {
            let cell = Cell::new(text);
            match i {
                _ if !style.colour => cell,
                0 => cell.fg(Color::AnsiValue(controller_colour(row.cc).terminal)),
                1 if !row.nested => cell.add_attribute(Attribute::Bold),
                i if i == last && with_spark => cell.fg(Color::AnsiValue(controller_colour(row.cc).terminal)),
                _ => cell,
            }
        }));
    }
    for (i, column) in table.column_iter_mut().enumerate() {
        let is_spark = with_spark && i == header.len() - 1;
        column.set_padding((if is_spark { 2 } else { u16::from(i > 0) }, 0));
        let left = i == 0 || is_spark;
        column.set_cell_alignment(if left { CellAlignment::Left } else { CellAlignment::Right });
    }
    let text = table.to_string();
    text.lines().map(|l| format!("{}\n", l.trim_end())).collect()
}

fn peak(results: &Results) -> f64 {
    let goodputs = results.runs.iter().map(|r| {
        let all: Vec<usize> = (0..r.flows.len()).collect();
        reduce::goodput_of(r, &all).1.into_iter().filter(|v| v.is_finite()).fold(0.0, f64::max)
    });
    goodputs.fold(0.0, f64::max)
}

fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;
    use fullpipe_experiment::recording::{CheckResult, Variation};

    const PLAIN: Style = Style { width: 80, colour: false };

    fn widest(text: &str) -> usize {
        text.lines().map(|l| l.chars().count()).max().unwrap()
    }

    #[test]
    fn table_fits_80_and_120_columns() {
        for width in [80, 100, 120] {
            for results in [support::race(30.0), support::together(30.0)] {
                let text = table(&results, &Style { width, colour: false });
                assert!(widest(&text) <= width, "{width}:\n{text}");
                assert!(text.contains('█') && text.contains("p99"), "{text}");
            }
        }
    }

    #[test]
    fn colour_adds_only_escape_sequences() {
        let race = support::race(5.0);
        let plain = table(&race, &PLAIN);
        assert!(!plain.contains('\x1b'));
        let coloured = table(&race, &Style { colour: true, ..PLAIN });
        assert!(coloured.contains("\x1b["));
        let mut stripped = String::new();
        let mut in_escape = false;
        for c in coloured.chars() {
            match c {
                '\x1b' => in_escape = true,
                'm' if in_escape => in_escape = false,
                _ if !in_escape => stripped.push(c),
                _ => {}
            }
        }
        let squeeze = |t: &str| t.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeeze(&stripped), squeeze(&plain));
    }

    #[test]
    fn invalid_runs_and_failed_checks_are_reported() {
        let mut race = support::race(2.0);
        race.runs[0].valid = false;
        race.runs[0].invalid_because = vec!["too late".to_owned()];
        race.runs[1].checks = vec![CheckResult::for_states("rtt.p95 <= 50ms".into(), &["100 ms"], false)];
        let text = table(&race, &PLAIN);
        assert!(
            text.contains("bbr ✗") && text.contains("not valid: bbr") && text.contains("too late"),
            "{text}"
        );
        assert!(text.contains("check failed: cubic") && text.contains("rtt.p95 <= 50ms"), "{text}");
    }

    #[test]
    fn repeats_have_an_interval_within_80_columns() {
        let mut race = support::race(5.0);
        let runs = std::mem::take(&mut race.runs);
        for seed in 1..=5_u32 {
            for run in &runs {
                let mut run = run.clone();
                run.seed = seed.into();
                run.varied = vec![Variation::new(Variation::SEED, seed.to_string())];
                run.summary.goodput_bps *= 1.0 + f64::from(seed) / 100.0;
                race.runs.push(run);
            }
        }
        let text = table(&race, &PLAIN);
        assert!(text.contains("bbr × 5") && text.contains("Student's t") && widest(&text) <= 80, "{text}");
        let mean = race.runs[0].summary.goodput_bps / 1.01 * 1.03 / 1e6;
        // One percent of the goodput, times the deviation of 1 to 5, over the square root of five, times t
        // = 2.776.
        let half = mean / 1.03 / 100.0 * 2.5_f64.sqrt() / 5.0_f64.sqrt() * 2.776;
        let row = text.lines().find(|line| line.starts_with("bbr × 5")).unwrap();
        let cells: Vec<f64> =
            row.split_whitespace().skip(3).take(2).map(|cell| cell.parse().unwrap()).collect();
        assert!((cells[0] - mean).abs() < 0.1 && (cells[1] - half).abs() < 0.1, "{row}: {mean} {half}");
    }

    #[test]
    fn thousand_flows_fit_on_a_page() {
        let mut results = support::together(1.0);
        let flow = results.runs[0].flows[1].clone();
        results.runs[0].flows.resize(1000, flow);
        let text = table(&results, &PLAIN);
        assert!(text.contains("… 988 more"), "{text}");
        assert!(text.lines().count() < 25, "{text}");
    }

    #[test]
    fn long_labels_are_truncated_and_empty_results_are_named() {
        let mut race = support::race(1.0);
        race.runs[0].label = "an exceedingly long label, of a sweep over everything".to_owned();
        let text = table(&race, &PLAIN);
        assert!(widest(&text) <= 80 && text.contains('…'), "{text}");
        race.runs.clear();
        assert_eq!(table(&race, &PLAIN), "No runs.\n");
    }
}
