//! Plots as SVG and PNG, on any machine: the letters come with the crate.
//!
//! A [`Picture`] is panels above and beside each other; it knows curves, axes and marks, and nothing
//! of congestion control except in [`of_results`].
//!
//! ```
//! use fullpipe_report::picture::{Axis, Curve, Panel, Picture};
//!
//! let line = Curve::line("reno", [0, 158, 115], (1..100).map(|n| (f64::from(n), 1.22 / f64::from(n).sqrt())));
//! let picture = Picture {
//!     title: "Goodput falls with the root of loss".into(),
//!     panels: vec![Panel {
//!         x: Axis::log("losses per thousand packets"),
//!         y: Axis::linear("windows per round trip"),
//!         curves: vec![line],
//!         ..Panel::default()
//!     }],
//!     ..Picture::default()
//! };
//! assert!(picture.svg().starts_with("<svg"));
//! assert_eq!(&picture.png().unwrap()[1..4], b"PNG");
//! ```

mod axis;
mod font;
mod layout;
mod png;
mod race;
mod svg;
mod sweep;

pub use race::of_results;
pub use svg::escaped;
pub use sweep::of_sweep;

use std::io;

/// Panels under a title.
#[derive(Clone, PartialEq, Debug)]
pub struct Picture {
    /// What it shows, in a line.
    pub title: String,
    /// What to see in it; broken into lines.
    pub subtitle: String,
    /// Filled row by row.
    pub panels: Vec<Panel>,
    /// Panels in a row.
    pub columns: usize,
    /// Width in pixels (of SVG; PNG has twice as many).
    pub width: u32,
    /// Height of a panel in pixels, with its axes.
    pub panel_height: u32,
    /// Small print at the foot.
    pub footer: String,
}

impl Default for Picture {
    fn default() -> Self {
        Picture {
            title: String::new(),
            subtitle: String::new(),
            panels: Vec::new(),
            columns: 1,
            width: 1200,
            panel_height: 260,
            footer: String::new(),
        }
    }
}

/// One pair of axes and what is drawn on it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Panel {
    /// What it shows.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Drawn in this order.
    pub curves: Vec<Curve>,
    /// Lines that figures are held against.
    pub marks: Vec<Mark>,
}

/// An axis.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// How values are spread.
    pub scale: Scale,
    /// From and to; found from the values if not given. A linear axis found so begins at 0 unless values
    /// are negative.
    pub range: Option<(f64, f64)>,
    /// Names for the values 0, 1, 2, … instead of numbers.
    pub names: Vec<String>,
    /// Values to mark, with what to write there, instead of round numbers; of too many only some are written.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Evenly spread, range found from the values.
    pub fn linear(label: impl Into<String>) -> Self {
        Axis { label: label.into(), ..Axis::default() }
    }

    /// Powers of ten at equal distances; values that are not above 0 are not drawn.
    pub fn log(label: impl Into<String>) -> Self {
        Axis { label: label.into(), scale: Scale::Log, ..Axis::default() }
    }

    /// The same, ending a little beyond the horizontal values of `curves`.
    pub fn log_around(label: impl Into<String>, curves: &[Curve]) -> Self {
        let values = curves.iter().flat_map(|c| &c.points).map(|p| p.0).filter(|v| *v > 0.0 && v.is_finite());
        let (low, high) = values.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), v| (a.min(v), b.max(v)));
        let axis = Axis::log(label);
        // Three parts in a hundred of the width on each side, and of a narrow one enough to see that it ends.
        let edge = (high / low).powf(0.03).max(1.05);
        if low <= high { axis.from_to(low / edge, high * edge) } else { axis }
    }

    /// The values 0, 1, 2, … by name.
    pub fn named(label: impl Into<String>, names: Vec<String>) -> Self {
        let range = Some((-0.5, names.len() as f64 - 0.5));
        Axis { label: label.into(), range, names, ..Axis::default() }
    }

    /// Shares from 0 to 100 %, marked at the quarters: of a distribution.
    pub fn share(of: &str) -> Self {
        let ticks = [0, 25, 50, 75, 100].map(|p| (f64::from(p), p.to_string()));
        Axis { range: Some((0.0, 100.0)), ticks: ticks.to_vec(), ..Axis::linear(format!("% of {of}")) }
    }

    /// The same with a fixed range.
    pub fn from_to(self, from: f64, to: f64) -> Self {
        Axis { range: Some((from, to)), ..self }
    }
}

/// How values are spread along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scale {
    /// Evenly.
    #[default]
    Linear,
    /// By their logarithm.
    Log,
}

/// Points, joined or not. A point that is not finite interrupts the curve.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// In the legend; curves with the same label and colour have one entry, an empty label has none.
    pub label: String,
    /// sRGB.
    pub colour: [u8; 3],
    /// 0 solid, 1 dashed, 2 dotted, 3 dash-dotted, and so on again.
    pub dash: usize,
    /// How points are drawn.
    pub stroke: Stroke,
    /// x and y.
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// Joined points.
    pub fn line(
        label: impl Into<String>,
        colour: [u8; 3],
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Curve {
            label: label.into(),
            colour,
            dash: 0,
            stroke: Stroke::Line,
            points: points.into_iter().collect(),
        }
    }

    /// How many of `values` do not exceed x, in percent: a step at each, from 0 to 100. What is no number is left out.
    pub fn distribution(label: impl Into<String>, colour: [u8; 3], values: &[f64]) -> Self {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let share = |count: usize| 100.0 * count as f64 / sorted.len() as f64;
        let steps = sorted.iter().enumerate().flat_map(|(i, v)| [(*v, share(i)), (*v, share(i + 1))]);
        Curve::line(label, colour, steps)
    }
}

/// How the points of a curve are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stroke {
    /// Joined by lines.
    Line,
    /// Each a dot.
    Dots,
    /// Dots joined by lines: few, measured points.
    DottedLine,
    /// Each a hollow diamond on top of all others: what this is held against. In the legend all of one label are one entry, whatever their colours.
    Hollow,
    /// Joined by a wide pale line below all others: what this is held against, too.
    Band,
}

/// A line across a panel with a name.
#[derive(Clone, PartialEq, Debug)]
pub enum Mark {
    /// At a height.
    Across {
        /// The value on the vertical axis.
        y: f64,
        /// Its name.
        label: String,
    },
    /// At a time (or whatever the horizontal axis is).
    Upright {
        /// The value on the horizontal axis.
        x: f64,
        /// Its name.
        label: String,
    },
}

impl Picture {
    /// As SVG, letters as outlines.
    pub fn svg(&self) -> String {
        svg::render(&layout::lay_out(self))
    }

    /// As PNG, two pixels for each of [`Picture::width`].
    ///
    /// # Errors
    /// The picture has more pixels than memory can hold.
    pub fn png(&self) -> io::Result<Vec<u8>> {
        png::render(&layout::lay_out(self), 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_rises_in_steps_from_nothing_to_all() {
        let curve = Curve::distribution("", [0; 3], &[3.0, f64::NAN, 1.0]);
        assert_eq!(curve.points, [(1.0, 0.0), (1.0, 50.0), (3.0, 50.0), (3.0, 100.0)]);
        assert!(Curve::distribution("", [0; 3], &[]).points.is_empty());
        let (from, to) = Axis::log_around("", &[curve]).range.unwrap();
        assert!((0.9..1.0).contains(&from) && (3.0..3.3).contains(&to), "{from} {to}");
        assert_eq!(Axis::log_around("", &[]).range, None);
    }

    #[test]
    fn references_are_in_both_forms_of_the_picture() {
        let colour = [0, 114, 178];
        let panel = Panel {
            curves: vec![Curve { stroke: Stroke::Hollow, ..Curve::line("r", colour, [(1.0, 1.0)]) }],
            ..Panel::default()
        };
        let picture = Picture { panels: vec![panel], ..Picture::default() };
        assert!(picture.svg().contains("stroke=\"#0072b2\""));
        let image = tiny_skia::Pixmap::decode_png(&picture.png().unwrap()).unwrap();
        let [r, g, b] = colour;
        assert!(image.pixels().iter().any(|p| (p.red(), p.green(), p.blue()) == (r, g, b)));
    }
}
