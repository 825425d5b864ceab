//! The scale on which a figure is compared.

use serde::Serialize;

/// How a figure is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Comparison {
    /// All its values are above zero: as natural logarithms, so that differences are ratios.
    Ratio,
    /// All are between zero and one, such as whether something failed: as they are.
    Difference,
}

impl Comparison {
    /// What fits these values; none where neither does.
    pub(crate) fn of(values: impl Iterator<Item = f64> + Clone) -> Option<Comparison> {
        if values.clone().all(|value| value > 0.0) {
            Some(Comparison::Ratio)
        } else {
            values.clone().all(|value| (0.0..=1.0).contains(&value)).then_some(Comparison::Difference)
        }
    }

    pub(crate) fn scaled(self, value: f64) -> f64 {
        match self {
            Comparison::Ratio => value.ln(),
            Comparison::Difference => value,
        }
    }

    /// The width of a bucket of its histogram: 1 %, or a tenth of a point.
    pub(crate) fn bucket(self) -> f64 {
        match self {
            Comparison::Ratio => 0.01,
            Comparison::Difference => 0.001,
        }
    }

    /// The size of an effect that its intervals are narrowest for: 10 %, or a point.
    pub(crate) fn scale(self) -> f64 {
        match self {
            Comparison::Ratio => 0.1,
            Comparison::Difference => 0.01,
        }
    }

    /// A level as people read it.
    pub fn level(self, value: f64) -> String {
        match self {
            Comparison::Ratio => format!("{:.4}", value.exp()),
            Comparison::Difference => format!("{:.2} %", value * 100.0),
        }
    }

    /// A difference as people read it: percent, or percentage points.
    pub fn difference(self, value: f64) -> String {
        // What rounds to nothing has no sign.
        let rounded = |x: f64, steps: f64| (x * steps).round() / steps + 0.0;
        match self {
            _ if value == f64::INFINITY => "any more".to_owned(),
            _ if value == f64::NEG_INFINITY => "any less".to_owned(),
            // Tenfold and more is easier to grasp than percent.
            Comparison::Ratio if value >= 11_f64.ln() => format!("×{:.0}", value.exp()),
            Comparison::Ratio => format!("{:+.1} %", rounded((value.exp() - 1.0) * 100.0, 10.0)),
            Comparison::Difference => format!("{:+.2} pt", rounded(value * 100.0, 100.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_compared_as_its_values_allow() {
        let of = |values: &[f64]| Comparison::of(values.iter().copied());
        assert_eq!(of(&[1.0, 0.5]), Some(Comparison::Ratio));
        assert_eq!(of(&[0.0, 1.0]), Some(Comparison::Difference));
        assert_eq!(of(&[0.0, 2.0]), None);
        assert_eq!(Comparison::Ratio.difference(2.0_f64.ln()), "+100.0 %");
        assert_eq!(Comparison::Ratio.difference(1.1_f64.ln()), "+10.0 %");
        assert_eq!(Comparison::Ratio.difference(20_f64.ln()), "×20");
        assert_eq!(Comparison::Ratio.difference(f64::NEG_INFINITY), "any less");
        assert_eq!(Comparison::Difference.difference(-0.005), "-0.50 pt");
        assert_eq!(Comparison::Difference.difference(-0.000_01), "+0.00 pt");
    }
}
