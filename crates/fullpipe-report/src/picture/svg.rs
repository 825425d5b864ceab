//! Shapes as SVG.

use super::font::Font;
use super::layout::{Anchor, DIAMOND_RIM, Drawing, Rect, Rgb, Shape};
use std::collections::BTreeSet;
use std::fmt::Write;
use ttf_parser::{GlyphId, OutlineBuilder};

pub(super) fn render(drawing: &Drawing) -> String {
    let (w, h) = (drawing.width.ceil(), drawing.height.ceil());
    let fonts = [Font::new(false), Font::new(true)];
    let mut body = String::new();
    let mut glyphs: BTreeSet<(usize, u16)> = BTreeSet::new();
    let mut clips: Vec<Rect> = Vec::new();
    for shape in &drawing.shapes {
        match shape {
            Shape::Line { points, colour, width, dash, clip } => {
                let _ =
                    write!(body, "<path fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"", hex(*colour));
                if !dash.is_empty() {
                    let dash: Vec<String> = dash.iter().map(f32::to_string).collect();
                    let _ = write!(body, " stroke-dasharray=\"{}\"", dash.join(" "));
                }
                if let Some(clip) = clip {
                    let _ = write!(body, " clip-path=\"url(#c{})\"", clip_id(&mut clips, *clip));
                }
                body += " stroke-linejoin=\"round\" d=\"";
                for (i, (x, y)) in points.iter().enumerate() {
                    let _ = write!(body, "{}{} {}", if i == 0 { 'M' } else { 'L' }, tenth(*x), tenth(*y));
                }
                body += "\"/>\n";
            }
            Shape::Dots { points, colour, radius, clip } => {
                let id = clip_id(&mut clips, *clip);
                let _ = writeln!(body, "<g fill=\"{}\" clip-path=\"url(#c{id})\">", hex(*colour));
                for (x, y) in points {
                    let _ =
                        write!(body, "<circle cx=\"{}\" cy=\"{}\" r=\"{radius}\"/>", tenth(*x), tenth(*y));
                }
                body += "</g>\n";
            }
            Shape::Diamonds { points, colour, radius: r, clip } => {
                let id = clip_id(&mut clips, *clip);
                let _ = write!(
                    body,
                    "<path fill=\"#fff\" stroke=\"{}\" stroke-width=\"{DIAMOND_RIM}\" clip-path=\"url(#c{id})\" d=\"",
                    hex(*colour)
                );
                for (x, y) in points {
                    let _ = write!(body, "M{} {}l{r} {r} -{r} {r} -{r} -{r}z", tenth(*x), tenth(*y - r));
                }
                body += "\"/>\n";
            }
            Shape::Text { text, x, y, size, bold, colour, anchor, upright, halo } => {
                let weight = usize::from(*bold);
                let font = &fonts[weight];
                let (placed, length) = font.glyphs(text);
                let scale = size / font.units();
                let shift = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => -(length as f32) / 2.0,
                    Anchor::End => -(length as f32),
                };
                let turn = if *upright { " rotate(-90)" } else { "" };
                // The rim's width is in font units, like everything inside.
                let rim = (4.0 / scale).round();
                let rim = if *halo {
                    format!(
                        " stroke=\"#fff\" stroke-width=\"{rim}\" stroke-linejoin=\"round\" paint-order=\"stroke\""
                    )
                } else {
                    String::new()
                };
                let _ = write!(
                    body,
                    "<g role=\"img\" aria-label=\"{}\" fill=\"{}\"{rim} transform=\"translate({} {}){turn} scale({scale:.6} -{scale:.6}) translate({shift} 0)\">",
                    escaped(text),
                    hex(*colour),
                    tenth(*x),
                    tenth(*y),
                );
                for (glyph, at) in placed {
                    glyphs.insert((weight, glyph.0));
                    let _ = write!(body, "<use href=\"#g{weight}_{}\" x=\"{at}\"/>", glyph.0);
                }
                body += "</g>\n";
            }
        }
    }
    let mut defs = String::new();
    for (i, Rect { x, y, w, h }) in clips.iter().enumerate() {
        let _ = writeln!(
            defs,
            "<clipPath id=\"c{i}\"><rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"/></clipPath>"
        );
    }
    for (weight, glyph) in glyphs {
        let mut outline = Outline(String::new());
        fonts[weight].outline(GlyphId(glyph), &mut outline);
        let _ = writeln!(defs, "<path id=\"g{weight}_{glyph}\" d=\"{}\"/>", outline.0);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\">\n\
         <title>{}</title>\n<defs>\n{defs}</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n",
        escaped(&drawing.title)
    )
}

fn clip_id(clips: &mut Vec<Rect>, clip: Rect) -> usize {
    clips.iter().position(|c| *c == clip).unwrap_or_else(|| {
        clips.push(clip);
        clips.len() - 1
    })
}

fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// To a tenth of a pixel.
fn tenth(v: f32) -> f32 {
    (v * 10.0).round() / 10.0
}

/// Text of whatever origin as text in HTML or SVG, attributes included; control characters become spaces.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // Not allowed in XML, not shown in HTML.
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

struct Outline(String);

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        let _ = write!(self.0, "M{x} {y}");
    }
    fn line_to(&mut self, x: f32, y: f32) {
        let _ = write!(self.0, "L{x} {y}");
    }
    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let _ = write!(self.0, "Q{x1} {y1} {x} {y}");
    }
    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let _ = write!(self.0, "C{x1} {y1} {x2} {y2} {x} {y}");
    }
    fn close(&mut self) {
        self.0.push('Z');
    }
}
