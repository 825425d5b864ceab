//! Results as a picture: goodput, round-trip time, inflight and queue over time.

use super::{Axis, Curve, Mark, Panel, Picture, of_sweep};
use crate::figures::{rate_unit, size_unit};
use crate::palette::{Colour, colour_of, look};
use crate::reduce::{Grid, lines, smoothed};
use crate::verdict::{troubles, verdict};
use crate::{About, comparison, reduce};
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::{PathFacts, Recording, Series, column};
use std::collections::BTreeMap;

/// Points a line: more than a plot has pixels.
const ROWS: usize = 1600;

/// More runs than this are not drawn over time one by one.
const RUNS_MOST: usize = 12;

/// The picture of `results`, with their conclusion above it.
pub fn of_results(results: &Results, about: &About) -> Picture {
    let mut subtitle = verdict(results);
    for trouble in troubles(results) {
        subtitle = format!("{trouble}. {subtitle}");
    }
    let first = results.runs.first();
    let same_path = results.runs.windows(2).all(|w| w[0].path == w[1].path);
    let description = first.filter(|_| same_path).map_or("", |r| r.path.description.as_str());
    let title = if about.title.is_empty() { description } else { &about.title };
    let facts = first.filter(|_| same_path).map(|r| r.path.clone()).unwrap_or_default();

    if let Some(found) = &results.comparison {
        let picture = comparison::picture(found);
        let footer = format!("{} {}", picture.footer, about.command);
        return Picture { title: title.to_owned(), subtitle, footer, ..picture };
    }
    if let Some(sweep) = of_sweep(results).filter(|_| results.runs.len() > RUNS_MOST) {
        let footer = about.command.clone();
        return Picture { title: title.to_owned(), subtitle, footer, ..sweep };
    }

    Picture {
        title: title.to_owned(),
        subtitle,
        panels: panels(results, &facts),
        columns: 2,
        footer: first.map(|run| footer(results, run, description, &about.command)).unwrap_or_default(),
        ..Picture::default()
    }
}

/// Where the numbers come from.
fn footer(results: &Results, first: &Recording, description: &str, command: &str) -> String {
    let seeds: Vec<u64> = results.runs.iter().map(|r| r.seed).collect();
    let (low, high) = (seeds.iter().min().unwrap_or(&0), seeds.iter().max().unwrap_or(&0));
    let seeds = if low == high { format!("seed {low}") } else { format!("seeds {low} to {high}") };
    let version = format!("fullpipe {}", first.provenance.version);
    let engine = format!("engine {}", first.source.name());
    let parts = [&version, description, &engine, &seeds, command];
    parts.iter().filter(|p| !p.is_empty()).copied().collect::<Vec<_>>().join(" · ")
}

/// Goodput, round-trip time, inflight and queue over time, beside what the path allows.
fn panels(results: &Results, facts: &PathFacts) -> Vec<Panel> {
    let drawn = Drawn::of(results);
    let limit = facts.goodput_limit_bps;
    // By what was carried: a path of 1 Gbit/s over which 50 Mbit/s went is no 0.05 Gbit/s.
    let carried = drawn.carried();
    let (rate, rate_size) = rate_unit(if carried > 0.0 { carried } else { limit.unwrap_or_default() });
    let bdp = facts.bdp_bytes.map(|b| b as f64);
    let full = facts.bdp_bytes.zip(facts.buffer_bytes).map(|(b, q)| (b + q) as f64);
    let (size, size_size) = size_unit(drawn.highest(column::INFLIGHT_BYTES, bdp));
    let goodput = drawn.panel(column::GOODPUT_BPS, "Goodput", (rate_size, rate));
    let rtt = drawn.panel(column::RTT_MS, "Round-trip time", (1.0, "ms"));
    let inflight = drawn.panel(column::INFLIGHT_BYTES, "Inflight", (size_size, size));
    let across = |scale: f64, marks: &[(Option<f64>, &str)]| {
        let known = marks.iter().filter_map(|(v, label)| Some(((*v)? / scale, (*label).to_owned())));
        known.map(|(y, label)| Mark::Across { y, label }).collect()
    };
    vec![
        Panel { marks: across(rate_size, &[(limit, "what the path allows")]), ..goodput },
        Panel { marks: across(1.0, &[(facts.base_rtt_ms, "the path's own")]), ..rtt },
        Panel { marks: across(size_size, &[(bdp, "BDP"), (full, "BDP + buffer")]), ..inflight },
        Panel {
            marks: across(size_size, &[(facts.buffer_bytes.map(|b| b as f64), "buffer")]),
            ..queue(results, size_size, size, drawn.end)
        },
    ]
}

/// The lines over time.
struct Drawn<'a> {
    lines: Vec<reduce::Line<'a>>,
    /// Of very many runs only the controller is told.
    crowded: bool,
    /// Goodput is a mean over so many seconds.
    window: f64,
    /// When the last run ends.
    end: f64,
}

impl<'a> Drawn<'a> {
    fn of(results: &'a Results) -> Self {
        Drawn {
            lines: lines(results),
            crowded: results.runs.len() > RUNS_MOST,
            window: reduce::smoothing_s(results),
            end: results.runs.iter().map(reduce::end_s).fold(0.0, f64::max),
        }
    }

    /// A column of each, in a unit that is so many of the column's.
    fn panel(&self, name: &str, title: &str, (scale, unit): (f64, &str)) -> Panel {
        let curves = self.lines.iter().filter_map(|line| {
            let values = line.series.get(name)?;
            let smooth =
                (name == column::GOODPUT_BPS).then(|| smoothed(&line.series.t_s, values, self.window));
            Some(curve(
                if self.crowded { line.cc } else { &line.label },
                if self.crowded { (colour_of(line.cc), 0) } else { line.look },
                &line.series.t_s,
                smooth.as_deref().unwrap_or(values),
                scale,
            ))
        });
        over_time(title, self.end, unit, curves.collect())
    }

    /// The highest value of a column, `floor` if none is higher.
    fn highest(&self, name: &str, floor: Option<f64>) -> f64 {
        let values = self.lines.iter().filter_map(|line| line.series.get(name)).flatten();
        values.copied().filter(|v| v.is_finite()).fold(floor.unwrap_or(0.0), f64::max)
    }

    /// The highest goodput as it is drawn.
    fn carried(&self) -> f64 {
        let carried = self.lines.iter().filter_map(|line| {
            let goodput = smoothed(&line.series.t_s, line.series.get(column::GOODPUT_BPS)?, self.window);
            goodput.into_iter().filter(|v| v.is_finite()).reduce(f64::max)
        });
        carried.fold(0.0, f64::max)
    }
}

fn over_time(title: &str, end: f64, unit: &str, curves: Vec<Curve>) -> Panel {
    Panel {
        title: title.to_owned(),
        x: Axis::linear("seconds").from_to(0.0, if end > 0.0 { end } else { 1.0 }),
        y: Axis::linear(unit),
        curves,
        marks: Vec::new(),
    }
}

/// The queue of each run's fullest link.
fn queue(results: &Results, scale: f64, unit: &str, end: f64) -> Panel {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let of = |cc: &str| results.runs.iter().filter(|run| run.cc == cc).count();
    let curves = results.runs.iter().filter_map(|run| {
        let count = seen.entry(&run.cc).or_default();
        let nth = std::mem::replace(count, *count + 1);
        let series = reduce::fullest_queue(run)?;
        let values = series.get(column::QUEUE_BYTES)?;
        let crowded = results.runs.len() > RUNS_MOST;
        let (label, look) = match crowded {
            true => (&run.cc, (colour_of(&run.cc), 0)),
            // A queue is all flows' own: of a run with several it has the controller's plain colour.
            false => (&run.label, look(&run.cc, nth, of(&run.cc))),
        };
        Some(curve(label, look, &series.t_s, values, scale))
    });
    over_time("Queue", end, unit, curves.collect())
}

fn curve(label: &str, (colour, dash): (Colour, usize), t: &[f64], values: &[f64], scale: f64) -> Curve {
    let mut own = Series::with_columns(["v"]);
    own.t_s = t.to_vec();
    own.columns[0].values = values.to_vec();
    let grid = Grid::over(&[&own], ROWS);
    let fitted = grid.fit(t, values);
    let points = grid.t.iter().zip(&fitted).map(|(t, v)| (*t, v / scale));
    Curve { dash, ..Curve::line(label, colour.light, points) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;

    #[test]
    fn it_shows_each_run_in_its_controller_s_colour_with_limit_and_bdp() {
        let race = support::race(10.0);
        let svg =
            of_results(&race, &About { title: "a <race>".into(), command: "fullpipe race".into() }).svg();
        for run in &race.runs {
            assert!(svg.contains(&colour_of(&run.cc).light_hex()), "{}", run.cc);
            assert!(svg.contains(&format!("aria-label=\"{}\"", run.label)));
        }
        for text in ["aria-label=\"BDP\"", "what the path allows", "aria-label=\"a &lt;race&gt;\"", "Goodput"]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("a <race>") && svg.len() < 1_000_000, "{}", svg.len());
    }

    #[test]
    fn ten_flows_of_one_controller_are_ten_colours() {
        let mut race = support::together(3.0);
        let flow = race.runs[0].flows[0].clone();
        race.runs[0].flows = (1..=10)
            .map(|n| {
                let mut flow = flow.clone();
                flow.label = format!("bbr {n}");
                flow
            })
            .collect();
        let picture = of_results(&race, &About::default());
        let mut looks: Vec<([u8; 3], usize)> =
            picture.panels[0].curves.iter().map(|c| (c.colour, c.dash)).collect();
        assert_eq!(looks.len(), 10);
        looks.sort_unstable();
        looks.dedup();
        assert_eq!(looks.len(), 10);
    }

    #[test]
    fn the_axis_of_time_ends_where_the_run_ends() {
        let picture = of_results(&support::race(7.0), &About::default());
        for panel in &picture.panels {
            let (from, to) = panel.x.range.unwrap();
            assert!(from == 0.0 && (6.9..=7.0).contains(&to), "{}: {to}", panel.title);
        }
    }

    #[test]
    fn the_png_is_whole_and_the_same_each_time() {
        let race = support::race(3.0);
        let picture = of_results(&race, &About::default());
        let png = picture.png().unwrap();
        assert_eq!(png, picture.png().unwrap());
        assert!(png.starts_with(b"\x89PNG") && png.ends_with(b"IEND\xaeB`\x82"));
        let image = tiny_skia::Pixmap::decode_png(&png).unwrap();
        assert_eq!(image.width(), 2400);
        let [r, g, b] = colour_of("bbr").light;
        let blue = image.pixels().iter().filter(|p| (p.red(), p.green(), p.blue()) == (r, g, b)).count();
        assert!(blue > 2000, "{blue}");
    }

    #[test]
    fn a_little_on_a_fast_path_is_told_in_its_own_unit() {
        let mut race = support::race(3.0);
        race.runs.truncate(1);
        race.runs[0].path.goodput_limit_bps = Some(1e9);
        assert_eq!(of_results(&race, &About::default()).panels[0].y.label, "Mbit/s");
    }

    #[test]
    fn results_without_series_are_a_picture_too() {
        for results in [support::race(1.0).without_series(), Results::new(vec![])] {
            assert!(of_results(&results, &About::default()).png().is_ok());
        }
    }
}
