//! Gains in the kernel's unit of 1/256 (`BBR_UNIT`).

/// A dimensionless factor in units of 1/256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Gain(u32);

impl Gain {
    /// One.
    pub const UNIT: Gain = Gain(256);

    /// `n`/256.
    pub const fn from_256ths(n: u32) -> Self {
        Gain(n)
    }

    /// In units of 1/256.
    pub const fn as_256ths(self) -> u32 {
        self.0
    }

    /// As a floating-point number, for plots and tables.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 256.0
    }

    /// `value` times this gain, rounded down; saturates.
    pub const fn apply(self, value: u64) -> u64 {
        let v = value as u128 * self.0 as u128 / 256;
        if v > u64::MAX as u128 { u64::MAX } else { v as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gain_of_one_is_the_identity() {
        assert_eq!(Gain::UNIT.apply(u64::MAX), u64::MAX);
        assert_eq!(Gain::from_256ths(320).apply(1000), 1250);
    }
}
