//! Outlines and widths of the embedded font.

use ttf_parser::{Face, GlyphId, OutlineBuilder};

const REGULAR: &[u8] = include_bytes!("fonts/DejaVuSans-subset.ttf");
const BOLD: &[u8] = include_bytes!("fonts/DejaVuSans-Bold-subset.ttf");

/// One weight of the font.
pub(super) struct Font {
    face: Face<'static>,
}

impl Font {
    pub(super) fn new(bold: bool) -> Font {
        let face = Face::parse(if bold { BOLD } else { REGULAR }, 0).expect("the embedded font is valid");
        Font { face }
    }

    /// Font units per em.
    pub(super) fn units(&self) -> f32 {
        f32::from(self.face.units_per_em())
    }

    /// The glyphs of `text`, each with its distance from the start, and the total width, in font
    /// units. Characters that the font lacks become `?`.
    pub(super) fn glyphs(&self, text: &str) -> (Vec<(GlyphId, u32)>, u32) {
        let mut x = 0;
        let place = |c| {
            let glyph = self.face.glyph_index(c).or_else(|| self.face.glyph_index('?')).unwrap_or(GlyphId(0));
            let at = x;
            x += u32::from(self.face.glyph_hor_advance(glyph).unwrap_or(0));
            (glyph, at)
        };
        let glyphs = text.chars().map(place).collect();
        (glyphs, x)
    }

    /// Width of `text` at `size` pixels per em.
    pub(super) fn width(&self, text: &str, size: f32) -> f32 {
        self.glyphs(text).1 as f32 * size / self.units()
    }

    /// Draws the outline of `glyph` in font units, y upwards.
    pub(super) fn outline(&self, glyph: GlyphId, into: &mut dyn OutlineBuilder) {
        self.face.outline_glyph(glyph, into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_weights_have_every_character_that_plots_use() {
        let text = "The quick brown fox 0123456789 × – — · ≥ ≤ ° … → µ Δ ≈ % é ß ' \" ( ) [ ]";
        for font in [Font::new(false), Font::new(true)] {
            for c in text.chars() {
                assert!(font.face.glyph_index(c).is_some(), "{c}");
            }
            assert!(font.width("mm", 10.0) > font.width("ii", 10.0));
        }
    }

    #[test]
    fn missing_characters_become_question_marks() {
        let font = Font::new(false);
        assert_eq!(font.glyphs("漢").0, font.glyphs("?").0);
    }
}
