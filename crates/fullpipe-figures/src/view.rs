//! Statistics and curves of recordings.

use crate::Runs;
use fullpipe_experiment::recording::{FlowRecording, Recording, Series, column};
use fullpipe_experiment::statistics;
use fullpipe_report::controller_colour;
use fullpipe_report::picture::{Axis, Curve, Panel, Stroke};

/// Mean; NaN without values.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Maximum; NaN without values.
pub(crate) fn max(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

/// Minimum; NaN without values.
pub(crate) fn min(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::min)
}

/// The `q`-quantile (nearest rank); NaN without values.
pub(crate) fn quantile(values: &[f64], q: f64) -> f64 {
    let mut finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    statistics::quantile(&mut finite, q).unwrap_or(f64::NAN)
}

/// Median; NaN without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Largest deviation of measured from published values, in percent; NaN if a value is missing, so
/// that no bound holds.
pub(crate) fn max_deviation_percent(measured: &[f64], published: &[f64]) -> f64 {
    assert_eq!(measured.len(), published.len());
    let deviations = measured.iter().zip(published).map(|(m, p)| (m / p - 1.0).abs() * 100.0);
    deviations.fold(0.0, |worst, one| if one.is_nan() || one > worst { one } else { worst })
}

/// The value of the point at this `x`; NaN without one.
pub(crate) fn value_at(points: &[(f64, f64)], x: f64) -> f64 {
    points.iter().find(|p| p.0 == x).map_or(f64::NAN, |p| p.1)
}

/// Least-squares fit of a line: slope, intercept and R².
pub(crate) fn fit(points: &[(f64, f64)]) -> (f64, f64, f64) {
    let n = points.len() as f64;
    let mx = points.iter().map(|p| p.0).sum::<f64>() / n;
    let my = points.iter().map(|p| p.1).sum::<f64>() / n;
    let sxy: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    let sxx: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let slope = sxy / sxx;
    let intercept = my - slope * mx;
    let residual: f64 = points.iter().map(|p| (p.1 - intercept - slope * p.0).powi(2)).sum();
    let total: f64 = points.iter().map(|p| (p.1 - my).powi(2)).sum();
    (slope, intercept, 1.0 - residual / total)
}

/// A quantity over time: a column of the recordings in a unit.
#[derive(Clone, Copy)]
pub(crate) struct Quantity {
    column: &'static str,
    unit: &'static str,
    /// Factor from the unit of the column.
    scale: f64,
}

/// Round-trip time.
pub(crate) const RTT: Quantity = Quantity::new(column::RTT_MS, "ms", 1.0);
/// Data in flight.
pub(crate) const INFLIGHT: Quantity = Quantity::new(column::INFLIGHT_BYTES, "kB", 1e-3);

impl Quantity {
    pub(crate) const fn new(column: &'static str, unit: &'static str, scale: f64) -> Self {
        Quantity { column, unit, scale }
    }

    /// The curve of a flow between two times.
    pub(crate) fn curve(self, flow: &FlowRecording, (from, to): (f64, f64)) -> Curve {
        let points = flow.series.points(self.column, from, to).into_iter();
        Curve::line(
            flow.cc.as_str(),
            controller_colour(&flow.cc).light,
            points.map(|(t, v)| (t, v * self.scale)),
        )
    }

    /// The curves of the first flow of each run.
    pub(crate) fn curves(self, runs: &Runs, during: (f64, f64)) -> impl Iterator<Item = Curve> {
        runs.runs.iter().map(move |(_, run)| self.curve(&run.flows[0], during))
    }

    /// A panel with these curves.
    pub(crate) fn panel(
        self,
        title: impl Into<String>,
        (from, to): (f64, f64),
        curves: impl IntoIterator<Item = Curve>,
    ) -> Panel {
        Panel {
            title: title.into(),
            x: Axis::linear("seconds").with_range(from, to),
            y: Axis::linear(self.unit),
            curves: curves.into_iter().collect(),
            ..Panel::default()
        }
    }
}

/// Measured points as dots connected by lines.
pub(crate) fn dotted(cc: &str, points: Vec<(f64, f64)>) -> Curve {
    Curve { stroke: Stroke::DottedLine, ..Curve::line(cc, controller_colour(cc).light, points) }
}

/// The series of the fullest forward link.
pub(crate) fn bottleneck(run: &Recording) -> Option<&Series> {
    let most_queued = |series: &Series| max(series.get(column::QUEUE_BYTES).unwrap_or(&[]));
    run.links
        .iter()
        .filter(|l| l.label.starts_with("forward"))
        .map(|l| &l.series)
        .max_by(|a, b| most_queued(a).total_cmp(&most_queued(b)))
}

/// Label of published values in the legend.
pub(crate) const PUBLISHED: &str = "published";

/// Published values of `cc`.
pub(crate) fn published(cc: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Curve {
    Curve { stroke: Stroke::Hollow, ..Curve::line(PUBLISHED, controller_colour(cc).light, points) }
}

/// Published values of `cc` as a line.
pub(crate) fn published_line(cc: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Curve {
    Curve { stroke: Stroke::Band, ..published(cc, points) }
}

/// Factor from bit/s to Mbit/s.
pub(crate) const MBIT: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_value_deviates_beyond_any_bound() {
        assert!((max_deviation_percent(&[1.1, 1.7], &[1.0, 2.0]) - 15.0).abs() < 1e-9);
        for measured in [[f64::NAN, 2.0], [1.0, f64::NAN], [f64::NAN; 2]] {
            assert!(max_deviation_percent(&measured, &[1.0, 2.0]).is_nan(), "{measured:?}");
        }
    }

    #[test]
    fn line_is_fitted_exactly() {
        let (slope, intercept, r2) = fit(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]);
        assert!((slope - 2.0).abs() < 1e-12 && (intercept - 1.0).abs() < 1e-12 && (r2 - 1.0).abs() < 1e-12);
    }
}
