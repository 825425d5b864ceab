//! One colour per controller, the same in every table, picture and page.
//!
//! The hues are those of Okabe and Ito, which stay distinct with any kind of colour vision; those
//! for a dark background are lighter where the originals would have too little contrast.

/// A colour for light and dark backgrounds (sRGB), and the nearest of the sixteen terminal colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Colour {
    /// On a light background.
    pub light: [u8; 3],
    /// On a dark background.
    pub dark: [u8; 3],
    /// Number of the terminal colour.
    pub terminal: u8,
}

impl Colour {
    const fn new(light: u32, dark: u32, terminal: u8) -> Self {
        Colour { light: bytes(light), dark: bytes(dark), terminal }
    }

    /// `#rrggbb` on a light background.
    pub fn light_hex(self) -> String {
        hex(self.light)
    }

    /// `#rrggbb` on a dark background.
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
const PURPLE: Colour = Colour::new(0x82247b, 0xc77fc4, 13);
const SKY: Colour = Colour::new(0x3f9fd0, 0x8fd3ff, 14);
const ORANGE: Colour = Colour::new(0xe0a000, 0xffe07a, 11);
const BROWN: Colour = Colour::new(0x7a4f1d, 0xc49a6c, 3);
/// Distinct from [`BLUE`] and the others also with colour blindness.
const INK: Colour = Colour::new(0x22303c, 0xf2f2f2, 14);
const GREY: Colour = Colour::new(0x5f6670, 0x7f8790, 7);

/// Controllers loaded into the kernel have the colour of their algorithm, except BBR v1, which is
/// compared with the kernel's own.
const KNOWN: &[(&str, Colour)] = &[
    ("bbr", BLUE),
    ("bbr1", BLUE),
    ("fp_bbr1", BROWN),
    ("bbr3", INK),
    ("fp_bbr3", INK),
    ("cubic", VERMILION),
    ("reno", GREEN),
    ("newreno", GREEN),
    ("hybla", PURPLE),
    ("fp_hybla", PURPLE),
    ("bbr2", ORANGE),
    ("fixed", GREY),
];

/// Flows over QUIC stacks by the ends of their names: fullpipe's controllers in a stack, and the
/// stack's own.
const OVER_QUIC: &[(&str, Colour)] =
    &[("@noq", ORANGE), ("@quinn", SKY), ("noq/", BROWN), ("quinn/", PURPLE)];

/// For controllers without a colour of their own.
const OTHERS: [Colour; 3] = [ORANGE, BROWN, SKY];

/// The colour of the controller `cc`; several controllers joined by `+` are grey.
pub fn controller_colour(cc: &str) -> Colour {
    if let Some((_, colour)) = KNOWN.iter().find(|(name, _)| *name == cc) {
        return *colour;
    }
    if cc.contains('+') {
        return GREY;
    }
    let over_quic = |(end, _): &&(&str, Colour)| cc.ends_with(end) || cc.starts_with(end);
    if let Some((_, colour)) = OVER_QUIC.iter().find(over_quic) {
        return *colour;
    }
    // FNV-1a; any fixed function of the name would do.
    let hash = cc.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    OTHERS[hash as usize % OTHERS.len()]
}

/// Maximum number of lines of one colour that differ in their dashes.
pub const DASHES: usize = 4;

/// Colour and dash pattern of line number `nth` of `of` lines with the colour of `cc`. Up to
/// [`DASHES`] lines differ in their dashes; more have shades from dark to light.
pub fn style(cc: &str, nth: usize, of: usize) -> (Colour, usize) {
    let colour = controller_colour(cc);
    if of <= DASHES {
        return (colour, nth);
    }
    let share = nth.min(of - 1) as f64 / (of - 1) as f64;
    // All shades differ from the background.
    let light = at_lightness(colour.light, 16.0 + 58.0 * share);
    let dark = at_lightness(colour.dark, 94.0 - 54.0 * share);
    (Colour { light, dark, ..colour }, 0)
}

/// The colour mixed with black or white until its lightness (CIELAB's L*, 0 to 100) is `wanted`.
fn at_lightness(rgb: [u8; 3], wanted: f64) -> [u8; 3] {
    let with = if lightness(rgb) > wanted { 0.0 } else { 255.0 };
    let mixed = |part: f64| rgb.map(|c| (f64::from(c) + (with - f64::from(c)) * part).round() as u8);
    let (mut less, mut more) = (0.0, 1.0);
    for _ in 0..12 {
        let part = f64::midpoint(less, more);
        if (lightness(mixed(part)) > wanted) == (with == 0.0) { less = part } else { more = part }
    }
    mixed(less)
}

/// L* of a colour in sRGB (D65).
fn lightness(rgb: [u8; 3]) -> f64 {
    let [r, g, b] = linear(rgb);
    let y = 0.2126 * r + 0.7152 * g + 0.0722 * b;
    116.0 * if y > 0.008_856 { y.cbrt() } else { 7.787 * y + 16.0 / 116.0 } - 16.0
}

fn linear(rgb: [u8; 3]) -> [f64; 3] {
    rgb.map(|c| match f64::from(c) / 255.0 {
        c if c <= 0.040_45 => c / 12.92,
        c => ((c + 0.055) / 1.055).powf(2.4),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controllers_of_the_race_have_colours_of_their_own() {
        let in_lab = ["bbr", "cubic", "fp_bbr3", "fp_bbr1", "fp_hybla"];
        for race in [["bbr", "cubic", "hybla", "reno", "bbr3"], in_lab] {
            let race = race.map(|cc| controller_colour(cc).light);
            for (i, a) in race.iter().enumerate() {
                assert!(race[i + 1..].iter().all(|b| b != a));
            }
        }
    }

    #[test]
    fn a_controller_has_another_colour_over_each_transport() {
        let race = ["bbr3", "bbr3@noq", "bbr3@quinn", "noq/bbr3", "quinn/cubic", "cubic"];
        let race = race.map(|cc| controller_colour(cc).light);
        for (i, a) in race.iter().enumerate() {
            assert!(race[i + 1..].iter().all(|b| b != a), "{a:?} twice");
        }
    }

    #[test]
    fn an_unknown_controller_has_a_colour_that_stays() {
        assert_eq!(controller_colour("westwood"), controller_colour("westwood"));
        assert_eq!(controller_colour("bbr+cubic"), GREY);
        assert_eq!(BLUE.light_hex(), "#0072b2");
    }

    /// What an eye without green cones sees of a colour: Machado, Oliveira and Fernandes, *A
    /// physiologically-based model for simulation of color vision deficiency*, 2009, severity
    /// 1, in linear sRGB.
    fn without_green_cones(rgb: [u8; 3]) -> [f64; 3] {
        const SEEN: [[f64; 3]; 3] = [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ];
        SEEN.map(|row| row.iter().zip(linear(rgb)).map(|(m, c)| m * c).sum::<f64>().clamp(0.0, 1.0))
    }

    /// Distance of two colours in CIELAB (D65), to an eye without green cones: about 2 is just
    /// seen.
    fn apart(a: [u8; 3], b: [u8; 3]) -> f64 {
        let lab = |rgb: [u8; 3]| {
            let [r, g, b] = without_green_cones(rgb);
            let root = |t: f64| if t > 0.008_856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
            let x = root((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
            let y = root(0.2126 * r + 0.7152 * g + 0.0722 * b);
            let z = root((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
            [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
        };
        let (a, b) = (lab(a), lab(b));
        a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn ten_lines_of_one_controller_are_ten_colours() {
        for cc in ["bbr", "bbr3", "cubic", "hybla", "reno", "fixed", "a+b"] {
            let looks: Vec<Colour> = (0..10).map(|nth| style(cc, nth, 10).0).collect();
            for (i, a) in looks.iter().enumerate() {
                for b in &looks[i + 1..] {
                    assert!(
                        apart(a.light, b.light) > 4.0 && apart(a.dark, b.dark) > 4.0,
                        "{cc}: {a:?} {b:?}"
                    );
                }
                assert!(
                    apart(a.light, [255; 3]) > 20.0 && apart(a.dark, [0x12, 0x17, 0x1d]) > 20.0,
                    "{cc}: {a:?}"
                );
                assert_eq!(style(cc, i, 10).1, 0, "without dashes");
            }
            assert_eq!(style(cc, 3, 4), (controller_colour(cc), 3));
        }
    }

    #[test]
    fn all_controllers_are_distinguishable_without_green_cones() {
        let mut near = Vec::new();
        let known = ["bbr", "bbr3", "cubic", "reno", "hybla", "fp_bbr1", "bbr2", "fixed"];
        // And what a controller without a colour of its own may have.
        let known: Vec<(&str, Colour)> =
            known.iter().map(|cc| (*cc, controller_colour(cc))).chain([("another", SKY)]).collect();
        for (name, ground) in [
            ("light", (|c| c.light) as fn(Colour) -> [u8; 3]),
            ("dark", (|c| c.dark) as fn(Colour) -> [u8; 3]),
        ] {
            for (i, (a, first)) in known.iter().enumerate() {
                for (b, second) in &known[i + 1..] {
                    near.push((apart(ground(*first), ground(*second)), name, *a, *b));
                }
            }
        }
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        // About 2 is just seen beside each other; lines apart from each other need more.
        assert!(near[0].0 > 15.0, "{:?}", &near[..12]);
    }

    #[test]
    fn bbr_and_bbr3_are_two_colours_also_without_green_cones() {
        let both = |ground: fn(Colour) -> [u8; 3]| {
            let bbr3 = ground(controller_colour("bbr3"));
            // BBR's and BBR v3's own distance was 18 while both were blue.
            assert!(apart(ground(controller_colour("bbr")), bbr3) > 35.0);
            for other in ["cubic", "reno", "hybla", "fp_bbr1"] {
                let apart = apart(ground(controller_colour(other)), bbr3);
                assert!(apart > 20.0, "{other}: {apart}");
            }
        };
        both(|colour| colour.light);
        both(|colour| colour.dark);
    }
}
