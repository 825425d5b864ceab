//! Plots as SVG and PNG. The font is embedded, so that they look the same on every machine.
//!
//! A [`Picture`] is a grid of panels with curves, axes and marks.
//!
//! ```
//! use fullpipe_presentation::picture::{Axis, Curve, Panel, Picture};
//!
//! let points = (1..100).map(|n| (f64::from(n), 1.22 / f64::from(n).sqrt()));
//! let line = Curve::line("reno", [0, 158, 115], points);
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
mod svg;

pub use svg::escape_html;

use std::io;

/// Panels under a title.
#[derive(Clone, PartialEq, Debug)]
pub struct Picture {
    /// Title, one line.
    pub title: String,
    /// Subtitle; wrapped.
    pub subtitle: String,
    /// Panels, row by row.
    pub panels: Vec<Panel>,
    /// Panels per row.
    pub columns: usize,
    /// Width in pixels (of SVG; PNG has twice as many).
    pub width: u32,
    /// Height of a panel in pixels, with its axes.
    pub panel_height: u32,
    /// Small print below the panels.
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

/// One pair of axes with curves and marks.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Panel {
    /// Title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Curves, in drawing order.
    pub curves: Vec<Curve>,
    /// Reference lines.
    pub marks: Vec<Mark>,
}

/// An axis.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// Linear or logarithmic.
    pub scale: Scale,
    /// Range; `None` fits it to the values. A fitted linear axis starts at 0 unless values are
    /// negative.
    pub range: Option<(f64, f64)>,
    /// Names for the values 0, 1, 2, … instead of numbers.
    pub names: Vec<String>,
    /// Ticks and their labels instead of round numbers. If they do not fit, some are left out.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis with the range of the values.
    pub fn linear(label: impl Into<String>) -> Self {
        Axis { label: label.into(), ..Axis::default() }
    }

    /// A logarithmic axis. Values of 0 and below are not drawn.
    pub fn log(label: impl Into<String>) -> Self {
        Axis { label: label.into(), scale: Scale::Log, ..Axis::default() }
    }

    /// A logarithmic axis that ends a little beyond the x values of `curves`.
    pub fn log_around(label: impl Into<String>, curves: &[Curve]) -> Self {
        let values = curves.iter().flat_map(|c| &c.points).map(|p| p.0).filter(|v| *v > 0.0 && v.is_finite());
        let (low, high) = values.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), v| (a.min(v), b.max(v)));
        let axis = Axis::log(label);
        // 3 % of the width on each side, and at least 5 % of the value.
        let edge = (high / low).powf(0.03).max(1.05);
        if low <= high { axis.with_range(low / edge, high * edge) } else { axis }
    }

    /// A categorical axis: names for the values 0, 1, 2, …
    pub fn named(label: impl Into<String>, names: Vec<String>) -> Self {
        let range = Some((-0.5, names.len() as f64 - 0.5));
        Axis { label: label.into(), range, names, ..Axis::default() }
    }

    /// 0 to 100 % with ticks at the quarters, for cumulative distributions.
    pub fn percent_of(what: &str) -> Self {
        let ticks = [0, 25, 50, 75, 100].map(|p| (f64::from(p), p.to_string()));
        Axis { range: Some((0.0, 100.0)), ticks: ticks.to_vec(), ..Axis::linear(format!("% of {what}")) }
    }

    /// Sets a fixed range.
    pub fn with_range(self, from: f64, to: f64) -> Self {
        Axis { range: Some((from, to)), ..self }
    }
}

/// Scale of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scale {
    /// Linear.
    #[default]
    Linear,
    /// Logarithmic.
    Log,
}

/// Points, connected or not. A point that is not finite interrupts the curve.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// Label in the legend. Curves with the same label and colour share an entry; an empty label
    /// has none.
    pub label: String,
    /// sRGB.
    pub colour: [u8; 3],
    /// 0 solid, 1 dashed, 2 dotted, 3 dash-dotted, then again from 0.
    pub dash: usize,
    /// How points are drawn.
    pub stroke: Stroke,
    /// Points as (x, y).
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// A line through points.
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

    /// The cumulative distribution of `values` in percent. Values that are not finite are ignored.
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
    /// Connected by lines.
    Line,
    /// Dots.
    Dots,
    /// Dots connected by lines, for few measured points.
    DottedLine,
    /// Hollow diamonds on top of all other curves, for reference values. In the legend, all colours
    /// of a label share an entry.
    Hollow,
    /// A wide pale line below all other curves, for reference values.
    Band,
    /// Rectangles of one unit of each axis, for maps with named axes.
    Cells,
}

/// A labelled line across a panel, or a text in it.
#[derive(Clone, PartialEq, Debug)]
pub enum Mark {
    /// A horizontal line.
    Horizontal {
        /// The value on the vertical axis.
        y: f64,
        /// Its label.
        label: String,
    },
    /// A vertical line.
    Vertical {
        /// The value on the horizontal axis.
        x: f64,
        /// Its label.
        label: String,
    },
    /// A text that is centred on a point, for the values of [`Stroke::Cells`].
    Text {
        /// The value on the horizontal axis.
        x: f64,
        /// The value on the vertical axis.
        y: f64,
        /// The text.
        label: String,
    },
}

impl Picture {
    /// Renders the picture as SVG, with text as outlines.
    pub fn svg(&self) -> String {
        svg::render(&layout::lay_out(self))
    }

    /// Renders the picture as PNG, with two pixels for each of [`Picture::width`].
    ///
    /// # Errors
    /// The picture has too many pixels.
    pub fn png(&self) -> io::Result<Vec<u8>> {
        png::render(&layout::lay_out(self), 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_rises_in_steps_from_0_to_100() {
        let curve = Curve::distribution("", [0; 3], &[3.0, f64::NAN, 1.0]);
        assert_eq!(curve.points, [(1.0, 0.0), (1.0, 50.0), (3.0, 50.0), (3.0, 100.0)]);
        assert!(Curve::distribution("", [0; 3], &[]).points.is_empty());
        let (from, to) = Axis::log_around("", &[curve]).range.unwrap();
        assert!((0.9..1.0).contains(&from) && (3.0..3.3).contains(&to), "{from} {to}");
        assert_eq!(Axis::log_around("", &[]).range, None);
    }

    #[test]
    fn references_are_drawn_in_svg_and_png() {
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
