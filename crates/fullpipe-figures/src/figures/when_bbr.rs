//! Cao et al. 2019: where BBR carries more than CUBIC, by rate, round-trip time and buffer.

use super::{VERSIONS, chapter, n, scenario};
use crate::view::{max, min};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::Case;
use fullpipe_experiment::recording::Recording;
use fullpipe_report::picture::{Axis, Curve, Mark, Panel, Picture, Stroke};

pub(super) const FIGURE: Figure = Figure {
    id: "when-bbr",
    title: "Where BBR carries more than CUBIC: a map by rate, round-trip time and buffer",
    source: "Cao, Jain, Sharma, Balasubramanian, Gandhi: When to use and when not to use BBR, IMC 2019",
    about: "One flow alone on 10 to 500 Mbit/s, 5 to 200 ms, with a drop-tail buffer of 100 kB or 10 MB, for \
            a minute. The paper's maps have finer grids. The short form, which is also that of `all`, has 4 \
            of the 25 paths, and BBR v1 only.",
    published: "no number for a single path. As others quote the paper, BBR carries up to three times as \
                much where the buffer is much smaller than a BDP, and CUBIC up to 30 % more in deep buffers.",
    file: "scenarios/figures/when-bbr.toml",
    text: scenario!("when-bbr"),
    chapter: chapter!("when-bbr"),
    revise: None,
    judge,
    in_lab: false,
    short: Some(shorter),
};

/// Rates, round-trip times and buffers, as in the file.
const RATES: [&str; 5] = ["10mbit", "50mbit", "100mbit", "250mbit", "500mbit"];
const RTTS: [&str; 5] = ["5ms", "20ms", "50ms", "100ms", "200ms"];
const BUFFERS: [(&str, &str); 2] = [("100kB", "a buffer of 100 kB"), ("10MB", "a buffer of 10 MB")];

/// Part of a BDP up to which a buffer is called small.
const SMALL: f64 = 0.1;

/// Classes of BBR's goodput relative to CUBIC's, from this value on: label and colour. The colours
/// go from blue by grey to red, darker towards both ends.
const CLASSES: [(f64, &str, [u8; 3]); 5] = [
    (2.0, "at least twice CUBIC's", [222, 105, 60]),
    (1.25, "1.25 to 2 times", [244, 166, 110]),
    (1.05, "1.05 to 1.25 times", [252, 220, 195]),
    (0.95, "within 5 %", [228, 228, 228]),
    (0.0, "less than 0.95 times", [120, 170, 215]),
];

fn shorter(mut cases: Vec<Case>) -> Vec<Case> {
    cases.retain(|case| {
        matches!(case.value("path.rate"), Some("50mbit" | "250mbit"))
            && matches!(case.value("path.rtt"), Some("20ms" | "200ms"))
            && case.scenario.cc() != "bbr3"
    });
    cases
}

/// A cell of the map: numbers of its column and row, buffer in BDP, goodput relative to CUBIC's,
/// and retransmitted packets relative to CUBIC's.
struct Cell {
    column: usize,
    row: usize,
    buffer: f64,
    gain: f64,
    retransmitted: f64,
}

/// The cells of a buffer that were run.
fn cells(runs: &Runs, cc: &str, buffer: &str) -> Vec<Cell> {
    let find = |cc: &str, rate: &str, rtt: &str| {
        let wanted = [("path.buffer", buffer), ("path.rate", rate), ("path.rtt", rtt)];
        let is = |case: &Case| {
            case.scenario.cc() == cc && wanted.iter().all(|(key, value)| case.value(key) == Some(value))
        };
        runs.runs.iter().find(|(case, _)| is(case)).map(|(_, run)| run)
    };
    let mut cells = Vec::new();
    for (column, rate) in RATES.iter().enumerate() {
        for (row, rtt) in RTTS.iter().enumerate() {
            let (Some(own), Some(cubic)) = (find(cc, rate, rtt), find("cubic", rate, rtt)) else { continue };
            let bytes = |value: Option<u64>| value.map_or(f64::NAN, |v| v as f64);
            let ratio = |of: fn(&Recording) -> f64| of(own) / of(cubic).max(1.0);
            cells.push(Cell {
                column,
                row,
                buffer: bytes(own.path.buffer_bytes) / bytes(own.path.bdp_bytes),
                gain: ratio(|run| run.summary.goodput_bps),
                retransmitted: ratio(|run| run.summary.packets_retransmitted as f64),
            });
        }
    }
    cells
}

/// A relative goodput as `2.1×`, `1.16×`.
fn times(gain: f64) -> String {
    format!("{}×", n(gain))
}

fn judge(runs: &Runs) -> Outcome {
    let v1 = BUFFERS.map(|(buffer, _)| cells(runs, "bbr", buffer));
    let v3 = BUFFERS.map(|(buffer, _)| cells(runs, "bbr3", buffer));
    let [shallow, deep] = &v1;
    let small: Vec<&Cell> = shallow.iter().filter(|cell| cell.buffer <= SMALL).collect();
    let gains = |cells: &[Cell]| cells.iter().map(|cell| cell.gain).collect::<Vec<f64>>();
    let small_gains: Vec<f64> = small.iter().map(|cell| cell.gain).collect();
    let small_retransmitted: Vec<f64> = small.iter().map(|cell| cell.retransmitted).collect();
    let deep_gains = gains(deep);
    let range = |gains: &[f64]| format!("{} to {}", times(min(gains)), times(max(gains)));
    let mut findings = vec![
        Finding::new(
            "BBR v1 carries more where the buffer is at most a tenth of a BDP",
            "up to 3×",
            range(&small_gains),
            "at least 1.05× everywhere, 1.5× somewhere",
            min(&small_gains) >= 1.05 && max(&small_gains) >= 1.5,
        ),
        Finding::new(
            "in those buffers it retransmits far more than CUBIC",
            "by several orders of magnitude",
            format!(
                "{} to {} times as many packets",
                n(min(&small_retransmitted)),
                n(max(&small_retransmitted))
            ),
            "at least 30 times as many",
            min(&small_retransmitted) >= 30.0,
        ),
        Finding::new(
            "in 10 MB CUBIC carries as much or more",
            "up to 30 % more",
            format!("BBR v1 {}", range(&deep_gains)),
            "BBR at most 1 % ahead on every path",
            max(&deep_gains) <= 1.01,
        )
        .differing(
            min(&deep_gains) > 0.9,
            "CUBIC is ahead by what BBR spends on Startup, ProbeRTT and its pacing margin; no path here \
             costs 30 %",
        ),
    ];
    // The short form has no runs of BBR v3.
    if !v3[0].is_empty() {
        let [shallow, deep] = v3.each_ref().map(|cells| gains(cells));
        findings.push(Finding::new(
            "BBR v3 gains less than BBR v1 at best",
            "not published",
            format!("{} in 100 kB, {} in 10 MB", range(&shallow), range(&deep)),
            "at most as much as v1 at best, and at most 1 % ahead in 10 MB",
            max(&shallow) <= max(&small_gains) && max(&deep) <= 1.01,
        ));
    }
    let panels = VERSIONS.iter().zip([&v1, &v3]).flat_map(|((_, version), maps)| {
        let run = BUFFERS.iter().zip(maps).filter(|(_, cells)| !cells.is_empty());
        run.map(move |((_, buffer), cells)| map(&format!("{version}, {buffer}"), cells))
    });
    let picture = Picture {
        title: "Goodput of one BBR flow relative to one of CUBIC on the same path".into(),
        subtitle:
            "A small buffer overflows in CUBIC's slow start, after which its window grows for minutes on a \
                   long path. In a deep buffer CUBIC fills the link, and the queue as well."
                .into(),
        panels: panels.collect(),
        columns: 2,
        panel_height: 330,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}

/// The map of one controller and one buffer.
fn map(title: &str, cells: &[Cell]) -> Panel {
    let spaced = |name: &&str| name.replace("mbit", "").replace("ms", "");
    let place = |cell: &Cell| (cell.column as f64, cell.row as f64);
    // A cell is in the first class whose bound its number reaches, as it is written.
    let written = |cell: &Cell| (cell.gain * 100.0).round() / 100.0;
    let class = |cell: &Cell| CLASSES.iter().position(|(from, ..)| written(cell) >= *from);
    let curves = CLASSES.iter().enumerate().map(|(i, (_, label, colour))| Curve {
        stroke: Stroke::Cells,
        ..Curve::line(*label, *colour, cells.iter().filter(|cell| class(cell) == Some(i)).map(place))
    });
    let curves = curves.filter(|curve| !curve.points.is_empty());
    let marks = cells.iter().map(|cell| {
        let (x, y) = place(cell);
        Mark::Text { x, y, label: format!("{:.2}", cell.gain) }
    });
    Panel {
        title: title.into(),
        x: Axis::named("rate, Mbit/s", RATES.iter().map(spaced).collect()),
        y: Axis::named("round-trip time, ms", RTTS.iter().map(spaced).collect()),
        curves: curves.collect(),
        marks: marks.collect(),
    }
}
