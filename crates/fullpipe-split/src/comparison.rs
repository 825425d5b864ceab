//! Scales of comparison.

use serde::Serialize;

/// How values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Comparison {
    /// By ratio: values above zero, as natural logarithms.
    Ratio,
    /// By difference: values between zero and one, such as whether something failed.
    Difference,
}

impl Comparison {
    /// The comparison that fits these values, if any.
    pub(crate) fn for_values(values: impl Iterator<Item = f64> + Clone) -> Option<Comparison> {
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

    /// Bucket width of histograms: 1 %, or 0.1 points.
    pub(crate) fn bucket(self) -> f64 {
        match self {
            Comparison::Ratio => 0.01,
            Comparison::Difference => 0.001,
        }
    }

    /// Effect size for which intervals are narrowest: 10 %, or 1 point.
    pub(crate) fn scale(self) -> f64 {
        match self {
            Comparison::Ratio => 0.1,
            Comparison::Difference => 0.01,
        }
    }

    /// Formats a level.
    pub fn level(self, value: f64) -> String {
        match self {
            Comparison::Ratio => format!("{:.4}", value.exp()),
            Comparison::Difference => format!("{:.2} %", value * 100.0),
        }
    }

    /// Formats a difference: percent, or percentage points.
    pub fn difference(self, value: f64) -> String {
        // Avoid a negative zero.
        let rounded = |x: f64, steps: f64| (x * steps).round() / steps + 0.0;
        match self {
            _ if value == f64::INFINITY => "unbounded".to_owned(),
            _ if value == f64::NEG_INFINITY => "unbounded".to_owned(),
            // A factor is easier to read than a large percentage.
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
    fn the_comparison_follows_from_the_values() {
        let comparison = |values: &[f64]| Comparison::for_values(values.iter().copied());
        assert_eq!(comparison(&[1.0, 0.5]), Some(Comparison::Ratio));
        assert_eq!(comparison(&[0.0, 1.0]), Some(Comparison::Difference));
        assert_eq!(comparison(&[0.0, 2.0]), None);
        assert_eq!(Comparison::Ratio.difference(2.0_f64.ln()), "+100.0 %");
        assert_eq!(Comparison::Ratio.difference(1.1_f64.ln()), "+10.0 %");
        assert_eq!(Comparison::Ratio.difference(20_f64.ln()), "×20");
        assert_eq!(Comparison::Ratio.difference(f64::NEG_INFINITY), "unbounded");
        assert_eq!(Comparison::Difference.difference(-0.005), "-0.50 pt");
        assert_eq!(Comparison::Difference.difference(-0.000_01), "+0.00 pt");
    }
}
