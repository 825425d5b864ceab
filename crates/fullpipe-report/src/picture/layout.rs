//! From a [`Picture`] to shapes with places and sizes.

use super::axis::Settled;
use super::font::Font;
use super::{Curve, Mark, Panel, Picture, Scale, Stroke};

pub(super) type Rgb = [u8; 3];

const INK: Rgb = [0x1f, 0x29, 0x33];
const FAINT: Rgb = [0x66, 0x70, 0x7c];
const GRID: Rgb = [0xe3, 0xe7, 0xec];
const MARK: Rgb = [0x80, 0x88, 0x92];

/// Shapes on a white ground.
pub(super) struct Drawing {
    pub(super) width: f32,
    pub(super) height: f32,
    pub(super) title: String,
    pub(super) shapes: Vec<Shape>,
}

pub(super) enum Shape {
    Line {
        points: Vec<(f32, f32)>,
        colour: Rgb,
        width: f32,
        dash: &'static [f32],
        clip: Option<Rect>,
    },
    Dots {
        points: Vec<(f32, f32)>,
        colour: Rgb,
        radius: f32,
        clip: Rect,
    },
    Diamonds {
        points: Vec<(f32, f32)>,
        colour: Rgb,
        radius: f32,
        clip: Rect,
    },
    /// `halo`: on a rim of the ground's colour, readable on top of curves.
    Text {
        text: String,
        x: f32,
        y: f32,
        size: f32,
        bold: bool,
        colour: Rgb,
        anchor: Anchor,
        upright: bool,
        halo: bool,
    },
}

/// Which part of a text its place is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rect {
    pub(super) x: f32,
    pub(super) y: f32,
    pub(super) w: f32,
    pub(super) h: f32,
}

const DASHES: [&[f32]; 4] = [&[], &[7.0, 4.0], &[2.0, 3.0], &[8.0, 3.0, 2.0, 3.0]];
const MARGIN: f32 = 28.0;
/// Half a diamond's width.
const DIAMOND: f32 = 5.5;
pub(super) const DIAMOND_RIM: f32 = 1.8;
/// How wide a band is.
const BAND: f32 = 7.0;

pub(super) fn lay_out(picture: &Picture) -> Drawing {
    let fonts = [Font::new(false), Font::new(true)];
    let width = picture.width.clamp(200, 8000) as f32;
    let mut page = Page { shapes: Vec::new(), fonts };
    let mut y = MARGIN;
    for (text, size, bold, colour) in
        [(&picture.title, 21.0, true, INK), (&picture.subtitle, 14.0, false, INK)]
    {
        for line in page.wrapped(text, size, bold, width - 2.0 * MARGIN) {
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
    // Panels below each other begin at the same place, whatever their ticks: what happens at one time lies on one line.
    let mut gutters = vec![0.0f32; columns];
    for (i, panel) in picture.panels.iter().enumerate() {
        let frame = Rect { x: 0.0, y: 0.0, w: panel_width, h: height };
        gutters[i % columns] = gutters[i % columns].max(page.upright(panel, frame).gutter);
    }
    for (i, panel) in picture.panels.iter().enumerate() {
        let x = MARGIN + (i % columns) as f32 * (panel_width + gap);
        let top = y + (i / columns) as f32 * (height + 10.0);
        page.panel(panel, Rect { x, y: top, w: panel_width, h: height }, gutters[i % columns]);
    }
    y += picture.panels.len().div_ceil(columns) as f32 * (height + 10.0);
    for line in page.wrapped(&picture.footer, 11.0, false, width - 2.0 * MARGIN) {
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
        self.shapes.push(Shape::Text { text, x, y, size, bold, colour, anchor, upright: false, halo: false });
    }

    /// The name of a mark.
    fn name(&mut self, text: &str, (x, y): (f32, f32), anchor: Anchor) {
        let (text, size, bold, colour) = (text.to_owned(), 11.0, false, FAINT);
        self.shapes.push(Shape::Text { text, x, y, size, bold, colour, anchor, upright: false, halo: true });
    }

    fn rule(&mut self, points: [(f32, f32); 2], colour: Rgb, width: f32, dash: &'static [f32]) {
        self.shapes.push(Shape::Line { points: points.to_vec(), colour, width, dash, clip: None });
    }

    fn wrapped(&self, text: &str, size: f32, bold: bool, width: f32) -> Vec<String> {
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

    /// One entry a label and colour over all panels; its lower edge.
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
                    self.shapes.push(Shape::Diamonds { points, colour: FAINT, radius: DIAMOND, clip });
                }
            } else {
                if curve.stroke != Stroke::Dots {
                    self.rule(line, curve.colour, 3.0, DASHES[curve.dash % DASHES.len()]);
                }
                if curve.stroke != Stroke::Line {
                    self.shapes.push(Shape::Dots { points, colour: curve.colour, radius: 4.0, clip });
                }
            }
            self.text(&curve.label, (x + 26.0, y), 13.0, false, INK, Anchor::Start);
            x += needed;
        }
        y + 14.0
    }

    /// What is known of a panel from its vertical axis.
    fn upright(&self, panel: &Panel, frame: Rect) -> Upright {
        let top = frame.y + if panel.title.is_empty() { 8.0 } else { 32.0 };
        let bottom = frame.y + frame.h - if panel.x.label.is_empty() { 24.0 } else { 40.0 };
        let ys = panel.curves.iter().flat_map(|c| c.points.iter().map(|p| p.1));
        let across = panel.marks.iter().filter_map(|m| match m {
            Mark::Across { y, .. } => Some(*y),
            Mark::Upright { .. } => None,
        });
        // A low panel has its ticks nearer to each other, rather than one alone.
        let count = ((bottom - top) / 30.0).max(((bottom - top) / 20.0).min(5.0)) as usize;
        let axis = Settled::new(&panel.y, ys.chain(across), count, true);
        let widest = axis.ticks.iter().map(|(_, t)| self.font(false).width(t, 11.0)).fold(0.0, f32::max);
        Upright { top, bottom, axis, gutter: widest + if panel.y.label.is_empty() { 8.0 } else { 26.0 } }
    }

    /// Draws a panel whose ticks have `gutter` pixels left of the plot.
    fn panel(&mut self, panel: &Panel, frame: Rect, gutter: f32) {
        if *panel == Panel::default() {
            return;
        }
        if !panel.title.is_empty() {
            self.text(&panel.title, (frame.x, frame.y + 20.0), 13.0, true, INK, Anchor::Start);
        }
        let Upright { top, bottom, axis: y_axis, .. } = self.upright(panel, frame);
        let left = frame.x + gutter;
        let plot = Rect { x: left, y: top, w: frame.x + frame.w - left - 6.0, h: bottom - top };
        if plot.w < 20.0 || plot.h < 20.0 {
            return;
        }
        let xs = panel.curves.iter().flat_map(|c| c.points.iter().map(|p| p.0));
        let names = panel.x.names.iter().chain(panel.x.ticks.iter().map(|(_, name)| name));
        let name = names.map(|name| self.font(false).width(name, 11.0) + 12.0).fold(0.0, f32::max);
        // Steps of 1, 2, 5 are further apart than what is written there, steps of a linear axis need not be.
        let plain = if panel.x.scale == Scale::Log { 45.0 } else { 80.0 };
        let each = if name > 0.0 { name } else { plain };
        let x_axis = Settled::new(&panel.x, xs, (plot.w / each) as usize, false);
        let at_x = |v: f64| plot.x + plot.w * x_axis.place(v) as f32;
        let at_y = |v: f64| plot.y + plot.h * (1.0 - y_axis.place(v) as f32);

        for (v, label) in &y_axis.ticks {
            let y = at_y(*v);
            self.rule([(plot.x, y), (plot.x + plot.w, y)], GRID, 1.0, &[]);
            self.text(label, (plot.x - 6.0, y + 4.0), 11.0, false, FAINT, Anchor::End);
        }
        for (v, label) in &x_axis.ticks {
            let x = at_x(*v);
            self.rule([(x, plot.y), (x, plot.y + plot.h)], GRID, 1.0, &[]);
            self.text(label, (x, plot.y + plot.h + 15.0), 11.0, false, FAINT, Anchor::Middle);
        }
        let (foot, right) = (plot.y + plot.h, plot.x + plot.w);
        self.rule([(plot.x, foot), (right, foot)], MARK, 1.0, &[]);
        if !panel.x.label.is_empty() {
            let at = (plot.x + plot.w / 2.0, foot + 32.0);
            self.text(&panel.x.label, at, 11.5, false, FAINT, Anchor::Middle);
        }
        if !panel.y.label.is_empty() {
            let (text, x, y) = (panel.y.label.clone(), frame.x + 10.0, plot.y + plot.h / 2.0);
            let (size, bold, colour, anchor) = (11.5, false, FAINT, Anchor::Middle);
            self.shapes.push(Shape::Text {
                text,
                x,
                y,
                size,
                bold,
                colour,
                anchor,
                upright: true,
                halo: false,
            });
        }
        // What others measured lies below as a band, and on top as a diamond.
        for stroke in [Some(Stroke::Band), None, Some(Stroke::Hollow)] {
            let own = |c: &&Curve| stroke.map_or(!is_reference(c), |s| c.stroke == s);
            for curve in panel.curves.iter().filter(own) {
                self.curve(curve, plot, &at_x, &at_y);
            }
        }
        let drawn: Vec<(f32, f32)> =
            panel.curves.iter().flat_map(|c| covered(c, plot, &at_x, &at_y)).collect();
        let mut names: Vec<Rect> = Vec::new();
        for mark in &panel.marks {
            let (label, places) = match mark {
                Mark::Across { y, label } if (0.0..=1.0).contains(&y_axis.place(*y)) => {
                    let y = at_y(*y);
                    self.rule([(plot.x, y), (right, y)], MARK, 1.2, DASHES[1]);
                    let ends = [
                        (right - 4.0, Anchor::End),
                        (plot.x + 4.0, Anchor::Start),
                        (plot.x + plot.w / 2.0, Anchor::Middle),
                        (plot.x + plot.w / 4.0, Anchor::Middle),
                        (plot.x + plot.w * 0.75, Anchor::Middle),
                    ];
                    let beside = |(x, anchor)| [((x, y - 4.0), anchor), ((x, y + 14.0), anchor)];
                    (label, ends.into_iter().flat_map(beside).collect::<Vec<_>>())
                }
                Mark::Upright { x, label } if (0.0..=1.0).contains(&x_axis.place(*x)) => {
                    let x = at_x(*x);
                    self.rule([(x, plot.y), (x, foot)], MARK, 1.2, DASHES[1]);
                    let heights = [plot.y + 11.0, foot - 6.0, plot.y + plot.h / 2.0];
                    let beside = |y| [((x + 4.0, y), Anchor::Start), ((x - 4.0, y), Anchor::End)];
                    (label, heights.into_iter().flat_map(beside).collect())
                }
                _ => continue,
            };
            let width = self.font(false).width(label, 11.0);
            if let Some((at, anchor, room)) = free_place(&places, width, plot, &drawn, &names) {
                names.push(room);
                self.name(label, at, anchor);
            }
        }
    }

    fn curve(&mut self, curve: &Curve, plot: Rect, at_x: &dyn Fn(f64) -> f32, at_y: &dyn Fn(f64) -> f32) {
        // What lies far outside is drawn just outside: rasterisers dislike huge coordinates.
        let near = |(x, y): (f32, f32)| {
            (
                x.clamp(plot.x - 2000.0, plot.x + plot.w + 2000.0),
                y.clamp(plot.y - 2000.0, plot.y + plot.h + 2000.0),
            )
        };
        let placed = curve.points.iter().map(|&(x, y)| (at_x(x), at_y(y)));
        let placed: Vec<Option<(f32, f32)>> =
            placed.map(|p| (p.0.is_finite() && p.1.is_finite()).then(|| near(p))).collect();
        let around = |out: f32| Rect {
            x: plot.x - out,
            y: plot.y - out,
            w: plot.w + 2.0 * out,
            h: plot.h + 2.0 * out,
        };
        let is_line = !matches!(curve.stroke, Stroke::Dots | Stroke::Hollow);
        let (colour, width) = match curve.stroke {
            Stroke::Band => (pale(curve.colour), BAND),
            _ => (curve.colour, 1.7),
        };
        if is_line {
            let dash = DASHES[curve.dash % DASHES.len()];
            // Half of a band along an edge of the plot would be lost.
            let out = if curve.stroke == Stroke::Band { BAND / 2.0 } else { 0.0 };
            for run in placed.split(Option::is_none).filter(|r| r.len() > 1) {
                let points = run.iter().copied().flatten().collect();
                self.shapes.push(Shape::Line { points, colour, width, dash, clip: Some(around(out)) });
            }
        }
        let points: Vec<(f32, f32)> = placed.into_iter().flatten().collect();
        match curve.stroke {
            Stroke::Dots => self.shapes.push(Shape::Dots { points, colour, radius: 2.6, clip: around(5.0) }),
            Stroke::DottedLine => {
                self.shapes.push(Shape::Dots { points, colour, radius: 3.6, clip: around(5.0) });
            }
            Stroke::Hollow => {
                let clip = around(DIAMOND + 2.0);
                self.shapes.push(Shape::Diamonds { points, colour, radius: DIAMOND, clip });
            }
            Stroke::Line | Stroke::Band => {}
        }
    }
}

/// Whether a curve is what others are held against.
fn is_reference(curve: &Curve) -> bool {
    matches!(curve.stroke, Stroke::Hollow | Stroke::Band)
}

/// As if seen through two thirds of white.
fn pale(colour: Rgb) -> Rgb {
    colour.map(|c| 255 - (255 - c) / 3)
}

/// A panel's top and bottom, its vertical axis, and the room of its ticks.
struct Upright {
    top: f32,
    bottom: f32,
    axis: Settled,
    gutter: f32,
}

/// Points of a curve as it is drawn, no further apart than a letter is wide.
fn covered(
    curve: &Curve,
    plot: Rect,
    at_x: &dyn Fn(f64) -> f32,
    at_y: &dyn Fn(f64) -> f32,
) -> Vec<(f32, f32)> {
    let inside = |p: &(f32, f32)| {
        (plot.x..=plot.x + plot.w).contains(&p.0) && (plot.y..=plot.y + plot.h).contains(&p.1)
    };
    let placed: Vec<(f32, f32)> = curve.points.iter().map(|&(x, y)| (at_x(x), at_y(y))).collect();
    let mut all: Vec<(f32, f32)> = placed.iter().filter(|p| inside(p)).copied().collect();
    if matches!(curve.stroke, Stroke::Dots | Stroke::Hollow) {
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

/// Of places for a name that is `width` wide the first that hides the least of what is drawn, and its room. A name that would lie on
/// another goes elsewhere.
fn free_place(
    places: &[((f32, f32), Anchor)],
    width: f32,
    plot: Rect,
    drawn: &[(f32, f32)],
    names: &[Rect],
) -> Option<((f32, f32), Anchor, Rect)> {
    let room = |(x, y): (f32, f32), anchor| {
        let left = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2.0,
            Anchor::End => x - width,
        };
        Rect { x: left - 2.0, y: y - 10.0, w: width + 4.0, h: 13.0 }
    };
    let hides = |room: &Rect| {
        let within = |p: &&(f32, f32)| {
            (room.x..=room.x + room.w).contains(&p.0) && (room.y..=room.y + room.h).contains(&p.1)
        };
        let meets = |other: &&Rect| {
            room.x < other.x + other.w
                && other.x < room.x + room.w
                && room.y < other.y + other.h
                && other.y < room.y + room.h
        };
        // Outside it would lie on ticks and titles.
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

    /// Where the name of the mark is, and where the curve's points are.
    fn placed(points: Vec<(f64, f64)>) -> ((f32, f32), Vec<(f32, f32)>) {
        let panel = Panel {
            x: Axis::linear("").from_to(0.0, 10.0),
            y: Axis::linear("").from_to(0.0, 10.0),
            curves: vec![Curve::line("", [1, 2, 3], points)],
            marks: vec![Mark::Across { y: 5.0, label: "limit".into() }],
            ..Panel::default()
        };
        let drawing = lay_out(&Picture { panels: vec![panel], ..Picture::default() });
        let name = drawing.shapes.iter().find_map(|shape| match shape {
            Shape::Text { text, x, y, .. } if text == "limit" => Some((*x, *y)),
            _ => None,
        });
        let line = drawing.shapes.iter().find_map(|shape| match shape {
            Shape::Line { points, colour: [1, 2, 3], .. } => Some(points.clone()),
            _ => None,
        });
        (name.unwrap(), line.unwrap())
    }

    #[test]
    fn a_name_hides_no_points() {
        // Along the mark's right half, then along its left, above and below it.
        let (free, _) = placed(vec![(0.0, 1.0), (10.0, 1.0)]);
        let (right, line) = placed(vec![(5.0, 5.3), (10.0, 5.3)]);
        assert!(line.iter().all(|p| p.0 > 300.0));
        assert_eq!(free.0, right.0, "below the line, where nothing is");
        assert!(right.1 > free.1);
        let zigzag: Vec<(f64, f64)> =
            (0..=60).map(|i| (9.0 + f64::from(i) / 60.0, if i % 2 == 0 { 4.0 } else { 6.0 })).collect();
        let (left, _) = placed(zigzag);
        assert!(left.0 < 200.0, "{left:?}");
    }

    #[test]
    fn what_others_measured_is_one_entry_and_lies_below_as_a_band_and_on_top_as_diamonds() {
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
        let told = |wanted: &str| {
            let is = |shape: &&Shape| matches!(shape, Shape::Text { text, .. } if text == wanted);
            drawing.shapes.iter().filter(is).count()
        };
        assert_eq!((told("published"), told("a"), told("b")), (1, 1, 1));
        let place = |is: fn(&Shape) -> bool| drawing.shapes.iter().rposition(is).unwrap();
        let band = place(|s| matches!(s, Shape::Line { width: BAND, .. }));
        let diamonds = place(|s| matches!(s, Shape::Diamonds { .. }));
        let lines = place(|s| matches!(s, Shape::Line { colour: [0, 0, 200], .. }));
        assert!(band < lines && lines < diamonds, "{band} {lines} {diamonds}");
    }

    #[test]
    fn panels_below_each_other_begin_at_the_same_place() {
        let panel = |top: f64| Panel {
            x: Axis::linear("seconds").from_to(0.0, 1.0),
            y: Axis::linear("ms").from_to(0.0, top),
            curves: vec![Curve::line("", [1, 2, 3], [(0.0, 0.0), (1.0, top)])],
            ..Panel::default()
        };
        let drawing = lay_out(&Picture { panels: vec![panel(1.0), panel(5e5)], ..Picture::default() });
        let starts: Vec<f32> = drawing
            .shapes
            .iter()
            .filter_map(|shape| match shape {
                Shape::Line { points, colour: [1, 2, 3], .. } => Some(points[0].0),
                _ => None,
            })
            .collect();
        assert_eq!(starts.len(), 2);
        assert!((starts[0] - starts[1]).abs() < 0.01, "{starts:?}");
    }
}
