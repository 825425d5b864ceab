//! Lays out a [`Picture`] as shapes with positions and sizes.

use super::axis::FittedAxis;
use super::font::Font;
use super::{Curve, Mark, Panel, Picture, Scale, Stroke};

pub(super) type Rgb = [u8; 3];

const INK: Rgb = [0x1f, 0x29, 0x33];
const FAINT: Rgb = [0x66, 0x70, 0x7c];
const GRID: Rgb = [0xe3, 0xe7, 0xec];
const MARK: Rgb = [0x80, 0x88, 0x92];

/// Shapes on a white background.
pub(super) struct Drawing {
    pub(super) width: f32,
    pub(super) height: f32,
    pub(super) title: String,
    pub(super) shapes: Vec<Shape>,
}

pub(super) enum Shape {
    Line(Line),
    Dots(Points),
    Diamonds(Points),
    Text(Text),
}

pub(super) struct Line {
    pub(super) points: Vec<(f32, f32)>,
    pub(super) colour: Rgb,
    pub(super) width: f32,
    pub(super) dash: &'static [f32],
    pub(super) clip: Option<Rect>,
}

pub(super) struct Points {
    pub(super) points: Vec<(f32, f32)>,
    pub(super) colour: Rgb,
    pub(super) radius: f32,
    pub(super) clip: Rect,
}

pub(super) struct Text {
    pub(super) text: String,
    pub(super) x: f32,
    pub(super) y: f32,
    pub(super) size: f32,
    pub(super) bold: bool,
    pub(super) colour: Rgb,
    pub(super) anchor: Anchor,
    pub(super) upright: bool,
    /// Whether the text has an outline in the background colour, to be readable on top of curves.
    pub(super) halo: bool,
}

/// The part of a text at its position.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    /// Distance from the position to the start of a text of this length.
    pub(super) fn shift(self, length: f32) -> f32 {
        match self {
            Anchor::Start => 0.0,
            Anchor::Middle => -length / 2.0,
            Anchor::End => -length,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rect {
    pub(super) x: f32,
    pub(super) y: f32,
    pub(super) w: f32,
    pub(super) h: f32,
}

impl Rect {
    fn right(&self) -> f32 {
        self.x + self.w
    }

    fn bottom(&self) -> f32 {
        self.y + self.h
    }

    /// Enlarged by `out` on all sides.
    fn expand(&self, out: f32) -> Rect {
        Rect { x: self.x - out, y: self.y - out, w: self.w + 2.0 * out, h: self.h + 2.0 * out }
    }

    fn contains(&self, (x, y): (f32, f32)) -> bool {
        (self.x..=self.right()).contains(&x) && (self.y..=self.bottom()).contains(&y)
    }
}

const DASHES: [&[f32]; 4] = [&[], &[7.0, 4.0], &[2.0, 3.0], &[8.0, 3.0, 2.0, 3.0]];
const MARGIN: f32 = 28.0;
/// Half the width of a diamond.
const DIAMOND: f32 = 5.5;
pub(super) const DIAMOND_RIM: f32 = 1.8;
/// Width of a band.
const BAND: f32 = 7.0;

pub(super) fn lay_out(picture: &Picture) -> Drawing {
    let fonts = [Font::new(false), Font::new(true)];
    let width = picture.width.clamp(200, 8000) as f32;
    let mut page = Page { shapes: Vec::new(), fonts };
    let mut y = MARGIN;
    for (text, size, bold, colour) in
        [(&picture.title, 21.0, true, INK), (&picture.subtitle, 14.0, false, INK)]
    {
        for line in page.wrap_text(text, size, bold, width - 2.0 * MARGIN) {
            y += size * 1.15;
            page.text(&line, (MARGIN, y), size, bold, colour, Anchor::Start);
            y += size * 0.2;
        }
    }
    y = page.legend(&picture.panels, y + 12.0, width);
    let columns = picture.columns.max(1);
    let gap = 26.0;
    let panel_width = (width - 2.0 * MARGIN - gap * (columns - 1) as f32) / columns as f32;
    let height = picture.panel_height.clamp(80, 4000) as f32;
    // Panels in a column start at the same x, whatever their tick labels, so that equal times align.
    let mut gutters = vec![0.0f32; columns];
    for (i, panel) in picture.panels.iter().enumerate() {
        let frame = Rect { x: 0.0, y: 0.0, w: panel_width, h: height };
        gutters[i % columns] = gutters[i % columns].max(page.vertical(panel, frame).gutter);
    }
    for (i, panel) in picture.panels.iter().enumerate() {
        let x = MARGIN + (i % columns) as f32 * (panel_width + gap);
        let top = y + (i / columns) as f32 * (height + 10.0);
        page.panel(panel, Rect { x, y: top, w: panel_width, h: height }, gutters[i % columns]);
    }
    y += picture.panels.len().div_ceil(columns) as f32 * (height + 10.0);
    for line in page.wrap_text(&picture.footer, 11.0, false, width - 2.0 * MARGIN) {
        y += 14.0;
        page.text(&line, (MARGIN, y), 11.0, false, FAINT, Anchor::Start);
    }
    Drawing { width, height: y + MARGIN * 0.7, title: picture.title.clone(), shapes: page.shapes }
}

struct Page {
    shapes: Vec<Shape>,
    fonts: [Font; 2],
}

impl Page {
    fn font(&self, bold: bool) -> &Font {
        &self.fonts[usize::from(bold)]
    }

    fn text(&mut self, text: &str, (x, y): (f32, f32), size: f32, bold: bool, colour: Rgb, anchor: Anchor) {
        let text = text.to_owned();
        self.push_text(Text { text, x, y, size, bold, colour, anchor, upright: false, halo: false });
    }

    /// Label of a mark.
    fn mark_label(&mut self, text: &str, (x, y): (f32, f32), anchor: Anchor) {
        let (text, size, bold, colour) = (text.to_owned(), 11.0, false, FAINT);
        self.push_text(Text { text, x, y, size, bold, colour, anchor, upright: false, halo: true });
    }

    fn push_text(&mut self, text: Text) {
        self.shapes.push(Shape::Text(text));
    }

    fn rule(&mut self, points: [(f32, f32); 2], colour: Rgb, width: f32, dash: &'static [f32]) {
        self.shapes.push(Shape::Line(Line { points: points.to_vec(), colour, width, dash, clip: None }));
    }

    fn wrap_text(&self, text: &str, size: f32, bold: bool, width: f32) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            if let Some(line) = lines.last_mut() {
                let longer = format!("{line} {word}");
                if self.font(bold).width(&longer, size) <= width {
                    *line = longer;
                    continue;
                }
            }
            lines.push(word.to_owned());
        }
        lines
    }

    /// Draws one entry per label and colour of all panels and returns the lower edge.
    fn legend(&mut self, panels: &[Panel], mut y: f32, width: f32) -> f32 {
        let mut entries: Vec<&Curve> = Vec::new();
        let (references, own): (Vec<&Curve>, Vec<&Curve>) = panels
            .iter()
            .flat_map(|p| &p.curves)
            .filter(|c| !c.label.is_empty())
            .partition(|c| is_reference(c));
        for curve in own {
            if !entries.iter().any(|e| e.label == curve.label && e.colour == curve.colour) {
                entries.push(curve);
            }
        }
        for curve in &references {
            if !entries.iter().any(|e| is_reference(e) && e.label == curve.label) {
                entries.push(curve);
            }
        }
        if entries.is_empty() {
            return y;
        }
        let mut x = MARGIN;
        y += 8.0;
        for curve in entries {
            let needed = 26.0 + self.font(false).width(&curve.label, 13.0) + 20.0;
            if x + needed > width - MARGIN && x > MARGIN {
                x = MARGIN;
                y += 19.0;
            }
            let line = [(x, y - 4.5), (x + 20.0, y - 4.5)];
            let clip = Rect { x, y: y - 20.0, w: 30.0, h: 30.0 };
            let points = vec![(x + 10.0, y - 4.5)];
            if is_reference(curve) {
                let drawn_as =
                    |stroke| references.iter().any(|r| r.label == curve.label && r.stroke == stroke);
                if drawn_as(Stroke::Band) {
                    self.rule(line, pale(FAINT), BAND, &[]);
                }
                if drawn_as(Stroke::Hollow) {
                    let diamond = Points { points, colour: FAINT, radius: DIAMOND, clip };
                    self.shapes.push(Shape::Diamonds(diamond));
                }
            } else {
                if curve.stroke == Stroke::Cells {
                    self.rule(line, curve.colour, BAND, &[]);
                } else if curve.stroke != Stroke::Dots {
                    self.rule(line, curve.colour, 3.0, DASHES[curve.dash % DASHES.len()]);
                }
                if matches!(curve.stroke, Stroke::Dots | Stroke::DottedLine) {
                    let dot = Points { points, colour: curve.colour, radius: 4.0, clip };
                    self.shapes.push(Shape::Dots(dot));
                }
            }
            self.text(&curve.label, (x + 26.0, y), 13.0, false, INK, Anchor::Start);
            x += needed;
        }
        y + 14.0
    }

    /// The vertical layout of a panel.
    fn vertical(&self, panel: &Panel, frame: Rect) -> Vertical {
        let top = frame.y + if panel.title.is_empty() { 8.0 } else { 32.0 };
        let bottom = frame.y + frame.h - if panel.x.label.is_empty() { 24.0 } else { 40.0 };
        let ys = panel.curves.iter().flat_map(|c| c.points.iter().map(|p| p.1));
        let across = panel.marks.iter().filter_map(|m| match m {
            Mark::Horizontal { y, .. } => Some(*y),
            Mark::Vertical { .. } | Mark::Text { .. } => None,
        });
        // A low panel has denser ticks rather than a single one.
        let count = ((bottom - top) / 30.0).max(((bottom - top) / 20.0).min(5.0)) as usize;
        let axis = FittedAxis::new(&panel.y, ys.chain(across), count, true);
        let widest = axis.ticks.iter().map(|(_, t)| self.font(false).width(t, 11.0)).fold(0.0, f32::max);
        Vertical { top, bottom, axis, gutter: widest + if panel.y.label.is_empty() { 8.0 } else { 26.0 } }
    }

    /// Draws a panel with `gutter` pixels for tick labels left of the plot.
    fn panel(&mut self, panel: &Panel, frame: Rect, gutter: f32) {
        if *panel == Panel::default() {
            return;
        }
        if !panel.title.is_empty() {
            self.text(&panel.title, (frame.x, frame.y + 20.0), 13.0, true, INK, Anchor::Start);
        }
        let Some(plot) = self.plot(panel, frame, gutter) else { return };
        self.axes(panel, frame.x, &plot);
        // References are drawn below as bands and on top as diamonds.
        for stroke in [Some(Stroke::Band), None, Some(Stroke::Hollow)] {
            let own = |c: &&Curve| stroke.map_or(!is_reference(c), |s| c.stroke == s);
            for curve in panel.curves.iter().filter(own) {
                self.curve(curve, &plot);
            }
        }
        self.marks(panel, &plot);
    }

    /// The plot area of a panel, if there is room.
    fn plot(&self, panel: &Panel, frame: Rect, gutter: f32) -> Option<Plot> {
        let Vertical { top, bottom, axis: y, .. } = self.vertical(panel, frame);
        let left = frame.x + gutter;
        let rect = Rect { x: left, y: top, w: frame.x + frame.w - left - 6.0, h: bottom - top };
        if rect.w < 20.0 || rect.h < 20.0 {
            return None;
        }
        let xs = panel.curves.iter().flat_map(|c| c.points.iter().map(|p| p.0));
        let names = panel.x.names.iter().chain(panel.x.ticks.iter().map(|(_, name)| name));
        let name = names.map(|name| self.font(false).width(name, 11.0) + 12.0).fold(0.0, f32::max);
        // Ticks at 1, 2, 5 are further apart than their labels; linear ticks need not be.
        let plain = if panel.x.scale == Scale::Log { 45.0 } else { 80.0 };
        let each = if name > 0.0 { name } else { plain };
        let x = FittedAxis::new(&panel.x, xs, (rect.w / each) as usize, false);
        Some(Plot { rect, x, y })
    }

    /// Draws the grid with tick labels and axis labels; that of the vertical axis is at `left`.
    fn axes(&mut self, panel: &Panel, left: f32, plot: &Plot) {
        let rect = plot.rect;
        for (v, label) in &plot.y.ticks {
            let y = plot.at_y(*v);
            self.rule([(rect.x, y), (rect.right(), y)], GRID, 1.0, &[]);
            self.text(label, (rect.x - 6.0, y + 4.0), 11.0, false, FAINT, Anchor::End);
        }
        for (v, label) in &plot.x.ticks {
            let x = plot.at_x(*v);
            self.rule([(x, rect.y), (x, rect.bottom())], GRID, 1.0, &[]);
            self.text(label, (x, rect.bottom() + 15.0), 11.0, false, FAINT, Anchor::Middle);
        }
        self.rule([(rect.x, rect.bottom()), (rect.right(), rect.bottom())], MARK, 1.0, &[]);
        if !panel.x.label.is_empty() {
            let at = (rect.x + rect.w / 2.0, rect.bottom() + 32.0);
            self.text(&panel.x.label, at, 11.5, false, FAINT, Anchor::Middle);
        }
        if !panel.y.label.is_empty() {
            let (text, x, y) = (panel.y.label.clone(), left + 10.0, rect.y + rect.h / 2.0);
            let (size, bold, colour, anchor) = (11.5, false, FAINT, Anchor::Middle);
            self.push_text(Text { text, x, y, size, bold, colour, anchor, upright: true, halo: false });
        }
    }

    /// Draws the marks, each with its label where it hides least.
    fn marks(&mut self, panel: &Panel, plot: &Plot) {
        let drawn: Vec<(f32, f32)> = panel.curves.iter().flat_map(|c| points_along(c, plot)).collect();
        let mut names: Vec<Rect> = Vec::new();
        for mark in &panel.marks {
            if let Mark::Text { x, y, label } = mark {
                let at = (plot.at_x(*x), plot.at_y(*y) + 4.0);
                self.text(label, at, 12.0, false, INK, Anchor::Middle);
                continue;
            }
            let Some((line, label, places)) = plot.mark(mark) else { continue };
            self.rule(line, MARK, 1.2, DASHES[1]);
            let width = self.font(false).width(label, 11.0);
            if let Some((at, anchor, room)) = label_position(&places, width, plot.rect, &drawn, &names) {
                names.push(room);
                self.mark_label(label, at, anchor);
            }
        }
    }

    fn curve(&mut self, curve: &Curve, plot: &Plot) {
        let rect = plot.rect;
        // Clamp far coordinates: rasterisers cannot handle huge ones.
        let near = |(x, y): (f32, f32)| {
            (
                x.clamp(rect.x - 2000.0, rect.right() + 2000.0),
                y.clamp(rect.y - 2000.0, rect.bottom() + 2000.0),
            )
        };
        let placed = curve.points.iter().map(|&(x, y)| (plot.at_x(x), plot.at_y(y)));
        let placed: Vec<Option<(f32, f32)>> =
            placed.map(|p| (p.0.is_finite() && p.1.is_finite()).then(|| near(p))).collect();
        let is_line = !matches!(curve.stroke, Stroke::Dots | Stroke::Hollow | Stroke::Cells);
        let (colour, width) = match curve.stroke {
            Stroke::Band => (pale(curve.colour), BAND),
            _ => (curve.colour, 1.7),
        };
        if is_line {
            let dash = DASHES[curve.dash % DASHES.len()];
            // Do not clip half of a band at the edge of the plot.
            let out = if curve.stroke == Stroke::Band { BAND / 2.0 } else { 0.0 };
            for run in placed.split(Option::is_none).filter(|r| r.len() > 1) {
                let points = run.iter().copied().flatten().collect();
                let clip = Some(rect.expand(out));
                self.shapes.push(Shape::Line(Line { points, colour, width, dash, clip }));
            }
        }
        let points: Vec<(f32, f32)> = placed.into_iter().flatten().collect();
        let clip = rect.expand(5.0);
        self.shapes.push(match curve.stroke {
            Stroke::Dots => Shape::Dots(Points { points, colour, radius: 2.6, clip }),
            Stroke::DottedLine => Shape::Dots(Points { points, colour, radius: 3.6, clip }),
            Stroke::Hollow => {
                let clip = rect.expand(DIAMOND + 2.0);
                Shape::Diamonds(Points { points, colour, radius: DIAMOND, clip })
            }
            Stroke::Cells => {
                let (width, height) = plot.cell();
                for (x, y) in points {
                    let points = vec![(x - width / 2.0, y), (x + width / 2.0, y)];
                    let clip = Some(rect);
                    self.shapes.push(Shape::Line(Line { points, colour, width: height, dash: &[], clip }));
                }
                return;
            }
            Stroke::Line | Stroke::Band => return,
        });
    }
}

/// The plot area of a panel with its axes.
struct Plot {
    rect: Rect,
    x: FittedAxis,
    y: FittedAxis,
}

/// A line, its label, and candidate positions for the label.
type PlacedMark<'a> = ([(f32, f32); 2], &'a str, Vec<((f32, f32), Anchor)>);

impl Plot {
    fn at_x(&self, v: f64) -> f32 {
        self.rect.x + self.rect.w * self.x.position(v) as f32
    }

    fn at_y(&self, v: f64) -> f32 {
        self.rect.y + self.rect.h * (1.0 - self.y.position(v) as f32)
    }

    /// Width and height of one unit of both axes.
    fn cell(&self) -> (f32, f32) {
        (self.at_x(1.0) - self.at_x(0.0), self.at_y(0.0) - self.at_y(1.0))
    }

    /// The line of a mark with its label and candidate positions; `None` if the mark is outside.
    fn mark<'a>(&self, mark: &'a Mark) -> Option<PlacedMark<'a>> {
        let rect = self.rect;
        let (right, foot) = (rect.right(), rect.bottom());
        match mark {
            Mark::Horizontal { y, label } if (0.0..=1.0).contains(&self.y.position(*y)) => {
                let y = self.at_y(*y);
                let ends = [
                    (right - 4.0, Anchor::End),
                    (rect.x + 4.0, Anchor::Start),
                    (rect.x + rect.w / 2.0, Anchor::Middle),
                    (rect.x + rect.w / 4.0, Anchor::Middle),
                    (rect.x + rect.w * 0.75, Anchor::Middle),
                ];
                let beside = |(x, anchor)| [((x, y - 4.0), anchor), ((x, y + 14.0), anchor)];
                Some(([(rect.x, y), (right, y)], label, ends.into_iter().flat_map(beside).collect()))
            }
            Mark::Vertical { x, label } if (0.0..=1.0).contains(&self.x.position(*x)) => {
                let x = self.at_x(*x);
                let heights = [rect.y + 11.0, foot - 6.0, rect.y + rect.h / 2.0];
                let beside = |y| [((x + 4.0, y), Anchor::Start), ((x - 4.0, y), Anchor::End)];
                Some(([(x, rect.y), (x, foot)], label, heights.into_iter().flat_map(beside).collect()))
            }
            _ => None,
        }
    }
}

/// Whether a curve is a reference for others.
fn is_reference(curve: &Curve) -> bool {
    matches!(curve.stroke, Stroke::Hollow | Stroke::Band)
}

/// The colour blended with two thirds of white.
fn pale(colour: Rgb) -> Rgb {
    colour.map(|c| 255 - (255 - c) / 3)
}

/// Top and bottom of a panel, its vertical axis, and the width of its tick labels.
struct Vertical {
    top: f32,
    bottom: f32,
    axis: FittedAxis,
    gutter: f32,
}

/// Points along a curve, no further apart than the width of a letter.
fn points_along(curve: &Curve, plot: &Plot) -> Vec<(f32, f32)> {
    let inside = |p: &(f32, f32)| plot.rect.contains(*p);
    let placed: Vec<(f32, f32)> = curve.points.iter().map(|&(x, y)| (plot.at_x(x), plot.at_y(y))).collect();
    let mut all: Vec<(f32, f32)> = placed.iter().filter(|p| inside(p)).copied().collect();
    if matches!(curve.stroke, Stroke::Dots | Stroke::Hollow | Stroke::Cells) {
        return all;
    }
    for pair in placed.windows(2) {
        let [(x0, y0), (x1, y1)] = [pair[0], pair[1]];
        let length = (x1 - x0).hypot(y1 - y0);
        if !length.is_finite() {
            continue;
        }
        let steps = (length / 5.0).min(1000.0) as usize;
        let between =
            (1..steps).map(|i| i as f32 / steps as f32).map(|t| (x0 + (x1 - x0) * t, y0 + (y1 - y0) * t));
        all.extend(between.filter(inside));
    }
    all
}

/// The first position for a label of `width` that hides the fewest points and no other label, with
/// its rectangle.
fn label_position(
    places: &[((f32, f32), Anchor)],
    width: f32,
    plot: Rect,
    drawn: &[(f32, f32)],
    names: &[Rect],
) -> Option<((f32, f32), Anchor, Rect)> {
    let room = |(x, y): (f32, f32), anchor: Anchor| Rect {
        x: x + anchor.shift(width) - 2.0,
        y: y - 10.0,
        w: width + 4.0,
        h: 13.0,
    };
    let hides = |room: &Rect| {
        let within = |p: &&(f32, f32)| room.contains(**p);
        let meets = |other: &&Rect| {
            room.x < other.x + other.w
                && other.x < room.x + room.w
                && room.y < other.y + other.h
                && other.y < room.y + room.h
        };
        // Outside the plot it would overlap ticks and titles.
        let outside =
            room.y < plot.y - 12.0 || room.y + room.h > plot.y + plot.h + 1.0 || room.x < plot.x - 1.0;
        let names = names.iter().filter(meets).count();
        drawn.iter().filter(within).count() + 10_000 * (names + usize::from(outside))
    };
    let rooms = places.iter().map(|&(at, anchor)| (at, anchor, room(at, anchor)));
    rooms.min_by_key(|(_, _, room)| hides(room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Axis;

    /// Positions of the mark's label and of the curve's points.
    fn placed(points: Vec<(f64, f64)>) -> ((f32, f32), Vec<(f32, f32)>) {
        let panel = Panel {
            x: Axis::linear("").with_range(0.0, 10.0),
            y: Axis::linear("").with_range(0.0, 10.0),
            curves: vec![Curve::line("", [1, 2, 3], points)],
            marks: vec![Mark::Horizontal { y: 5.0, label: "limit".into() }],
            ..Panel::default()
        };
        let drawing = lay_out(&Picture { panels: vec![panel], ..Picture::default() });
        let name = drawing.shapes.iter().find_map(|shape| match shape {
            Shape::Text(Text { text, x, y, .. }) if text == "limit" => Some((*x, *y)),
            _ => None,
        });
        let line = drawing.shapes.iter().find_map(|shape| match shape {
            Shape::Line(Line { points, colour: [1, 2, 3], .. }) => Some(points.clone()),
            _ => None,
        });
        (name.unwrap(), line.unwrap())
    }

    #[test]
    fn cells_fill_the_plot_of_named_axes() {
        let names = |n: usize| (0..n).map(|i| i.to_string()).collect();
        let places = (0..3).flat_map(|x| (0..2).map(move |y| (f64::from(x), f64::from(y))));
        let panel = Panel {
            x: Axis::named("x", names(3)),
            y: Axis::named("y", names(2)),
            curves: vec![Curve { stroke: Stroke::Cells, ..Curve::line("", [1, 2, 3], places) }],
            marks: vec![Mark::Text { x: 1.0, y: 1.0, label: "middle".into() }],
            ..Panel::default()
        };
        let drawing = lay_out(&Picture { panels: vec![panel], ..Picture::default() });
        let cells: Vec<(&Line, Rect)> = drawing
            .shapes
            .iter()
            .filter_map(|shape| match shape {
                Shape::Line(line) if line.colour == [1, 2, 3] => Some((line, line.clip?)),
                _ => None,
            })
            .collect();
        let area = |line: &Line| (line.points[1].0 - line.points[0].0) * line.width;
        let plot = cells[0].1;
        assert_eq!(cells.len(), 6);
        let covered: f32 = cells.iter().map(|(line, _)| area(line)).sum();
        assert!((covered / (plot.w * plot.h) - 1.0).abs() < 1e-3, "{covered} of {plot:?}");
        let mut places: Vec<_> =
            cells.iter().map(|(l, _)| (l.points[0].0 as i32, l.points[0].1 as i32)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 6);
        let text = drawing.shapes.iter().find_map(|shape| match shape {
            Shape::Text(text) if text.text == "middle" => Some((text.x, text.y)),
            _ => None,
        });
        let (x, y) = text.unwrap();
        assert!((x - (plot.x + plot.w / 2.0)).abs() < 1.0, "{x} in {plot:?}");
        assert!((y - (plot.y + plot.h / 4.0)).abs() < 6.0, "{y} in {plot:?}");
    }

    #[test]
    fn label_hides_no_points() {
        // A curve along the right half of the mark, then along its left, above and below it.
        let (free, _) = placed(vec![(0.0, 1.0), (10.0, 1.0)]);
        let (right, line) = placed(vec![(5.0, 5.3), (10.0, 5.3)]);
        assert!(line.iter().all(|p| p.0 > 300.0));
        assert_eq!(free.0, right.0, "below the line, where there are no points");
        assert!(right.1 > free.1);
        let zigzag: Vec<(f64, f64)> =
            (0..=60).map(|i| (9.0 + f64::from(i) / 60.0, if i % 2 == 0 { 4.0 } else { 6.0 })).collect();
        let (left, _) = placed(zigzag);
        assert!(left.0 < 200.0, "{left:?}");
    }

    #[test]
    fn references_are_one_legend_entry_with_bands_below_and_diamonds_on_top() {
        let own = |label: &str, colour| Curve::line(label, colour, [(0.0, 1.0), (1.0, 2.0)]);
        let drawn = |stroke, colour, points: &[(f64, f64)]| Curve {
            stroke,
            ..Curve::line("published", colour, points.iter().copied())
        };
        let panel = Panel {
            curves: vec![
                drawn(Stroke::Hollow, [200, 0, 0], &[(0.5, 1.0)]),
                own("a", [200, 0, 0]),
                own("b", [0, 0, 200]),
                drawn(Stroke::Band, [0, 0, 200], &[(0.0, 1.0), (1.0, 1.0)]),
            ],
            ..Panel::default()
        };
        let drawing = lay_out(&Picture { panels: vec![panel], ..Picture::default() });
        let count = |wanted: &str| {
            let is = |shape: &&Shape| matches!(shape, Shape::Text(Text { text, .. }) if text == wanted);
            drawing.shapes.iter().filter(is).count()
        };
        assert_eq!((count("published"), count("a"), count("b")), (1, 1, 1));
        let place = |is: fn(&Shape) -> bool| drawing.shapes.iter().rposition(is).unwrap();
        let band = place(|s| matches!(s, Shape::Line(Line { width: BAND, .. })));
        let diamonds = place(|s| matches!(s, Shape::Diamonds(_)));
        let lines = place(|s| matches!(s, Shape::Line(Line { colour: [0, 0, 200], .. })));
        assert!(band < lines && lines < diamonds, "{band} {lines} {diamonds}");
    }

    #[test]
    fn panels_in_a_column_are_aligned() {
        let panel = |top: f64| Panel {
            x: Axis::linear("seconds").with_range(0.0, 1.0),
            y: Axis::linear("ms").with_range(0.0, top),
            curves: vec![Curve::line("", [1, 2, 3], [(0.0, 0.0), (1.0, top)])],
            ..Panel::default()
        };
        let drawing = lay_out(&Picture { panels: vec![panel(1.0), panel(5e5)], ..Picture::default() });
        let starts: Vec<f32> = drawing
            .shapes
            .iter()
            .filter_map(|shape| match shape {
                Shape::Line(Line { points, colour: [1, 2, 3], .. }) => Some(points[0].0),
                _ => None,
            })
            .collect();
        assert_eq!(starts.len(), 2);
        assert!((starts[0] - starts[1]).abs() < 0.01, "{starts:?}");
    }
}
