//! Looking at recordings: quantiles, fits, curves.

use crate::Runs;
use fullpipe_experiment::recording::{FlowRecording, Recording, Series, column};
use fullpipe_experiment::statistics;
use fullpipe_report::controller_colour;
use fullpipe_report::picture::{Axis, Curve, Panel, Stroke};

/// Mean, NaN of nothing.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The largest, NaN of nothing.
pub(crate) fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

/// The smallest, NaN of nothing.
pub(crate) fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::min)
}

/// The `q`-quantile (nearest rank), NaN of nothing.
pub(crate) fn quantile(values: &[f64], q: f64) -> f64 {
    let mut finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    statistics::quantile(&mut finite, q).unwrap_or(f64::NAN)
}

/// Median, NaN of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Least-squares line through points: slope, intercept and R².
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

/// What a panel shows over time: a column of the recordings, in a unit.
#[derive(Clone, Copy)]
pub(crate) struct Quantity {
    column: &'static str,
    unit: &'static str,
    /// How many of the unit one of the column's is.
    scale: f64,
}

/// The round-trip time.
pub(crate) const RTT: Quantity = Quantity::new(column::RTT_MS, "ms", 1.0);
/// What is in flight.
pub(crate) const INFLIGHT: Quantity = Quantity::new(column::INFLIGHT_BYTES, "kB", 1e-3);

impl Quantity {
    pub(crate) const fn new(column: &'static str, unit: &'static str, scale: f64) -> Self {
        Quantity { column, unit, scale }
    }

    /// Of a flow, between two times.
    pub(crate) fn of(self, flow: &FlowRecording, (from, to): (f64, f64)) -> Curve {
        let points = flow.series.points(self.column, from, to).into_iter();
        Curve::line(
            flow.cc.as_str(),
            controller_colour(&flow.cc).light,
            points.map(|(t, v)| (t, v * self.scale)),
        )
    }

    /// Of each run's first flow.
    pub(crate) fn of_each(self, runs: &Runs, during: (f64, f64)) -> impl Iterator<Item = Curve> {
        runs.runs.iter().map(move |(_, run)| self.of(&run.flows[0], during))
    }

    /// The panel that these curves make.
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

/// Few measured points as dots joined by lines.
pub(crate) fn dotted(cc: &str, points: Vec<(f64, f64)>) -> Curve {
    Curve { stroke: Stroke::DottedLine, ..Curve::line(cc, controller_colour(cc).light, points) }
}

/// The fullest forward link's series.
pub(crate) fn bottleneck(run: &Recording) -> Option<&Series> {
    let most_queued = |series: &Series| most(series.get(column::QUEUE_BYTES).unwrap_or(&[]));
    run.links
        .iter()
        .filter(|l| l.label.starts_with("forward"))
        .map(|l| &l.series)
        .max_by(|a, b| most_queued(a).total_cmp(&most_queued(b)))
}

/// What the legend calls that which was published.
pub(crate) const PUBLISHED: &str = "published";

/// Published values of `cc`.
pub(crate) fn published(cc: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Curve {
    Curve { stroke: Stroke::Hollow, ..Curve::line(PUBLISHED, controller_colour(cc).light, points) }
}

/// What was published of `cc` as a line through these points.
pub(crate) fn published_line(cc: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Curve {
    Curve { stroke: Stroke::Band, ..published(cc, points) }
}

/// Mbit/s of bit/s.
pub(crate) const MBIT: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_fitted_exactly() {
        let (slope, intercept, r2) = fit(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]);
        assert!((slope - 2.0).abs() < 1e-12 && (intercept - 1.0).abs() < 1e-12 && (r2 - 1.0).abs() < 1e-12);
    }
}
