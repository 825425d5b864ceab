//! Renders shapes as PNG.

use super::font::Font;
use super::layout::{DIAMOND_RIM, Drawing, Line, Points, Rect, Rgb, Shape, Text};
use std::io;
use tiny_skia::{
    FillRule, LineCap, LineJoin, Mask, Paint, PathBuilder, Pixmap, Stroke, StrokeDash, Transform,
};
use ttf_parser::OutlineBuilder;

pub(super) fn render(drawing: &Drawing, scale: f32) -> io::Result<Vec<u8>> {
    let (w, h) = ((drawing.width * scale).ceil() as u32, (drawing.height * scale).ceil() as u32);
    let too_large = || io::Error::other(format!("a picture of {w} by {h} pixels is too large"));
    let mut pixels = Pixmap::new(w, h).ok_or_else(too_large)?;
    pixels.fill(tiny_skia::Color::WHITE);
    let mut canvas = Canvas {
        pixels,
        fonts: [Font::new(false), Font::new(true)],
        zoom: Transform::from_scale(scale, scale),
        masks: Vec::new(),
    };
    for shape in &drawing.shapes {
        match shape {
            Shape::Line(line) => canvas.line(line),
            Shape::Dots(dots) => canvas.dots(dots),
            Shape::Diamonds(diamonds) => canvas.diamonds(diamonds),
            Shape::Text(text) => canvas.text(text),
        }
    }
    canvas.pixels.encode_png().map_err(io::Error::other)
}

struct Canvas {
    pixels: Pixmap,
    fonts: [Font; 2],
    zoom: Transform,
    /// Masks by clip rectangle.
    masks: Vec<(Rect, Mask)>,
}

impl Canvas {
    fn line(&mut self, Line { points, colour, width, dash, clip }: &Line) {
        let mut path = PathBuilder::new();
        for (i, (x, y)) in points.iter().enumerate() {
            if i == 0 { path.move_to(*x, *y) } else { path.line_to(*x, *y) }
        }
        let Some(path) = path.finish() else { return };
        let stroke = Stroke {
            width: *width,
            line_cap: LineCap::Butt,
            line_join: LineJoin::Round,
            dash: StrokeDash::new(dash.to_vec(), 0.0),
            ..Stroke::default()
        };
        let mask = clip.and_then(|clip| self.mask(clip)).map(|i| &self.masks[i].1);
        self.pixels.stroke_path(&path, &paint(*colour), &stroke, self.zoom, mask);
    }

    fn dots(&mut self, Points { points, colour, radius, clip }: &Points) {
        let mut path = PathBuilder::new();
        for (x, y) in points {
            path.push_circle(*x, *y, *radius);
        }
        let Some(path) = path.finish() else { return };
        let mask = self.mask(*clip).map(|i| &self.masks[i].1);
        self.pixels.fill_path(&path, &paint(*colour), FillRule::Winding, self.zoom, mask);
    }

    fn diamonds(&mut self, Points { points, colour, radius: r, clip }: &Points) {
        let mut path = PathBuilder::new();
        for (x, y) in points {
            path.move_to(*x, y - r);
            path.line_to(x + r, *y);
            path.line_to(*x, y + r);
            path.line_to(x - r, *y);
            path.close();
        }
        let Some(path) = path.finish() else { return };
        let mask = self.mask(*clip).map(|i| &self.masks[i].1);
        let rim = Stroke { width: DIAMOND_RIM, ..Stroke::default() };
        self.pixels.fill_path(&path, &paint([255; 3]), FillRule::Winding, self.zoom, mask);
        self.pixels.stroke_path(&path, &paint(*colour), &rim, self.zoom, mask);
    }

    fn text(&mut self, Text { text, x, y, size, bold, colour, anchor, upright, halo }: &Text) {
        let font = &self.fonts[usize::from(*bold)];
        let (glyphs, length) = font.glyphs(text);
        let em = size / font.units();
        let turn = if *upright { Transform::from_rotate(-90.0) } else { Transform::identity() };
        let place = Transform::from_translate(anchor.shift(length as f32), 0.0)
            .post_scale(em, -em)
            .post_concat(turn)
            .post_translate(*x, *y)
            .post_concat(self.zoom);
        let mut outline = Outline { path: PathBuilder::new(), x: 0.0 };
        for (glyph, at) in glyphs {
            outline.x = at as f32;
            font.outline(glyph, &mut outline);
        }
        let Some(path) = outline.path.finish() else { return };
        if *halo {
            let rim = Stroke { width: 4.0 / em, line_join: LineJoin::Round, ..Stroke::default() };
            self.pixels.stroke_path(&path, &paint([255; 3]), &rim, place, None);
        }
        self.pixels.fill_path(&path, &paint(*colour), FillRule::Winding, place, None);
    }

    /// Index of the mask for `clip`, created on first use.
    fn mask(&mut self, clip: Rect) -> Option<usize> {
        if let Some(i) = self.masks.iter().position(|(c, _)| *c == clip) {
            return Some(i);
        }
        let mut mask = Mask::new(self.pixels.width(), self.pixels.height())?;
        let rect = tiny_skia::Rect::from_xywh(clip.x, clip.y, clip.w, clip.h)?;
        mask.fill_path(&PathBuilder::from_rect(rect), FillRule::Winding, true, self.zoom);
        self.masks.push((clip, mask));
        Some(self.masks.len() - 1)
    }
}

fn paint([r, g, b]: Rgb) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color_rgba8(r, g, b, 255);
    paint
}

struct Outline {
    path: PathBuilder,
    x: f32,
}

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        self.path.move_to(x + self.x, y);
    }
    fn line_to(&mut self, x: f32, y: f32) {
        self.path.line_to(x + self.x, y);
    }
    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.path.quad_to(x1 + self.x, y1, x + self.x, y);
    }
    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.path.cubic_to(x1 + self.x, y1, x2 + self.x, y2, x + self.x, y);
    }
    fn close(&mut self) {
        self.path.close();
    }
}
