//! Bias of an experiment whose arms share a bottleneck, relative to full roll-outs.

use serde::Serialize;

/// Performance of the connections of one controller.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Level {
    /// Geometric mean of their goodput, bit/s.
    pub goodput_bps: f64,
    /// Mean of their median RTT, ms.
    pub rtt_ms: f64,
    /// Retransmitted share of all packets sent.
    pub retransmitted: f64,
}

impl Level {
    /// From connections: goodput in bit/s, RTT in ms, packets retransmitted, packets sent. A
    /// connection without progress counts as 1 bit/s. `None` without connections.
    pub fn from_connections(connections: &[(f64, f64, u64, u64)]) -> Option<Level> {
        let n = connections.len() as f64;
        if connections.is_empty() {
            return None;
        }
        let (retransmitted, sent) =
            connections.iter().fold((0, 0), |(retransmitted, sent), c| (retransmitted + c.2, sent + c.3));
        Some(Level {
            goodput_bps: (connections.iter().map(|c| c.0.max(1.0).ln()).sum::<f64>() / n).exp(),
            rtt_ms: connections.iter().map(|c| c.1).sum::<f64>() / n,
            retransmitted: retransmitted as f64 / sent.max(1) as f64,
        })
    }
}

impl Level {
    /// The mean over repetitions with equal numbers of connections: geometric for goodput.
    fn mean(levels: impl Iterator<Item = Level> + Clone) -> Level {
        let n = levels.clone().count().max(1) as f64;
        let mean = |value: fn(Level) -> f64| levels.clone().map(value).sum::<f64>() / n;
        Level {
            goodput_bps: mean(|level| level.goodput_bps.ln()).exp(),
            rtt_ms: mean(|level| level.rtt_ms),
            retransmitted: mean(|level| level.retransmitted),
        }
    }
}

/// The standard error of a mean; `None` for fewer than two values.
fn standard_error(values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let n = values.clone().count() as f64;
    if n < 2.0 {
        return None;
    }
    let mean = values.clone().sum::<f64>() / n;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Some((variance / n).sqrt())
}

/// Simulated result of an experiment with one share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The share of connections in the arm.
    pub share: f64,
    /// The arm.
    pub arm: Level,
    /// The control.
    pub control: Level,
    /// Goodput ratio of the arm to the control.
    pub goodput_ratio: f64,
    /// This ratio relative to that of full roll-outs: 1 if the experiment predicts a roll-out
    /// correctly.
    pub bias: f64,
    /// Relative standard error of the bias over repetitions; `None` for a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bias_error: Option<f64>,
}

/// Experiments of several shares compared with full roll-outs, on one path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bias {
    /// All connections use the arm.
    pub all_arm: Level,
    /// All connections use the control.
    pub all_control: Level,
    /// Goodput ratio of the two: the effect of a roll-out.
    pub goodput_ratio: f64,
    /// By share.
    pub points: Vec<Point>,
}

impl Bias {
    /// From full roll-outs, and (share, arm, control) of experiments.
    pub fn new(all_arm: Level, all_control: Level, points: &[(f64, Level, Level)]) -> Self {
        let whole = all_arm.goodput_bps / all_control.goodput_bps;
        let point = |&(share, arm, control): &(f64, Level, Level)| {
            let goodput_ratio = arm.goodput_bps / control.goodput_bps;
            Point { share, arm, control, goodput_ratio, bias: goodput_ratio / whole, bias_error: None }
        };
        Bias { all_arm, all_control, goodput_ratio: whole, points: points.iter().map(point).collect() }
    }

    /// Combines repetitions with other seeds. `None` without repetitions, or if their shares
    /// differ.
    pub fn from_repeats(repeats: &[Bias]) -> Option<Bias> {
        let first = repeats.first()?;
        let shares = |bias: &Bias| bias.points.iter().map(|point| point.share).collect::<Vec<_>>();
        if repeats.iter().any(|bias| shares(bias) != shares(first)) {
            return None;
        }
        let mean = |level: &dyn Fn(&Bias) -> Level| Level::mean(repeats.iter().map(level));
        let points: Vec<_> = (0..first.points.len())
            .map(|i| {
                (
                    first.points[i].share,
                    mean(&|bias| bias.points[i].arm),
                    mean(&|bias| bias.points[i].control),
                )
            })
            .collect();
        let mut all = Bias::new(mean(&|bias| bias.all_arm), mean(&|bias| bias.all_control), &points);
        for (i, point) in all.points.iter_mut().enumerate() {
            point.bias_error = standard_error(repeats.iter().map(|bias| bias.points[i].bias.ln()));
        }
        Some(all)
    }

    /// The share with the largest bias.
    pub fn worst(&self) -> Option<&Point> {
        self.points.iter().max_by(|a, b| a.bias.ln().abs().total_cmp(&b.bias.ln().abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_absent_in_roll_outs_is_bias() {
        let level = |goodput_bps| Level { goodput_bps, rtt_ms: 40.0, retransmitted: 0.0 };
        // A bottleneck of 100 is fully used by either; when they share it, one gets three times as much.
        let bias = Bias::new(
            level(10.0),
            level(10.0),
            &[(0.5, level(15.0), level(5.0)), (0.9, level(10.7), level(9.0))],
        );
        assert_eq!((bias.goodput_ratio, bias.points[0].bias), (1.0, 3.0));
        assert_eq!(bias.worst().unwrap().share, 0.5);
    }

    #[test]
    fn repetitions_are_combined_with_an_error() {
        let level = |goodput_bps| Level { goodput_bps, rtt_ms: 40.0, retransmitted: 0.01 };
        let bias = |arm| Bias::new(level(10.0), level(10.0), &[(0.5, level(arm), level(5.0))]);
        let all = Bias::from_repeats(&[bias(20.0), bias(5.0)]).unwrap();
        assert!((all.points[0].bias - 2.0).abs() < 1e-12 && (all.goodput_ratio - 1.0).abs() < 1e-12);
        // Logarithms of 4 and 1: the standard error of their mean is half of their difference.
        assert!((all.points[0].bias_error.unwrap() - 2.0_f64.ln()).abs() < 1e-12);
        assert_eq!(Bias::from_repeats(&[bias(20.0)]).unwrap().points[0].bias_error, None);
        assert_eq!(Bias::from_repeats(&[]), None);
        let other = Bias::new(level(10.0), level(10.0), &[]);
        assert_eq!(Bias::from_repeats(&[bias(20.0), other]), None);
    }

    #[test]
    fn levels_use_geometric_means_and_total_shares() {
        let level = Level::from_connections(&[(4e6, 40.0, 1, 100), (1e6, 60.0, 0, 100)]).unwrap();
        assert!((level.goodput_bps - 2e6).abs() < 1e-3);
        assert_eq!((level.rtt_ms, level.retransmitted), (50.0, 0.005));
        assert_eq!(Level::from_connections(&[]), None);
    }
}
