//! One colour a controller, the same in every table, picture and page.
//!
//! The hues are those of Okabe and Ito, told apart with any kind of colour vision; those for dark
//! ground are lighter where the originals would sink.

/// A colour on light and on dark ground (sRGB), and the nearest of a terminal's sixteen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Colour {
    /// On light ground.
    pub light: [u8; 3],
    /// On dark ground.
    pub dark: [u8; 3],
    /// Its number among the sixteen.
    pub(crate) terminal: u8,
}

impl Colour {
    const fn new(light: u32, dark: u32, terminal: u8) -> Self {
        Colour { light: bytes(light), dark: bytes(dark), terminal }
    }

    /// `#rrggbb` on light ground.
    pub fn light_hex(self) -> String {
        hex(self.light)
    }

    /// `#rrggbb` on dark ground.
    pub fn dark_hex(self) -> String {
        hex(self.dark)
    }
}

const fn bytes(rgb: u32) -> [u8; 3] {
    [(rgb >> 16) as u8, (rgb >> 8) as u8, rgb as u8]
}

fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

const BLUE: Colour = Colour::new(0x0072b2, 0x4aa8e8, 12);
const VERMILION: Colour = Colour::new(0xd55e00, 0xff7f2a, 9);
const GREEN: Colour = Colour::new(0x009e73, 0x2cc79a, 10);
const PURPLE: Colour = Colour::new(0xb8558c, 0xe08fbd, 13);
const SKY: Colour = Colour::new(0x3f9fd0, 0x8fd3ff, 14);
const ORANGE: Colour = Colour::new(0xc98a00, 0xf0b429, 11);
const BROWN: Colour = Colour::new(0x7a4f1d, 0xc49a6c, 3);
const GREY: Colour = Colour::new(0x5f6670, 0xa8b0bb, 7);

/// A controller that is loaded into the kernel has the colour of its algorithm; BBR v1 races against the
/// kernel's own.
const KNOWN: &[(&str, Colour)] = &[
    ("bbr", BLUE),
    ("bbr1", BLUE),
    ("fp_bbr1", BROWN),
    ("bbr3", SKY),
    ("fp_bbr3", SKY),
    ("cubic", VERMILION),
    ("reno", GREEN),
    ("newreno", GREEN),
    ("hybla", PURPLE),
    ("fp_hybla", PURPLE),
    ("bbr2", ORANGE),
    ("fixed", GREY),
];

/// For controllers without a colour of their own.
const OTHERS: [Colour; 3] = [ORANGE, BROWN, SKY];

/// The colour of the controller `cc`; several controllers joined by `+` are grey.
pub fn colour_of(cc: &str) -> Colour {
    if let Some((_, colour)) = KNOWN.iter().find(|(name, _)| *name == cc) {
        return *colour;
    }
    if cc.contains('+') {
        return GREY;
    }
    // FNV-1a: any fixed function of the name will do.
    let hash = cc.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    OTHERS[hash as usize % OTHERS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controllers_of_the_race_have_colours_of_their_own() {
        let in_lab = ["bbr", "cubic", "fp_bbr3", "fp_bbr1", "fp_hybla"];
        for race in [["bbr", "cubic", "hybla", "reno", "bbr3"], in_lab] {
            let race = race.map(|cc| colour_of(cc).light);
            for (i, a) in race.iter().enumerate() {
                assert!(race[i + 1..].iter().all(|b| b != a));
            }
        }
    }

    #[test]
    fn an_unknown_controller_has_a_colour_that_stays() {
        assert_eq!(colour_of("westwood"), colour_of("westwood"));
        assert_eq!(colour_of("bbr+cubic"), GREY);
        assert_eq!(BLUE.light_hex(), "#0072b2");
    }
}
