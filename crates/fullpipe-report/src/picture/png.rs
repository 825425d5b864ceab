//! Shapes as PNG.

use super::font::Font;
use super::layout::{Anchor, DIAMOND_RIM, Drawing, Rect, Rgb, Shape};
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
    let fonts = [Font::new(false), Font::new(true)];
    let zoom = Transform::from_scale(scale, scale);
    let mut masks: Vec<(Rect, Mask)> = Vec::new();
    for shape in &drawing.shapes {
        match shape {
            Shape::Line { points, colour, width, dash, clip } => {
                let mut path = PathBuilder::new();
                for (i, (x, y)) in points.iter().enumerate() {
                    if i == 0 { path.move_to(*x, *y) } else { path.line_to(*x, *y) }
                }
                let Some(path) = path.finish() else { continue };
                let stroke = Stroke {
                    width: *width,
                    line_cap: LineCap::Butt,
                    line_join: LineJoin::Round,
                    dash: StrokeDash::new(dash.to_vec(), 0.0),
                    ..Stroke::default()
                };
                let mask = clip.and_then(|c| mask(&mut masks, c, (w, h), zoom));
                pixels.stroke_path(&path, &paint(*colour), &stroke, zoom, mask.map(|i| &masks[i].1));
            }
            Shape::Dots { points, colour, radius, clip } => {
                let mask = mask(&mut masks, *clip, (w, h), zoom);
                let mut path = PathBuilder::new();
                for (x, y) in points {
                    path.push_circle(*x, *y, *radius);
                }
                if let Some(path) = path.finish() {
                    let mask = mask.map(|i| &masks[i].1);
                    pixels.fill_path(&path, &paint(*colour), FillRule::Winding, zoom, mask);
                }
            }
            Shape::Diamonds { points, colour, radius: r, clip } => {
                let mask = mask(&mut masks, *clip, (w, h), zoom);
                let mut path = PathBuilder::new();
                for (x, y) in points {
                    path.move_to(*x, y - r);
                    path.line_to(x + r, *y);
                    path.line_to(*x, y + r);
                    path.line_to(x - r, *y);
                    path.close();
                }
                if let Some(path) = path.finish() {
                    let mask = mask.map(|i| &masks[i].1);
                    let rim = Stroke { width: DIAMOND_RIM, ..Stroke::default() };
                    pixels.fill_path(&path, &paint([255; 3]), FillRule::Winding, zoom, mask);
                    pixels.stroke_path(&path, &paint(*colour), &rim, zoom, mask);
                }
            }
            Shape::Text { text, x, y, size, bold, colour, anchor, upright, halo } => {
                let font = &fonts[usize::from(*bold)];
                let (glyphs, length) = font.glyphs(text);
                let shift = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => -(length as f32) / 2.0,
                    Anchor::End => -(length as f32),
                };
                let em = size / font.units();
                let turn = if *upright { Transform::from_rotate(-90.0) } else { Transform::identity() };
                let place = Transform::from_translate(shift, 0.0)
                    .post_scale(em, -em)
                    .post_concat(turn)
                    .post_translate(*x, *y)
                    .post_concat(zoom);
                let mut outline = Outline { path: PathBuilder::new(), x: 0.0 };
                for (glyph, at) in glyphs {
                    outline.x = at as f32;
                    font.outline(glyph, &mut outline);
                }
                if let Some(path) = outline.path.finish() {
                    if *halo {
                        let rim = Stroke { width: 4.0 / em, line_join: LineJoin::Round, ..Stroke::default() };
                        pixels.stroke_path(&path, &paint([255; 3]), &rim, place, None);
                    }
                    pixels.fill_path(&path, &paint(*colour), FillRule::Winding, place, None);
                }
            }
        }
    }
    pixels.encode_png().map_err(io::Error::other)
}

fn paint([r, g, b]: Rgb) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color_rgba8(r, g, b, 255);
    paint
}

/// The index of the mask for `clip`, made when first needed.
fn mask(masks: &mut Vec<(Rect, Mask)>, clip: Rect, (w, h): (u32, u32), zoom: Transform) -> Option<usize> {
    if let Some(i) = masks.iter().position(|(c, _)| *c == clip) {
        return Some(i);
    }
    let mut mask = Mask::new(w, h)?;
    let rect = tiny_skia::Rect::from_xywh(clip.x, clip.y, clip.w, clip.h)?;
    mask.fill_path(&PathBuilder::from_rect(rect), FillRule::Winding, true, zoom);
    masks.push((clip, mask));
    Some(masks.len() - 1)
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
