//! Renders shapes as SVG.

use super::font::Font;
use super::layout::{DIAMOND_RIM, Drawing, Line, Points, Rect, Rgb, Shape, Text};
use std::collections::BTreeSet;
use std::fmt::Write;
use ttf_parser::{GlyphId, OutlineBuilder};

pub(super) fn render(drawing: &Drawing) -> String {
    let mut svg = Svg {
        body: String::new(),
        fonts: [Font::new(false), Font::new(true)],
        glyphs: BTreeSet::new(),
        clips: Vec::new(),
    };
    for shape in &drawing.shapes {
        match shape {
            Shape::Line(line) => svg.line(line),
            Shape::Dots(dots) => svg.dots(dots),
            Shape::Diamonds(diamonds) => svg.diamonds(diamonds),
            Shape::Text(text) => svg.text(text),
        }
    }
    let (w, h) = (drawing.width.ceil(), drawing.height.ceil());
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} \
         {h}\">\n<title>{}</title>\n<defs>\n{}</defs>\n<rect width=\"100%\" height=\"100%\" \
         fill=\"#fff\"/>\n{}</svg>\n",
        escape_html(&drawing.title),
        svg.definitions(),
        svg.body
    )
}

/// The body so far, and the definitions that it needs.
struct Svg {
    body: String,
    fonts: [Font; 2],
    /// Font and glyph number.
    glyphs: BTreeSet<(usize, u16)>,
    clips: Vec<Rect>,
}

impl Svg {
    fn line(&mut self, Line { points, colour, width, dash, clip }: &Line) {
        let clip = clip.map(|clip| self.clip(clip));
        let body = &mut self.body;
        let _ = write!(body, "<path fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"", hex(*colour));
        if !dash.is_empty() {
            let dash: Vec<String> = dash.iter().map(f32::to_string).collect();
            let _ = write!(body, " stroke-dasharray=\"{}\"", dash.join(" "));
        }
        if let Some(id) = clip {
            let _ = write!(body, " clip-path=\"url(#c{id})\"");
        }
        *body += " stroke-linejoin=\"round\" d=\"";
        for (i, (x, y)) in points.iter().enumerate() {
            let _ = write!(body, "{}{} {}", if i == 0 { 'M' } else { 'L' }, tenth(*x), tenth(*y));
        }
        *body += "\"/>\n";
    }

    fn dots(&mut self, Points { points, colour, radius, clip }: &Points) {
        let id = self.clip(*clip);
        let body = &mut self.body;
        let _ = writeln!(body, "<g fill=\"{}\" clip-path=\"url(#c{id})\">", hex(*colour));
        for (x, y) in points {
            let _ = write!(body, "<circle cx=\"{}\" cy=\"{}\" r=\"{radius}\"/>", tenth(*x), tenth(*y));
        }
        *body += "</g>\n";
    }

    fn diamonds(&mut self, Points { points, colour, radius: r, clip }: &Points) {
        let id = self.clip(*clip);
        let body = &mut self.body;
        let _ = write!(
            body,
            "<path fill=\"#fff\" stroke=\"{}\" stroke-width=\"{DIAMOND_RIM}\" clip-path=\"url(#c{id})\" d=\"",
            hex(*colour)
        );
        for (x, y) in points {
            let _ = write!(body, "M{} {}l{r} {r} -{r} {r} -{r} -{r}z", tenth(*x), tenth(*y - r));
        }
        *body += "\"/>\n";
    }

    fn text(&mut self, Text { text, x, y, size, bold, colour, anchor, upright, halo }: &Text) {
        let weight = usize::from(*bold);
        let font = &self.fonts[weight];
        let (placed, length) = font.glyphs(text);
        let scale = size / font.units();
        let shift = anchor.shift(length as f32);
        let turn = if *upright { " rotate(-90)" } else { "" };
        // The outline width is in font units, like everything inside.
        let rim = (4.0 / scale).round();
        let rim = if *halo {
            format!(
                " stroke=\"#fff\" stroke-width=\"{rim}\" stroke-linejoin=\"round\" paint-order=\"stroke\""
            )
        } else {
            String::new()
        };
        let body = &mut self.body;
        let _ = write!(
            body,
            "<g role=\"img\" aria-label=\"{}\" fill=\"{}\"{rim} transform=\"translate({} {}){turn} \
             scale({scale:.6} -{scale:.6}) translate({shift} 0)\">",
            escape_html(text),
            hex(*colour),
            tenth(*x),
            tenth(*y),
        );
        for (glyph, at) in placed {
            self.glyphs.insert((weight, glyph.0));
            let _ = write!(body, "<use href=\"#g{weight}_{}\" x=\"{at}\"/>", glyph.0);
        }
        *body += "</g>\n";
    }

    /// Number of the clip path for a rectangle.
    fn clip(&mut self, clip: Rect) -> usize {
        self.clips.iter().position(|c| *c == clip).unwrap_or_else(|| {
            self.clips.push(clip);
            self.clips.len() - 1
        })
    }

    /// The referenced clip paths and glyphs.
    fn definitions(&self) -> String {
        let mut defs = String::new();
        for (i, Rect { x, y, w, h }) in self.clips.iter().enumerate() {
            let _ = writeln!(
                defs,
                "<clipPath id=\"c{i}\"><rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"/></clipPath>"
            );
        }
        for (weight, glyph) in &self.glyphs {
            let mut outline = Outline(String::new());
            self.fonts[*weight].outline(GlyphId(*glyph), &mut outline);
            let _ = writeln!(defs, "<path id=\"g{weight}_{glyph}\" d=\"{}\"/>", outline.0);
        }
        defs
    }
}

fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Rounds to a tenth of a pixel.
fn tenth(v: f32) -> f32 {
    (v * 10.0).round() / 10.0
}

/// Escapes text for HTML and SVG, attributes included. Control characters become spaces.
pub fn escape_html(text: &str) -> String {
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
