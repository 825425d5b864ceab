//! Range and ticks of an axis.

use super::{Axis, Scale};

/// An axis with a fixed range and ticks.
pub(super) struct FittedAxis {
    pub(super) from: f64,
    pub(super) to: f64,
    scale: Scale,
    pub(super) ticks: Vec<(f64, String)>,
}

impl FittedAxis {
    /// Fits an axis to its own range or that of `values`, with about `count` ticks. With
    /// `from_zero` a linear axis without negative values starts at 0.
    pub(super) fn new(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        count: usize,
        from_zero: bool,
    ) -> FittedAxis {
        let log = axis.scale == Scale::Log;
        let usable = |v: &f64| v.is_finite() && (!log || *v > 0.0);
        let (mut from, mut to) = values
            .filter(usable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        if from > to {
            (from, to) = if log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if let Some((a, b)) = axis.range.filter(|(a, b)| usable(a) && usable(b) && a < b) {
            (from, to) = (a, b);
        } else if log {
            // Show at least one decade.
            if to / from < 10.0 {
                (from, to) = (from.log10().floor(), to.log10().ceil());
                (from, to) = (10f64.powf(from), 10f64.powf(if to > from { to } else { from + 1.0 }));
            }
        } else if from_zero {
            if from > 0.0 {
                from = 0.0;
            }
            to += (to - from) * 0.05;
        }
        if from >= to {
            to = from + if from == 0.0 { 1.0 } else { from.abs() };
        }
        let ticks = if !axis.ticks.is_empty() {
            let stride = axis.ticks.len().div_ceil(count.max(1));
            axis.ticks.iter().step_by(stride).cloned().collect()
        } else if !axis.names.is_empty() {
            named_ticks(&axis.names, count)
        } else if log {
            log_ticks(from, to, count)
        } else {
            linear_ticks(from, to, count)
        };
        FittedAxis { from, to, scale: axis.scale, ticks }
    }

    /// The position of `v` between `from` (0) and `to` (1); NaN if it cannot be drawn.
    pub(super) fn position(&self, v: f64) -> f64 {
        match self.scale {
            Scale::Linear => (v - self.from) / (self.to - self.from),
            Scale::Log if v > 0.0 => (v / self.from).ln() / (self.to / self.from).ln(),
            Scale::Log => f64::NAN,
        }
    }
}

/// Every name, or every nth if not all fit.
fn named_ticks(names: &[String], count: usize) -> Vec<(f64, String)> {
    let stride = names.len().div_ceil(count.max(1));
    names.iter().enumerate().step_by(stride).map(|(i, name)| (i as f64, name.clone())).collect()
}

/// Multiples of 1, 2 or 5 times a power of ten.
fn linear_ticks(from: f64, to: f64, count: usize) -> Vec<(f64, String)> {
    let rough = (to - from) / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough * 0.999);
    let step = step.unwrap_or(power * 10.0);
    let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
    let first = (from / step - 1e-9).ceil();
    (0..)
        .map(|i| (first + f64::from(i)) * step)
        .take_while(|v| *v <= to + step * 1e-9)
        .take(50)
        .map(|v| (v, format!("{v:.decimals$}")))
        .collect()
}

/// Powers of ten, with multiples of 2 and 5, or 3, where they fit. Less than a decade has linear
/// ticks.
fn log_ticks(from: f64, to: f64, count: usize) -> Vec<(f64, String)> {
    let (low, high) = (from.log10().floor() as i32, to.log10().ceil() as i32);
    let ticks_with = |factors: &[f64], stride: usize| -> Vec<f64> {
        let all = (low..=high).step_by(stride).flat_map(|p| factors.iter().map(move |f| f * 10f64.powi(p)));
        all.filter(|v| *v >= from * 0.999 && *v <= to * 1.001).collect()
    };
    let decades = ticks_with(&[1.0], 1);
    if decades.len() < 2 && to / from < 10.0 && ticks_with(&[1.0, 2.0, 5.0], 1).len() < 3 {
        return linear_ticks(from, to, count.min(5)).into_iter().map(|(v, _)| (v, tick_label(v))).collect();
    }
    let fitting = [&[1.0, 2.0, 5.0][..], &[1.0, 3.0]].into_iter().map(|factors| ticks_with(factors, 1));
    let ticks = fitting.into_iter().find(|ticks| ticks.len() <= count.max(2));
    let stride = ((high - low) as usize).div_ceil(count.max(1)).max(1);
    ticks.unwrap_or_else(|| ticks_with(&[1.0], stride)).into_iter().map(|v| (v, tick_label(v))).collect()
}

/// A number without exponent if it is short, otherwise as `10^9`.
fn tick_label(v: f64) -> String {
    if (1e-5..1e6).contains(&v) {
        let text = format!("{v:.6}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{v:e}").replace('e', "×10^").replacen("1×", "", 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
        FittedAxis::new(axis, values.iter().copied(), 5, true).ticks.into_iter().map(|t| t.1).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(labels(&Axis::linear(""), &[3.0, 92.0]), ["0", "20", "40", "60", "80"]);
        assert_eq!(labels(&Axis::linear(""), &[0.0, 0.4]), ["0.0", "0.1", "0.2", "0.3", "0.4"]);
        assert_eq!(labels(&Axis::log(""), &[0.01, 90.0]), ["0.01", "0.1", "1", "10"]);
        assert_eq!(labels(&Axis::log(""), &[20.0, 70.0]), ["10", "20", "50", "100"]);
        assert_eq!(labels(&Axis::log("").with_range(0.9, 35.0), &[]), ["1", "2", "5", "10", "20"]);
        assert_eq!(labels(&Axis::log("").with_range(41.0, 83.0), &[]), ["50", "60", "70", "80"]);
        assert_eq!(labels(&Axis::percent_of("paths"), &[]), ["0", "25", "50", "75", "100"]);
        assert_eq!(
            labels(&Axis::linear("").with_range(100.0, 200.0), &[]),
            ["100", "120", "140", "160", "180", "200"]
        );
    }

    #[test]
    fn degenerate_values_have_ticks() {
        for values in [vec![], vec![0.0], vec![7.0], vec![f64::NAN, f64::INFINITY], vec![1e-300, 1e300]] {
            for axis in [Axis::linear(""), Axis::log("")] {
                let axis = FittedAxis::new(&axis, values.iter().copied(), 5, true);
                assert!(axis.from < axis.to && axis.ticks.len() < 60, "{values:?}");
            }
        }
    }
}
