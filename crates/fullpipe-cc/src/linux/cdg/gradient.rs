//! The growth of the delay from round to round.

use super::MAX_WINDOW;

/// Extremes of round-trip times in µs, or of their growth; both 0 if not measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Rtts {
    pub min: i32,
    pub max: i32,
}

impl Rtts {
    pub fn is_known(self) -> bool {
        self != Rtts::default()
    }

    /// Adds a round-trip time, which is not zero.
    pub fn add(&mut self, rtt: i32) {
        self.min = if self.min == 0 { rtt } else { self.min.min(rtt) };
        self.max = self.max.max(rtt);
    }

    /// The growth since `prior`.
    pub fn since(self, prior: Rtts) -> Rtts {
        Rtts { min: self.min.wrapping_sub(prior.min), max: self.max.wrapping_sub(prior.max) }
    }

    /// A 64th of `n`, rounded to the nearest.
    pub fn rounded_64(self, n: i32) -> i32 {
        (if n > 0 { n.wrapping_add(32) } else { n.wrapping_sub(32) }) / 64
    }
}

/// The last gradients and their sums.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gradient {
    /// A power of two, at most [`MAX_WINDOW`].
    window: u32,
    gradients: [Rtts; MAX_WINDOW as usize],
    sums: Rtts,
    next: usize,
    full: bool,
}

impl Gradient {
    pub fn new(window: u32) -> Self {
        Gradient {
            window: window.clamp(1, MAX_WINDOW).next_power_of_two(),
            gradients: [Rtts::default(); MAX_WINDOW as usize],
            sums: Rtts::default(),
            next: 0,
            full: false,
        }
    }

    /// Adds the gradient of a round. Returns the sums and the one that counts, extrapolated while
    /// the window is not full. A window of one has no sums.
    pub fn add(&mut self, new: Rtts) -> (Rtts, i32) {
        let window = self.window as i32;
        let sums = if window > 1 {
            let old = core::mem::replace(&mut self.gradients[self.next], new);
            let change = new.since(old);
            self.sums.min = self.sums.min.wrapping_add(change.min);
            self.sums.max = self.sums.max.wrapping_add(change.max);
            self.next = (self.next + 1) & (self.window as usize - 1);
            self.sums
        } else {
            new
        };
        let mut gradient = if sums.min > 0 { sums.min } else { sums.max };
        if !self.full {
            if self.next == 0 {
                self.full = true;
            } else {
                gradient = gradient.wrapping_mul(window) / self.next as i32;
            }
        }
        (sums, gradient)
    }
}

/// e^(−x · 10⁻⁶) of 2³² − 1, by a table of e^(−2ⁿ · 256 · 10⁻⁶) in 1/65536 (`nexp_u32`).
pub(super) fn negative_exponential(x: u32) -> u32 {
    const POWERS: [u32; 16] = [
        65518, 65501, 65468, 65401, 65267, 65001, 64470, 63422, 61378, 57484, 50423, 38795, 22965, 8047, 987,
        14,
    ];
    let mut bits = x >> 8;
    if bits > 0xffff {
        return 0;
    }
    // The first eight bits are linear.
    let mut result = u32::MAX - (x & 0xff) * (u32::MAX / 1_000_000);
    for power in POWERS {
        if bits == 0 {
            break;
        }
        let factor = if bits & 1 == 1 { power + 1 } else { 65536 };
        result = ((u64::from(result) * u64::from(factor)) >> 16) as u32;
        bits >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_exponential_is_within_a_thousandth() {
        for x in [0u32, 1, 255, 256, 1000, 50_000, 1_000_000, 3_000_000] {
            let exact = (-f64::from(x) * 1e-6).exp();
            let got = f64::from(negative_exponential(x)) / f64::from(u32::MAX);
            assert!((got - exact).abs() < 0.001, "{x}: {got}, {exact}");
        }
        assert_eq!(negative_exponential(u32::MAX), 0);
    }

    #[test]
    fn gradients_of_a_window_add_up_to_the_growth_over_it() {
        let mut gradient = Gradient::new(4);
        let mut last = 0;
        for step in [10, 20, 30, 40, 50, 60] {
            (_, last) = gradient.add(Rtts { min: step, max: step });
        }
        assert_eq!(last, 30 + 40 + 50 + 60);
    }
}
