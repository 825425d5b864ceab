//! Results as a picture: goodput, round-trip time, inflight and queue over time.

use super::{Axis, Curve, Mark, Panel, Picture, sweep_picture};
use crate::reduce::{Grid, lines, smoothed};
use crate::verdict::{problems, verdict};
use crate::{About, comparison, reduce};
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::{PathFacts, Recording, Series, column};
use fullpipe_presentation::numbers::{rate_unit, size_unit};
use fullpipe_presentation::palette::{Colour, controller_colour, style};
use std::collections::BTreeMap;

/// Points per line; more than a plot has pixels.
const ROWS: usize = 1600;

/// With more runs, single runs are not drawn over time.
const MAX_RUNS: usize = 12;

/// The picture of `results` with their conclusion as subtitle.
pub fn race_picture(results: &Results, about: &About) -> Picture {
    let mut subtitle = verdict(results);
    for problem in problems(results) {
        subtitle = format!("{problem}. {subtitle}");
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
    if let Some(sweep) = sweep_picture(results).filter(|_| results.runs.len() > MAX_RUNS) {
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

/// Version, path, engine, seeds and command.
fn footer(results: &Results, first: &Recording, description: &str, command: &str) -> String {
    let seeds: Vec<u64> = results.runs.iter().map(|r| r.seed).collect();
    let (low, high) = (seeds.iter().min().unwrap_or(&0), seeds.iter().max().unwrap_or(&0));
    let seeds = if low == high { format!("seed {low}") } else { format!("seeds {low} to {high}") };
    let version = format!("fullpipe {}", first.provenance.version);
    let engine = format!("engine {}", first.source.name());
    let parts = [&version, description, &engine, &seeds, command];
    parts.iter().filter(|p| !p.is_empty()).copied().collect::<Vec<_>>().join(" · ")
}

/// Goodput, round-trip time, inflight and queue over time, with the limits of the path.
fn panels(results: &Results, facts: &PathFacts) -> Vec<Panel> {
    let lines = Lines::new(results);
    let limit = facts.goodput_limit_bps;
    // The unit follows the goodput, not the link: 50 Mbit/s on a 1 Gbit/s link is not 0.05 Gbit/s.
    let goodput = lines.max_goodput();
    let (rate, rate_size) = rate_unit(if goodput > 0.0 { goodput } else { limit.unwrap_or_default() });
    let bdp = facts.bdp_bytes.map(|b| b as f64);
    let full = facts.bdp_bytes.zip(facts.buffer_bytes).map(|(b, q)| (b + q) as f64);
    let (size, size_size) = size_unit(lines.max_of(column::INFLIGHT_BYTES, bdp));
    let goodput_panel = lines.panel(column::GOODPUT_BPS, "Goodput", (rate_size, rate));
    let rtt = lines.panel(column::RTT_MS, "Round-trip time", (1.0, "ms"));
    let inflight = lines.panel(column::INFLIGHT_BYTES, "Inflight", (size_size, size));
    let across = |scale: f64, marks: &[(Option<f64>, &str)]| {
        let known = marks.iter().filter_map(|(v, label)| Some(((*v)? / scale, (*label).to_owned())));
        known.map(|(y, label)| Mark::Horizontal { y, label }).collect()
    };
    vec![
        Panel { marks: across(rate_size, &[(limit, "goodput limit")]), ..goodput_panel },
        Panel { marks: across(1.0, &[(facts.base_rtt_ms, "base RTT")]), ..rtt },
        Panel { marks: across(size_size, &[(bdp, "BDP"), (full, "BDP + buffer")]), ..inflight },
        Panel {
            marks: across(size_size, &[(facts.buffer_bytes.map(|b| b as f64), "buffer")]),
            ..queue(results, size_size, size, lines.end)
        },
    ]
}

/// The lines over time.
struct Lines<'a> {
    lines: Vec<reduce::Line<'a>>,
    /// Whether there are so many runs that lines are labelled by controller only.
    by_controller: bool,
    /// Seconds over which goodput is averaged.
    window: f64,
    /// End of the longest run.
    end: f64,
}

impl<'a> Lines<'a> {
    fn new(results: &'a Results) -> Self {
        Lines {
            lines: lines(results),
            by_controller: results.runs.len() > MAX_RUNS,
            window: reduce::smoothing_s(results),
            end: results.runs.iter().map(reduce::end_s).fold(0.0, f64::max),
        }
    }

    /// The panel of a column, scaled to a unit.
    fn panel(&self, name: &str, title: &str, (scale, unit): (f64, &str)) -> Panel {
        let curves = self.lines.iter().filter_map(|line| {
            let values = line.series.get(name)?;
            let smooth =
                (name == column::GOODPUT_BPS).then(|| smoothed(&line.series.t_s, values, self.window));
            Some(curve(
                if self.by_controller { line.cc } else { &line.label },
                if self.by_controller { (controller_colour(line.cc), 0) } else { line.look },
                &line.series.t_s,
                smooth.as_deref().unwrap_or(values),
                scale,
            ))
        });
        over_time(title, self.end, unit, curves.collect())
    }

    /// The highest value of a column, at least `floor`.
    fn max_of(&self, name: &str, floor: Option<f64>) -> f64 {
        let values = self.lines.iter().filter_map(|line| line.series.get(name)).flatten();
        values.copied().filter(|v| v.is_finite()).fold(floor.unwrap_or(0.0), f64::max)
    }

    /// The highest plotted goodput.
    fn max_goodput(&self) -> f64 {
        let maxima = self.lines.iter().filter_map(|line| {
            let goodput = smoothed(&line.series.t_s, line.series.get(column::GOODPUT_BPS)?, self.window);
            goodput.into_iter().filter(|v| v.is_finite()).reduce(f64::max)
        });
        maxima.fold(0.0, f64::max)
    }
}

fn over_time(title: &str, end: f64, unit: &str, curves: Vec<Curve>) -> Panel {
    Panel {
        title: title.to_owned(),
        x: Axis::linear("seconds").with_range(0.0, if end > 0.0 { end } else { 1.0 }),
        y: Axis::linear(unit),
        curves,
        marks: Vec::new(),
    }
}

/// The queue of the fullest link of each run.
fn queue(results: &Results, scale: f64, unit: &str, end: f64) -> Panel {
    let mut counts: BTreeMap<[u8; 3], usize> = BTreeMap::new();
    let colour = |run: &Recording| controller_colour(&run.cc).light;
    let of = |this: &Recording| results.runs.iter().filter(|run| colour(run) == colour(this)).count();
    let curves = results.runs.iter().filter_map(|run| {
        let count = counts.entry(colour(run)).or_default();
        let nth = std::mem::replace(count, *count + 1);
        let series = reduce::fullest_queue(run)?;
        let values = series.get(column::QUEUE_BYTES)?;
        let by_controller = results.runs.len() > MAX_RUNS;
        let (label, look) = match by_controller {
            true => (&run.cc, (controller_colour(&run.cc), 0)),
            // A queue belongs to all flows of the run, so it has the controller's plain colour.
            false => (&run.label, style(&run.cc, nth, of(run))),
        };
        Some(curve(label, look, &series.t_s, values, scale))
    });
    over_time("Queue", end, unit, curves.collect())
}

fn curve(label: &str, (colour, dash): (Colour, usize), t: &[f64], values: &[f64], scale: f64) -> Curve {
    let mut own = Series::with_columns(["v"]);
    own.t_s = t.to_vec();
    own.columns[0].values = values.to_vec();
    let grid = Grid::new(&[&own], ROWS);
    let fitted = grid.fit(t, values);
    let points = grid.t.iter().zip(&fitted).map(|(t, v)| (*t, v / scale));
    Curve { dash, ..Curve::line(label, colour.light, points) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;

    #[test]
    fn picture_shows_each_run_in_its_colour_with_limit_and_bdp() {
        let race = support::race(10.0);
        let svg =
            race_picture(&race, &About { title: "a <race>".into(), command: "fullpipe race".into() }).svg();
        for run in &race.runs {
            assert!(svg.contains(&controller_colour(&run.cc).light_hex()), "{}", run.cc);
            assert!(svg.contains(&format!("aria-label=\"{}\"", run.label)));
        }
        for text in ["aria-label=\"BDP\"", "goodput limit", "aria-label=\"a &lt;race&gt;\"", "Goodput"] {
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
        let picture = race_picture(&race, &About::default());
        let mut styles: Vec<([u8; 3], usize)> =
            picture.panels[0].curves.iter().map(|c| (c.colour, c.dash)).collect();
        assert_eq!(styles.len(), 10);
        styles.sort_unstable();
        styles.dedup();
        assert_eq!(styles.len(), 10);
    }

    #[test]
    fn time_axis_ends_with_the_run() {
        let picture = race_picture(&support::race(7.0), &About::default());
        for panel in &picture.panels {
            let (from, to) = panel.x.range.unwrap();
            assert!(from == 0.0 && (6.9..=7.0).contains(&to), "{}: {to}", panel.title);
        }
    }

    #[test]
    fn png_is_complete_and_deterministic() {
        let race = support::race(3.0);
        let picture = race_picture(&race, &About::default());
        let png = picture.png().unwrap();
        assert_eq!(png, picture.png().unwrap());
        assert!(png.starts_with(b"\x89PNG") && png.ends_with(b"IEND\xaeB`\x82"));
        let image = tiny_skia::Pixmap::decode_png(&png).unwrap();
        assert_eq!(image.width(), 2400);
        let [r, g, b] = controller_colour("bbr").light;
        let blue = image.pixels().iter().filter(|p| (p.red(), p.green(), p.blue()) == (r, g, b)).count();
        assert!(blue > 2000, "{blue}");
    }

    #[test]
    fn unit_follows_the_goodput_not_the_link() {
        let mut race = support::race(3.0);
        race.runs.truncate(1);
        race.runs[0].path.goodput_limit_bps = Some(1e9);
        assert_eq!(race_picture(&race, &About::default()).panels[0].y.label, "Mbit/s");
    }

    #[test]
    fn results_without_series_have_a_picture() {
        for results in [support::race(1.0).without_series(), Results::new(vec![])] {
            assert!(race_picture(&results, &About::default()).png().is_ok());
        }
    }
}
