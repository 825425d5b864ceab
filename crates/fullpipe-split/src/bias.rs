//! How far the difference between two arms that meet at one bottleneck is from the difference of whole roll-outs.

use serde::Serialize;

/// What connections of one controller came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Level {
    /// Geometric mean of their goodput, bit/s.
    pub goodput_bps: f64,
    /// Mean of their median RTT, ms.
    pub rtt_ms: f64,
    /// Packets sent again of packets sent, all together.
    pub retransmitted: f64,
}

impl Level {
    /// Of connections, each with its goodput in bit/s, its RTT in ms, and the packets it sent again and sent. One that moved
    /// nothing counts as a bit a second. None of none.
    pub fn of(connections: &[(f64, f64, u64, u64)]) -> Option<Level> {
        let n = connections.len() as f64;
        if connections.is_empty() {
            return None;
        }
        let (again, sent) = connections.iter().fold((0, 0), |(again, sent), c| (again + c.2, sent + c.3));
        Some(Level {
            goodput_bps: (connections.iter().map(|c| c.0.max(1.0).ln()).sum::<f64>() / n).exp(),
            rtt_ms: connections.iter().map(|c| c.1).sum::<f64>() / n,
            retransmitted: again as f64 / sent.max(1) as f64,
        })
    }
}

impl Level {
    /// Of repeats, each with as many connections: geometric where connections are compared so.
    fn mean(levels: impl Iterator<Item = Level> + Clone) -> Level {
        let n = levels.clone().count().max(1) as f64;
        let of = |figure: fn(Level) -> f64| levels.clone().map(figure).sum::<f64>() / n;
        Level {
            goodput_bps: of(|level| level.goodput_bps.ln()).exp(),
            rtt_ms: of(|level| level.rtt_ms),
            retransmitted: of(|level| level.retransmitted),
        }
    }
}

/// The standard error of a mean; none of fewer than two values.
fn error(values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let n = values.clone().count() as f64;
    if n < 2.0 {
        return None;
    }
    let mean = values.clone().sum::<f64>() / n;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Some((variance / n).sqrt())
}

/// A split, and what it would report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The share of connections in the arm.
    pub share: f64,
    /// The arm.
    pub arm: Level,
    /// The control.
    pub control: Level,
    /// The arm's goodput over the control's.
    pub goodput_ratio: f64,
    /// That over the ratio of whole roll-outs: 1 where the split says what a roll-out will bring.
    pub bias: f64,
    /// The standard error of the bias as a share of it, from its spread over repeats; none of a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bias_error: Option<f64>,
}

/// Splits of all shares beside whole roll-outs, on one path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bias {
    /// All connections in the arm.
    pub all_arm: Level,
    /// All in the control.
    pub all_control: Level,
    /// Goodput of the one over the other: what a roll-out brings.
    pub goodput_ratio: f64,
    /// By share.
    pub points: Vec<Point>,
}

impl Bias {
    /// From whole roll-outs, and shares with the levels of arm and control.
    pub fn new(all_arm: Level, all_control: Level, points: &[(f64, Level, Level)]) -> Self {
        let whole = all_arm.goodput_bps / all_control.goodput_bps;
        let point = |&(share, arm, control): &(f64, Level, Level)| {
            let goodput_ratio = arm.goodput_bps / control.goodput_bps;
            Point { share, arm, control, goodput_ratio, bias: goodput_ratio / whole, bias_error: None }
        };
        Bias { all_arm, all_control, goodput_ratio: whole, points: points.iter().map(point).collect() }
    }

    /// Repeats of the same splits with other seeds, as one. None of none, or of repeats of other shares.
    pub fn of_repeats(repeats: &[Bias]) -> Option<Bias> {
        let first = repeats.first()?;
        let shares = |bias: &Bias| bias.points.iter().map(|point| point.share).collect::<Vec<_>>();
        if repeats.iter().any(|bias| shares(bias) != shares(first)) {
            return None;
        }
        let mean = |of: &dyn Fn(&Bias) -> Level| Level::mean(repeats.iter().map(of));
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
            point.bias_error = error(repeats.iter().map(|bias| bias.points[i].bias.ln()));
        }
        Some(all)
    }

    /// The share whose split misleads most.
    pub fn worst(&self) -> Option<&Point> {
        self.points.iter().max_by(|a, b| a.bias.ln().abs().total_cmp(&b.bias.ln().abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_that_a_roll_out_does_not_bring_is_bias() {
        let level = |goodput_bps| Level { goodput_bps, rtt_ms: 40.0, retransmitted: 0.0 };
        // A bottleneck of 100 is all used whoever uses it; together one has three times as much as the other.
        let bias = Bias::new(
            level(10.0),
            level(10.0),
            &[(0.5, level(15.0), level(5.0)), (0.9, level(10.7), level(9.0))],
        );
        assert_eq!((bias.goodput_ratio, bias.points[0].bias), (1.0, 3.0));
        assert_eq!(bias.worst().unwrap().share, 0.5);
    }

    #[test]
    fn repeats_are_one_with_an_error() {
        let level = |goodput_bps| Level { goodput_bps, rtt_ms: 40.0, retransmitted: 0.01 };
        let bias = |arm| Bias::new(level(10.0), level(10.0), &[(0.5, level(arm), level(5.0))]);
        let all = Bias::of_repeats(&[bias(20.0), bias(5.0)]).unwrap();
        assert!((all.points[0].bias - 2.0).abs() < 1e-12 && (all.goodput_ratio - 1.0).abs() < 1e-12);
        // Logarithms of 4 and of 1: their mean's standard error is half of what they are apart.
        assert!((all.points[0].bias_error.unwrap() - 2.0_f64.ln()).abs() < 1e-12);
        assert_eq!(Bias::of_repeats(&[bias(20.0)]).unwrap().points[0].bias_error, None);
        assert_eq!(Bias::of_repeats(&[]), None);
        let other = Bias::new(level(10.0), level(10.0), &[]);
        assert_eq!(Bias::of_repeats(&[bias(20.0), other]), None);
    }

    #[test]
    fn levels_are_geometric_means_and_shares_of_all() {
        let level = Level::of(&[(4e6, 40.0, 1, 100), (1e6, 60.0, 0, 100)]).unwrap();
        assert!((level.goodput_bps - 2e6).abs() < 1e-3);
        assert_eq!((level.rtt_ms, level.retransmitted), (50.0, 0.005));
        assert_eq!(Level::of(&[]), None);
    }
}
